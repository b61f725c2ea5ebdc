"""Attention as a single operation: its work, its points, and the check that tells a right one from wrong ones at every precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench import operators, rules
from bench.workloads import attention, ops
from tests.fixtures.operators import Operators

Rounding = Callable[[np.ndarray], np.ndarray]


def nearest(bits: int) -> Rounding:
    """To so many significant bits, to nearest."""

    def rounded(values: np.ndarray) -> np.ndarray:
        unit = 2.0 ** (np.frexp(values)[1] - bits)
        return np.asarray(np.round(values / unit) * unit)

    return rounded


def truncated(bits: int) -> Rounding:
    def cut(values: np.ndarray) -> np.ndarray:
        unit = 2.0 ** (np.frexp(values)[1] - bits)
        return np.asarray(np.trunc(values / unit) * unit)

    return cut


def exact(values: np.ndarray) -> np.ndarray:
    return values


class WrittenOut(Operators):
    """Products and softmax one by one. `stored` rounds each result, `factor` the factors of each product; `fault` is what it does wrong."""

    def __init__(self, stored: Rounding = exact, factor: Rounding = exact, fault: str = "") -> None:
        super().__init__()
        self.stored, self.factor, self.fault = stored, factor, fault

    def runs(self, operation: str, direction: str, buffers: list[dict[str, Any]]) -> list[Callable[[], Any]]:
        return [lambda p=p: self.run(direction, *p.values()) for p in buffers]

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.stored(np.matmul(self.factor(a), self.factor(b)))

    def run(self, direction: str, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Any:
        heads, kv_heads, (length, dim) = q.shape[2], k.shape[2], (q.shape[1], q.shape[3])
        of_query = np.arange(heads) % kv_heads if self.fault == "heads" else np.arange(heads) // (heads // kv_heads)
        q, k, v = (self.stored(x).transpose(0, 2, 1, 3) for x in (q, k[:, :, of_query], v[:, :, of_query]))
        scale = 1.0 if self.fault == "scale" else dim**-0.5
        scores = self.stored(self.product(q, k.transpose(0, 1, 3, 2)) * scale)
        seen = np.tri(length, k=1 if self.fault == "mask" else 0, dtype=bool)
        weights = np.exp(np.where(seen, scores - scores.max(axis=3, keepdims=True), -np.inf))
        weights = self.stored(weights / weights.sum(axis=3, keepdims=True))
        if direction == ops.FORWARD:
            return self.product(weights, v).transpose(0, 2, 1, 3)
        d = np.ones_like(q)
        d_weights = self.product(d, v.transpose(0, 1, 3, 2))
        kept = 0.0 if self.fault == "softmax" else (weights * d_weights).sum(axis=3, keepdims=True)
        d_scores = self.stored(weights * (d_weights - kept) * scale)
        gradients = [self.product(d_scores, k).transpose(0, 2, 1, 3)]
        for of_heads in (
            self.product(d_scores.transpose(0, 1, 3, 2), q),
            self.product(weights.transpose(0, 1, 3, 2), d),
        ):
            summed = np.zeros((len(q), length, kv_heads, dim))
            for head, of_head in enumerate(of_heads.transpose(1, 0, 2, 3)):
                summed[:, :, of_query[head]] += of_head
            gradients.append(self.stored(summed))
        return tuple(gradients)


def share(adapter: Operators, name: str, direction: str, precision: str) -> float:
    """Its error by the bound."""
    error, bound = operators.error_of(adapter, name, ops.ATTENTION[name], direction, precision)
    return error / bound


ARITHMETICS = [
    ("fp64", WrittenOut()),
    ("fp32", WrittenOut(nearest(24))),
    ("tf32", WrittenOut(factor=nearest(11))),
    ("tf32", WrittenOut(factor=truncated(11))),
    ("fp16", WrittenOut(nearest(11))),
    ("bf16", WrittenOut(nearest(8))),
]


@pytest.mark.parametrize(("precision", "adapter"), ARITHMETICS)
@pytest.mark.parametrize("direction", [ops.FORWARD, ops.GRADIENT])
@pytest.mark.parametrize("name", ops.HEADS)
def test_what_rounds_as_the_precision_does_passes(
    precision: str, adapter: WrittenOut, direction: str, name: str
) -> None:
    """Every result is stored in the type, as in the written form, whose error is the largest; of tf32 every factor is."""
    assert share(adapter, name, direction, precision) < 1.0


@pytest.mark.parametrize(
    ("fault", "name", "direction"),
    [
        ("mask", "attention_d64", ops.FORWARD),
        ("mask", "attention_d128", ops.GRADIENT),
        ("scale", "attention_d64", ops.FORWARD),
        ("heads", "attention_grouped", ops.GRADIENT),
        ("softmax", "attention_d64", ops.GRADIENT),
    ],
)
def test_what_computes_another_attention_fails_at_the_shortest_precision(fault: str, name: str, direction: str) -> None:
    """A position that sees the next one, scores without their factor, another key head, a softmax without its sum."""
    assert share(WrittenOut(nearest(8), fault=fault), name, direction, "bf16") > 3


def test_a_shorter_type_than_the_cell_s_fails() -> None:
    assert share(WrittenOut(nearest(11)), "attention_d64", ops.FORWARD, "fp32") > 100
    assert share(WrittenOut(nearest(8)), "attention_d64", ops.FORWARD, "fp16") > 2
    assert share(WrittenOut(nearest(24)), "attention_d64", ops.GRADIENT, "fp64") > 1000


def test_its_gradients_are_the_slopes_of_its_result() -> None:
    random = np.random.RandomState(3)
    operation = ops.ATTENTION["attention_grouped"]
    p = ops.draw_inputs(operation, (2, 9, 4, 2, 5), random)
    for name, gradient in zip(p, attention.gradients(p), strict=True):
        assert gradient.shape == p[name].shape
        along, slope = ops.slope(operation, p, name, random)
        assert (gradient * along).sum() == pytest.approx(slope, rel=1e-6)


def test_its_work_is_that_of_the_half_of_the_scores_and_three_and_a_half_times_that_with_gradients() -> None:
    """FlashAttention's count: 4 x length^2 x dim x heads x batch, halved by the mask."""
    whole = 4 * 2048**2 * 64 * 16 * 8 / 1e6
    assert ops.ATTENTION["attention_d64"].mop(8, 2048, 16, 16, 64) == whole / 2
    points = {point[:3]: point for point in ops.points("bf16", 1, of_attention=(1000, 2e6))}
    forward, gradient = (points["attention_d64_flash", way, (8, 2048, 16, 16, 64)] for way in ("forward", "gradient"))
    assert gradient.mop == 3.5 * forward.mop
    of_each = 8 * 2048 * 1024 * 2
    assert (forward.bytes, gradient.bytes) == (4 * of_each, 7 * of_each)


@pytest.mark.parametrize(
    ("device", "preset", "lengths"),
    [
        ("cpu", "quick", [256, 512]),
        ("cuda", "quick", [512, 2048, 16384]),
        ("cuda", "standard", list(ops.LENGTHS)),
    ],
)
def test_long_sequences_are_a_gpu_s_and_each_size_goes_through_all_backends(
    device: str, preset: str, lengths: list[int]
) -> None:
    declared = rules.workload_declaration("ops")["presets"][preset]
    limits = declared["most_mop"], declared.get("most_bytes"), declared.get("most_sizes"), declared["attention_mop"]
    points = [point for point in ops.points("fp32", *limits[:3], limits[3][device]) if point.operation in ops.ATTENTION]
    assert {point.operation for point in points} == set(ops.ATTENTION)
    assert sorted({point.size[1] for point in points}) == lengths
    turns = [point.size for at, point in enumerate(points) if not at or points[at - 1].size != point.size]
    assert len(turns) == len(ops.HEADS) * len(lengths)
    assert not any(point.operation in ops.ATTENTION for point in ops.points("fp8", 1e9, of_attention=limits[3][device]))
