"""A run as other programs find it: DuckDB and pandas read its tables as they lie, and no reader ever sees half a repeat."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from runner.paths import PROJECT
from runner.results import store
from runner.results.on_disk import isolation
from runner.results.on_disk.schema import ANSWERS
from runner.results.store import TABLES, RunStore, StoreError
from tests.fixtures import stored, synthetic


def tables(status: str = "ok", windows: int = 3) -> dict[str, list[dict[str, Any]]]:
    sample = {"stage": "steady", "begin_seconds": 1.0, "seconds": 0.5, "steps": 10, "items": 640}
    return {
        "cells": [{"image": "torch-1-cpu", "status": status, "noise": 0.01, "device_uuids": [], "parity_passed": True}],
        "samples": [sample | {"index": index} for index in range(windows)],
        "metrics": [{"name": "loss", "split": "train", "step": 1, "train_seconds": 0.5, "value": None}],
    }


SKIP = {"image": "torch-1-cu128", "framework": "torch", "workload": "cnn-cifar10", "reason": "no GPU"}


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    """Two repeats that ended, and a combination that was left out."""
    folder = synthetic.make_run(tmp_path / "20261121-000000-abcd", manifest={"skips": [SKIP]})
    synthetic.unrun(folder)
    stored.write_repeat(folder, "aaaa", 1, tables())
    stored.write_repeat(folder, "aaaa", 2, tables("failed", windows=0))
    return RunStore(folder)


def test_the_document_of_the_format_names_every_table() -> None:
    text = (PROJECT / "docs" / "results-format.md").read_text()
    # A second table says of each column who holds it.
    text = re.sub(r"<!-- held fields -->.+?<!-- end of held fields -->", "", text, flags=re.DOTALL)
    assert re.findall(r"^\| `(\w+)` \| ", text, re.MULTILINE) == [ANSWERS, *TABLES]


def test_duckdb_reads_the_tables_as_they_lie(run: RunStore) -> None:
    found = duckdb.sql(
        f"select c.cell_id, c.repeat, c.status, count(s.seconds) as windows, sum(s.items) as items "
        f"from '{run.folder}/tables/cells.parquet' c "
        f"left join '{run.folder}/tables/samples.parquet' s using (run_id, cell_id, repeat) "
        f"group by all order by all"
    ).fetchall()
    assert found == [("aaaa", 1, "ok", 3, 1920), ("aaaa", 2, "failed", 0, None)]


def test_pandas_reads_a_table_as_it_lies(run: RunStore) -> None:
    cells = pd.read_parquet(run.folder / "tables" / "cells.parquet")
    assert list(cells.columns) == [column.name for column in TABLES["cells"]]
    assert sorted(cells["status"]) == ["failed", "ok"]
    assert pd.read_parquet(run.folder / "tables" / "samples.parquet")["seconds"].sum() == 1.5


def test_what_was_left_out_is_a_row_of_cells_to_a_reader(run: RunStore) -> None:
    rows = store.read([run.folder], "cells").to_pylist()
    assert [(row["cell_id"], row["status"], row["reason"]) for row in rows if row["repeat"] == 0] == [
        ("skipped-0", "skipped", "no GPU")
    ]
    assert store.statuses(run.folder) == {("aaaa", 1): "ok", ("aaaa", 2): "failed"}


def test_only_a_repeat_whose_parcel_is_there_has_finished(run: RunStore) -> None:
    assert run.finished() == {("aaaa", 1), ("aaaa", 2)}
    (run.folder / "repeats" / "aaaa.r1.parcel").unlink()
    assert run.finished() == {("aaaa", 2)}


def test_a_parcel_that_cannot_be_written_whole_does_not_count(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        run.add(b"a parcel", "bbbb", 1, tables())
    assert ("bbbb", 1) not in run.finished()
    assert run.admitted == {}


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
    part = run.folder / "repeats" / ".aaaa.r3.parcel.999.part"
    part.write_bytes(b"half")
    run.remove_parts()
    assert not part.exists()
    assert len(run.finished()) == 2


def test_a_column_that_the_schema_does_not_have_is_a_bug_that_shows(run: RunStore) -> None:
    with pytest.raises(ValueError, match="colour"):
        run.add(b"a parcel", "cccc", 1, {"cells": [{"colour": "red"}]})
    assert ("cccc", 1) not in run.finished()


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


NO_SCHEMA = "schema_version is no whole number, so no release wrote this; restore it"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is not a run"),
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (
            b"version https://git-lfs.github.com/spec/v1\nsize 9\n",
            "is not JSON .*a pointer of Git LFS: `git lfs pull` gets",
        ),
        (b"<!DOCTYPE html><title>Sign in</title>", "is not JSON .*a web page"),
        (b"PK\x03\x04rest", "is not JSON .*a zip file"),
        (b"{ 'run_id': 1 }", "is not JSON .*Expecting property name"),
        (b'{"schema_version": 99}', "read it with the release that wrote it"),
        (b'{"schema_version": 1}', "schema_version is 1 and not 2; read it with the release that wrote it"),
        *((b'{"schema_version": %s}' % value, NO_SCHEMA) for value in (b"null", b'"2"', b"[1]", b"true")),
    ],
)
def test_a_folder_that_is_no_run_of_this_release_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(StoreError, match=says):
        RunStore(tmp_path).manifest()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "null",
        "{",
        "[]",
        "7",
        "{}",
        '{"engine": "x", "rootless": true}',
        '{"engine": "x", "rootless": true, "limits": []}',
        '{"engine": "x", "rootless": true, "limits": {"memory": [1]}}',
        "[" * 100_000,
    ],
)
def test_limits_of_a_container_in_another_form_are_passed_over(text: str | None) -> None:
    assert isolation.of_row({"isolation_json": text}) is None


def test_limits_of_a_container_are_those_that_were_stored() -> None:
    fact = {"engine": "Podman Engine 4.3.1", "rootless": True, "limits": {"memory": [1, None]}}
    assert isolation.of_row({"isolation_json": json.dumps(fact)}) == fact
