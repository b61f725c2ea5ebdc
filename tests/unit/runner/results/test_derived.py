"""Tables are read only where this installation made them of the parcels that the run has."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reports.data.tables import load
from runner import paths
from runner.admission.renew import renew
from runner.paths import PROJECT, cache_folder, data_folder
from runner.results import store
from runner.results.on_disk import derived, schema
from runner.results.store import TABLES, RunStore, StoreError
from runner.run.open_pairs import OpenPairs
from runner.run.summary import document
from runner.verify.references.measured import read_runs
from tests.fixtures import stored, synthetic
from tests.fixtures.mounts import tmpfs


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return synthetic.make_run(tmp_path / "run", repeats=2, windows=8)


def halved(run: Path) -> None:
    path = run / "tables" / "samples.parquet"
    rows = pq.read_table(path)
    at = rows.schema.get_field_index("seconds")
    halves = [value / 2 for value in rows["seconds"].to_pylist()]
    pq.write_table(rows.set_column(at, rows.schema.field(at), [halves]), path)


def halved_and_named_in_the_index(run: Path) -> None:
    halved(run)
    path = run / "tables" / "index.json"
    index = json.loads(path.read_text())
    index["tables"]["samples"] = derived.hashlib.sha256((run / "tables" / "samples.parquet").read_bytes()).hexdigest()
    path.write_text(json.dumps(index))


def signed_elsewhere(run: Path) -> None:
    (data_folder() / "tables.key").write_bytes(b"x" * 32)


def of_another_run(run: Path) -> None:
    other = synthetic.make_run(run.with_name("other"), repeats=2, windows=8)
    shutil.rmtree(run / "tables")
    shutil.copytree(other / "tables", run / "tables")


def a_parcel_changed(run: Path) -> None:
    min((run / "repeats").iterdir()).write_bytes(b"another")


def a_parcel_changed_and_keeps_its_time(run: Path) -> None:
    path = min((run / "repeats").iterdir())
    times, size = path.stat(), path.stat().st_size
    path.write_bytes(b"x" * size)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def a_parcel_removed(run: Path) -> None:
    min((run / "repeats").iterdir()).unlink()


def no_index(run: Path) -> None:
    (run / "tables" / "index.json").unlink()


def nested(run: Path) -> None:
    (run / "tables" / "index.json").write_text("[" * 100_000)


def a_list(run: Path) -> None:
    (run / "tables" / "index.json").write_text("[1]")


DAMAGES = [
    halved,
    halved_and_named_in_the_index,
    signed_elsewhere,
    of_another_run,
    a_parcel_changed,
    a_parcel_changed_and_keeps_its_time,
    a_parcel_removed,
    no_index,
    nested,
    a_list,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_tables_that_were_not_made_here_of_these_parcels_are_refused_by_name(
    run: Path, damage: Callable[[Path], None]
) -> None:
    assert len(store.read([run], "samples"))
    damage(run)
    with pytest.raises(StoreError, match=rf"^{run}.*; (`runner report {run}` makes them|remove the folder)"):
        store.read([run], "samples")


def test_a_copy_of_a_run_is_read_as_the_run(run: Path) -> None:
    rows = store.read([run], "samples")
    shutil.copytree(run, run.with_name("copy"))
    assert store.read([run.with_name("copy")], "samples").equals(rows)


def test_a_repeat_that_ended_after_the_tables_were_made_hides_none_of_theirs(run: Path) -> None:
    (run / "repeats" / "aaaa.r1.parcel").write_bytes(b"new")
    assert len(store.read([run], "cells"))


READERS: dict[str, Callable[[Path], object]] = {
    "report": lambda run: load([run]),
    "reference": lambda run: read_runs([run]),
    "end of a run": lambda run: document(RunStore(run)),
    "open pairs": lambda run: OpenPairs(RunStore(run), [], 1),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_repeat_that_ends_while_tables_are_read_is_in_all_of_them_or_in_none(
    run: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """A writer comes as soon as no reader holds the tables. All that is read must be of one index."""
    entry = synthetic.cell("jax-0.10.2-cpu", "gru-imdb")
    read, read_table = derived.read, derived._table
    seen: list[tuple[str, tuple[str, ...]]] = []

    def read_alone(place: Path, table: str, index: derived.Index) -> pa.Table:
        seen.append((table, tuple(index.parcels)))
        with open_folder(place) as descriptor, pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return read_table(place, table, index)

    def read_and_write(folder: Path, run_id: str, tables: Iterable[str]) -> dict[str, pa.Table]:
        rows = read(folder, run_id, tables)
        with monkeypatch.context() as patch:
            patch.setattr(derived, "_table", read_table)
            stored.write_repeat(run, entry["id"], 9, synthetic.ended(entry, 9, 8))
        return rows

    monkeypatch.setattr(derived, "_table", read_alone)
    monkeypatch.setattr(derived, "read", read_and_write)
    READERS[reader](run)
    assert len({table for table, _ in seen}) > 1
    assert len({parcels for _, parcels in seen}) == 1
    assert (entry["id"], 9) in {(row["cell_id"], row["repeat"]) for row in store.read([run], "cells").to_pylist()}


@contextlib.contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_rows_lie_by_cell_and_repeat_in_the_order_of_their_numbers(run: Path) -> None:
    entry = synthetic.cell("jax-0.10.2-cpu", "gru-imdb")
    for repeat in (10, 3):
        stored.write_repeat(run, entry["id"], repeat, synthetic.ended(entry, repeat, 8))
    rows = pq.read_table(run / "tables" / "cells.parquet").to_pylist()
    places = [(row["cell_id"], row["repeat"]) for row in rows]
    assert places == sorted(places)
    assert (entry["id"], 10) in places


def test_every_table_has_a_file_with_all_columns_be_it_without_a_row(run: Path) -> None:
    for table in TABLES:
        assert pq.read_schema(run / "tables" / f"{table}.parquet").equals(schema.arrow_schema(table))


def test_the_key_is_one_for_all_processes_and_nobody_else_reads_it(tmp_path: Path) -> None:
    script = "from runner.results.on_disk import derived; print(derived._key().hex())"
    environment = os.environ | {"XDG_DATA_HOME": str(tmp_path / "data")}
    started = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment, cwd=PROJECT)
        for _ in range(4)
    ]
    assert len({process.communicate()[0] for process in started}) == 1
    (key,) = (tmp_path / "data" / "dlbench").iterdir()
    assert (stat.S_IMODE(key.stat().st_mode), key.stat().st_size) == (0o600, 32)


def test_a_key_that_an_earlier_release_put_into_the_cache_comes_along(run: Path) -> None:
    rows = store.read([run], "samples")
    cache_folder().mkdir(parents=True, exist_ok=True)
    (data_folder() / "tables.key").rename(cache_folder() / "tables.key")
    assert store.read([run], "samples").equals(rows)
    assert (data_folder() / "tables.key").read_bytes() == (cache_folder() / "tables.key").read_bytes()
    shutil.rmtree(cache_folder())
    assert store.read([run], "samples").equals(rows)


@pytest.mark.parametrize("data", ["a file", "read-only", "no home", "proc"])
def test_the_key_lies_in_the_cache_where_the_folder_of_the_users_data_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    if data == "a file":
        (tmp_path / "data").touch()
    if data == "proc":
        monkeypatch.setenv("XDG_DATA_HOME", "/proc")
    if data == "no home":
        monkeypatch.delenv("XDG_DATA_HOME")
        monkeypatch.setattr(paths, "home", lambda: None)
    with tmpfs(tmp_path / "data", "ro") if data == "read-only" else contextlib.nullcontext():
        key = derived._key()
        assert derived._key() == key == (tmp_path / "cache" / "dlbench" / "tables.key").read_bytes()


def test_a_disk_of_the_key_that_fails_makes_no_other_key(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = derived.read_bytes

    def fails(path: Path, most: int) -> bytes:
        if path == data_folder() / "tables.key":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, most)

    monkeypatch.setattr(derived, "read_bytes", fails)
    with pytest.raises(OSError, match="Input/output error"):
        derived.make_key()
    assert not (cache_folder() / "tables.key").exists()


def a_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


def a_link_to_a_key(path: Path) -> None:
    path.with_name("other").write_bytes(b"k" * 32)
    path.symlink_to("other")


@pytest.mark.parametrize(
    "put", [os.mkfifo, a_folder, a_link_to_a_key, lambda path: path.symlink_to(path.name), Path.touch]
)
def test_what_a_cell_put_in_the_place_of_the_key_is_removed_and_told_once(
    run: Path, capfd: pytest.CaptureFixture[str], put: Callable[[Path], None]
) -> None:
    key = data_folder() / "tables.key"
    before = key.read_bytes()
    key.unlink()
    put(key)
    with pytest.raises(StoreError, match="its tables were not made here"):
        store.read([run], "samples")
    assert derived._key() == derived._key() == key.read_bytes()
    assert (stat.S_IMODE(key.lstat().st_mode), key.lstat().st_size) == (0o600, 32)
    assert key.read_bytes() not in (before, b"k" * 32)
    assert capfd.readouterr().err.count(f"{key} was no key") == 1


def test_what_a_cell_put_among_the_parcels_is_passed_over_and_told_once(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, repeats = store.read([run], "samples"), run / "repeats"
    cell, _, _ = min(repeats.iterdir()).name.partition(".")
    (repeats / "dir.r1.parcel").mkdir()
    (repeats / f"{cell}.r77.parcel").symlink_to(f"{cell}.r77.parcel")
    os.mkfifo(repeats / "x.r1.parcel")
    os.mkfifo(repeats / f"{cell}.r99.parcel")
    for _ in range(2):
        renew(RunStore(run))
    assert store.read([run], "samples").equals(rows)
    assert not {repeat for _, repeat in RunStore(run).finished()} & {77, 99}
    told = capfd.readouterr().err.splitlines()
    assert sorted(line.partition(" ")[0] for line in told) == sorted(
        str(repeats / name) for name in ("dir.r1.parcel", "x.r1.parcel", f"{cell}.r77.parcel", f"{cell}.r99.parcel")
    )


def test_tables_of_a_folder_that_cannot_be_written_lie_in_the_cache(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = store.read([run], "samples")
    shutil.rmtree(run / "tables")
    stored.forbid_tables_in(run, monkeypatch)
    one = synthetic.ended(synthetic.cell("jax-0.10.2-cpu", "gru-imdb"), 1, 8)
    for parcel in (run / "repeats").iterdir():
        parcel.unlink()
    stored.write_repeat(run, "a", 1, one)
    assert not list((run / "tables").iterdir())
    assert 0 < len(store.read([run], "samples")) < len(rows)
