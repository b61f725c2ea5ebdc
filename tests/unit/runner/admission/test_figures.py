"""Every number that makes a figure has a judge: a tape that says more steps, more items or less time is refused at every door."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import pytest

from bench import rules
from bench.workloads import ops
from runner.admission import record
from runner.admission.admit import admit
from runner.admission.judges import JUDGES, Evidence, HostFacts
from runner.kit.archive import read
from runner.kit.imported import import_archive
from runner.kit.results_folder import MANIFEST, packed
from runner.paths import PROJECT
from runner.plan.combination import Cell
from runner.results import store
from runner.results.on_disk.schema import TABLES
from runner.results.parcel import Parcel, decode, encode
from runner.results.plausible import counts
from runner.results.plausible.counts import Counts
from tests.fixtures.contributions import Events
from tests.fixtures.more_steps import FACTORS, everywhere, less_time, more, slow_clock
from tests.fixtures.nodes import parcel_of
from tests.fixtures.plans import make_cell

STREAMS = sorted((Path(__file__).parents[2] / "recorded").glob("*.jsonl"))
HOST = HostFacts()
WHAT = (("steps",), ("items",), ("steps", "items"))
ARCHIVES = ("fp32.tar.gz", "amp-bf16.tar.gz")
# What the table of docs/results-format.md says of a column that no judge holds.
NOBODY = "nobody"


@pytest.fixture(autouse=True)
def no_limit_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of arithmetic would refuse the large factors, too."""
    monkeypatch.setattr(counts, "most_operations", lambda *_: None)


def told(events: Events, change: Callable[[Events], Events], cell: Cell) -> tuple[str, str | None]:
    """(status, reason) of a repeat as it was recorded, whose tape says something else. Its lines come when they came."""
    arrived = [100.0 + event["t"] for event in events]
    changed = [json.dumps(event).encode() + b"\n" for event in change(events)]
    whole = parcel_of(cell)
    life = events[-1]["t"] + 1.0
    parcel = replace(whole, tape=tuple(zip(arrived, changed, strict=True)), wall_seconds=life, began=99.99, cpus=2)
    admitted = admit(parcel, cell, HOST)
    return admitted.status, admitted.reason


def recorded(path: Path) -> tuple[Events, Cell]:
    image, workload = path.stem.rsplit(".", 1)
    cell = make_cell(image=image, framework=image.split("-")[0], workload=workload)
    return [json.loads(line) for line in path.read_text().splitlines()], cell


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_recorded_tape_is_believed_and_one_with_more_steps_or_items_is_not(path: Path) -> None:
    events, cell = recorded(path)
    assert told(events, lambda same: same, cell) == ("ok", None)
    for factor in FACTORS:
        for names in WHAT:
            for stages in (("first", "warm-up", "steady"), ("steady",)):
                assert told(events, more(factor, *names, stages=stages), cell)[0] == "failed", (factor, names, stages)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize("factor", [10, 100])
def test_a_tape_that_says_many_times_the_steps_in_every_event_contradicts_its_own_warm_up(
    path: Path, factor: float
) -> None:
    events, cell = recorded(path)
    status, reason = told(events, everywhere(factor), cell)
    assert status == "failed"
    assert "its warm-up" in str(reason)


@pytest.mark.parametrize(
    ("slower", "disturbed", "believed"), [(2, False, True), (5, False, False), (5, True, True), (10, True, False)]
)
def test_a_warm_up_may_be_slower_where_other_work_was_beside_it(slower: float, disturbed: bool, believed: bool) -> None:
    collected = Counts()
    for index in range(20):
        stage = "first" if not index else "warm-up" if index < 10 else "steady"
        seconds = 0.1 * (slower if stage == "warm-up" else 1)
        collected.note(
            {"event": "sample", "t": 1.0, "index": index, "stage": stage, "seconds": seconds, "steps": 1, "items": 1}
        )
    why = collected.implausible("infer", 1, disturbed)
    assert (why is None) == believed
    assert believed or "if something else was slow then, measure it again" in str(why)


@pytest.mark.parametrize(("beside", "disturbed"), [(1.0, True), (0.05, False)])
def test_the_host_saw_who_else_worked_while_a_cell_was_measured(beside: float, disturbed: bool) -> None:
    cell = make_cell(image="torch-2.13.0-cpu")
    whole = parcel_of(cell)
    rows = [row | {"machine_cpu_seconds": row["cpu_seconds"] + beside * row["unix"]} for row in whole.telemetry]
    recorder = record.Recorder(None)
    for at, piece in whole.tape:
        recorder.feed(piece, at)
    recorder.close()
    clock = record.on_the_cells_clock(rows, whole.started_unix)
    evidence = Evidence(whole, cell, HOST, recorder, clock)
    assert (evidence.disturbed_warm_up, evidence.disturbed_windows) == (disturbed, disturbed)


@pytest.mark.parametrize(("disturbed", "ends"), [(True, "measure it again without it"), (False, "lay between them")])
def test_windows_too_far_apart_on_a_busy_machine_say_what_to_do(disturbed: bool, ends: str) -> None:
    arrivals = SimpleNamespace(implausible=lambda *_: "it says that 1.13 s lay between them")
    parcel = SimpleNamespace(began=0.0, still=())
    seen = SimpleNamespace(
        recorder=SimpleNamespace(arrivals=arrivals),
        preset={"epochs": None},
        parcel=parcel,
        disturbed_windows=disturbed,
    )
    (judge,) = [one for one in JUDGES if one.name == "arrivals"]
    failed = judge.find(cast("Evidence", seen))
    assert failed is not None
    assert failed[1] is not None
    assert failed[1].endswith(ends)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize("factor", [0.9, 0.8, 0.66, 0.5])
def test_a_tenth_of_the_time_cannot_be_hidden_between_windows_nor_by_a_slow_clock(path: Path, factor: float) -> None:
    events, cell = recorded(path)
    status, reason = told(events, less_time(factor), cell)
    assert (status, "lay between them" in str(reason) or "arrived here over" in str(reason)) == ("failed", True), reason
    # A slow clock ends before its preset's time, too, and that is named first.
    assert told(events, slow_clock(factor), cell)[0] == "failed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda event: event | {"steps": event["steps"] * 1000} if event["event"] == "end" else event,
            "its `end` counts",
        ),
        (lambda event: event | {"steps": event["steps"] - 1} if event["event"] == "end" else event, "its `end` counts"),
        (
            lambda event: (
                event | {"step": event["step"] + 1} if event["event"] == "metric" and event["step"] else event
            ),
            "it printed loss after 2 steps, and the windows before it have 1",
        ),
        (
            lambda event: event | {"seconds": event["seconds"] * 0.9} if event["event"] == "metric" else event,
            "s of training, and the windows before it lasted",
        ),
        (
            lambda event: event | {"steps_per_window": 1} if event["event"] == "plan" else event,
            "a steady window has 2 steps, and its plan has 1 in each",
        ),
        (
            lambda event: event | {"items_per_step": 65} if event["event"] == "plan" else event,
            "its plan has 65 items in a step, and the cell has 64",
        ),
    ],
)
def test_a_number_that_another_number_contradicts_is_named(
    change: Callable[[dict[str, Any]], dict[str, Any]], words: str
) -> None:
    events, cell = recorded(next(path for path in STREAMS if path.stem == "torch-2.13.0-cpu.gru-imdb"))
    status, reason = told(events, lambda every: [change(event) for event in every], cell)
    assert (status, words in str(reason)) == ("failed", True), reason


def test_a_window_without_its_loss_is_named() -> None:
    events, cell = recorded(STREAMS[0])
    at = [place for place, event in enumerate(events) if event["event"] == "metric" and event["name"] == "loss"][20]
    tape = events[:at] + events[at + 1 :]
    parcel = replace(
        parcel_of(cell),
        tape=tuple((100.0 + event["t"], json.dumps(event).encode() + b"\n") for event in tape),
        wall_seconds=events[-1]["t"] + 1.0,
    )
    assert "it printed no loss of the window before" in str(admit(parcel, cell, HOST).reason)


# -- what a real GPU left -------------------------------------------------------------------------------------------------------------


def forged(name: str, change: Callable[[Events], Events], folder: Path) -> Path:
    """An archive of docs/h200 whose tapes say something else."""

    def retold(content: bytes, member: str) -> bytes:
        parcel: Parcel = decode(content, member)
        whole = b"".join(piece for _, piece in parcel.tape)
        if b'"sample"' not in whole:
            return content
        times = [at for at, piece in parcel.tape for _ in range(piece.count(b"\n"))]
        events = change([json.loads(line) for line in whole.splitlines()])
        lines = (json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)
        return encode(replace(parcel, tape=tuple(zip(times, lines, strict=True))))

    with tarfile.open(PROJECT / "docs" / "h200" / name) as archive:
        contents = {member.name: cast(IO[bytes], archive.extractfile(member)).read() for member in archive}
    files = {
        member: retold(content, member) if member.endswith(".parcel") else content
        for member, content in contents.items()
        if member != MANIFEST
    }
    path = folder / name
    path.write_bytes(packed(files))
    return path


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("names", WHAT, ids="-".join)
@pytest.mark.parametrize("factor", FACTORS)
def test_an_old_archive_with_more_steps_or_items_has_no_row_that_ended_well(
    name: str, names: tuple[str, ...], factor: float, tmp_path: Path
) -> None:
    path = forged(name, more(factor, *names, stages=("steady",)), tmp_path)
    imported = import_archive(read(path), tmp_path / "out")
    rows = store.read([imported.run.folder], "cells").to_pylist()
    assert rows
    assert {row["status"] for row in rows} == {"failed"}


# -- the list -------------------------------------------------------------------------------------------------------------------------


def held() -> dict[str, str]:
    """`table.column` -> who holds it, by the table of docs/results-format.md."""
    page = (PROJECT / "docs" / "results-format.md").read_text()
    part = page.split("<!-- held fields -->")[1].split("<!-- end of held fields -->")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return {f"{row[0].strip('`')}.{name}": row[2] for row in rows for name in re.findall(r"`(\w+)`", row[1])}


# What no reader makes a figure of: names, and sentences for a person.
TEXTS = ("string", "list<string>")


def test_each_number_of_the_tables_has_its_judge_in_the_docs() -> None:
    numbers = {
        f"{table}.{column.name}" for table, columns in TABLES.items() for column in columns if column.kind not in TEXTS
    } - {f"{table}.repeat" for table in TABLES}
    assert numbers - set(held()) == set(), "docs/results-format.md does not say who holds these"
    assert set(held()) - numbers == set(), "docs/results-format.md names columns that no table has"


def test_each_judge_that_the_docs_name_is_one() -> None:
    names = {each.name for each in JUDGES}
    named = {name for who in held().values() for name in re.findall(r"`([a-z-]+)`", who)}
    assert named - names == set()
    assert all(re.search(r"`[a-z-]+`|the host|the cell's word", who) for who in held().values())


# -- tokens and single operations -----------------------------------------------------------------------------------------------------


def of_tokens(first: float, between: float, last: float) -> str | None:
    """The contradiction in a cell whose prompts take 0.1 s and whose tokens take 0.01 s, and which says other times."""
    collected, t, steps, seconds = Counts(), 1.0, 0, 0.0

    def note(kind: str, **words: Any) -> None:
        collected.note({"event": kind, "t": t, **words})

    def metric(name: str, value: float) -> None:
        note("metric", name=name, step=steps, seconds=seconds, value=value)

    note("sample", index=0, stage="first", begin=t, seconds=0.01, steps=1, items=1)
    steps, seconds = 1, 0.01
    for index in range(1, 9):
        t += 0.101
        metric(rules.FIRST_TOKEN, first)
        t += 0.16
        note("sample", index=index, stage="steady", begin=t - 0.16, seconds=0.16, steps=16, items=16)
        steps, seconds = steps + 16, seconds + 0.16
    metric(rules.BETWEEN_TOKENS, between)
    metric(rules.BETWEEN_TOKENS_99, last)
    return collected.implausible("decode", 1)


def test_the_times_of_tokens_are_those_of_the_events_and_of_the_windows() -> None:
    assert of_tokens(0.1, 0.01, 0.012) is None
    for first, between, last in ((0.05, 0.01, 0.012), (0.2, 0.01, 0.012)):
        assert "a first token takes" in str(of_tokens(first, between, last))
    for first, between, last in ((0.1, 0.001, 0.012), (0.1, 0.03, 0.04), (0.1, 0.01, 0.009)):
        assert "a token takes" in str(of_tokens(first, between, last))


def test_a_run_of_an_operation_has_the_work_of_its_size() -> None:
    for precision, devices in (("fp32", 1), ("bf16", 1), ("fp8", 1), ("fp32", 2)):
        points = ops.points(precision, 1e4, None, None, (0, 1e4)) if devices == 1 else ops.among(devices, precision)
        rows = [
            {
                "operation": one.operation,
                "direction": one.direction,
                "size": "x".join(map(str, one.size)),
                "mop": one.mop,
                "bytes": one.bytes,
            }
            for one in points
        ]
        assert rows
        assert counts.miscounted(rows, precision, devices) is None
        for name in ("mop", "bytes"):
            for row in rows:
                if row[name]:
                    assert "and it has" in str(counts.miscounted([row | {name: row[name] * 1.1}], precision, devices))
    assert "does not have" in str(counts.miscounted([rows[0] | {"operation": "cheap"}], "fp32", 2))
    assert "does not have" in str(counts.miscounted([rows[0] | {"size": "8xtwo"}], "fp32", 2))


def test_the_runs_of_single_operations_are_those_that_the_end_counts() -> None:
    for runs, words in ((9, "None"), (10, "its `end` counts 18 runs, and its windows have 20")):
        collected = Counts()
        for _ in range(2):
            collected.note({"event": "operation", "t": 1.0, "runs": runs})
        collected.note({"event": "end", "t": 2.0, "steps": 18})
        assert words in str(collected.implausible("operators", 1))
