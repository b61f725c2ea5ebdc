"""The profile of a step: own times from spans, rows through the protocol and the store, and the table in the report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import reports.page.render
from bench import profiling, protocol, timing
from bench.cell import RunningCell
from bench.profiling import Operation, Span
from reports.data import profiles, tables
from runner.catalog import frameworks
from runner.plan.plan import Cell as PlannedCell
from runner.results.store import RunStore
from runner.run.attempt import arguments
from runner.run.record import Recorder
from tests.fixtures import synthetic


def test_a_span_within_another_one_is_taken_off_its_time() -> None:
    first = [
        Span("call", "cpu", 0.0, 10.0),
        Span("matmul", "cpu", 1.0, 4.0),
        Span("pack", "cpu", 2.0, 1.0),
        Span("matmul", "cpu", 6.0, 2.0),
        Span("add", "cpu", 10.0, 3.0),  # begins where the call ends: not within it
    ]
    second = [Span("add", "cpu", 0.0, 5.0)]  # of another thread: within nothing of the first
    found = {each.name: (each.calls, each.seconds) for each in profiling.own_time([first, second])}
    assert found == {
        "call": (1, pytest.approx(4.0)),
        "matmul": (2, pytest.approx(5.0)),
        "pack": (1, pytest.approx(1.0)),
        "add": (2, pytest.approx(8.0)),
    }


def test_the_longest_are_told_and_the_others_together() -> None:
    many = [Operation("op%d" % n, "cuda", 2, float(n)) for n in range(100)] + [Operation("x" * 999, "cpu", 1, 1e3)]
    found = profiling.longest(many)
    assert len(found) == profiling.ROWS + 1
    assert found[0] == Operation("x" * profiling.NAME_CHARACTERS, "cpu", 1, 1e3)
    assert found[-1].name == "60 other operations"  # op0 took no time
    assert sum(each.seconds for each in found) == pytest.approx(sum(each.seconds for each in many))


class Told(list[dict[str, Any]]):
    zero = 0.0

    def emit(self, event: str, **fields: Any) -> None:
        fields |= {"event": event, "t": 0.0, "v": protocol.VERSION}
        protocol.check(fields)
        self.append(fields)


def cell(workload: str) -> tuple[RunningCell, Told]:
    told = Told()
    return RunningCell(SimpleNamespace(workload=workload, preset="quick", framework="torch", device="cpu"), told), told


def test_the_steps_after_the_measured_ones_are_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def operations(run: Any, device: str) -> list[Operation]:
        run()
        return [Operation("matmul", device, 2 * len(ran), 0.25)]

    monkeypatch.setattr(profiling.importlib, "import_module", lambda name: SimpleNamespace(operations=operations))
    profiled, told = cell("gru-imdb")
    profiled.loop = timing.Loop(lambda x, y: ran.append(x), iter([(n, n) for n in range(9)]), lambda: None, None)
    profiled.profile()
    assert ran == list(range(profiling.STEPS))
    assert profiled.loop.samples == []
    (row,) = [each for each in told if each["event"] == "profile"]
    assert (row["name"], row["on"], row["calls"], row["seconds"], row["steps"]) == ("matmul", "cpu", 10, 0.25, 5)


def test_a_workload_without_steps_says_that_it_has_no_profile() -> None:
    profiled, told = cell("ops")
    profiled.profile()
    (only,) = told
    assert only["event"] == "left-out"
    assert "ops has none" in only["reason"]


def row(**more: Any) -> dict[str, Any]:
    return {"name": "aten::mm", "on": "cpu", "calls": 10, "seconds": 0.5, "steps": 5, "step_seconds": 0.2} | more


def test_a_cells_profile_is_bounded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "events.jsonl")
    line = json.dumps(row() | {"event": "profile", "t": 1.0, "v": protocol.VERSION}).encode() + b"\n"
    recorder.feed(line * 1000)
    assert recorder.problem is None
    assert len(recorder.rows["profile"]) == 200
    recorder.feed(line.replace(b'"steps": 5', b'"steps": 5000000000'))
    assert "profile.steps is above" in str(recorder.problem)
    recorder.close()


def test_only_frameworks_with_a_profiler_are_asked_for_one() -> None:
    can = frameworks.with_profiler()
    assert {"torch", "jax", "tensorflow", "keras_torch", "keras_jax", "keras_tensorflow"} <= can
    assert "chainer" not in can
    planned = PlannedCell(**dict.fromkeys(PlannedCell.__dataclass_fields__))  # type: ignore[arg-type]
    planned = replace(planned, workload="gru-imdb", framework="torch", devices=1, seed=1)
    assert "--profile" not in [str(word) for word in arguments(planned)]
    assert arguments(planned, profiled=True)[-1] == "--profile"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = synthetic.make_run(tmp_path / "run")
    store = RunStore(folder)
    entry = next(each for each in store.manifest()["plan"] if each["framework"] == "torch")
    ended = synthetic.ended(entry, 1, 20)
    many = [row(name=f"small{n}", seconds=0.001, calls=5) for n in range(20)]
    ended["profile"] = [row(), row(name="<script>alert(1)</script>", seconds=0.25), *many]
    store.write_repeat(entry["id"], 1, ended)
    return folder


def test_the_report_shows_shares_and_escapes_names(run: Path) -> None:
    data = tables.load([run])
    found = [one for workload in data.workloads for g in workload.groups for one in profiles.shown(g, data.profiles)]
    (one,) = found
    assert one.profile.busy_seconds == pytest.approx(0.77 / 5)
    assert [each.name for each in one.operations[:2]] == ["aten::mm", "<script>alert(1)</script>"]
    assert one.operations[0].share == pytest.approx(0.5 / 0.77)
    assert one.operations[0].calls == 2
    assert len(one.operations) == profiles.SHOWN
    assert one.others == pytest.approx(0.007 / 0.77)
    reports.page.render.render([run], run / "report.html")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Where a step&#39;s time goes" in page or "Where a step's time goes" in page
    assert re.search(r"&lt;script&gt;alert\(1\)", page)
    assert "<script>alert(1)" not in page


def test_a_page_without_profiles_has_no_such_section(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    reports.page.render.render([folder], folder / "report.html")
    assert "time goes</h4>" not in (folder / "report.html").read_text(encoding="utf-8")
