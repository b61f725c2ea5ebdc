"""The one door: a parcel has the same rows wherever it is admitted, and each judge is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.admission.admit import Admitted, admit, store_parcel
from runner.admission.judges import JUDGES, HostFacts
from runner.plan.plan import Cell
from runner.results.parcel import Parcel, decode
from runner.results.plausible import counts
from runner.results.store import TABLES, RunStore
from tests.fixtures.events import at_pace
from tests.fixtures.nodes import parcel_of
from tests.fixtures.plans import make_cell
from tests.stand_ins import engine as stand_in

STREAMS = sorted((Path(__file__).parents[2] / "recorded").glob("*.jsonl"))
CELL = make_cell(image="torch-2.13.0-cpu")
HOST = HostFacts()


@pytest.fixture(autouse=True)
def no_limit_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay is faster than any CPU computes it."""
    monkeypatch.setattr(counts, "most_operations", lambda *_: None)


def taped(text: str) -> tuple[tuple[float, bytes], ...]:
    """The lines of a stream, each as it came."""
    lines = at_pace(text, 12.0).encode().splitlines(keepends=True)
    return tuple((100.0 + json.loads(line)["t"], line) for line in lines)


def of_tiny_image(workload: str) -> str:
    device = {"kind": "cpu", "name": "tiny", "count": 1, "uuids": [], "compute_capability": None, "memory_bytes": 1}
    stream = stand_in.without_noise(stand_in.stream(workload, 0.002).decode()).replace('"@DEVICE@"', json.dumps(device))
    stream = re.sub(r'"@ITEMS@(\d+)"', r"\1", stream).replace('"@ZERO@"', "1.0").replace("@CODE@", "0" * 64)
    return stream.replace("@FRAMEWORK@", "torch")


def recorded() -> dict[str, tuple[Cell, Parcel]]:
    """Name -> every recorded repeat, and some that broke or never ran."""
    texts = {path.stem: path.read_text() for path in STREAMS}
    texts |= {f"torch-tiny.{workload}": of_tiny_image(workload) for workload in stand_in.RECORDED}
    found = {}
    for name, text in texts.items():
        image, workload = name.rsplit(".", 1)
        cell = make_cell(image=image, framework=image.split("-")[0], workload=workload)
        found[name] = cell, replace(parcel_of(cell), tape=taped(text))
    whole = parcel_of(CELL)
    found |= {
        "killed": (CELL, replace(whole, code=137, tape=whole.tape[:20])),
        "torn": (CELL, replace(whole, tape=(*whole.tape[:5], (200.0, b'{"event": "ph')))),
        "no text": (CELL, replace(whole, tape=(*whole.tape[:5], (200.0, b"\xff\x00\n")))),
        "xid": (CELL, replace(whole, code=1, xids=(("GPU-1", 79),), fault="KeyError: 'x'")),
        "hang": (CELL, replace(whole, ended_by=("hang", "it had printed nothing for 60 s and was stopped"))),
        "never ran": (CELL, Parcel(CELL.id, 1, "docker", ended_by=("engine", "no such image"))),
    }
    return found


RECORDED = recorded()


@pytest.mark.parametrize("name", RECORDED)
def test_a_parcel_that_was_written_and_read_has_the_rows_that_are_stored(name: str, tmp_path: Path) -> None:
    cell, parcel = RECORDED[name]
    run = RunStore(tmp_path / "run")
    admitted = store_parcel(run, parcel, cell, HOST)
    (path,) = (run.folder / "repeats").iterdir()
    assert path.name == f"{cell.id}.r1.parcel"
    again = admit(decode(path.read_bytes(), path.name), cell, HOST)
    assert (again.status, again.reason, again.tables) == (admitted.status, admitted.reason, admitted.tables)
    there = RunStore(tmp_path / "again" / "run")
    there.add(path.read_bytes(), cell.id, 1, again.tables)
    for table in TABLES:
        assert there.rows(table).equals(run.rows(table)), table
    assert run.rows("cells").to_pylist()[0]["status"] == ("ok" if "." in name else "failed")


def test_a_repeat_that_travelled_says_where_it_was_measured() -> None:
    admitted = admit(parcel_of(CELL), CELL, HOST)
    (row,) = admitted.tables["cells"]
    assert (row["node"], row["attempt"], row["engine"]) == ("n1", f"{CELL.id}.r1.0123abcd-1", "toy")
    assert (row["wall_seconds"], row["started_unix"], row["log_tail"]) == (
        31.0,
        parcel_of(CELL).started_unix,
        "a line of the log\n",
    )
    assert len(admitted.tables["telemetry"]) == 30


def test_a_cell_that_never_ran_has_its_reason_and_nothing_else() -> None:
    (row,) = admit(Parcel(CELL.id, 1, "docker", ended_by=("engine", "no such image")), CELL, HOST).tables["cells"]
    assert (row["status"], row["error_kind"], row["reason"]) == ("failed", "engine", "no such image")
    assert row["hint"] == "the end of its message names what failed; `runner doctor` tries the engine step by step"
    assert row.get("given_uuids") is None


def slower(parcel: Parcel) -> Parcel:
    return replace(parcel, tape=tuple((at and at * 50, piece) for at, piece in parcel.tape))


def untimed(parcel: Parcel) -> Parcel:
    return replace(parcel, tape=tuple((None, piece) for _, piece in parcel.tape))


@pytest.mark.parametrize(
    ("change", "host", "kind", "reason"),
    [
        (lambda parcel: parcel, HostFacts(code_sha256="0" * 64), "protocol", "it ran a bench with the digest"),
        (slower, HOST, "implausible", "arrived here over"),
        (untimed, HOST, "implausible", "nobody noted when its output came"),
        (lambda parcel: replace(parcel, began=None), HOST, "implausible", "nobody noted when its output came"),
        (lambda parcel: parcel, HostFacts(uuids=("GPU-1",)), "wrong-device", "its parcel names other devices"),
        (lambda parcel: parcel, HostFacts(boards=("GPU-1",)), "wrong-device", "its parcel names other devices"),
        (
            lambda parcel: replace(parcel, telemetry=({"device": "GPU-9", "unix": 1.0},)),
            HOST,
            "wrong-device",
            "its telemetry is of 'GPU-9', which it was not given",
        ),
        (lambda parcel: replace(parcel, wall_seconds=1.0), HOST, "implausible", "its process lived"),
        (lambda parcel: replace(parcel, out_of_memory=True), HOST, "out-of-memory", "the machine's memory limit"),
        (lambda parcel: replace(parcel, code=1), HOST, "crash", "exit code 1"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_parcel_has_no_say_in_what_the_host_knows(
    change: Callable[[Parcel], Parcel], host: HostFacts, kind: str, reason: str
) -> None:
    (row,) = admit(change(parcel_of(CELL)), CELL, host).tables["cells"]
    assert (row["status"], row["error_kind"]) == ("failed", kind)
    assert reason in row["reason"]


def test_each_event_is_shown_as_it_is_admitted() -> None:
    seen: list[Any] = []
    admit(parcel_of(CELL), CELL, HOST, seen.append)
    assert len(seen) == len(parcel_of(CELL).tape)


def test_the_table_names_every_judge_once_and_says_what_it_refuses() -> None:
    """In this order: the first that finds something gives the row its reason. Without one of them a cheat would pass."""
    assert [each.name for each in JUDGES] == [
        *(
            "ended-by",
            "given",
            "device",
            "code",
            "memory",
            "protocol",
            "error",
            "end",
            "environment",
            "kernels",
            "data",
        ),
        *("parity", "windows", "plan", "proof", "idle", "versions", "untimed", "life", "order", "stop", "steps"),
        *("operations", "arrivals", "phases", "counts", "work", "speed", "speed-of-operations", "length"),
    ]
    sentences = [each.sentence for each in JUDGES]
    assert len(set(sentences)) == len(sentences)
    assert all(re.fullmatch(r"[A-Z][^\n]{15,}\.", sentence) for sentence in sentences)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"other_cpus": 1.2}, "other work used 1.2 of its 2 CPUs"),
        ({"other_cpus": 0.1}, ""),
        ({"other_cpus": None}, ""),
        ({"other_cpus": 1.2, "device_kind": "cuda"}, ""),
    ],
)
def test_a_repeat_beside_which_other_programs_took_cpus_says_so_at_once(row: dict[str, Any], said: str) -> None:
    """Beside a GPU's cell they may be other cells."""
    usual = {"device_kind": "cpu", "environment_json": json.dumps({"host": {"cpu_count": 2}})}
    assert Admitted("ok", None, {"cells": [usual | row]}).disturbed == said
