"""The store as other programs find it: DuckDB and pandas read it as it lies, and no reader ever sees half a repeat."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runner.admission import record
from runner.machine import telemetry
from runner.paths import PROJECT
from runner.results import store
from runner.results.on_disk import kept as of_kept
from runner.results.on_disk import table_file
from runner.results.store import TABLES, RunStore, StoreError
from tests.fixtures import synthetic


def tables(status: str = "ok", windows: int = 3) -> dict[str, list[dict[str, Any]]]:
    sample = {"stage": "steady", "begin_seconds": 1.0, "seconds": 0.5, "steps": 10, "items": 640}
    return {
        "cells": [{"image": "torch-1-cpu", "status": status, "noise": 0.01, "device_uuids": [], "parity_passed": True}],
        "samples": [sample | {"index": index} for index in range(windows)],
        "metrics": [{"name": "loss", "split": "train", "step": 1, "train_seconds": 0.5, "value": None}],
    }


MANIFEST = {
    "schema_version": store.SCHEMA_VERSION,
    "run_id": "20261121-000000-abcd",
    "created": "2026-11-21T00:00:00+00:00",
    "preset": "quick",
    "repeats": 2,
    "engine": "docker",
    "plan": [{"id": "aaaa"}],
    "bench_sha256": "0" * 64,
}


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    run = RunStore(tmp_path / "20261121-000000-abcd")
    run.write_manifest(MANIFEST)
    run.write_repeat("aaaa", 1, tables())
    run.write_repeat("aaaa", 2, tables("failed", windows=0))
    run.write_skipped([{"cell_id": "s-0", "image": "torch-1-cu128", "reason": "no GPU"}])
    return run


def test_the_document_of_the_format_names_every_table_and_its_query_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (PROJECT / "docs" / "results-format.md").read_text()
    assert set(re.findall(r"^\| `(\w+)/` ", text, re.MULTILINE)) == {*TABLES, "events", "late", "logs", "repeats"}
    (query,) = re.findall(r"```sql\n(.+?)```", text, re.DOTALL)
    rows = tables()
    rows["cells"][0] |= {"framework": "torch", "workload": "cnn-cifar10"}
    RunStore(tmp_path / "results" / "20261121-000000-abcd").write_repeat("aaaa", 1, rows)
    monkeypatch.chdir(tmp_path)
    assert duckdb.sql(query).fetchall() == [("torch", "cnn-cifar10", 0.05)]


def test_duckdb_reads_the_tables_as_they_lie(run: RunStore) -> None:
    found = duckdb.sql(
        f"select c.cell_id, c.repeat, c.status, count(s.seconds) as windows, sum(s.items) as items "
        f"from '{run.folder}/cells/*.parquet' c "
        f"left join '{run.folder}/samples/*.parquet' s using (run_id, cell_id, repeat) "
        f"group by all order by all"
    ).fetchall()
    assert found == [("aaaa", 1, "ok", 3, 1920), ("aaaa", 2, "failed", 0, None), ("s-0", 0, "skipped", 0, None)]


def test_pandas_reads_a_folder_of_tables_as_it_lies(run: RunStore) -> None:
    cells = pd.read_parquet(run.folder / "cells")
    assert list(cells.columns) == [name for name, _ in TABLES["cells"]]
    assert sorted(cells["status"]) == ["failed", "ok", "skipped"]
    assert pd.read_parquet(run.folder / "samples")["seconds"].sum() == 1.5


def test_every_file_of_a_table_has_the_same_schema_whatever_is_null(run: RunStore) -> None:
    import pyarrow.parquet as pq

    for table in TABLES:
        found = [pq.read_schema(path) for path in (run.folder / table).glob("*.parquet")]
        assert found
        assert all(schema.equals(store.arrow_schema(table)) for schema in found)


def test_only_a_repeat_whose_last_file_is_there_has_finished(run: RunStore) -> None:
    assert run.finished() == {("aaaa", 1): "ok", ("aaaa", 2): "failed"}
    (run.folder / "cells" / "aaaa.r1.parquet").unlink()
    assert run.finished() == {("aaaa", 2): "failed"}


def test_a_repeat_that_cannot_be_written_whole_does_not_count_as_finished(
    run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up after some of the tables: cells comes last, so the repeat is run again."""
    write, left = store.write_bytes, 2

    def full_after_two(path: Path, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(store, "write_bytes", full_after_two)
    with pytest.raises(OSError, match="No space left"):
        run.write_repeat("bbbb", 1, tables())
    assert ("bbbb", 1) not in run.finished()


def test_a_write_that_fails_leaves_the_old_file_and_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    store.write_bytes(path, b"old")

    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        store.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_what_a_killed_runner_left_aside_is_removed(run: RunStore) -> None:
    part = run.folder / "cells" / ".aaaa.r3.parquet.999.part"
    part.write_bytes(b"half")
    run.remove_parts()
    assert not part.exists()
    assert len(run.finished()) == 2


def test_a_run_from_before_a_column_was_added_is_read_with_nulls_in_it(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=3)
    for path in (folder / "parity").iterdir():
        pq.write_table(pq.read_table(path).drop_columns(["phase"]), path)
    found = store.read([folder], "parity").to_pandas()
    assert set(found["quantity"]) == {"logits", "loss", "gradient", "parameter"}
    assert found["phase"].isna().all()


def test_a_column_that_the_schema_does_not_have_is_a_bug_that_shows(run: RunStore) -> None:
    with pytest.raises(ValueError, match="colour"):
        run.write_repeat("cccc", 1, {"cells": [{"colour": "red"}]})


def test_a_folder_that_is_no_run_and_a_file_of_another_release_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a run"):
        RunStore(tmp_path).manifest()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StoreError, match="is not JSON"):
        RunStore(tmp_path).manifest()
    (tmp_path / "run.json").write_text('{"schema_version": 99}')
    with pytest.raises(StoreError, match="release"):
        RunStore(tmp_path).manifest()


@pytest.mark.parametrize("value", ["null", '"2"', "[1]", "true"])
def test_a_schema_that_no_release_has_is_not_sent_to_another_release(tmp_path: Path, value: str) -> None:
    (tmp_path / "run.json").write_text('{"schema_version": %s}' % value)
    with pytest.raises(StoreError, match="schema_version is no whole number, so no release wrote this; restore it"):
        RunStore(tmp_path).manifest()


def test_a_damaged_file_is_named(run: RunStore) -> None:
    damaged = run.folder / "cells" / "aaaa.r1.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-10])
    with pytest.raises(StoreError, match=rf"{damaged}.*--resume measures that cell again"):
        run.finished()
    with pytest.raises(StoreError, match=str(damaged)):
        store.read([run.folder], "cells").to_pandas()


@pytest.mark.parametrize("text", [b"torch-1-cpu", b"framework_version"], ids=["a value", "the name of a column"])
def test_a_file_with_a_text_that_is_no_utf8_is_named(run: RunStore, text: bytes) -> None:
    damaged = run.folder / "cells" / "aaaa.r1.parquet"
    pq.write_table(pq.read_table(damaged), damaged, compression="none", store_schema=False)
    damaged.write_bytes(damaged.read_bytes().replace(text, b"\xff" * len(text)))
    with pytest.raises(
        StoreError, match=rf"{damaged} cannot be read as a cells table .*(utf-8|UTF8).*; remove or restore it"
    ):
        store.read([run.folder], "cells")


@pytest.mark.parametrize(
    ("table", "column", "value", "rows", "why"),
    [
        ("cells", "reason", "y" * 1000, 2, "it has more than 1 row"),
        ("cells", "device_uuids", ["y" * 30_000] * 3500, 1, "bytes"),
        ("samples", "index", 1, 201_001, "it has more than 201000 rows"),
        ("samples", "stage", "y" * 4000, 30_000, "bytes"),
        ("metrics", "name", "y" * 4000, 30_000, "bytes"),
    ],
)
def test_a_small_file_of_repeated_rows_is_refused_by_name_before_it_takes_memory(
    run: RunStore, table: str, column: str, value: object, rows: int, why: str
) -> None:
    path = run.folder / table / "aaaa.r1.parquet"
    one = pq.read_table(path).slice(0, 1)
    at = one.schema.get_field_index(column)
    one = one.set_column(at, one.schema.field(at), pa.array([value], one.schema.field(at).type))
    pq.write_table(one.take([0] * rows) if rows > 1 else one, path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    before = pa.default_memory_pool().bytes_allocated()
    gc.collect()
    with pytest.raises(StoreError, match=rf"{path} cannot be read.*{why}"):
        store.read([run.folder], table)
    assert pa.default_memory_pool().bytes_allocated() - before < 1 << 20


def test_a_table_of_few_rows_is_stored_as_it_is_and_a_long_one_compressed(run: RunStore) -> None:
    run.write_repeat("bbbb", 1, tables(windows=table_file._MANY_ROWS + 1))

    def compression(path: Path) -> set[str]:
        group = pq.read_metadata(path).row_group(0)
        return {group.column(at).compression for at in range(group.num_columns)}

    for table in ("cells", "samples", "metrics"):
        assert compression(run.folder / table / "aaaa.r1.parquet") == {"UNCOMPRESSED"}
    assert compression(run.folder / "samples" / "bbbb.r1.parquet") == {"ZSTD"}
    found = store.read([run.folder], "samples").to_pandas()
    assert found["cell_id"].value_counts().to_dict() == {"bbbb": table_file._MANY_ROWS + 1, "aaaa": 3}


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_small_file_is_opened_once_however_it_was_compressed(
    run: RunStore, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix has thousands of them."""
    path = run.folder / "cells" / "aaaa.r1.parquet"
    stored = pq.read_table(path)
    pq.write_table(stored, path, compression=compression)
    opened = []

    class Counted(pq.ParquetFile):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            opened.append(options)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(pq, "ParquetFile", Counted)
    assert store.read_columns(path, store.arrow_schema("cells").names).equals(stored)
    assert len(opened) == 1
    # Those without a row are all alike.
    assert len(store.read([run.folder], "operations")) == 0
    assert len(opened) == 2


def test_all_events_that_a_cell_may_print_and_the_telemetry_of_days_are_read(run: RunStore) -> None:
    assert table_file._MOST_ROWS > record.MAX_EVENTS
    # A CPU and sixteen GPUs.
    assert table_file._MOST_TELEMETRY_ROWS > 17 * telemetry._MOST_ROWS
    path = run.folder / "samples" / "aaaa.r1.parquet"
    rows = pq.read_table(path).take([0] * record.MAX_EVENTS)
    at = rows.schema.get_field_index("index")
    pq.write_table(rows.set_column(at, rows.schema.field(at), pa.array(range(len(rows)), pa.int32())), path)
    assert len(store.read([run.folder], "samples")) == record.MAX_EVENTS


def test_a_device_a_pipe_or_a_link_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As root, `-o /dev/null` would else put a file in its place."""
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    store.write_bytes(pipe, b"read me")
    assert os.read(reader, 100) == b"read me"
    os.close(reader)
    assert pipe.is_fifo()
    file.write_bytes(b"old")
    link.symlink_to(file)
    store.write_bytes(link, b"new")
    assert (link.is_symlink(), file.read_bytes()) == (True, b"new")


def test_what_was_read_before_is_not_read_again_unless_it_became_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = synthetic.make_run(tmp_path / "run", repeats=2)
    later = sorted((run / "cells").glob("*.r2.parquet"))[1]
    later.rename(tmp_path / "later.parquet")
    kept, read = store.Kept(), store.read_file
    opened: list[Path] = []
    monkeypatch.setattr(of_kept, "read_file", lambda path, *rest: opened.append(path) or read(path, *rest))

    def again() -> tuple[bool, int]:
        """Whether what is kept gives what the files hold, and how many were opened for it."""
        opened.clear()
        rows = store.read([run], "cells", kept)
        count = len(opened)
        return rows.equals(store.read([run], "cells")), count

    assert again() == (True, 12)
    assert again() == (True, 0)
    (tmp_path / "later.parquet").rename(later)
    assert again() == (True, 1)
    first = min((run / "cells").glob("*.r1.parquet"))
    rows = store.read_columns(first, store.arrow_schema("cells").names)
    status = rows.schema.get_field_index("status")
    changed = rows.set_column(status, rows.schema.field(status), pa.array(["failed"]))
    store.write_bytes(first, table_file.to_bytes(changed))
    assert again() == (True, 1)
    first.unlink()
    assert again() == (True, 0)
    first.write_bytes(b"no table")
    with pytest.raises(store.StoreError, match="cannot be read as a cells table"):
        store.read([run], "cells", kept)
