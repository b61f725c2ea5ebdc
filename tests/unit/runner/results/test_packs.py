"""Repeats that are put together: every reader finds what it found before, and a kill at any point loses and doubles nothing."""

from __future__ import annotations

import os
import shutil
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reports.data.tables import load
from runner.plan import durations
from runner.results import store
from runner.results.on_disk import table_file
from runner.results.parquet import packs
from runner.results.store import TABLES, RunStore, StoreError
from runner.verify.references import measured
from tests.fixtures import synthetic
from tests.unit.kill_points import count_changes

NODES = ("n1", "bench@a:b/../c")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose repeats two nodes measured, each in its own files."""
    folder = synthetic.make_run(tmp_path_factory.mktemp("plain") / "20261123-000000-abcd", repeats=2)
    run = RunStore(folder)
    for at, path in enumerate(store.singles_of(folder / "cells")):
        if path.stem != "skipped":
            rows = pq.ParquetFile(path).read().to_pylist()
            pq.write_table(
                pa.Table.from_pylist([rows[0] | {"node": NODES[at % 2]}], schema=store.arrow_schema("cells")), path
            )
            key = rows[0]["cell_id"], rows[0]["repeat"]
            store.write_bytes(run.events_path(*key), f"{key}\n".encode())
            store.write_bytes(folder / "logs" / f"{store.file_name(*key)}.log", b"a line\n")
    return folder


@pytest.fixture
def run(plain: Path, tmp_path: Path) -> RunStore:
    return RunStore(Path(shutil.copytree(plain, tmp_path / plain.name)))


def pack(run: RunStore) -> None:
    packs.Packer(run).pack_rest()


def rows_of(folder: Path, table: str) -> list[str]:
    return sorted(map(repr, store.read([folder], table).to_pylist()))


def all_of(folder: Path) -> dict[str, list[str]]:
    return {table: rows_of(folder, table) for table in TABLES}


def singles(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*/*.r*") if path.parent.name in (*TABLES, "events", "logs")]


def test_a_run_that_was_put_together_is_read_as_before_and_has_few_files(plain: Path, run: RunStore) -> None:
    before = len(singles(run.folder))
    pack(run)
    assert before > 100
    assert singles(run.folder) == []
    assert len([path for path in run.folder.rglob("*") if path.is_file()]) < 2 * (len(TABLES) + 2) + 5
    assert all_of(run.folder) == all_of(plain)
    assert run.finished() == RunStore(plain).finished()
    assert all(rows_of(plain, table) for table in ("cells", "samples", "parity", "telemetry"))


def test_reports_history_and_references_find_the_same_in_both_forms(plain: Path, run: RunStore) -> None:
    pack(run)
    one, other = load([plain]), load([run.folder])
    assert {(cell.cell_id, cell.label, repr(cell.step)) for cell in one.cells} == {
        (cell.cell_id, cell.label, repr(cell.step)) for cell in other.cells
    }
    assert sorted(map(repr, measured.read_runs([plain]))) == sorted(map(repr, measured.read_runs([run.folder])))
    for cell, repeat in run.finished():
        where = [store.packs_of(folder).where("telemetry", cell, repeat) for folder in (plain, run.folder)]
        found, again = (measured._rows(path, cell, repeat) for path in where)
        assert found == again
        assert found or RunStore(plain).finished()[cell, repeat] != "ok"
    assert durations.earlier_seconds(plain.parent) == durations.earlier_seconds(run.folder.parent) != {}


def test_events_and_logs_lie_in_archives_of_the_same_name(run: RunStore) -> None:
    pack(run)
    for kind, ending in (("events", ".jsonl"), ("logs", ".log")):
        names = [name for path in (run.folder / kind).glob("*.zip") for name in zipfile.ZipFile(path).namelist()]
        assert sorted(names) == sorted(f"{store.file_name(*key)}{ending}" for key in run.finished())


@pytest.mark.parametrize("packed", [False, True], ids=["a file a repeat", "packs"])
@pytest.mark.parametrize(("table", "column"), [("cells", "wall_seconds"), ("samples", "seconds")])
def test_a_bit_that_flips_in_a_page_is_an_error_that_names_the_file(
    run: RunStore, table: str, column: str, packed: bool
) -> None:
    # In the form that the store writes, which has checksums.
    for path in store.singles_of(run.folder / table):
        path.write_bytes(table_file.to_bytes(pq.ParquetFile(path).read()))
    if packed:
        pack(run)
    found = run.folder.glob(f"{table}/*.parquet")
    path = max(found, key=lambda path: pq.ParquetFile(path).metadata.num_rows)
    metadata = pq.ParquetFile(path).metadata.row_group(0)
    (chunk,) = [
        metadata.column(at) for at in range(metadata.num_columns) if metadata.column(at).path_in_schema == column
    ]
    data = bytearray(path.read_bytes())
    begin = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    data[begin + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        StoreError, match=rf"{path} cannot be read as a {table} table .*checksum.*; remove or restore it"
    ):
        store.read([run.folder], table)


def test_what_comes_later_is_put_into_a_pack_of_its_own(run: RunStore) -> None:
    pack(run)
    first = {path.name: path.read_bytes() for path in (run.folder / "cells").glob("*.p[0-9]*.parquet")}
    for repeat in (1, 2):
        run.write_repeat("f" * 16, repeat, {"cells": [{"status": "failed", "node": None}]})
    pack(run)
    then = {path.name: path.read_bytes() for path in (run.folder / "cells").glob("*.p[0-9]*.parquet")}
    assert first.items() < then.items()
    assert set(then) - set(first) == {f"no-node.p{len(first) + 1}.parquet"}
    assert run.finished()["f" * 16, 2] == "failed"


def test_a_pack_is_no_larger_than_a_reader_takes(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before, ended = all_of(run.folder), run.finished()
    monkeypatch.setattr(packs, "MOST_REPEATS", 3)
    pack(run)
    for path in (run.folder / "cells").glob("*.p[0-9]*.parquet"):
        assert pq.ParquetFile(path).metadata.num_rows <= 3
    assert (all_of(run.folder), run.finished()) == (before, ended)


def test_repeats_that_no_reader_takes_together_become_two_packs(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before = all_of(run.folder)
    most = max(len(pq.ParquetFile(path).read()) for path in run.folder.glob("samples/*"))
    monkeypatch.setattr(table_file, "_MOST_ROWS", 3 * most)
    pack(run)
    assert len(list((run.folder / "samples").glob("*.p[0-9]*.parquet"))) > 2
    assert all_of(run.folder) == before


def test_a_file_that_is_damaged_or_of_another_repeat_stays_where_it_is_and_is_named(run: RunStore) -> None:
    paths = [path for path in store.singles_of(run.folder / "samples") if pq.ParquetFile(path).metadata.num_rows]
    paths[0].write_bytes(paths[1].read_bytes())
    pack(run)
    assert [path for path in singles(run.folder) if path.parent.name == "samples"] == [paths[0]]
    with pytest.raises(StoreError, match=rf"{paths[0]} holds rows of {paths[1].stem}, which are not its own"):
        store.read([run.folder], "samples")


def changed(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Path:
    """Write other rows into a pack."""
    rows = change(pq.ParquetFile(path).read().to_pylist())
    pq.write_table(pa.Table.from_pylist(rows, schema=store.arrow_schema(path.parent.name)), path)
    return path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda rows: [rows[0] | {"run_id": "another"}, *rows[1:]], "speaks for the run 'another'"),
        (lambda rows: [rows[0] | {"cell_id": "b" * 16}, *rows[1:]], "holds rows of b{16}.r., which are not its own"),
        (lambda rows: [rows[0] | {"repeat": 7}, *rows[1:]], r"holds rows of \w+.r7, which are not its own"),
        (lambda rows: [rows[0] | {"seconds": 1e30}, *rows[1:]], "nothing above 1e.18 was measured"),
        (lambda rows: [rows[0]] * 201_001, "it has more than 201000 rows"),
    ],
)
def test_a_pack_of_a_stranger_is_checked_as_the_files_of_a_repeat_are(
    run: RunStore, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], why: str
) -> None:
    pack(run)
    path = changed(sorted((run.folder / "samples").glob("*.p1.parquet"))[0], change)
    with pytest.raises(StoreError, match=f"{path.name}.*{why}"):
        store.read([run.folder], "samples")


@pytest.mark.parametrize("table", ["samples", "telemetry"])
def test_a_file_that_is_missing_from_a_pack_is_named(run: RunStore, table: str) -> None:
    """Else a report would go on without its rows, as if nothing had been measured."""
    pack(run)
    path = sorted((run.folder / table).glob("*.p1.parquet"))[0]
    path.unlink()
    with pytest.raises(StoreError, match=f"{path.name}.*was there and is gone"):
        store.read([run.folder], table)
    path.mkdir()
    with pytest.raises(StoreError, match=path.name):
        store.read([run.folder], table)


@pytest.mark.parametrize("table", ["samples", "metrics", "parity"])
def test_a_file_that_is_missing_of_one_repeat_is_named_and_no_pack_hides_it(run: RunStore, table: str) -> None:
    """Every release wrote one for each repeat: without it an interval would be of fewer windows than were measured."""
    path = max((run.folder / table).glob("*.r2.parquet"), key=lambda path: path.stat().st_size)
    path.unlink()
    for _ in range(2):
        said = f"{path} was there and is gone; restore it, .* remove {path.name} from cells and --resume"
        with pytest.raises(StoreError, match=said):
            store.read([run.folder], table)
        pack(run)
    (run.folder / "cells" / path.name).unlink()
    assert store.read([run.folder], table).num_rows > 0
    assert (cell_of(path), 2) not in run.finished()


def cell_of(path: Path) -> str:
    return path.name.partition(".")[0]


@pytest.mark.parametrize("packed", [False, True], ids=["a file a repeat", "packs"])
def test_a_window_counts_once(run: RunStore, packed: bool) -> None:
    """Twice the windows of a repeat would halve the width of what its interval says."""
    if packed:
        pack(run)
    found = sorted((run.folder / "samples").glob("*.parquet"))
    path = changed(next(path for path in found if store.is_pack(path) == packed), lambda rows: [*rows, rows[0]])
    with pytest.raises(StoreError, match=f"{path.name}: it holds 1 row twice: each window of a repeat"):
        store.read([run.folder], "samples")


def test_a_repeat_counts_once_within_a_pack_and_over_packs(run: RunStore) -> None:
    pack(run)
    one, other = sorted((run.folder / "cells").glob("*.p[0-9]*.parquet"))
    whole = other.read_bytes()
    changed(other, lambda rows: [*rows, rows[0]])
    with pytest.raises(StoreError, match=f"{other.name} holds a repeat twice"):
        run.finished()
    other.write_bytes(whole)
    changed(other, lambda rows: [*rows, pq.ParquetFile(one).read().to_pylist()[0]])
    with pytest.raises(StoreError, match=r"hold the same repeat \d of \w+; remove one of them"):
        store.read([run.folder], "samples")


def test_a_repeat_in_both_forms_counts_once_and_a_pack_without_its_cells_not_at_all(plain: Path, run: RunStore) -> None:
    pack(run)
    shutil.copytree(plain, run.folder, dirs_exist_ok=True)
    shutil.copy(next((run.folder / "samples").glob("*.p1.parquet")), run.folder / "samples" / "n9.p9.parquet")
    assert all_of(run.folder) == all_of(plain)
    packs.clear_up(run)
    assert singles(run.folder) == []
    assert not (run.folder / "samples" / "n9.p9.parquet").exists()
    assert all_of(run.folder) == all_of(plain)


def test_who_reads_while_files_are_put_together_finds_every_repeat(
    plain: Path, run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are put together between the moment when a reader has listed them and the moment when it opens them."""
    listed = store.packs_of

    def packed_after(folder: Path) -> store.Packs:
        found = listed(folder)
        monkeypatch.setattr(store, "packs_of", listed)
        pack(run)
        return found

    monkeypatch.setattr(store, "packs_of", packed_after)
    assert rows_of(run.folder, "samples") == rows_of(plain, "samples")
    assert singles(run.folder) == []


def killed_at(run: RunStore, number: int | None) -> tuple[int, int]:
    """Put a run's files together in a fork that kills itself before an operation: its status, and how many operations it began."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        count_changes(run.folder, number, lambda done: os.write(write_end, b".") and None)
        pack(run)
        os._exit(0)
    os.close(write_end)
    operations = b""
    while part := os.read(read_end, 65536):
        operations += part
    os.close(read_end)
    return os.waitpid(pid, 0)[1], len(operations)


@pytest.mark.slow
def test_a_kill_at_each_file_operation_loses_nothing_and_doubles_nothing(plain: Path, tmp_path: Path) -> None:
    """Of a run of few repeats, every point, or every fifth; what a reader finds is compared after the kill, and after it is cleared up."""
    small = RunStore(tmp_path / "small" / plain.name)
    small.write_manifest(RunStore(plain).manifest())
    for path in sorted(store.singles_of(plain / "cells"))[:3]:
        for each in plain.glob(f"*/{path.stem}.*"):
            (small.folder / each.parent.name).mkdir(exist_ok=True)
            shutil.copy(each, small.folder / each.parent.name)
    expected, ended = all_of(small.folder), small.finished()
    assert len(ended) == 3

    def copied(name: str) -> RunStore:
        return RunStore(Path(shutil.copytree(small.folder, tmp_path / name / plain.name)))

    status, operations = killed_at(copied("whole"), None)
    assert (status, operations > 60) == (0, True)
    every = os.environ.get("DLBENCH_STRANGERS") == "all"
    for number in range(1, operations + 1, 1 if every else 5):
        run = copied(str(number))
        assert killed_at(run, number)[0] == signal.SIGKILL
        assert (run.finished(), all_of(run.folder)) == (ended, expected), number
        run.remove_parts()
        packs.clear_up(run)
        packs.Packer(run).pack_rest()
        assert (run.finished(), all_of(run.folder)) == (ended, expected), number
        alone = [path for path in singles(run.folder) if path.parent.name == "cells"]
        assert len(alone) <= 1, number
        assert list(run.folder.rglob("*.part")) == []
