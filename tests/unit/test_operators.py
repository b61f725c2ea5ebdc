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
from bench.workloads import declaration, ops


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
        if direction == ops.REDUCE:  # of one process that sees all devices; each has its result
            off = 1.001 if operation == self.wrong else 1.0
            return [lambda p=p: tuple(off**at * p["x"].sum(axis=0) for at in range(len(p["x"]))) for p in buffers]
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
    """Two operations, an optimiser and a copy at their two smallest sizes, and of a slow one the smallest."""
    kept = {name: ops.OPERATIONS[name] for name in ("add", "matmul", "conv1d")}
    kept = {name: each._replace(sizes=each.sizes[: 1 if name == "conv1d" else 2]) for name, each in kept.items()}
    monkeypatch.setattr(ops, "OPERATIONS", kept)
    monkeypatch.setattr(
        ops, "OPTIMIZERS", {"sgd": ops.OPTIMIZERS["sgd"]._replace(sizes=ops.OPTIMIZERS["sgd"].sizes[:2])}
    )
    monkeypatch.setattr(ops, "COPIES", ("h2d",))
    monkeypatch.setattr(ops, "COPY_SIZES", (4096,))


def cell(precision: str = "fp32", devices: int = 1) -> tuple[operators.OperatorsCell, Emitter]:
    emitter = Emitter()
    options = SimpleNamespace(workload="ops", preset="quick", precision=precision, seed=1, devices=devices)
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
    points = ops.points("fp32", 200.0)
    assert max(point.mop for point in points) <= 200.0
    assert {point.direction for point in points} == {"forward", "gradient", "step", "copy"}
    for one, next_one in zip(points, points[1:], strict=False):
        if one[:2] == next_one[:2] and one.operation not in ops.COPIES:
            assert one.mop < next_one.mop
    assert len(ops.points("fp32", 1e9)) > 1.5 * len(points)


def test_the_classes_of_dl_bench_are_all_reached() -> None:
    bounds = [low for _, low in ops.CLASSES] + [float("inf")]
    for low, high in zip(bounds, bounds[1:], strict=False):
        assert any(low <= point.mop < high for point in ops.points("fp32", 1e9))


def test_traffic_is_each_input_once_and_each_result_once() -> None:
    points = {point[:3]: point.bytes for point in ops.points("fp32", 1e9)}
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
    monkeypatch.setattr(operators.Turns.__init__, "__defaults__", (float, time.process_time))
    made, emitter = cell()
    made.measure(FRAMEWORK, Operators(), None, np.random.RandomState(0))
    told = emitter.of("operation")
    measured = {(each["operation"], each["direction"], each["size"]) for each in told}
    assert measured == {(p.operation, p.direction, operators.size_text(p.size)) for p in ops.points("fp32", 200.0)}
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


# -- several devices, fp8, what takes too long --------------------------------------------------------------------------


def test_several_devices_measure_their_all_reduce_and_say_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "REDUCE_SIZES", (4096, 16384, 1 << 28))
    made, emitter = cell(devices=3)
    made.measure(FRAMEWORK, Operators(), None, np.random.RandomState(0))
    told = emitter.of("operation")
    assert {(each["operation"], each["direction"]) for each in told} == {("all_reduce", "reduce")}
    assert {each["bytes"] for each in told} == {4096, 16384}  # the third is more than preset quick's
    (left_out,) = emitter.of("left-out")
    assert "--devices 1" in left_out["reason"]


@pytest.mark.parametrize(("wrong", "passed"), [("", True), ("all_reduce", False)])
def test_each_device_s_sum_is_held_against_the_sum(wrong: str, passed: bool) -> None:
    """The wrong one is off on the last of three devices alone, by two thousandths."""
    (result,) = operators.check(Operators(wrong=wrong), "fp32", 3)
    assert result.tensor == "all_reduce of 3 devices"
    assert result.passed is passed
    with pytest.raises(Unsupported, match="this framework has none"):
        operators.check(Operators(refuse="all_reduce"), "fp32", 3)


def test_processes_run_as_often_as_the_first_of_them() -> None:
    """This one's clock says a window took no time at all: by itself it would run without end."""
    made, emitter = cell(devices=2)
    made.group = SimpleNamespace(count=2, gather=lambda seconds: [0.004, seconds])  # type: ignore[assignment]
    made.measure_point(FRAMEWORK, Operators(), ops.reductions(2)[0], np.random.RandomState(0))
    told = emitter.of("operation")
    assert {(each["seconds"], each["runs"]) for each in told} == {(0.004, 1)}
    assert len(told) == 6


def test_fp8_rounds_as_the_format_says() -> None:
    """e4m3fn of Micikevicius et al.: 448 is the largest, 2^-9 the smallest, between 1 and 2 there are eighths, ties go to even."""
    values = [
        0.0,
        1.0,
        1.0625,
        1.1875,
        1.07,
        -1.9999,
        448.0,
        5000.0,
        2.0**-9,
        2.0**-10,
        1.1 * 2.0**-10,
        0.3,
        17.0,
        19.0,
    ]
    wanted = [0.0, 1.0, 1.0, 1.25, 1.125, -2.0, 448.0, 448.0, 2.0**-9, 0.0, 2.0**-9, 0.3125, 16.0, 20.0]
    assert ops.to_fp8(np.array(values)).tolist() == wanted


class Fp8Products(Operators):
    """Products at fp8 in NumPy, with the factors and the sums' type of one's choice."""

    def __init__(self, factor: Callable[[np.ndarray], np.ndarray]) -> None:
        super().__init__()
        self.factor = factor

    def runs(self, operation: str, direction: str, buffers: list[dict[str, Any]]) -> list[Callable[[], Any]]:
        def run() -> Any:
            a, b = (self.factor(buffers[0][name]).astype("float32") for name in "ab")
            d = np.ones((len(a), b.shape[1]), "float32")
            return (d.dot(b.T), a.T.dot(d)) if direction == ops.GRADIENT else a.dot(b)

        return [run]


def fewer_bits(bits: int) -> Callable[[np.ndarray], np.ndarray]:
    """Rounded to so many bits of fraction: 2 are e5m2's, where nothing leaves its range."""

    def rounded(values: np.ndarray) -> np.ndarray:
        unit = 2.0 ** (np.frexp(values)[1] - 1 - bits)
        return np.asarray(np.round(values / unit) * unit)

    return rounded


@pytest.mark.parametrize(
    ("factor", "passed"), [(ops.to_fp8, True), (fewer_bits(2), False), (lambda values: 1.02 * values, False)]
)
def test_products_at_fp8_are_held_to_e4m3_and_sums_in_fp32(
    factor: Callable[[np.ndarray], np.ndarray], passed: bool
) -> None:
    """e5m2 in place of e4m3 fails, and so does a scale that is off by a fiftieth."""
    found = operators.check(Fp8Products(factor), "fp8")
    assert [result.tensor for result in found] == [
        f"{name} {way}" for name in ops.PRODUCTS for way in ("forward", "gradient")
    ]
    assert all(result.passed is passed for result in found)


def test_fp8_is_of_products_alone_and_what_it_leaves_out_is_told() -> None:
    made, emitter = cell("fp8")
    points = made.points()
    assert {point.operation for point in points} == set(ops.PRODUCTS)
    (left_out,) = emitter.of("left-out")
    assert left_out["what"] == "all operations but products of matrices"
    by_size = {(point.operation, point.direction, point.size): point for point in points}
    assert by_size["matmul", "forward", (32, 32, 32)].bytes == 32 * 32 * (1 + 1 + 2)  # the result is bf16
    with pytest.raises(Unsupported, match="factors of products"):
        operators.refuse("add", "fp8")


@pytest.mark.usefixtures("small")
def test_no_larger_size_is_tried_where_a_run_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "LONG_RUN_SECONDS", 0.02)
    slow = Operators()
    quick = slow.runs
    monkeypatch.setattr(
        slow, "runs", lambda name, *rest: [lambda: time.sleep(0.04)] if name == "matmul" else quick(name, *rest)
    )
    made, emitter = cell()
    made.measure(FRAMEWORK, slow, None, np.random.RandomState(0))
    assert {each["size"] for each in emitter.of("operation") if each["operation"] == "matmul"} == {"32x32x32"}
    told = {each["what"]: each["reason"] for each in emitter.of("left-out")}
    assert "longer than a point should take" in told["matmul forward beyond 32x32x32"]
    assert "matmul gradient beyond 32x32x32" in told


def test_preset_quick_has_fewer_sizes_and_the_others_all() -> None:
    limited, whole = ops.points("fp32", 200.0, 250000000), ops.points("fp32", 200.0)
    assert {point for point in whole if point.bytes <= 250000000} == set(limited)
    assert any(point.operation == "add" and point.bytes > 100e6 for point in limited)  # beyond most caches
    thinned = ops.points("fp32", 200.0, 250000000, 3)
    assert [point.size[0] for point in thinned if point[:2] == ("add", "forward")] == [32, 512, 4096]
    assert [point.size[0] for point in thinned if point[:2] == ("matmul", "forward")] == [32, 128, 400]
    assert {point[:2] for point in thinned} == {point[:2] for point in limited}
    declared = declaration("ops")["presets"]
    limits = {"most_bytes", "most_sizes"}
    assert [sorted(limits & set(declared[name])) for name in ("quick", "standard", "full")] == [sorted(limits), [], []]


def test_a_pool_hands_out_what_lies_in_the_range_and_never_twice_the_same_row() -> None:
    pool = ops.Pool(np.random.RandomState(1))
    first, second, large = (pool.uniform(-1.0, 1.0, shape) for shape in ((8, 8), (8, 8), (1100, 1024)))
    assert large.shape == (1100, 1024)
    for values in (first, second, large):
        assert values.min() >= -1.0
        assert values.max() <= 1.0
        assert len({row.tobytes() for row in values}) == len(values)
    assert not np.array_equal(first, second)
    assert abs(large.mean()) < 0.01
    first[:] = 7.0  # whoever has it may write into it
    assert pool.uniform(-1.0, 1.0, (1 << 20,)).max() <= 1.0
