"""Single operations: the cell that measures them, and the events that it prints."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import operators, protocol
from bench.errors import BenchError, Unsupported
from bench.workloads import ops
from tests.fixtures.operators import Operators

FRAMEWORK = SimpleNamespace(synchronize=lambda: None, is_out_of_memory=lambda error: False)


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
    monkeypatch.setattr(ops, "HEADS", {})
    monkeypatch.setattr(
        ops, "OPTIMIZERS", {"sgd": ops.OPTIMIZERS["sgd"]._replace(sizes=ops.OPTIMIZERS["sgd"].sizes[:2])}
    )
    monkeypatch.setattr(ops, "COPIES", ("h2d",))
    monkeypatch.setattr(ops, "COPY_SIZES", (4096,))


def cell(precision: str = "fp32", devices: int = 1) -> tuple[operators.OperatorsCell, Emitter]:
    emitter = Emitter()
    options = SimpleNamespace(
        workload="ops", framework="torch", preset="quick", precision=precision, seed=1, devices=devices, device="cpu"
    )
    made = operators.OperatorsCell(options, emitter)
    made.preset = dict(made.preset, seconds=0.01)
    return made, emitter


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


@pytest.mark.usefixtures("small")
def test_the_kernel_that_a_framework_took_is_told_before_the_windows_of_its_point() -> None:
    made, emitter = cell()
    adapter = Operators()
    adapter.kernel = "a fused one"
    made.measure_point(FRAMEWORK, adapter, ops.Point("add", ops.FORWARD, (32,), 1.0, 1, 8), np.random.RandomState(0))
    first, second = emitter.events[:2]
    assert (first["event"], first["operation"], first["size"], first["kernel"]) == (
        "dispatch",
        "add",
        "32",
        "a fused one",
    )
    assert second["event"] == "operation"


def test_what_several_backends_compute_gets_the_same_inputs_which_are_drawn_once() -> None:
    made, _ = cell()
    random, size = np.random.RandomState(0), ops.ATTENTION["attention_d64"].sizes[0]
    point = ops.Point("attention_d64", ops.FORWARD, size, 1.0, 1, 8)
    (first,) = made.buffers(point, 1, random)
    assert made.buffers(point._replace(operation="attention_d64_written"), 1, random)[0] is first
    assert made.buffers(point._replace(operation="attention_d128_written"), 1, random)[0] is not first


def test_a_framework_without_attention_leaves_it_out_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    made, emitter = cell()
    made.options.framework = "chainer"
    made.preset = dict(made.preset, most_mop=1e-9)
    adapter = Operators()
    adapter.ATTENTION = False
    monkeypatch.setattr(ops, "COPIES", ())
    made.measure(FRAMEWORK, adapter, None, np.random.RandomState(0))
    assert [(each["what"], each["reason"]) for each in emitter.of("left-out")] == [
        ("attention", operators.NO_ATTENTION % "chainer")
    ]
    with pytest.raises(Unsupported, match="nobody has written attention"):
        operators.error_of(adapter, "attention_d64", ops.ATTENTION["attention_d64"], ops.FORWARD, "fp32")


def test_what_no_number_of_a_precision_can_hold_is_asked_of_nobody() -> None:
    """Adam's second moment of small gradients is zero in fp16, and so is its epsilon."""
    made, _ = cell("fp16")
    assert {name for name, _ in ops.UNFIT} <= set(ops.OPTIMIZERS)
    point = ops.Point("adam", ops.STEP, (1024,), 0.01, 1, 7 * 2048)
    with pytest.raises(Unsupported, match="mixed precision are fp32"):
        made.measure_point(FRAMEWORK, Operators(), point, np.random.RandomState(0))
    adapter = Operators()
    adapter.ATTENTION = False
    with np.errstate(divide="ignore", invalid="ignore"):  # this adapter has no gradients of larger inputs
        found = {result.tensor for result in operators.check(adapter, "fp16")}
    assert "adam step" not in found
    assert "momentum step" in found


@pytest.mark.usefixtures("small")
def test_another_error_ends_the_cell() -> None:
    made, _ = cell()
    broken = Operators()
    broken.runs = lambda *_: [lambda: 1 / 0]  # type: ignore[method-assign,assignment]
    with pytest.raises(ZeroDivisionError):
        made.measure(FRAMEWORK, broken, None, np.random.RandomState(0))


def test_a_cell_of_operations_ends_with_the_threads_that_it_began_with() -> None:
    """Nothing of an operation is left to prove after the measurement, and the cell still comes past that check."""
    made, emitter = cell()
    made.prove(Operators(), {"threads": 2}, {"threads": 2})
    assert [each["event"] for each in emitter.events] == ["phase", "phase"]
    with pytest.raises(BenchError, match="threads"):
        made.prove(Operators(), {"threads": 2}, {"threads": 3})


def test_runs_take_turns_and_a_window_waits_for_the_device() -> None:
    calls: list[str] = []
    runs = [lambda name=name: calls.append(name) for name in "abc"]
    turns = operators.Turns(lambda: calls.append("|"), runs)
    turns.window(5)
    assert "".join(calls) == "|abcab|"


class Rising:
    """A device whose runs take 4 ms in its first 0.2 s of work, and 1 ms then."""

    def __init__(self) -> None:
        self.now = self.pending = 0.0

    def run(self) -> None:
        self.pending += 0.004 if self.now + self.pending < 0.2 else 0.001

    def synchronize(self) -> None:
        self.now, self.pending = self.now + self.pending, 0.0


@pytest.mark.parametrize(("least_seconds", "per_run"), [(0.0, 0.004), (0.3, 0.001)])
def test_a_point_of_a_gpu_runs_until_its_clock_has_risen(least_seconds: float, per_run: float) -> None:
    device = Rising()
    turns = operators.Turns(device.synchronize, [device.run] * 3, clock=lambda: device.now)
    assert turns.spin(least_seconds, turns.warm_up(0.06)) == pytest.approx(per_run)
    assert device.now >= least_seconds


@pytest.mark.usefixtures("small")
def test_on_a_gpu_more_inputs_take_turns_and_each_point_runs_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB of inputs lie in a GPU's second-level cache."""
    spun: list[float] = []
    monkeypatch.setattr(operators.Turns, "spin", lambda self, seconds, per_run: spun.append(seconds) or 1e-3)
    buffers = {}
    for device in ("cpu", "cuda"):
        made, emitter = cell()
        made.options.device = device
        point = ops.Point("add", ops.FORWARD, (32,), 1.0, 1, 2**25)
        for idle in (float("inf"), 0.1):
            made.worked_until = time.perf_counter() - idle
            made.measure_point(FRAMEWORK, Operators(), point, np.random.RandomState(0))
        buffers[device] = {each["buffers"] for each in emitter.of("operation")}
    assert buffers == {"cpu": {2}, "cuda": {8}}
    assert spun[:3] == [0.0, 0.0, operators.SPIN_SECONDS["cuda"]]
    assert 0.1 <= spun[3] <= operators.SPIN_SECONDS["cuda"]


def test_several_devices_measure_their_collectives_and_say_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "BUFFER_SIZES", (4096, 16384, 1 << 28))
    monkeypatch.setattr(Operators, "COLLECTIVES", ("all_reduce", "all_to_all"))
    made, emitter = cell(devices=3)
    made.measure(FRAMEWORK, Operators(), None, np.random.RandomState(0))
    told = emitter.of("operation")
    assert {(each["operation"], each["direction"]) for each in told} == {
        ("all_reduce", "reduce"),
        ("all_to_all", "collective"),
    }
    # The third is more than preset quick's, and of three devices each has a block.
    assert {each["bytes"] for each in told} == {4096, 16384, 4092, 16380}
    first, *others = emitter.of("left-out")
    assert "--devices 1" in first["reason"]
    assert {each["what"] for each in others} == {"reduce_scatter", "all_gather", "broadcast", "send_receive"}
    assert all(each["reason"].startswith("nobody has written it for ") for each in others)


def test_processes_run_as_often_as_the_first_of_them() -> None:
    """This one's clock says a window took no time at all: by itself it would run without end."""
    made, emitter = cell(devices=2)
    made.group = SimpleNamespace(count=2, gather=lambda seconds: [0.004, seconds])  # type: ignore[assignment]
    made.measure_point(FRAMEWORK, Operators(), ops.among(2, "fp32")[0], np.random.RandomState(0))
    told = emitter.of("operation")
    assert {(each["seconds"], each["runs"]) for each in told} == {(0.004, 1)}
    assert len(told) == 6


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
