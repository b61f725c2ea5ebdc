"""Published faults of CUDA and cuDNN are told in the plan, beside the cell in the report, and by verify; a wrong table is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from reports.data import tables
from runner.catalog.images import load_catalog, read_pins
from runner.images.lock_facts import nvidia_version
from runner.results.known_issues import KnownIssuesError, known_issues, load_known_issues
from runner.run import outlook
from runner.verify import output
from tests.fixtures import stored, synthetic
from tests.fixtures.plans import make_cell

CUBLAS, PTXAS = "frees tensor memory twice", "edge cases of clamping"


@pytest.mark.parametrize(
    ("framework", "mode", "cuda", "capability", "said"),
    [
        ("torch", "default", "12.8.90", "10.0", [CUBLAS]),
        ("jax", "default", "13.1", "11.0", [CUBLAS]),
        ("torch", "default", "12.8", "9.0", []),
        # An RTX 5090 has no tensor memory.
        ("torch", "default", "12.8", "12.0", []),
        ("torch", "default", "13.2.1", "10.3", []),
        ("torch", "default", "12.6", "10.0", []),
        ("jax", "default", "12.3", "9.0", [PTXAS]),
        # It is of Hopper and newer.
        ("jax", "default", "12.3", "8.0", []),
        ("keras_tensorflow", "default", "12.5.1", "9.0", [PTXAS]),
        # XLA compiles nothing of TensorFlow's default mode on a GPU.
        ("tensorflow", "xla", "12.5.1", "10.0", [PTXAS]),
        ("tensorflow", "default", "12.5.1", "9.0", []),
        ("torch", "default", "12.3", "9.0", []),
        ("jax", "default", "12.6.85", "9.0", []),
        ("jax", "default", "12", "9.0", []),
        ("jax", "default", "unknown", "9.0", []),
        ("jax", "default", None, "9.0", []),
        ("jax", "default", "12.3", None, []),
    ],
)
def test_an_issue_is_told_of_the_versions_gpus_and_cells_that_have_it(
    framework: str, mode: str, cuda: str | None, capability: str | None, said: list[str]
) -> None:
    sentences = known_issues(framework, mode, "fp32", {"cuda": cuda, "cudnn": None}, capability)
    assert len(sentences) == len(said)
    assert all(part in sentence and ": https://" in sentence for part, sentence in zip(said, sentences, strict=True))


ISSUE = """[[issue]]
name = "a-fault"
library = "cudnn"
first = "9.1"
fixed = "9.10.2"
precisions = ["amp-bf16"]
touches = "convolutions"
sentence = "it errs"
title = "Release notes 9.10.2"
url = "https://example.org"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "known_issues.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_version_is_compared_as_far_as_the_bound_says_it_and_a_precision_as_it_is_named(tmp_path: Path) -> None:
    (issue,) = load_known_issues(written(tmp_path, ISSUE))
    of = {version: issue.is_of({"cudnn": version}) for version in ("9.0.9", "9.1.0", "9.1.0.70", "9.10.1", "9.10.2.21")}
    assert list(of.values()) == [False, True, True, True, False]
    assert not issue.is_of({"cuda": "9.2"})
    assert issue.touches_cell("jax", "default", "amp-bf16")
    assert not issue.touches_cell("jax", "default", "fp32")
    assert issue.is_on("3.5", "3.5"), "no capabilities are all of them"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('fixed = "9.10.2"', 'fixed = "9.1"', "issue 1: fixed: 9.1 is not above 9.1; the second number is"),
        ('fixed = "9.10.2"', 'fixed = "soon"', "issue 1: fixed: String should match pattern"),
        ("touches", 'capabilities = ["9.0", "8.0"]\ntouches', "issue 1: capabilities: 8.0 is not above 9.0"),
        (
            "touches",
            'cells = [{ framework = "torhc" }]\ntouches',
            "issue 1: cells.0.framework: there is no framework 'torhc'",
        ),
        ("touches", "precision", "issue 1: touches: Field required; fix it: the other issues show the form"),
        ('library = "cudnn"', 'library = "cufft"', "issue 1: library: Input should be 'cuda' or 'cudnn'"),
        ("https://example.org", "release notes", "issue 1: url: String should match pattern"),
        ("[[issue]]", ISSUE + "[[issue]]", "issue 2: name: a-fault stands twice; give one another name"),
        ("[[issue]]", "[[issues]]", "it holds more than [[issue]] tables"),
        ("[[issue]]", "[[issue", "cannot be read"),
    ],
)
def test_a_wrong_issue_is_refused_with_file_number_field_and_fix(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    path = written(tmp_path, ISSUE.replace(before, after, 1))
    with pytest.raises(KnownIssuesError) as refused:
        load_known_issues(path)
    assert str(refused.value).startswith(str(path))
    assert message in str(refused.value)


def test_the_release_of_cuda_tells_of_each_lock_what_its_own_pins_do() -> None:
    seen = 0
    for image in load_catalog().values():
        pins = {pin.name: pin.version for pin in read_pins(image.lock_path)}
        if image.accelerator != "cuda":
            continue
        versions = {"cuda": image.cuda, "cudnn": image.cudnn}
        if cublas := nvidia_version(pins, "nvidia-cublas"):
            faulty = Version("12.8") <= Version(cublas) < Version("13.2")
            assert faulty == bool(known_issues("torch", "default", "fp32", versions, "10.0")), image.name
            seen += 1
        if image.frameworks[0] in ("jax", "tensorflow") and (nvcc := nvidia_version(pins, "nvidia-cuda-nvcc")):
            faulty = Version("12.0") <= Version(nvcc) < Version("12.6.85")
            assert faulty == bool(known_issues(image.frameworks[0], "xla", "fp32", versions, "9.0")), image.name
            seen += 1
    assert seen > 20


def test_the_plan_names_the_images_with_an_issue_once() -> None:
    cells = [
        make_cell(image=name, device_kind="cuda", device_model="B200", seed=seed)
        for name in ("a", "b")
        for seed in (1, 2)
    ]
    images = {"a": SimpleNamespace(cuda="12.8", cudnn="9.10"), "b": SimpleNamespace(cuda="13.2", cudnn="9.26")}
    machine = SimpleNamespace(gpus=[SimpleNamespace(model="B200", compute_capability="10.0")])
    prospect: Any = SimpleNamespace(machine=machine, images=images, plan=SimpleNamespace(cells=cells))
    (line,) = outlook.issues(prospect)
    assert line.startswith("known issue: a: ")
    assert CUBLAS in line


def test_the_report_and_verify_tell_it_beside_the_cell(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    synthetic.add_scaling(folder, {1: 0.1})
    of_gpu = {"cuda_version": "12.8", "compute_capability": "10.0"}
    stored.change(folder, "cells", lambda row: {**row, **of_gpu} if row["device_kind"] == "cuda" else row)
    data = tables.load([folder])
    noted = {(cell.key.device_kind, any(CUBLAS in words for words in cell.caveats)) for cell in data.cells}
    assert noted == {("cuda", True), ("cpu", False)}
    facts = SimpleNamespace(framework="torch", mode="default", precision="fp32", cudnn_version="9.10", **of_gpu)
    finding: Any = SimpleNamespace(
        kind="ok",
        beside=None,
        parity_passed=False,
        nearest=None,
        among=None,
        expectation=None,
        kernel_share=None,
        facts=facts,
        causes=(),
    )
    (line,) = output._beside(finding)
    assert line.startswith("  known issue: ")
    assert CUBLAS in line
