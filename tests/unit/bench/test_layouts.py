"""Which way pictures lie in memory: one table by framework, GPU and precision, and modes that take its place."""

from __future__ import annotations

import re

import pytest

from bench import rules
from bench.contract import Setup
from bench.frameworks.pictures import layouts
from runner.catalog.frameworks import load_frameworks
from runner.catalog.workloads import load_workloads
from runner.paths import PROJECT

V100, A100, H200, CPU = (7, 0), (8, 0), (9, 0), ()


@pytest.mark.parametrize(
    ("framework", "capability", "precision", "layout"),
    [
        ("torch", CPU, "fp32", "channels-last"),
        ("torch", V100, "fp32", "channels-first"),
        ("torch", V100, "amp-fp16", "channels-last"),
        ("torch", A100, "tf32", "channels-last"),
        ("torch", A100, "amp-bf16", "channels-last"),
        ("torch", H200, "fp32", "channels-first"),
        ("torch", H200, "tf32", "channels-last"),
        ("torch", H200, "amp-fp16", "channels-last"),
        ("torch", (6, 1), "amp-fp16", "channels-first"),
        ("tensorflow", CPU, "amp-fp16", "channels-last"),
        ("tensorflow", A100, "tf32", "channels-first"),
        ("tensorflow", H200, "fp32", "channels-first"),
        ("tensorflow", V100, "amp-fp16", "channels-last"),
        ("tensorflow", A100, "amp-bf16", "channels-last"),
    ],
)
def test_the_layout_follows_framework_gpu_and_precision_and_a_mode_takes_its_place(
    framework: str, capability: tuple[int, ...], precision: str, layout: str
) -> None:
    device = "cuda" if capability else "cpu"
    setup = Setup(device, precision, "default", 1, 1, True)
    assert layouts.layout_of(framework, setup, capability) == layout
    for named in rules.LAYOUTS:
        assert layouts.layout_of(framework, setup._replace(mode=named), capability) == named


def test_each_row_can_be_reached_and_names_its_evidence() -> None:
    precisions = {each for workload in load_workloads().values() for each in workload.precisions}
    for row in layouts.TABLE:
        asked = row.precisions or sorted(precisions)
        assert set(asked) <= precisions
        assert any(layouts.row_of(row.framework, row.capability, precision) is row for precision in asked), row
        for path in re.findall(r"docs/[\w.-]+", row.evidence):
            assert (PROJECT / path).is_file(), path


def test_only_networks_on_pictures_have_the_modes_of_layouts() -> None:
    """Another network would be the default's, measured twice under two names."""
    frameworks = {name: each for name, each in load_frameworks().items() if rules.LAYOUTS.keys() <= set(each.modes)}
    assert set(frameworks) == {"torch", "keras_torch", "tensorflow"}

    def refused(workload: str, kind: str) -> set[str]:
        return {
            name
            for name, each in frameworks.items()
            if rules.mode_reason(name, "channels-first", each.modes, each.modes_except, (kind, "fp32", workload), 1)
        }

    assert refused("cnn-cifar10", "cuda") == refused("resnet50-imagenet", "cuda") == set()
    assert refused("cnn-cifar10", "cpu") == {"tensorflow"}
    for workload in ("gru-imdb", "mlp-mnist", "ops", "gpt2-124m"):
        assert refused(workload, "cuda") == set(frameworks), workload
