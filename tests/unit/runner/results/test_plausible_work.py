"""No device computes faster than its datasheet says."""

from __future__ import annotations

from typing import Any

import pytest

from bench import contract, rules
from runner.results.plausible.counts import (
    MULTIPLY_ADDS,
    least_operations,
    most_operations,
    operations_too_fast,
    too_fast,
)

BATCH = 64


def windows(step_seconds: float, items: int = BATCH) -> list[dict[str, Any]]:
    return [{"stage": "steady", "items": 10 * items, "seconds": 10 * step_seconds}] * 20


@pytest.mark.parametrize(
    ("workload", "model", "precision", "honest"),
    [
        # Step times that the vendors' machines reached, from published trainings and the project's own runs.
        ("cnn-cifar10", "NVIDIA H200", "fp32", 1.3e-3),
        ("gru-imdb", "NVIDIA H200", "fp32", 3e-3),
    ],
)
def test_a_gpu_that_is_faster_than_its_datasheet_is_named(
    workload: str, model: str, precision: str, honest: float
) -> None:
    most = most_operations("cuda", model, 1, 16, precision)
    assert too_fast(windows(honest), workload, most) is None
    assert "and its devices compute" in str(too_fast(windows(honest / 1000), workload, most))


def test_a_cpu_that_is_faster_than_any_is_named() -> None:
    most = most_operations("cpu", "AMD EPYC", 1, 2, "fp32")
    # As two CPUs measured it.
    assert too_fast(windows(0.1), "cnn-cifar10", most) is None
    assert "GFLOP" in str(too_fast(windows(0.0001), "cnn-cifar10", most))


def test_several_gpus_compute_more() -> None:
    one = most_operations("cuda", "NVIDIA L4", 1, 8, "fp32")
    assert one is not None
    assert most_operations("cuda", "NVIDIA L4", 4, 8, "fp32") == pytest.approx(4 * one)


@pytest.mark.parametrize(
    ("kind", "model", "cpus", "precision"),
    [
        ("cuda", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 8, "fp32"),
        ("cuda", "A GPU of next year", 8, "fp32"),
        ("cpu", "x", 0, "fp32"),
    ],
)
def test_what_nobody_knows_refuses_nothing(kind: str, model: str, cpus: int, precision: str) -> None:
    assert most_operations(kind, model, 1, cpus, precision) is None
    assert too_fast(windows(1e-9), "cnn-cifar10", None) is None


def test_single_operations_have_no_steps() -> None:
    assert least_operations("ops") is None
    assert least_operations("densenet121-synthetic") == least_operations("densenet121-chestxray")


def test_every_network_is_counted() -> None:
    networks = {name for name in rules.workload_names() if rules.workload_declaration(name)["task"] != "operators"}
    assert all(least_operations(name) for name in networks)


def test_the_counts_are_those_of_the_specifications_layers() -> None:
    """A dense layer multiplies each of its weights once an item, a convolution once for each place of its result."""
    places = {
        "cnn-cifar10": {"conv1": 32 * 32, "conv2": 32 * 32, "conv3": 16 * 16, "conv4": 16 * 16},
        "cnn-mnist": {"conv1": 27 * 27, "conv2": 12 * 12},
        "mlp-mnist": {},
    }
    for workload, of_layer in places.items():
        counted = 0
        for spec in contract.specification(workload).PARAMETERS:
            if spec.name.endswith(".w"):
                size = 1
                for side in spec.shape:
                    size *= side
                counted += size * of_layer.get(spec.name.removesuffix(".w"), 1)
        assert counted == pytest.approx(MULTIPLY_ADDS[workload], rel=1e-3), workload


def test_a_single_operation_that_is_faster_than_its_devices_is_named() -> None:
    most = most_operations("cuda", "NVIDIA H200", 1, 16, "bf16")
    window = {"operation": "matmul", "direction": "forward", "size": "8192x8192x8192", "mop": 1.1e6, "runs": 10}
    # 800 TFLOP/s, as an H200 has computed it; and a thousand times as much.
    honest = [window | {"seconds": 10 * 1.1e12 / 800e12}] * 6
    assert operations_too_fast(honest, most) is None
    assert operations_too_fast(honest, None) is None
    why = str(operations_too_fast([row | {"seconds": row["seconds"] / 1000} for row in honest], most))
    assert why.startswith("its windows of matmul 8192x8192x8192 took")
    # A compiler may find the gradient of a sum with less work.
    assert operations_too_fast([row | {"direction": "gradient", "seconds": 1e-6} for row in honest], most) is None


def test_a_gpu_with_few_units_of_half_precision_computes_halves_in_fp32() -> None:
    single = most_operations("cuda", "NVIDIA GeForce GTX 1080 Ti", 1, 8, "fp32")
    assert most_operations("cuda", "NVIDIA GeForce GTX 1080 Ti", 1, 8, "amp-fp16") == single
