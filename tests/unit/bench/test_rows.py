"""The operations of a transformer's rows: their gradients, their traffic, and the check that tells a right one from wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench import arithmetic, operators, reference
from bench.workloads import ops, rows
from tests.fixtures.operators import Operators

NAMES = ("layer_norm", "rms_norm", "softmax", "cross_entropy", "embedding")
CASES = [(name, direction) for name in NAMES for direction in ops.directions(name)]
EXACT = arithmetic.Exact()


def to_bf16(values: np.ndarray) -> np.ndarray:
    unit = 2.0 ** (np.frexp(values)[1] - 8)
    return np.asarray(np.round(values / unit) * unit)


def stored(p: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs as bf16 holds them."""
    return {name: value if name == "ids" else to_bf16(value) for name, value in p.items()}


class Faulty(Operators):
    """The reference on inputs and with results of bf16, in which `fault` is wrong."""

    def __init__(self, fault: Callable[[Any, dict[str, np.ndarray], str], Any] | None = None) -> None:
        super().__init__()
        self.fault = fault

    def runs(self, operation: str, direction: str, buffers: list[dict[str, Any]]) -> list[Callable[[], Any]]:
        compute, gradients = (getattr(ops.OPERATIONS[operation], name) for name in ("compute", "gradients"))

        def run() -> Any:
            p = stored(buffers[0])
            right = gradients(p) if direction == ops.GRADIENT else (compute(p),)
            return tuple(map(to_bf16, self.fault(right, p, direction) if self.fault else right))

        return [run]


def share(adapter: Operators, name: str, direction: str, precision: str) -> float:
    """Its error by the bound."""
    error, bound = operators.error_of(adapter, name, ops.OPERATIONS[name], direction, precision)
    return error / bound


@pytest.mark.parametrize(("name", "direction"), CASES)
def test_rounded_inputs_and_results_pass(name: str, direction: str) -> None:
    assert share(Faulty(), name, direction, "bf16") < 1.0
    assert share(Faulty(), name, direction, "fp32") > 100.0


def normalised(p: dict[str, np.ndarray], direction: str, epsilon: float = rows.EPSILON, axis: int = 1) -> Any:
    """Layer normalisation with another epsilon, or along another axis."""
    turned = {name: np.ones((p["h"].shape[0], 1)) for name in "wb"} if axis == 0 else {}
    h, d = (p[name].T if axis == 0 else p[name] for name in ("h", "d" if direction == ops.GRADIENT else "h"))
    y, cache = reference.layer_norm(h, *(turned.get(name, p[name]).ravel() for name in "wb"), epsilon, EXACT)
    if direction == ops.FORWARD:
        return (y.T if axis == 0 else y,)
    dx, dw, db = reference.layer_norm_gradient(d, cache, EXACT)
    return (dx.T if axis == 0 else dx, np.resize(dw, p["w"].shape), np.resize(db, p["b"].shape))


def not_centred(right: Any, p: dict[str, np.ndarray], direction: str) -> Any:
    """RMS normalisation, and the shift."""
    if direction == ops.FORWARD:
        return (rows.rms_norm(p) + p["b"],)
    return (*rows.rms_norm_gradients(p), right[2])


def centred(right: Any, p: dict[str, np.ndarray], direction: str) -> Any:
    """Layer normalisation in place of RMS normalisation."""
    whole = {**p, "b": np.zeros_like(p["w"])}
    return (rows.layer_norm(whole),) if direction == ops.FORWARD else rows.layer_norm_gradients(whole)[:2]


def other_epsilon_of_rms(right: Any, p: dict[str, np.ndarray], direction: str) -> Any:
    y, cache = reference.rms_norm(p["h"], p["w"], 1e-6, EXACT)
    return (y,) if direction == ops.FORWARD else reference.rms_norm_gradient(p["d"], cache, EXACT)


def along_columns(right: Any, p: dict[str, np.ndarray], direction: str) -> Any:
    y = reference.softmax(p["scores"].T, EXACT).T
    return (y if direction == ops.FORWARD else y * (p["d"] - (y * p["d"]).sum(axis=0)),)


def shifted_labels(right: Any, p: dict[str, np.ndarray], direction: str) -> Any:
    p = {**p, "ids": np.roll(p["ids"], 1)}
    return (rows.cross_entropy(p),) if direction == ops.FORWARD else rows.cross_entropy_gradients(p)


def fewer_classes(right: Any, p: dict[str, np.ndarray], direction: str) -> Any:
    """The last tenth of the classes is left out of the sum."""
    p = {**p, "logits": np.where(np.arange(ops.CLASSES) < 0.9 * ops.CLASSES, p["logits"], -np.inf)}
    return (rows.cross_entropy(p),) if direction == ops.FORWARD else rows.cross_entropy_gradients(p)


def not_added_up(right: Any, p: dict[str, np.ndarray], direction: str) -> Any:
    """Of the gradients of one id the last one stays."""
    table = np.zeros_like(p["table"])
    table[p["ids"]] = p["d"]
    return (table,)


FAULTS: list[tuple[str, Callable[[Any, dict[str, np.ndarray], str], Any], tuple[str, ...]]] = [
    ("layer_norm", lambda right, p, direction: normalised(p, direction, epsilon=1e-6), ("forward", "gradient")),
    ("layer_norm", lambda right, p, direction: normalised(p, direction, axis=0), ("forward", "gradient")),
    ("layer_norm", not_centred, ("forward", "gradient")),
    ("layer_norm", lambda right, p, direction: (p["d"] * p["w"] * 150, *right[1:]), ("gradient",)),
    ("layer_norm", lambda right, p, direction: right[:2], ("gradient",)),
    ("rms_norm", other_epsilon_of_rms, ("forward", "gradient")),
    ("rms_norm", centred, ("forward", "gradient")),
    ("softmax", along_columns, ("forward", "gradient")),
    ("softmax", lambda right, p, direction: (rows.softmax(p) * p["d"],), ("gradient",)),
    ("cross_entropy", shifted_labels, ("forward", "gradient")),
    ("cross_entropy", fewer_classes, ("gradient",)),
    ("cross_entropy", lambda right, p, direction: (right[0] * len(p["ids"]),), ("forward", "gradient")),
    ("cross_entropy", lambda right, p, direction: (np.where(right[0] < 0, right[0], 0.0),), ("gradient",)),
    ("embedding", not_added_up, ("gradient",)),
    ("embedding", lambda right, p, direction: (np.roll(right[0], 1, axis=0),), ("gradient",)),
]


@pytest.mark.parametrize(("name", "fault", "directions"), FAULTS)
def test_another_computation_fails_at_the_shortest_precision(
    name: str, fault: Callable[[Any, dict[str, np.ndarray], str], Any], directions: tuple[str, ...]
) -> None:
    for direction in directions:
        assert share(Faulty(fault), name, direction, "bf16") > 1.0, direction


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_the_slopes_of_the_result_times_d(name: str) -> None:
    random, operation = np.random.RandomState(3), ops.OPERATIONS[name]
    p = ops.draw_inputs(operation, (7, 11, 5)[: len(operation.sizes[0])], random, ops.GRADIENT)
    d = p.pop("d", 1.0)
    weighed = operation._replace(compute=lambda p: (operation.compute(p) * d).sum())
    names = [key for key in p if key != "ids"]
    for key, gradient in zip(names, operation.gradients({**p, "d": d}), strict=True):
        along, slope = ops.slope(weighed, p, key, random)
        assert gradient.shape == p[key].shape
        assert (gradient * along).sum() == pytest.approx(slope, rel=1e-5)


def test_traffic_is_what_is_read_and_written_at_least() -> None:
    points = {point[:3]: point for point in ops.points("fp32", 1e9)}
    square = 1024 * 768
    assert points["layer_norm", "forward", (1024, 768)].bytes == 4 * (2 * square + 2 * 768)
    assert points["layer_norm", "gradient", (1024, 768)].bytes == 4 * (4 * square + 4 * 768)
    assert points["softmax", "gradient", (1024, 768)].bytes == 4 * 4 * square
    assert points["cross_entropy", "forward", (64, 50304)].bytes == 4 * (64 * 50304 + 64 + 1)
    assert points["cross_entropy", "gradient", (64, 50304)].bytes == 4 * (2 * 64 * 50304 + 64 + 1)
    # The named rows of the table, each once, the ids and d are read; the result and the table's gradient are written.
    ids = ops.draw_inputs(ops.OPERATIONS["embedding"], (1024, 50304, 768), np.random.RandomState(1), "gradient")["ids"]
    traffic = 4 * ((len(set(ids)) + 2 * 1024) * 768 + 1024 + 50304 * 768)
    assert points["embedding", "gradient", (1024, 50304, 768)].bytes == pytest.approx(traffic, rel=0.002)
    assert ("embedding", "forward", (1024, 50304, 768)) not in points
    for point in points.values():
        if point.operation in NAMES:
            assert point.mop * 1e6 < point.bytes, point
    halves = [point for point in ops.points("bf16", 1e9) if point.operation in NAMES]
    assert all(point.mop * 1e6 < point.bytes for point in halves)


def test_d_is_drawn_for_the_gradient_alone_and_ids_come_more_than_once() -> None:
    operation, random = ops.OPERATIONS["embedding"], np.random.RandomState(0)
    assert [*ops.draw_inputs(operation, operation.sizes[0], random)] == ["table", "ids"]
    p = ops.draw_inputs(operation, operation.sizes[0], random, ops.GRADIENT)
    assert [*p] == ["table", "ids", "d"]
    counts = np.bincount(p["ids"], minlength=512)
    assert p["ids"].dtype == np.int64
    assert len(counts) == 512
    assert 20 < counts.max() < 80
