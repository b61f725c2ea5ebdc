"""Single operations: what a point stands for, the check of results and gradients, and the cell's events, with NumPy for a framework."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import operators, protocol
from bench.errors import Unsupported
from bench.workloads import ops


class Operators:
    """The reference itself, as an adapter; gradients by differences, one input at a time."""

    def __init__(self, wrong: str = "", refuse: str = "", full: str = "") -> None:
        self.wrong, self.refuse, self.full = wrong, refuse, full

    def runs(self, operation: str, direction: str, buffers: list[dict[str, Any]]) -> list[Callable[[], Any]]:
        if operation == self.refuse:
            raise Unsupported("this framework has none")
        if operation == self.full:
            raise MemoryError
        if direction == ops.COPY:
            return [lambda p=p: p["x"].copy() for p in buffers]
        known = ops.OPERATIONS.get(operation) or ops.OPTIMIZERS[operation]
        off = 1.001 if operation == self.wrong else 1.0
        if direction == ops.GRADIENT:
            return [lambda p=p: tuple(off * value for value in gradients(known, p)) for p in buffers]
        return [lambda p=p: off * known.compute(p) for p in buffers]

    def values(self, operation: str, direction: str, result: Any) -> Any:
        return result if isinstance(result, tuple) else (result,)


def gradients(operation: Any, p: dict[str, np.ndarray]) -> list[np.ndarray]:
    """By complex steps where the operation is analytic in its inputs; exact to rounding."""
    found = []
    for name, value in p.items():
        gradient = np.zeros_like(value)
        for at in np.ndindex(value.shape) if value.size <= 64 else ():
            moved = value.astype(complex)
            moved[at] += 1e-30j
            gradient[at] = operation.compute({**p, name: moved}).sum().imag / 1e-30
        found.append(gradient)
    return found


class Emitter:
    """Keeps the events, each checked against the protocol."""

    zero = 0.0

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def emit(self, event: str, **fields: Any) -> None:
        whole = {"event": event, "t": 0.0, "v": protocol.VERSION, **fields}
        protocol.check(whole)
        self.events.append(whole)

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three operations, an optimiser and a copy, at their two smallest sizes."""
    kept = {name: ops.OPERATIONS[name] for name in ("add", "matmul", "conv1d")}
    kept = {name: each._replace(sizes=each.sizes[:2]) for name, each in kept.items()}
    monkeypatch.setattr(ops, "OPERATIONS", kept)
    monkeypatch.setattr(
        ops, "OPTIMIZERS", {"sgd": ops.OPTIMIZERS["sgd"]._replace(sizes=ops.OPTIMIZERS["sgd"].sizes[:2])}
    )
    monkeypatch.setattr(ops, "COPIES", ("h2d",))
    monkeypatch.setattr(ops, "COPY_SIZES", (4096,))


def cell(precision: str = "fp32") -> tuple[operators.OperatorsCell, Emitter]:
    emitter = Emitter()
    options = SimpleNamespace(workload="ops", preset="quick", precision=precision, seed=1)
    made = operators.OperatorsCell(options, emitter)
    made.preset = dict(made.preset, seconds=0.01)
    return made, emitter


FRAMEWORK = SimpleNamespace(synchronize=lambda: None, is_out_of_memory=lambda error: False)


# -- what a point stands for -------------------------------------------------------------------------------------------


def test_work_is_counted_as_the_specification_says() -> None:
    """dl_bench prints 1022.72 million operations for its 800 x 800 product: 2 m n (k - 1)."""
    mop = ops.OPERATIONS["matmul"].mop(800, 800, 800)
    assert mop == 1024.0
    assert mop - 2 * 800 * 800 / 1e6 == pytest.approx(1022.72)
    assert ops.OPERATIONS["add"].mop(1000) == 1.0
    assert ops.OPERATIONS["dense_x5"].mop(64, 256) == 5 * ops.OPERATIONS["dense"].mop(64, 256)
    assert ops.OPERATIONS["conv2d"].mop(1, 2, 4) == 2 * 2 * 2 * 16 * 9 / 1e6


def test_every_operation_makes_the_shape_that_it_declares_near_one() -> None:
    for name, operation in {**ops.OPERATIONS, **ops.OPTIMIZERS}.items():
        for size in operation.sizes[:2]:
            value = operation.compute(ops.draw_inputs(operation, size, np.random.RandomState(0)))
            assert value.shape == operation.result(*size), name
            assert 0.05 < np.abs(value).mean() < 5, name


def test_points_are_bounded_by_their_work_and_grow_within_an_operation() -> None:
    points = ops.points(4, 200.0)
    assert max(point.mop for point in points) <= 200.0
    assert {point.direction for point in points} == {"forward", "gradient", "step", "copy"}
    for one, next_one in zip(points, points[1:], strict=False):
        if one[:2] == next_one[:2] and one.operation not in ops.COPIES:
            assert one.mop < next_one.mop
    assert len(ops.points(4, 1e9)) > 1.5 * len(points)


def test_the_classes_of_dl_bench_are_all_reached() -> None:
    bounds = [low for _, low in ops.CLASSES] + [float("inf")]
    for low, high in zip(bounds, bounds[1:], strict=False):
        assert any(low <= point.mop < high for point in ops.points(4, 1e9))


def test_traffic_is_each_input_once_and_each_result_once() -> None:
    points = {point[:3]: point.bytes for point in ops.points(4, 1e9)}
    assert points["add", "forward", (32,)] == 3 * 32 * 32 * 4
    assert points["matmul", "gradient", (32, 32, 32)] == 5 * 32 * 32 * 4
    assert points["add", "gradient", (32,)] == 3 * 32 * 32 * 4  # the gradients of a sum are the result's own, handed on
    assert points["mul", "gradient", (32,)] == 5 * 32 * 32 * 4
    assert points["adam", "step", (1024,)] == 7 * 1024 * 4


def test_the_error_of_a_slope_by_differences_is_below_what_the_bound_allows_for_it() -> None:
    """Held against exact slopes: an operation that is linear in an input has its derivative there for nothing."""
    random = np.random.RandomState(5)
    for name in ("matmul", "dense_x5", "conv2d", "conv2d_transposed"):
        operation = ops.OPERATIONS[name]
        p = ops.draw_inputs(operation, operation.sizes[0], random)
        first = next(iter(p))
        direction, slope = ops.slope(operation, p, first, random)
        offset = operation.compute({**p, first: np.zeros_like(p[first])}).sum()
        exact = operation.compute({**p, first: direction}).sum() - offset
        gradient_norm = abs(exact) / np.linalg.norm(direction)
        assert abs(slope - exact) / np.linalg.norm(direction) <= ops.SLOPE_ERROR * max(1.0, gradient_norm), name


# -- the check ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16"])
def test_forward_results_of_the_reference_pass(precision: str) -> None:
    for name, operation in {**ops.OPERATIONS, **ops.OPTIMIZERS}.items():
        direction = ops.STEP if name in ops.OPTIMIZERS else ops.FORWARD
        error, bound = operators.error_of(Operators(), name, operation, direction, precision)
        assert error <= bound, name


@pytest.mark.parametrize("name", ["add", "matmul", "gru", "adam"])
def test_a_result_that_is_off_by_a_thousandth_fails(name: str) -> None:
    operation = ops.OPERATIONS.get(name) or ops.OPTIMIZERS[name]
    direction = ops.STEP if name in ops.OPTIMIZERS else ops.FORWARD
    error, bound = operators.error_of(Operators(wrong=name), name, operation, direction, "fp32")
    assert error > 100 * bound


@pytest.mark.parametrize(("wrong", "passed"), [("", True), ("mul", False)])
def test_gradients_are_held_against_slopes(wrong: str, passed: bool) -> None:
    tiny = ops.OPERATIONS["mul"]._replace(sizes=((4,),))
    error, bound = operators.error_of(Operators(wrong=wrong), "mul", tiny, ops.GRADIENT, "fp32")
    assert (error <= bound) is passed


# -- the cell ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_every_point_is_measured_in_windows_whose_runs_fill_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # a busy machine takes the clock's time, and would end the windows early; it does not take the process's
    monkeypatch.setattr(operators, "time", SimpleNamespace(perf_counter=time.process_time))
    monkeypatch.setattr(operators.Turns.__init__, "__defaults__", (time.process_time,))
    made, emitter = cell()
    made.measure(FRAMEWORK, Operators(), None, np.random.RandomState(0))
    told = emitter.of("operation")
    measured = {(each["operation"], each["direction"], each["size"]) for each in told}
    assert measured == {(p.operation, p.direction, operators.size_text(p.size)) for p in ops.points(4, 200.0)}
    for event in told:
        assert event["runs"] >= 1
        assert event["seconds"] > 0
    small_adds = [
        each for each in told if (each["operation"], each["direction"], each["size"]) == ("add", "forward", "32")
    ]
    assert len(small_adds) >= 6
    assert [each["index"] for each in small_adds] == list(range(len(small_adds)))
    assert small_adds[0]["buffers"] == operators.MOST_BUFFERS
    assert small_adds[0]["runs"] > 20  # microseconds each, windows of milliseconds
    assert not emitter.of("left-out")
    (plan,) = emitter.of("plan")
    assert plan["short"]


@pytest.mark.usefixtures("small")
def test_what_a_framework_cannot_do_is_told_once_and_the_rest_goes_on() -> None:
    made, emitter = cell()
    made.measure(FRAMEWORK, Operators(refuse="matmul", full="conv1d"), None, np.random.RandomState(0))
    assert {(each["what"], each["reason"]) for each in emitter.of("left-out")} == {
        ("matmul forward", "this framework has none"),
        ("matmul gradient", "this framework has none"),
        ("conv1d forward from 8x16x64", "it did not fit in the device's memory"),
        ("conv1d gradient from 8x16x64", "it did not fit in the device's memory"),
    }
    assert {each["operation"] for each in emitter.of("operation")} == {"add", "sgd", "h2d"}


def test_what_no_number_of_a_precision_can_hold_is_asked_of_nobody() -> None:
    """Adam's second moment of small gradients is zero in fp16, and so is its epsilon."""
    made, _ = cell("fp16")
    assert {name for name, _ in ops.UNFIT} <= set(ops.OPTIMIZERS)
    point = ops.Point("adam", ops.STEP, (1024,), 0.01, 1, 7 * 2048)
    with pytest.raises(Unsupported, match="mixed precision are fp32"):
        made.measure_point(FRAMEWORK, Operators(), point, np.random.RandomState(0))
    with np.errstate(divide="ignore", invalid="ignore"):  # this adapter has no gradients of larger inputs
        found = {result.tensor for result in operators.check(Operators(), "fp16")}
    assert "adam step" not in found
    assert "momentum step" in found


@pytest.mark.usefixtures("small")
def test_another_error_ends_the_cell() -> None:
    made, _ = cell()
    broken = Operators()
    broken.runs = lambda *_: [lambda: 1 / 0]  # type: ignore[method-assign,assignment]
    with pytest.raises(ZeroDivisionError):
        made.measure(FRAMEWORK, broken, None, np.random.RandomState(0))


def test_runs_take_turns_and_a_window_waits_for_the_device() -> None:
    calls: list[str] = []
    runs = [lambda name=name: calls.append(name) for name in "abc"]
    turns = operators.Turns(lambda: calls.append("|"), runs)
    turns.window(5)
    assert "".join(calls) == "|abcab|"
