"""The steps of the kit: which there are, in which order, and what is said of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from runner.catalog.workloads import load_workloads
from runner.kit.doing import layouts
from runner.kit.results_folder import first_reason
from runner.kit.steps import KitStep, Wanted, plan
from runner.machine.devices import Cpu, Gpu, Machine
from runner.plan.combination import Skip
from tests.fixtures.plans import make_cell

CPU = Machine(Cpu("AMD EPYC", (0,), 1), (), None)
STEP = KitStep("cell", make_cell(image="host-torch-2.13.0", device_model="AMD EPYC"))


def planned(gpu: Gpu | None, kinds: Mapping[str, list[str] | None], **wanted: Any) -> tuple[list[KitStep], list[Skip]]:
    entries = [{"framework": name, "version": "2.13.0+cpu", "device_kinds": of} for name, of in kinds.items()]
    return plan(entries, replace(CPU, gpus=(gpu,) if gpu else ()), "0" * 64, Wanted(**wanted), {})


def gpu(model: str, capability: str) -> Gpu:
    return Gpu(0, "GPU-1", model, capability, 10**11, "580.65.06", (0,))


def test_a_cell_of_the_kit_is_the_cell_of_a_run_with_the_engine_host() -> None:
    cell = planned(None, {"torch": None}, workloads=["gru-imdb"])[0][0].cell
    assert cell == replace(
        STEP.cell, batch=load_workloads()["gru-imdb"].batch_of("quick"), lock_sha256="0" * 64, preset="quick", seed=1
    )


def test_each_framework_with_both_layouts_of_pictures_is_asked_for_them_one_after_the_other() -> None:
    there: list[str] | None = ["cpu", "cuda"]
    kinds = {"torch": there, "jax": there, "tensorflow": there}

    def asked(device: Gpu | None) -> list[tuple[str, str, str]]:
        steps = [step for step in planned(device, kinds, repeats=2)[0] if step.cell.mode.startswith("channels-")]
        assert {(step.cell.workload, step.repeat) for step in steps} == {("cnn-cifar10", 1)}
        return [(step.cell.precision, step.cell.framework, step.cell.mode) for step in steps]

    precisions, both = ("fp32", "amp-bf16", "tf32"), ("channels-first", "channels-last")
    on_gpu = asked(gpu("NVIDIA H200", "9.0"))
    assert on_gpu == list(itertools.product(precisions, ("torch", "tensorflow"), both))
    # A layout alone answers nothing: on a CPU TensorFlow has one only.
    assert asked(None) == list(itertools.product(("fp32", "amp-bf16"), ("torch",), both))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ({}, []),
        ({"channels-first": (2.0, None)}, []),
        (
            {"channels-first": (2.0, None), "channels-last": (1.0, None)},
            [
                "a step with channels-first takes 2.00 times as long as with channels-last; the default has channels-last"
            ],
        ),
        (
            {"channels-first": (3.0, 1.4), "channels-last": (3.0, 1.5)},
            [
                "a step with channels-first takes 1.00 times as long as with channels-last, its kernels 0.93 times; "
                "the default has channels-last"
            ],
        ),
    ],
)
def test_the_kit_says_which_layout_was_faster_and_what_the_default_has(
    seconds: Mapping[str, tuple[float, float | None]], said: list[str]
) -> None:
    steps = {
        replace(STEP, cell=replace(STEP.cell, mode=mode)): {
            "status": "ok",
            "step_seconds": step,
            "kernel_seconds": kernels,
            "layout": "NHWC",
        }
        for mode, (step, kernels) in {"default": (1.0, None), **seconds}.items()
    }
    cell = STEP.cell
    assert layouts(steps) == [f"{cell.framework} {cell.workload} {cell.precision}: {words}" for words in said]


def _group(step: KitStep) -> str:
    cell, small = step.cell, step.cell.workload in ("cnn-cifar10", "gru-imdb") and step.cell.precision != "amp-fp16"
    if step.kind == "events":
        return "events"
    if cell.mode.startswith("channels-"):
        return "layouts"
    if small and cell.mode == "default":
        return "first looks" if step.repeat == 1 else f"repeats at {cell.precision}"
    if small or (cell.workload, cell.precision) == ("gpt2-124m", "amp-bf16"):
        return "compile" if cell.mode == "compile" else "graph and transformer"
    if (cell.workload, cell.precision, cell.mode, step.repeat) == ("gpt2-124m", "fp32", "default", 1):
        return "graph and transformer"
    if cell.workload.startswith(("densenet", "resnet50-imagenet")):
        return "deep"
    return "ops" if cell.workload == "ops" else "others"


def test_the_newest_facts_come_first_and_everything_is_there() -> None:
    steps, skips = planned(gpu("NVIDIA H200", "9.0"), {"torch": None, "jax": ["cpu", "cuda"]})
    assert len(set(steps)) == len(steps)
    # A convolutional and a recurrent network at what a GPU is bought for, in both frameworks, and all repeats of them.
    precisions = ("fp32", "amp-bf16", "tf32")
    looks = [(step.cell.framework, step.cell.workload, step.cell.precision) for step in steps[:12]]
    assert set(looks) == set(itertools.product(("jax", "torch"), ("cnn-cifar10", "gru-imdb"), precisions))
    assert [precision for _, _, precision in looks[::4]] == list(precisions)
    # Then the faster modes of these and a large network, single operations, and what compiles for minutes at the end.
    groups = [(name, len(list(group))) for name, group in itertools.groupby(steps, key=_group)]
    assert groups[:8] == [
        ("first looks", 12),
        *((f"repeats at {precision}", 8) for precision in precisions),
        ("events", 2),
        ("layouts", 6),
        ("graph and transformer", 29),
        ("compile", 21),
    ]
    assert [name for name, _ in groups[8:]] == ["ops", "others", "deep"]
    modes = {"default", "graph", "compile", "channels-first", "channels-last"}
    assert {step.cell.mode for step in steps if step.cell.framework == "torch"} == modes
    assert {step.cell.precision for step in steps if step.cell.workload == "ops"} == {
        "fp64",
        "fp32",
        "tf32",
        "fp16",
        "bf16",
        "fp8",
    }
    assert max(step.repeat for step in steps) == 3
    assert [step.cell.framework for step in steps if step.kind == "events"] == ["torch"] * 2
    assert {skip.mode for skip in skips} == {"graph"}
    assert {(skip.workload, skip.precision) for skip in skips} > {("gru-imdb", "amp-fp16"), ("ops", "fp32")}


def test_a_cpu_build_of_pytorch_is_named_before_the_keras_that_runs_on_it() -> None:
    of = ["jax", "keras_jax", "keras_torch", "torch"]
    steps, skips = planned(gpu("NVIDIA L4", "8.9"), {name: ["cpu"] for name in of})
    assert steps == []
    assert first_reason(skips) == "torch 2.13.0+cpu here computes on cpu only"
    assert (
        first_reason([skip for skip in skips if skip.framework != "torch"])
        == "jax 2.13.0+cpu here computes on cpu only"
    )
    assert first_reason([]) == ""


def test_what_the_device_or_the_framework_cannot_do_is_left_out_with_a_sentence() -> None:
    steps, skips = planned(gpu("Tesla V100", "7.0"), {"torch": None, "jax": ["cpu"]})
    precisions = {step.cell.precision for step in steps}
    assert precisions >= {"fp32", "amp-fp16"}
    assert not {"tf32", "amp-bf16", "bf16", "fp8"} & precisions
    assert {skip.reason for skip in skips if skip.framework == "jax"} == {"jax 2.13.0+cpu here computes on cpu only"}
    assert "Tesla V100 has no tf32: it takes compute capability 8.0" in {skip.reason for skip in skips}
    # Named, it is tried.
    assert planned(gpu("Tesla V100", "7.0"), {"jax": ["cpu"]}, frameworks=["jax"])[0]


def test_a_persons_network_comes_first_where_its_framework_is_there() -> None:
    entries = [{"framework": name, "version": "1.0", "device_kinds": ["cpu"]} for name in ("torch", "jax")]
    network = {"batch": 8, "precisions": ["fp32", "amp-bf16"], "frameworks": ["torch"], "files": {"net.py": ""}}
    steps, _ = plan(entries, CPU, "0" * 64, Wanted(repeats=2), {"net@0123456789ab": network})
    first = [(step.cell.framework, step.cell.precision, step.cell.mode, step.cell.batch) for step in steps[:4]]
    assert first == [("torch", precision, "default", 8) for precision in ("fp32", "amp-bf16", "fp32", "amp-bf16")]
    assert {step.cell.workload for step in steps[:4]} == {"net@0123456789ab"}
    assert all(step.cell.workload != "net@0123456789ab" for step in steps[4:])
