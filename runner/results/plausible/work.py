"""The arithmetic of a step: no device computes it faster than its datasheet says."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from bench import rules
from runner.results.datasheets import ABOVE_PEAK, FEWER_IN_CONVOLUTION, datasheet


def _of_a_gpt(tokens: int, multiplied: int, layers: int, width: int) -> float:
    """Of a window: every parameter multiplies each token once, and attention 2 L C T is counted whole, as published.

    A table that is only looked up does not count, nor do experts that are not chosen. So a training step is 6 N + 12 L C T a token
    (Chowdhery et al. 2022, appendix B). A causal kernel computes half of the second term.
    """
    return float(tokens * (multiplied + 2 * layers * width * tokens))


# Multiply-adds of an item on its way forward, by the workload's layers; of the two large networks as their authors count them.
MULTIPLY_ADDS = {
    "cnn-cifar10": 62.26e6,
    "cnn-mnist": 16 * 4 * 27 * 27 + 8 * 16 * 4 * 12 * 12 + 288 * 10,
    "mlp-mnist": 784 * 32 + 32 * 10,
    # 3 gates x 100 units x (125 + 100) inputs at each of 150 positions.
    "gru-imdb": 150 * 3 * 100 * (125 + 100),
    "resnet50-imagenet": 4.09e9,
    "resnet50-features": 4.09e9,
    "densenet121-chestxray": 2.83e9,
    "gpt-bytes": _of_a_gpt(tokens=256, multiplied=10_745_856, layers=6, width=384),
    "gpt2-124m": _of_a_gpt(tokens=1024, multiplied=123_689_472, layers=12, width=768),
    # Of a token: a step sees at least 192 positions in the mean of a sequence, its own with them.
    "gpt2-decode": 123_689_472 + 2 * 12 * 768 * 192,
    "llama-bytes": _of_a_gpt(tokens=256, multiplied=9_540_480, layers=6, width=384),
    "moe-bytes": _of_a_gpt(tokens=256, multiplied=9_549_696, layers=6, width=384),
}
# Of a step that computes one token of each sequence, in float32: the bytes of the parameters, but for the table of positions, of which it
# reads a row; and the bytes of one sequence's keys and values at the 191.5 positions before it, in the mean of a sequence.
BYTES_READ = {"gpt2-decode": (4 * 123_689_472.0, 191.5 * 2 * 12 * 768 * 4)}
# Of single operations: GeForce multiplies fp8 twice as fast as its figure says where the sums may be rounded.
_FEWER_IN_OPERATIONS = 2.0
_WITHOUT_CONVOLUTION = ("mlp-mnist", "gru-imdb", "gpt-bytes", "gpt2-124m", "gpt2-decode", "llama-bytes", "moe-bytes")

# Of a CPU, an upper limit that no CPU reaches: operations a cycle of one core (two units of 512 bits; for half types Intel's AMX), and Hz.
_CPU_OPERATIONS = 64.0
_CPU_HALF_OPERATIONS = 2048.0
_CPU_HERTZ = 6.5e9


@functools.cache
def least_operations(workload: str) -> float | None:
    """The fewest floating-point operations that a step takes for each of its items; None where nobody counted them.

    Of training, forward and the gradients of the parameters: the first layer needs no gradient of its input.
    """
    name, trained = _network(workload)
    if name not in MULTIPLY_ADDS:
        return None
    fewer = 1.0 if name in _WITHOUT_CONVOLUTION else FEWER_IN_CONVOLUTION
    return (4.0 if trained else 2.0) * MULTIPLY_ADDS[name] / fewer


def model_operations(workload: str) -> float | None:
    """The floating-point operations of an item as its network is written: forward, and twice as many backward; None where nobody
    counted them."""
    if workload not in rules.workload_names():
        return None
    name, trained = _network(workload)
    return (6.0 if trained else 2.0) * MULTIPLY_ADDS[name] if name in MULTIPLY_ADDS else None


def least_bytes(workload: str, batch: float, precision: str) -> float | None:
    """The bytes that a step of `batch` items reads at least; None where nobody counted them. Half types are half as many.

    A cache that holds them all reads them faster than memory.
    """
    if workload not in rules.workload_names() or (name := _network(workload)[0]) not in BYTES_READ:
        return None
    parameters, of_an_item = BYTES_READ[name]
    return (parameters + batch * of_an_item) / (2.0 if precision in rules.MIXED.values() else 1.0)


def _network(workload: str) -> tuple[str, bool]:
    """The workload whose network this one computes, and whether it is trained."""
    return rules.network_of(workload), rules.workload_declaration(workload)["task"] == "train"


def most_operations(device_kind: str, model: str, devices: int, cpus: int, precision: str) -> float | None:
    """The most floating-point operations a second of a cell's devices; None where that is not known.

    `model` is NVML's name of the GPU, `cpus` how many logical CPUs the cell had, 0 where that is not known.
    """
    if device_kind == "cpu":
        return cpus * _CPU_HERTZ * (_CPU_OPERATIONS if precision == "fp32" else _CPU_HALF_OPERATIONS) or None
    known, single = datasheet(model, precision), datasheet(model, "fp32")
    if not known or not known.flops:
        return None
    # GPUs like the GTX 1080 Ti have few units of half precision: libraries store halves there and compute in fp32.
    return max(known.flops, single.flops or 0.0 if single else 0.0) * devices * ABOVE_PEAK


def too_fast(samples: Sequence[Mapping[str, Any]], workload: str, most: float | None) -> str | None:
    """The fault if the steady windows hold more arithmetic than the devices can do in them: a sentence. `most` is of
    `most_operations`.
    """
    each = least_operations(workload)
    steady = [sample for sample in samples if sample["stage"] == "steady"]
    if each is None or most is None or not steady:
        return None
    work, seconds = sum(sample["items"] for sample in steady) * each, sum(sample["seconds"] for sample in steady)
    if work <= most * seconds:
        return None
    took = f"its windows took {seconds:.3g} s for {work / 1e9:.3g} GFLOP"
    return f"{took}, and its devices compute {most / 1e9:.3g} GFLOP/s at most"


def operations_too_fast(operations: Sequence[Mapping[str, Any]], most: float | None) -> str | None:
    """The fault if the windows of a point hold more arithmetic than the devices can do in them: a sentence. `most` is of
    `most_operations`.

    Only forward: a compiler may find the gradient of a sum with less work than the count says.
    """
    points: dict[tuple[str, str], list[float]] = {}
    for row in operations:
        if row["direction"] == "forward":
            fewer = FEWER_IN_CONVOLUTION if "conv" in row["operation"] else _FEWER_IN_OPERATIONS
            point = points.setdefault((row["operation"], row["size"]), [0.0, 0.0])
            point[0] += row["mop"] * 1e6 * row["runs"] / fewer
            point[1] += row["seconds"]
    for (operation, size), (count, seconds) in points.items():
        if most is not None and count > most * seconds:
            took = f"its windows of {operation} {size} took {seconds:.3g} s for {count / 1e9:.3g} GFLOP"
            return f"{took}, and its devices compute {most / 1e9:.3g} GFLOP/s at most"
    return None
