"""Runs of the release before parcels are read as they were."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reports.data.tables import load
from runner.admission.renew import renew
from runner.results import store
from runner.results.store import TABLES, RunStore, StoreError
from tests.fixtures import stored, synthetic


@pytest.fixture(params=[False, True], ids=["a file each", "packed"])
def both(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """A run, and the same run as the release before stored it."""
    run = synthetic.make_run(tmp_path / "run", repeats=2, windows=8)
    shutil.copytree(run, tmp_path / "old" / "run")
    stored.as_schema_1(tmp_path / "old" / "run", packed=request.param)
    return run, tmp_path / "old" / "run"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    run = synthetic.make_run(tmp_path / "run", windows=3)
    stored.as_schema_1(run)
    return run


def rows(run: Path, table: str) -> list[dict[str, object]]:
    names = [name for name, _ in TABLES[table] if name != "schema_version"]
    found = store.read([run], table).select(names).to_pylist()
    return sorted(found, key=lambda row: (row["cell_id"], row["repeat"]))


def test_every_table_is_read_as_of_a_run_of_today(both: tuple[Path, Path]) -> None:
    new, old = both
    for table in TABLES:
        assert rows(old, table) == rows(new, table)
    renew(RunStore(old))
    assert not (old / "tables").exists(), "it is only read"
    assert len(load([old]).cells) == len(load([new]).cells)


def test_files_that_a_killed_runner_left_beside_a_pack_count_once(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        synthetic.make_run(tmp_path / folder / "run", repeats=2, windows=8)
        stored.as_schema_1(tmp_path / folder / "run", packed=folder == "one")
    expected = rows(tmp_path / "one" / "run", "samples")
    for table in TABLES:
        for path in (tmp_path / "other" / "run" / table).iterdir():
            path.replace(tmp_path / "one" / "run" / table / path.name)
    assert rows(tmp_path / "one" / "run", "samples") == expected


def test_a_column_that_an_older_release_did_not_have_is_null(old: Path) -> None:
    for path in (old / "parity").iterdir():
        pq.write_table(pq.read_table(path).drop_columns(["phase"]), path)
    checks = store.read([old], "parity")
    assert set(checks["quantity"].to_pylist()) == {"logits", "loss", "gradient", "parameter"}
    assert checks["phase"].null_count == len(checks)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def no_utf8(path: Path) -> None:
    pq.write_table(pq.read_table(path), path, compression="none", store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"steady", b"\xff" * 6))


def too_long(path: Path) -> None:
    pq.write_table(pa.table({"seconds": pa.nulls(1_000_001, pa.float64())}), path, compression="zstd")


def a_list(path: Path) -> None:
    pq.write_table(pa.table({"seconds": [["a list"]], "run_id": ["run"]}), path)


def of_another_run(path: Path) -> None:
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(0, "run_id", [["theirs"] * len(rows)]), path)


def without_a_time(path: Path) -> None:
    rows = pq.read_table(path)
    at = rows.schema.get_field_index("seconds")
    pq.write_table(rows.set_column(at, rows.schema.field(at), pa.nulls(len(rows), pa.float64())), path)


def with_a_text_of_200_megabytes(path: Path) -> None:
    rows = pq.read_table(path)
    at = rows.schema.get_field_index("cell_id")
    long = pa.array(["a" * (200 << 20)] + ["a"] * (len(rows) - 1), pa.large_string())
    pq.write_table(rows.set_column(at, "cell_id", long), path, compression="zstd", use_dictionary=False)


def with_twenty_million_rows(path: Path) -> None:
    pq.write_table(pa.table({"seconds": pa.repeat(1.0, 20_000_000)}), path, compression="zstd")


READING = """
import sys
from pathlib import Path
from runner.results import store
try:
    store.read([Path(sys.argv[1])], "samples")
except store.StoreError as error:
    print(error, file=sys.stderr)
# What getrusage says may be of the process that started this one.
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


def peak_kilobytes(run: Path) -> tuple[int, str]:
    """The peak memory of a process that reads a run, and what it says of it."""
    ended = subprocess.run([sys.executable, "-c", READING, run], capture_output=True, text=True, check=True)
    return int(ended.stdout), ended.stderr


@pytest.mark.parametrize(
    "bomb", [with_a_text_of_200_megabytes, with_twenty_million_rows], ids=lambda bomb: bomb.__name__
)
def test_a_small_table_that_unpacks_to_much_is_refused_before_it_takes_memory(
    old: Path, bomb: Callable[[Path], None]
) -> None:
    honest, _ = peak_kilobytes(old)
    bomb(path := min((old / "samples").iterdir()))
    assert path.stat().st_size < 100_000
    taken, said = peak_kilobytes(old)
    assert f"{path} cannot be read as a samples table (it " in said
    assert taken < honest + 50_000


@pytest.mark.parametrize(
    "damage", [torn, no_utf8, too_long, a_list, of_another_run, without_a_time], ids=lambda damage: damage.__name__
)
def test_a_damaged_file_is_named(old: Path, damage: Callable[[Path], None]) -> None:
    damage(path := min((old / "samples").iterdir()))
    with pytest.raises(StoreError, match=f"{path}|{path.parent}: seconds is missing in a row"):
        store.read([old], "samples")


def copied_under_another_name(path: Path) -> None:
    shutil.copy(path, path.with_name("zz.r9.parquet"))


def under_a_name_of_no_release(path: Path) -> None:
    shutil.copy(path, path.with_name("copy.parquet"))


def copied_as_a_pack_twice(path: Path) -> None:
    for name in ("node.p1.parquet", "node.p2.parquet"):
        shutil.copy(path, path.with_name(name))


def copied_as_skipped(path: Path) -> None:
    shutil.copy(path, path.with_name("skipped.parquet"))


def with_its_row_twice(path: Path) -> None:
    pq.write_table(pa.concat_tables([pq.read_table(path)] * 2), path)


def without_its_row(path: Path) -> None:
    pq.write_table(pq.read_table(path).slice(0, 0), path)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def no_folder(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (copied_under_another_name, "zz.r9.parquet holds rows of .*, which are not its own"),
        (under_a_name_of_no_release, "copy.parquet has a name that no release gave"),
        (copied_as_a_pack_twice, "node.p1.parquet and .*node.p2.parquet hold the same repeat"),
        (copied_as_skipped, "skipped.parquet holds a repeat"),
        (with_its_row_twice, "r1.parquet holds no repeat, or one twice"),
        (without_its_row, "r1.parquet holds no repeat, or one twice"),
        (a_pipe, "r1.parquet cannot be read as a cells table .*it is no file"),
        (no_folder, "cells cannot be read"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_file_of_cells_adds_a_repeat_or_takes_one_away(old: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(min((old / "cells").glob("*.r1.parquet")))
    with pytest.raises(StoreError, match=said):
        store.read([old], "cells")


def test_files_of_other_programs_that_begin_with_a_point_are_no_tables(old: Path) -> None:
    expected = {table: rows(old, table) for table in TABLES}
    for table in TABLES:
        path = min((old / table).glob("*.r1.parquet"))
        shutil.copy(path, path.with_name(f"._{path.name}"))
        path.with_name(".~lock.parquet").write_bytes(b"no table")
    assert {table: rows(old, table) for table in TABLES} == expected


@pytest.mark.parametrize("table", ["samples", "metrics", "parity"])
def test_a_table_of_a_repeat_that_was_removed_is_named(old: Path, table: str) -> None:
    (path := min((old / table).iterdir())).unlink()
    with pytest.raises(StoreError, match=f"{path} cannot be read"):
        store.read([old], table)


def test_samples_of_another_repeat_are_refused(old: Path) -> None:
    first, second, *_ = sorted((old / "samples").iterdir())
    shutil.copy(first, second)
    with pytest.raises(StoreError, match=f"{second} holds rows of {first.name[:16]}, repeat 1, which are not its own"):
        store.read([old], "samples")


@pytest.mark.parametrize("packed", [False, True], ids=["a file each", "packed"])
def test_a_repeat_that_ended_well_has_windows_or_single_operations(tmp_path: Path, packed: bool) -> None:
    run = synthetic.make_run(tmp_path / "run", windows=3)
    entry = synthetic.cell("torch-2.13.0-cpu", "gru-imdb")["id"]
    stored.change(run, "samples", lambda row: None if row["cell_id"] == entry else row)
    shutil.copytree(run, tmp_path / "operations" / "run")
    stored.as_schema_1(run, packed=packed)
    with pytest.raises(StoreError, match=f"{run / 'samples'}/.*: {entry}, repeat 1 ended well, and has no window"):
        store.read([run], "samples")
    # Single operations have a table of their own.
    other = tmp_path / "operations" / "run"
    (row,) = stored.rows_of(other, "cells", entry, 1)
    stored.write_repeat(other, entry, 1, {"cells": [row], "operations": [{"operation": "add", "seconds": 1.0}]})
    stored.as_schema_1(other, packed=packed)
    assert entry not in store.read([other], "samples")["cell_id"].to_pylist()


def varint(value: int, length: int = 0) -> bytes:
    """A number as a footer has it, over so many bytes or the fewest."""
    value, coded = value << 1, bytearray()
    while value > 127 or len(coded) + 1 < length:
        coded.append(value & 127 | 128)
        value >>= 7
    return bytes([*coded, value])


@pytest.mark.parametrize(
    ("understated", "said"),
    [
        (("total_byte_size",), "it unpacks to more bytes than a table has"),
        (("total_byte_size", "total_uncompressed_size"), "it has more than 1000000 rows or 1048576 bytes"),
    ],
    ids=["of the group", "of the group and its columns"],
)
def test_a_footer_that_understates_its_sizes_is_not_believed(
    old: Path, monkeypatch: pytest.MonkeyPatch, understated: tuple[str, ...], said: str
) -> None:
    path = min((old / "samples").iterdir())
    table = pa.concat_tables([pq.read_table(path)] * 100_000).combine_chunks()
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    group = pq.ParquetFile(path).metadata.row_group(0)
    sizes = [group.total_byte_size] if "total_byte_size" in understated else []
    if "total_uncompressed_size" in understated:
        sizes += [group.column(at).total_uncompressed_size for at in range(group.num_columns)]
    data = path.read_bytes()
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[begin:]
    for size in sizes:
        footer = footer.replace(varint(size), varint(1, len(varint(size))))
    path.write_bytes(data[:begin] + footer)
    assert pq.ParquetFile(path).metadata.row_group(0).total_byte_size == 1
    monkeypatch.setattr("runner.results.on_disk.schema_1._MOST_TEXT_BYTES", 1 << 20)
    with pytest.raises(StoreError, match=f"{path} cannot be read as a samples table .{said}"):
        store.read([old], "samples")
