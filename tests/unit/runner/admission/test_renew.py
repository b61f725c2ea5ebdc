"""The tables of a run follow its parcels: one that is new here is judged, a changed one is refused, a known one is not judged again."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from runner.admission import admit as admission
from runner.admission import renew as of_renew
from runner.admission.judges import HostFacts
from runner.admission.renew import renew
from runner.cli.main import app
from runner.paths import PROJECT
from runner.results import store
from runner.results.on_disk import derived, schema
from runner.results.parcel import Parcel, decode, encode
from runner.results.store import TABLES, RunStore, StoreError
from tests.fixtures import stored
from tests.fixtures.contributions import retold
from tests.fixtures.more_steps import FACTORS, more
from tests.fixtures.nodes import parcel_of
from tests.fixtures.plans import make_cell

CELL = make_cell(image="torch-2.13.0-cpu")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the test an installation of this name, with a key of its own."""

    def become(name: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))

    become("here")
    return become


@pytest.fixture
def run(tmp_path: Path, here: Callable[[str], None]) -> RunStore:
    return stored.measured(tmp_path / "run", [parcel_of(CELL, repeat) for repeat in (1, 2, 3)], [CELL], repeats=3)


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The repeats that are judged, as they are."""
    judged: list[tuple[str, int]] = []
    real = admission.admit

    def note(parcel: Parcel, *rest: Any) -> Any:
        judged.append((parcel.cell_id, parcel.repeat))
        return real(parcel, *rest)

    monkeypatch.setattr(admission, "admit", note)
    return judged


def test_a_run_has_the_rows_that_its_parcels_are_admitted_with(run: RunStore) -> None:
    renew(run)
    expected = admission.admit(parcel_of(CELL, 2), CELL, HostFacts(image=admission.image_of(CELL)))
    assert (expected.status, expected.reason) == ("ok", None)
    for table, rows in expected.tables.items():
        found = [row for row in store.read([run.folder], table).to_pylist() if row["repeat"] == 2]
        assert found == derived.table_of(table, rows, run.run_id, CELL.id, 2).to_pylist()
    assert store.statuses(run.folder) == {(CELL.id, repeat): "ok" for repeat in (1, 2, 3)}


def test_only_a_parcel_that_is_new_is_judged(run: RunStore, admitted: list[tuple[str, int]]) -> None:
    renew(run)
    renew(run)
    assert admitted == [(CELL.id, repeat) for repeat in (1, 2, 3)]
    (run.folder / "repeats" / f"{CELL.id}.r4.parcel").write_bytes(encode(parcel_of(CELL, 4)))
    (run.folder / "repeats" / f"{CELL.id}.r1.parcel").unlink()
    renew(run)
    assert admitted[3:] == [(CELL.id, 4)]
    assert sorted(store.statuses(run.folder)) == [(CELL.id, repeat) for repeat in (2, 3, 4)]


def test_what_this_process_admitted_is_not_judged_again(run: RunStore, admitted: list[tuple[str, int]]) -> None:
    renew(run)
    parcel = parcel_of(CELL, 4)
    rows = admission.admit(parcel, CELL, HostFacts()).tables
    run.add(encode(parcel), CELL.id, 4, rows)
    admitted.clear()
    renew(run)
    assert admitted == []
    assert store.statuses(run.folder)[CELL.id, 4] == "ok"


def test_other_rules_judge_a_run_anew(
    run: RunStore, admitted: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    renew(run)
    monkeypatch.setattr(of_renew, "rules_digest", lambda: "of another release")
    renew(run)
    assert len(admitted) == 6


def test_a_run_from_elsewhere_is_judged_anew_and_its_tables_are_not_read(
    run: RunStore, here: Callable[[str], None], admitted: list[tuple[str, int]]
) -> None:
    renew(run)
    rows = store.read([run.folder], "samples")
    here("elsewhere")
    halve_tables(run.folder)
    renew(run)
    assert len(admitted) == 6
    assert store.read([run.folder], "samples").equals(rows)


def test_a_copy_is_read_without_being_judged_and_a_read_only_one_has_its_tables_in_the_cache(
    run: RunStore, admitted: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    renew(run)
    copy = RunStore(shutil.copytree(run.folder, run.folder.with_name("copy") / "run"))
    renew(copy)
    assert len(admitted) == 3
    shutil.rmtree(copy.folder / "tables")
    stored.forbid_tables_in(copy.folder, monkeypatch)
    for _ in range(2):
        renew(copy)
    assert len(admitted) == 6, "the tables in the cache are used again"
    assert len(store.read([copy.folder], "cells")) == 3


# -- a forger ---------------------------------------------------------------------------------------------------------------------

TIMES = (
    "seconds",
    "train_seconds",
    "first_step_seconds",
    "wall_seconds",
    "warmup_seconds",
    "step_seconds",
    "begin_seconds",
)


def halve_tables(folder: Path) -> None:
    """Multiply every time of a cell by a half in all tables, as the review of 25 Nov did, and name the new files in the index."""
    index = json.loads((folder / "tables" / "index.json").read_text())
    for table in TABLES:
        path = folder / "tables" / f"{table}.parquet"
        rows = [
            {name: value / 2 if name in TIMES and value is not None else value for name, value in row.items()}
            for row in pq.read_table(path).to_pylist()
        ]
        pq.write_table(pa.Table.from_pylist(rows, schema=schema.arrow_schema(table)), path)
        index["tables"][table] = derived.hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "tables" / "index.json").write_text(json.dumps(index))


def halve_tape(path: Path) -> None:
    """Do the same in what a cell printed."""
    parcel = decode(path.read_bytes(), path.name)
    tape = []
    for at, piece in parcel.tape:
        events = [json.loads(line) for line in piece.splitlines()]
        for event in events:
            for name in event:
                if name in TIMES and event[name] is not None:
                    event[name] /= 2
        tape.append((at, b"".join(json.dumps(event).encode() + b"\n" for event in events)))
    path.write_bytes(encode(replace(parcel, tape=tuple(tape))))


def answers(folder: Path, only_stdout: bool = False) -> list[str]:
    """What every command that shows a run's times prints. The origin of a parcel is told on standard error."""
    name = folder.name
    words = (
        ["report", name, "--text"],
        ["history", name],
        ["compare", "torch", "torch", "--runs", name],
        ["verify", "--run", name],
        [
            "reference",
            "save",
            name,
            "--name",
            "lab",
            "--noisy",
            "--replace",
            "--references",
            str(folder.parent / "shelf"),
        ],
    )
    ended = [CliRunner().invoke(app, [*word, *(["--out", str(folder.parent)])]) for word in words]
    assert not [one for one in ended if one.exception and not isinstance(one.exception, SystemExit)]
    return [one.stdout if only_stdout else one.output for one in ended]


@pytest.mark.parametrize("away", [False, True], ids=["measured here", "from elsewhere"])
def test_times_that_were_halved_in_every_table_change_no_answer(
    run: RunStore, here: Callable[[str], None], away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(run.folder.parent / "data"))
    truth = answers(run.folder, only_stdout=True)
    halve_tables(run.folder)
    if away:
        here("elsewhere")
    assert answers(run.folder, only_stdout=True) == truth


def test_a_tape_that_was_halved_after_it_was_measured_here_is_refused_by_name(run: RunStore) -> None:
    renew(run)
    halve_tape(path := run.folder / "repeats" / f"{CELL.id}.r2.parcel")
    for said in answers(run.folder):
        assert f"{path} was changed after it was measured here; restore it, or remove it" in said.replace("\n", " ")
    path.unlink()
    renew(run)
    assert sorted(store.statuses(run.folder)) == [(CELL.id, 1), (CELL.id, 3)]


def test_a_tape_from_elsewhere_whose_times_were_halved_is_no_result(run: RunStore) -> None:
    """The times at which its pieces came contradict it."""
    halve_tape(run.folder / "repeats" / f"{CELL.id}.r2.parcel")
    renew(run)
    rows = {row["repeat"]: row for row in store.read([run.folder], "cells").to_pylist()}
    assert (rows[1]["status"], rows[2]["status"], rows[2]["error_kind"]) == ("ok", "failed", "implausible")


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("names", [("steps",), ("items",), ("steps", "items")], ids="-".join)
def test_a_tape_from_elsewhere_with_more_steps_or_items_is_no_result(
    run: RunStore, factor: float, names: tuple[str, ...]
) -> None:
    path = run.folder / "repeats" / f"{CELL.id}.r2.parcel"
    (parcel,) = retold(more(factor, *names, stages=("steady",)))([decode(path.read_bytes(), path.name)])
    path.write_bytes(encode(parcel))
    renew(run)
    assert [store.statuses(run.folder)[CELL.id, repeat] for repeat in (1, 2, 3)] == ["ok", "failed", "ok"]


def test_nothing_but_the_door_adds_a_repeat_to_a_run() -> None:
    """An attempt, a node's driver and an import hand their parcels to it."""
    sources = {path.relative_to(PROJECT): path.read_text() for path in (PROJECT / "runner").rglob("*.py")}
    assert {str(path) for path, text in sources.items() if re.search(r"\brun\.add\(", text)} == {
        "runner/admission/admit.py"
    }
    users = {str(path) for path, text in sources.items() if "store_parcel(" in text}
    assert users == {
        "runner/admission/admit.py",
        "runner/kit/imported.py",
        "runner/nodes/driver.py",
        "runner/run/attempt.py",
    }


# -- what cannot be admitted -------------------------------------------------------------------------------------------------------


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def of_another_repeat(path: Path) -> None:
    path.write_bytes(encode(parcel_of(CELL, 7)))


@pytest.mark.parametrize("damage", [torn, of_another_repeat], ids=lambda damage: damage.__name__)
def test_a_parcel_that_cannot_be_admitted_is_named_with_what_to_do(
    run: RunStore, damage: Callable[[Path], None]
) -> None:
    damage(path := run.folder / "repeats" / f"{CELL.id}.r2.parcel")
    with pytest.raises(StoreError, match=rf"{path}.*remove it"):
        renew(run)


def test_a_parcel_of_a_cell_that_is_not_what_its_id_says_is_refused(run: RunStore) -> None:
    manifest = run.manifest()
    (entry,) = manifest["plan"]
    run.write_manifest({**manifest, "plan": [{**entry, "framework": "jax"}]})
    with pytest.raises(StoreError, match=rf"run\.json: the cell {CELL.id} is not what its id says"):
        renew(run)


def test_what_a_cell_put_among_the_parcels_has_no_row_and_no_repeat_is_lost_to_it(
    run: RunStore, capfd: pytest.CaptureFixture[str]
) -> None:
    path = run.folder / "repeats" / f"{CELL.id}.r2.parcel"
    content = path.read_bytes()
    path.unlink()
    path.mkdir()
    path.with_name("stranger.r1.parcel").write_bytes(b"no parcel")
    renew(run)
    assert store.statuses(run.folder) == {(CELL.id, repeat): "ok" for repeat in (1, 3)}
    assert (CELL.id, 2) not in run.finished()
    told = capfd.readouterr().err
    assert f"{path} is no file, and is passed over; remove it" in told
    assert "stranger.r1.parcel is of a cell that run.json does not plan, and is passed over" in told
    admission.store_parcel(run, decode(content, path.name), CELL, HostFacts(image=admission.image_of(CELL)))
    renew(run)
    assert store.statuses(run.folder) == {(CELL.id, repeat): "ok" for repeat in (1, 2, 3)}


def test_a_workload_that_this_checkout_does_not_have_is_named(tmp_path: Path, here: Callable[[str], None]) -> None:
    cell = make_cell(workload="cnn-of-tomorrow")
    run = stored.measured(tmp_path / "run", [replace(parcel_of(CELL), cell_id=cell.id)], [cell])
    with pytest.raises(
        StoreError, match="this checkout cannot judge torch cnn-of-tomorrow .*; read the run with the release"
    ):
        renew(run)


def test_one_run_that_cannot_be_admitted_hides_no_other(run: RunStore, tmp_path: Path) -> None:
    other = stored.measured(tmp_path / "other", [parcel_of(CELL, 1)], [CELL], created="2026-11-22T00:00:00+00:00")
    torn(other.folder / "repeats" / f"{CELL.id}.r1.parcel")
    ended = CliRunner().invoke(app, ["history", "--out", str(tmp_path)])
    assert f"skipped: {other.folder}: its tables were not made here" in ended.output
    assert "1 run" in ended.output or "one run" in ended.output


def test_everything_that_decides_a_row_is_in_the_digest_of_the_rules() -> None:
    """A module that admit loads and that is in no folder of the list would change rows of runs unnoticed."""
    import subprocess
    import sys

    script = "import sys, runner.admission.admit; print(*(n for n in sys.modules if n.split('.')[0] == 'runner'))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    listed = tuple(place.removesuffix(".py").replace("/", ".") for place in of_renew._RULES)
    ground = (
        "runner",
        "runner.errors",
        "runner.paths",
        "runner.text",
        "runner.trees",
        "runner.plan",
        "runner.paths",
    )
    others = {name for name in loaded if not name.startswith(listed)}
    assert others <= set(ground)


def test_nothing_is_written_through_a_link_of_a_run_and_a_pipe_holds_nobody_up(run: RunStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "index.json").write_text("mine")
    (run.folder / "tables").symlink_to(outside)
    renew(run)
    assert len(store.read([run.folder], "cells")) == 3
    assert [path.name for path in outside.iterdir()] == ["index.json"]
    (run.folder / "tables").unlink()
    (run.folder / "tables").mkdir()
    (run.folder / "tables" / "index.json").symlink_to(outside / "index.json")
    os.mkfifo(run.folder / "tables" / "cells.parquet")
    renew(run)
    assert len(store.read([run.folder], "cells")) == 3
    assert (outside / "index.json").read_text() == "mine"


def test_of_two_places_the_tables_of_most_parcels_are_read(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    renew(run)
    (run.folder / "repeats" / f"{CELL.id}.r4.parcel").write_bytes(encode(parcel_of(CELL, 4)))
    stored.forbid_tables_in(run.folder, monkeypatch)
    renew(run)
    assert len(store.read([run.folder], "cells")) == 4


def test_a_renamed_run_keeps_its_id_and_what_macos_leaves_beside_a_parcel_is_none(run: RunStore) -> None:
    renew(run)
    renamed = RunStore(run.folder.rename(run.folder.with_name("renamed")))
    parcel = parcel_of(CELL, 4)
    renamed.add(encode(parcel), CELL.id, 4, admission.admit(parcel, CELL, HostFacts()).tables)
    (renamed.folder / "repeats" / f"._{CELL.id}.r4.parcel").write_bytes(b"of macOS")
    renew(renamed)
    for table in ("cells", "samples"):
        assert set(store.read([renamed.folder], table)["run_id"].to_pylist()) == {run.run_id}
    assert len(store.statuses(renamed.folder)) == 4
