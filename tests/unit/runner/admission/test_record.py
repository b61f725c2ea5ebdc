"""What becomes of a cell's output: a stream recorded from a real image, whole and broken in every way we know."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import rules
from bench.protocol import MAX_LINE_BYTES
from runner.admission import record
from runner.admission.record import Recorder
from runner.engines.base import Exit
from runner.plan.plan import Cell
from runner.results import parity
from runner.results.store import RunStore
from tests.fixtures.judged import judge
from tests.fixtures.plans import make_cell

RECORDED = (Path(__file__).parents[2] / "recorded" / "torch-2.13.0-cpu.gru-imdb.jsonl").read_bytes()
EVENTS = [json.loads(line) for line in RECORDED.splitlines()]
CELL = make_cell(image="torch-2.13.0-cpu", device_model="AMD EPYC")
OPS = make_cell(image="torch-2.13.0-cpu", workload="ops", batch=1)
DONE = Exit(0, False, "")

Verdict = tuple[str, str | None, str | None]
Play = Callable[..., tuple[Recorder, Verdict]]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Feed chunks to a recorder, judge it, and store it for real; returns the recorder and the verdict."""

    def play(
        chunks: Iterable[bytes],
        ended: Exit = DONE,
        cell: Cell = CELL,
        uuids: tuple[str, ...] = (),
        ended_by: tuple[str, str] | None = None,
        data_given: bool = False,
    ) -> tuple[Recorder, Verdict]:
        recorder = Recorder()
        for chunk in chunks:
            recorder.feed(chunk)
        recorder.close()
        verdict = judge(recorder, cell, ended, ended_by, uuids, data_given)
        extra = {"engine": "venv", "image_digest": "sha256:0", "exit_code": ended.code, "wall_seconds": 1.0}
        run = RunStore(tmp_path / "run")
        run.add(b"a parcel", cell.id, 1, recorder.tables(cell, verdict, log_tail="", **extra))
        for table in ("cells", "parity"):
            pq.write_table(run.rows(table), tmp_path / f"{table}.parquet")
        return recorder, verdict

    return play


def test_taking_a_line_costs_at_most_six_decodings() -> None:
    """About 2.4. The CPU time of turns that alternate: a busy machine slows both."""
    lines, taken, decoded = RECORDED.splitlines(keepends=True), 0.0, 0.0
    for _ in range(20):
        began, recorder = time.process_time(), Recorder()
        for line in lines:
            recorder.feed(line)
        halfway = time.process_time()
        for line in lines:
            json.loads(line)
        taken, decoded = taken + halfway - began, decoded + time.process_time() - halfway
        assert recorder.problem is None
    assert taken <= 6 * decoded, f"{taken / decoded:.1f} decodings"


def lines(events: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def changed(kind: str, **fields: Any) -> bytes:
    """The recorded stream with fields of its last event of a kind changed."""
    last = max(at for at, event in enumerate(EVENTS) if event["event"] == kind)
    return lines(event | fields if at == last else event for at, event in enumerate(EVENTS))


def again(kind: str, **fields: Any) -> bytes:
    """The recorded stream with its last event of a kind twice, the second time with fields changed."""
    last = max(at for at, event in enumerate(EVENTS) if event["event"] == kind)
    return lines([*EVENTS[: last + 1], EVENTS[last] | fields, *EVENTS[last + 1 :]])


def without(*kinds: str) -> bytes:
    return lines(event for event in EVENTS if event["event"] not in kinds)


def steady(recorder: Recorder) -> int:
    return sum(sample["stage"] == "steady" for sample in recorder.rows["samples"])


METRIC = next(event for event in EVENTS if event["event"] == "metric")
ALL_STEADY = sum(event["event"] == "sample" and event["stage"] == "steady" for event in EVENTS)


def test_a_recorded_stream_of_a_real_image_is_ok(play: Play, tmp_path: Path) -> None:
    recorder, verdict = play([RECORDED])
    assert verdict == ("ok", None, None)
    assert steady(recorder) == ALL_STEADY > 0
    (row,) = pq.read_table(tmp_path / "cells.parquet").to_pylist()
    assert row["framework_version"] == "2.13.0+cpu"
    digests = ("bench_sha256", "core_sha256", "code_sha256")
    environment = next(event for event in EVENTS if event["event"] == "environment")
    assert [row[name] for name in digests] == [environment[name] for name in digests]
    assert row["parity_passed"] is True
    assert row["stop"] in ("noise", "time")
    assert row["device_uuids"] == []
    assert row["evaluate_seconds"] == pytest.approx(
        sum(e["seconds"] for e in EVENTS if e["event"] == "phase" and e["name"] == "evaluate" and e["state"] == "end")
    )
    assert json.loads(row["environment_json"])["host"]["cpu_count"] == 2


@given(cuts=st.lists(st.integers(0, len(RECORDED)), max_size=40))
def test_it_does_not_matter_where_the_pipe_cuts_the_stream(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    recorder = Recorder()
    edges = [0, *sorted(cuts), len(RECORDED)]
    for begin, end in zip(edges, edges[1:], strict=False):
        recorder.feed(RECORDED[begin:end])
    recorder.close()
    assert judge(recorder, CELL, DONE, None, ()) == ("ok", None, None)
    assert steady(recorder) == ALL_STEADY


def test_a_line_of_ten_megabytes_fails_the_cell_before_it_fills_the_memory(play: Play) -> None:
    fed = 0

    def chunks() -> Iterable[bytes]:
        nonlocal fed
        yield RECORDED
        for _ in range(160):
            fed += 1
            yield b"x" * 65536

    recorder, (status, kind, reason) = play(chunks())
    assert (status, kind) == ("failed", "protocol")
    assert reason is not None
    assert len(reason) < 1000
    assert "'xxxxx" in reason
    assert len(recorder._pending) <= MAX_LINE_BYTES + 65536
    assert steady(recorder) == ALL_STEADY


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (changed("sample", seconds="1.5"), "sample.seconds has a wrong type"),
        (changed("sample", seconds=-1.0), "sample.seconds has a wrong type or value"),
        (changed("sample", steps=True), "sample.steps has a wrong type"),
        (changed("sample", colour="red"), "unknown field 'colour'"),
        (changed("end", event="finale"), "unknown event 'finale'"),
        (changed("end", v=2), "this host speaks 1"),
        (changed("metric", value=float("nan")), "NaN is not a number"),
        (changed("metric", value=float("inf")), "Infinity is not a number"),
        (without("end") + b"training done!\n", "'training done!'"),
        (without("end") + b"[1, 2]\n", "not a JSON object"),
        (without("end") + b"\xff\xfe\n", "not a JSON object"),
        (without("end") + b"[" * 100_000 + b"\n", "not a JSON object"),
        (without("end") + b"\n", "not a JSON object"),
        (RECORDED + lines([EVENTS[0]]), "after `end`"),
        (RECORDED[:-20], "torn"),
        (again("sample"), "a second sample with index "),
        (without("end") + lines(METRIC | {"name": f"metric {at}"} for at in range(1001)), "more than 1000 metrics"),
    ],
)
def test_a_line_that_does_not_fit_is_quoted_and_the_samples_before_it_are_kept(
    play: Play, stream: bytes, words: str
) -> None:
    recorder, (status, kind, reason) = play([stream])
    assert (status, kind) == ("failed", "protocol")
    assert reason is not None
    assert words in reason
    assert steady(recorder) >= ALL_STEADY - 1


@pytest.mark.parametrize(
    "stream",
    [
        changed("sample", index=2**40),
        changed("sample", steps=2**40),
        changed("sample", seconds=10**300),
        changed("metric", value=10**300),
        changed("memory", host_peak_bytes=2**53 - 1),
        changed("data", sha256="\ud800"),
        changed("environment", framework_version="\udcff"),
        changed("environment", framework_version="2.0\x00\x1b[2J"),
        changed("data", sha256="a" * 16_000),
    ],
)
def test_whatever_a_cell_says_can_be_stored(play: Play, stream: bytes) -> None:
    """A value that the store's columns cannot hold must fail its own cell, and not the writing of it."""
    _, (status, kind, _) = play([stream])
    assert (status, kind) in {("ok", None), ("failed", "protocol")}


def test_markup_in_a_version_is_stored_as_it_is(play: Play, tmp_path: Path) -> None:
    _, verdict = play([changed("environment", framework_version="<script>alert(1)</script>")])
    assert verdict[0] == "ok"
    (row,) = pq.read_table(tmp_path / "cells.parquet").to_pylist()
    assert row["framework_version"] == "<script>alert(1)</script>"


@pytest.mark.parametrize(("most", "value", "words"), [("EVENTS", 20, "20 events"), ("TOTAL_BYTES", 2000, "2000 bytes")])
def test_more_than_any_cell_prints_ends_it(
    play: Play, monkeypatch: pytest.MonkeyPatch, most: str, value: int, words: str
) -> None:
    monkeypatch.setattr(record.parcel, f"MAX_{most}", value)
    _, (status, kind, reason) = play([RECORDED[:1500], RECORDED[1500:3000], RECORDED[3000:]])
    assert (status, kind) == ("failed", "protocol")
    assert f"more than {words}" in str(reason)


def with_check(**fields: Any) -> list[dict[str, Any]]:
    """The recorded events with other fields in the check of the gradient of gru.u."""
    at = next(at for at, e in enumerate(EVENTS) if (e.get("quantity"), e.get("tensor")) == ("gradient", "gru.u"))
    return [*EVENTS[:at], EVENTS[at] | fields, *EVENTS[at + 1 :]]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"error": 0.5, "passed": False}, "gradient gru.u is off by 0.5"),
        # The cell's word that it passed counts for nothing.
        ({"error": 1e6}, "gradient gru.u is off by 1e+06"),
        ({"error": None}, "gradient gru.u is not finite"),
        ({"bound": 1e300}, "it allows gradient gru.u an error of 1e+300, and the reference here allows"),
        ({"error": 1e6, "bound": 1e300}, "it allows gradient gru.u an error of 1e+300"),
        ({"bound": 1e-4}, "it allows gradient gru.u an error of 0.0001, and the reference here allows"),
        # Not what the reference has.
        ({"tensor": "gru.x"}, "it checked gradient gru.x, which the reference here does not have"),
        ({"quantity": "features"}, "it checked features gru.u, which the reference here does not have"),
        ({"tensor": "gru.w"}, "it checked gradient gru.w 2 times, and each quantity is checked once"),
        # One variant of the network is measured.
        ({"variant": "one-bias"}, "its checks are of several variants of the reference"),
        ({"variant": "../../secret"}, "it checked gradient gru.u, which the reference here does not have"),
    ],
)
def test_a_cell_is_not_believed_that_its_check_passed(play: Play, fields: dict[str, Any], expected: str) -> None:
    recorder, (status, kind, reason) = play([lines(with_check(**fields))])
    assert (status, kind) == ("failed", "parity")
    assert expected in str(reason)
    assert steady(recorder) == ALL_STEADY


PARITY_ROWS = [at for at, event in enumerate(EVENTS) if event["event"] == "parity"]


@pytest.mark.parametrize("at", PARITY_ROWS, ids=lambda at: f"{EVENTS[at]['quantity']} {EVENTS[at]['tensor']}")
def test_every_quantity_of_the_reference_is_wanted(play: Play, at: int) -> None:
    _, (status, kind, reason) = play([lines([*EVENTS[:at], *EVENTS[at + 1 :]])])
    assert (status, kind) == ("failed", "parity")
    quantity, tensor = EVENTS[at]["quantity"], EVENTS[at]["tensor"]
    one_of_a_kind = (
        # Of an older bench's two names it knows today's.
        f"it did not check {quantity} {parity._OLDER_TENSOR.get(tensor, tensor)}",
        "it ended without a required check",
    )
    assert str(reason).startswith(one_of_a_kind)


@pytest.mark.parametrize(
    ("checks", "last_runs", "expected"),
    [
        ({"add forward": 1e-9, "add gradient": 1e-9}, ("forward", "gradient"), None),
        ({"add forward": 1e-9}, ("forward", "gradient"), "it did not check operation add gradient"),
        (
            {"add forward": 1e-9, "add gradient": 1.0},
            ("forward", "gradient"),
            "operation add gradient is off by 1 where",
        ),
        (
            {"add forward": 1e-9, "add gradient": 1e-9},
            ("forward",),
            "it did not check operation add gradient 8, last run",
        ),
        ({"add forward": 1e-9, "add gradient": 1e-9}, (), "it ended without a required check"),
    ],
)
def test_each_operation_that_was_measured_was_checked(
    play: Play, checks: dict[str, float], last_runs: tuple[str, ...], expected: str | None
) -> None:
    phase, check = ({"event": "phase", "name": "parity", "seconds": 0.1}, {"event": "parity", "variant": ""})
    last = [
        check
        | {
            "quantity": "operation",
            "tensor": f"add {direction} 8, last run",
            "error": 0.1,
            "bound": 1.0,
            "passed": True,
        }
        for direction in last_runs
    ]
    proof = phase | {"name": "proof"}
    rows = [
        check | {"quantity": "operation", "tensor": name, "error": error, "bound": 3e-6, "passed": True}
        for name, error in checks.items()
    ]
    window = {
        "event": "operation",
        "operation": "add",
        "size": "8",
        "mop": 64e-6,
        "bytes": 768,
        "buffers": 1,
        "runs": 9,
    }
    measured = [
        window | {"direction": direction, "index": 0, "begin": 3.0 + at, "seconds": 0.1}
        for at, direction in enumerate(("forward", "gradient"))
    ]
    begin = [event for event in EVENTS if event["event"] in ("environment", "plan")]
    told = [phase | {"state": "begin"}, *rows, phase | {"state": "end"}, *measured]
    told += [proof | {"state": "begin"}, *last, proof | {"state": "end"}]
    _, (_, kind, reason) = play(
        [lines([*begin, *({"t": 9.0, "v": 1} | event for event in told), EVENTS[-1] | {"steps": 18}])], cell=OPS
    )
    assert (kind is None) == (expected is None)
    assert str(reason).startswith(expected or "None") or str(expected) in str(reason)


def without_quantity(phase: str, quantity: str) -> list[dict[str, Any]]:
    """The recorded events without the checks of one quantity in one phase."""
    left, phases = [], []
    for event in EVENTS:
        if event["event"] == "phase":
            phases = [*phases, event["name"]] if event["state"] == "begin" else phases[:-1]
        if not (event["event"] == "parity" and event["quantity"] == quantity and phases[-1] == phase):
            left.append(event)
    assert len(left) < len(EVENTS)
    return left


CHECKED = rules.due(CELL.workload, CELL.preset)


@pytest.mark.parametrize(("phase", "quantity"), CHECKED)
def test_a_cell_that_ends_without_a_check_that_is_due_fails_and_names_it(play: Play, phase: str, quantity: str) -> None:
    _, (status, kind, reason) = play([lines(without_quantity(phase, quantity))])
    assert (status, kind) == ("failed", "parity")
    where = "on the adapter that was measured" if phase == "proof" else "before it was measured"
    assert f"{where}: {parity.name_of(quantity)}" in str(reason)


def excused(what: str, quantity: str) -> list[dict[str, Any]]:
    """The events with a sentence in place of a quantity of the measured adapter."""
    left = without_quantity("proof", quantity)
    at = next(at for at, event in enumerate(left) if event["event"] == "memory") + 1
    told = {"event": "left-out", "what": what, "reason": "it has none", "t": 20.0, "v": 1}
    return [*left[:at], told, *left[at:]]


@pytest.mark.parametrize(("what", "quantity"), sorted(rules.EXCUSES.items() - rules.OWN_LEFT_OUT.items()))
def test_a_cell_cannot_excuse_itself_from_what_the_host_knows_to_be_due(play: Play, what: str, quantity: str) -> None:
    _, (status, kind, reason) = play([lines(excused(what, quantity))])
    assert (status, kind) == ("failed", "parity")
    assert parity.name_of(quantity) in str(reason)


def test_a_framework_that_keeps_no_count_of_its_steps_says_so_and_is_ok(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "framework_declaration", lambda _: {"uncounted": [CELL.workload]})
    assert play([lines(excused(rules.COUNT_OF_UPDATES, "updates"))])[1] == ("ok", None, None)
    assert play([lines(without_quantity("proof", "updates"))])[1][:2] == ("failed", "parity")


@pytest.mark.parametrize(
    ("field", "value"), [("batch", CELL.batch + 1), ("devices", 2)], ids=("no stored losses", "several devices")
)
def test_losses_that_nothing_is_stored_for_are_not_compared(play: Play, field: str, value: int) -> None:
    recorder, _ = play([lines(excused(rules.LOSSES_COMPARED, "learning"))])
    # Its windows are of another batch or of one device, but no check is missing.
    assert judge(recorder, replace(CELL, **{field: value}), DONE)[1] != "parity"
    assert judge(recorder, CELL, DONE)[1] == "parity"


def test_losses_of_real_data_are_not_compared(play: Play) -> None:
    told = excused(rules.LOSSES_COMPARED, "learning")
    files = [event | {"source": "files"} if event["event"] == "data" else event for event in told]
    assert play([lines(files)], data_given=True)[1] == ("ok", None, None)
    _, (status, kind, reason) = play([lines(files)])
    assert (status, kind) == ("failed", "protocol")
    assert "no folder with data was given" in str(reason)


def test_each_check_is_stored_with_the_phase_that_it_was_made_in(play: Play, tmp_path: Path) -> None:
    play([RECORDED])
    rows = pq.read_table(tmp_path / "parity.parquet").to_pylist()
    assert {(row["phase"], row["quantity"]) for row in rows} >= set(CHECKED)
    assert {row["phase"] for row in rows} == {"parity", "proof"}


def test_each_window_of_a_point_has_the_kernel_that_the_framework_took(play: Play) -> None:
    at = {"t": EVENTS[-1]["t"], "v": EVENTS[-1]["v"], "operation": "attention_d64", "direction": "forward"}
    windows = [
        at | {"event": "operation", "size": size, "index": 0, "begin": 1.0, "seconds": 0.1, "runs": 9}
        | {"mop": 0.1, "bytes": 768, "buffers": 1}
        for size in ("1x8x1x1x8", "1x9x1x1x8")
    ]  # fmt: skip
    took = at | {"event": "dispatch", "size": "1x9x1x1x8", "kernel": "flash attention"}
    recorder, _ = play([lines([*EVENTS[:-1], took, *windows, EVENTS[-1]])])
    assert [row["kernel"] for row in recorder.rows["operations"]] == [None, "flash attention"]
    _, verdict = play([lines([*EVENTS[:-1], took, took, EVENTS[-1]])])
    assert "a second `dispatch` of that size" in str(verdict[2])


LAST = {"t": EVENTS[-1]["t"], "v": EVENTS[-1]["v"]}
ERROR = LAST | {"event": "error", "kind": "out-of-memory", "message": "no 80 GB here", "traceback": ""}
WINDOW = LAST | {"event": "operation", "operation": "matmul", "size": "8x8x8", "direction": "forward", "mop": 0.1}
WINDOW |= {"bytes": 768, "buffers": 1, "index": 0, "begin": 1.0, "seconds": 0.1, "runs": 9}
# The same rows, printed in the phase in which another adapter is checked.
MOVED = [event | {"name": "parity"} if event.get("name") == "proof" else event for event in EVENTS]
SEGFAULT, FAILED, KILLED = (Exit(code, False, "") for code in (139, 3, 137))
GPU, JAX = replace(CELL, device_kind="cuda"), replace(CELL, framework="jax")
LIMIT = ("time-limit", "it had not ended after 90 s and was stopped")

REFUSED: dict[str, tuple[bytes, dict[str, Any], str, str]] = {
    "no check": (without("parity"), {}, "parity", "it ended without the parity check"),
    "one row of the check": (
        lines(event for at, event in enumerate(EVENTS) if at not in PARITY_ROWS[1:]),
        {},
        "parity",
        "it ended without a required check",
    ),
    "an error that is not finite": (changed("parity", passed=False, error=None), {}, "parity", "not finite"),
    "a check of another adapter": (lines(MOVED), {}, "parity", "on the adapter that was measured"),
    "no environment": (without("environment"), {}, "protocol", "it never printed its environment"),
    "no window": (without("sample"), {}, "protocol", "without one steady window"),
    # A quick run would count as the specification's.
    "no plan": (without("plan"), {}, "protocol", "it ended without its `plan`"),
    "no end": (without("end"), {}, "crash", "before its `end`"),
    "nothing": (b"", {}, "crash", "before its `end`"),
    "a second data": (again("data", source="files"), {"data_given": True}, "protocol", "a second `data`"),
    "a window twice": (
        lines([*EVENTS[:-1], WINDOW, WINDOW, EVENTS[-1]]),
        {},
        "protocol",
        "a second operation of that size with index 0",
    ),
    # Before its environment, which would tell the device, as well.
    "kernels of a CPU": (
        lines([LAST | {"event": "kernels", "share": 0.1, "steps": 3}, *EVENTS]),
        {},
        "protocol",
        "it ran on the CPU and printed `kernels`, which is of a GPU",
    ),
    "its own error": (
        without("end") + lines([ERROR, EVENTS[-1] | {"status": "failed"}]),
        {"ended": Exit(1, False, "")},
        "out-of-memory",
        "no 80 GB here",
    ),
    "a signal after a good end": (RECORDED, {"ended": SEGFAULT}, "crash", "SIGSEGV"),
    "a signal in the middle of a line": (RECORDED[:-20], {"ended": SEGFAULT}, "crash", "SIGSEGV"),
    "an exit code after a good end": (RECORDED, {"ended": FAILED}, "crash", "exit code 3"),
    "the memory's limit": (RECORDED, {"ended": Exit(137, True, "")}, "out-of-memory", "memory"),
    "the time's limit": (RECORDED[:3000], {"ended": KILLED, "ended_by": LIMIT}, "time-limit", "90 s"),
    "a GPU's cell on the CPU": (RECORDED, {"cell": GPU, "uuids": ("GPU-1",)}, "wrong-device", "cuda was asked for"),
    "one CPU for two": (
        RECORDED,
        {"cell": replace(CELL, devices=2, scaling="weak")},
        "wrong-device",
        "it ran on 1 CPU devices where 2 processes or virtual devices were asked for",
    ),
    "another framework": (RECORDED, {"cell": JAX}, "protocol", "it ran torch where jax was asked for"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_repeat_is_refused_and_the_reason_is_said(play: Play, name: str) -> None:
    stream, more, expected, words = REFUSED[name]
    recorder, (status, kind, reason) = play([stream], **more)
    assert (status, kind) == ("failed", expected)
    assert words in str(reason)
    assert len(recorder.rows["operations"]) <= 1


@pytest.mark.parametrize(
    ("given_uuid", "seen", "words"),
    [
        ("gpu-2", ["GPU-2"], None),
        ("GPU-1", ["GPU-2"], "it ran on GPU-2 and was given GPU-1"),
        ("GPU-1", [], "a GPU that it does not name"),
        ("MIG-1", ["MIG-1"], None),
        # Not the GPU that it is a part of.
        ("MIG-1", ["GPU-2"], "it ran on GPU-2 and"),
        ("MIG-1", ["MIG-2"], "it ran on MIG-2 and"),
        ("MIG-1", ["MIG-1", "MIG-2"], "it ran on MIG-1, MIG-2 and"),
    ],
)
def test_a_gpu_cell_names_the_gpu_that_it_was_given(
    play: Play, given_uuid: str, seen: list[str], words: str | None
) -> None:
    stream = changed("environment", device=EVENTS[2]["device"] | {"kind": "cuda", "uuids": seen})
    _, (_, kind, reason) = play([stream], cell=GPU, uuids=(given_uuid,))
    assert kind == ("wrong-device" if words else None)
    assert (words or "None") in str(reason)
