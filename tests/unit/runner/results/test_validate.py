"""What no run writes: a stored run with it is refused in a sentence that names file and field, and one cell's nonsense spoils no report."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from bench import weights
from bench.data.files import MARKER, vouch
from bench.errors import DataError
from bench.protocol import ProtocolError, check
from reports.data.tables import load
from reports.page.render import moment, render
from runner.cli.main import app
from runner.results import store, validate
from runner.results.store import RunStore, StoreError, arrow_schema
from tests.fixtures import synthetic

ENTRY = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.make_run(tmp_path_factory.mktemp("faults") / "run", windows=20)


def changed(folder: Path, table: str, column: str, value: Any) -> tuple[Path, bytes]:
    """Write `value` into every row of a cell's table; the file's path and what it held."""
    path = folder / table / f"{ENTRY['id']}.r1.parquet"
    kept = path.read_bytes()
    rows = [{**row, column: value} for row in pq.read_table(path).to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(table)), path)
    return path, kept


@pytest.mark.parametrize(
    ("table", "column", "value", "said"),
    [
        ("cells", "repeat", None, "repeat is missing in 1 of 1 rows"),
        ("cells", "image", None, "image is missing in 1 of 1 rows"),
        ("cells", "framework", None, "framework is missing"),
        ("cells", "workload", None, "workload is missing"),
        ("cells", "status", None, "status is missing"),
        ("cells", "status", "fine", "status is 'fine', and it is one of ok, failed, skipped"),
        ("cells", "batch", -64, "batch is -64, and nothing below 0"),
        ("cells", "devices", 0, "devices is 0, and a cell has 1 to 100000"),
        ("cells", "devices", 2**31 - 1, "devices is 2147483647, and a cell has"),
        ("samples", "index", None, "index is missing"),
        ("samples", "items", None, "items is missing"),
        ("samples", "seconds", math.inf, "seconds is inf"),
        ("samples", "seconds", 1e308, r"seconds is 1e\+308"),
        ("samples", "seconds", math.nan, "seconds is no number"),
        ("samples", "seconds", -1.0, "seconds is -1, and nothing below 0 is measured"),
        ("samples", "seconds", 0.0, "window 0 has steps 1 and seconds 0, and neither is 0 where a cell ended well"),
        ("samples", "steps", 0, "window 0 has steps 0 and seconds .*, and neither is 0"),
        ("samples", "steps", -3, "steps is -3"),
        ("samples", "items", -1, "items is -1"),
        ("samples", "begin_seconds", -0.5, "begin_seconds is -0.5"),
        ("samples", "stage", "steadily", "stage is 'steadily', and it is one of first, warm-up, steady"),
        ("metrics", "train_seconds", math.nan, "train_seconds is no number"),
        ("metrics", "step", None, "step is missing"),
        ("telemetry", "power_watts", -math.inf, "power_watts is inf"),
    ],
)
def test_a_file_with_what_no_run_writes_is_named_with_its_column(
    made: Path, table: str, column: str, value: Any, said: str
) -> None:
    path, kept = changed(made, table, column, value)
    try:
        with pytest.raises(StoreError, match=f"{path.name}: {said}.*; remove or restore it"):
            load([made])
    finally:
        path.write_bytes(kept)


@pytest.mark.parametrize(
    ("table", "keep", "said"),
    [
        ("samples", 0, r": it took \d+ steps and its windows in samples have 0; restore"),
        ("samples", 5, r": it took \d+ steps and its windows in samples have \d+; restore"),
        ("cells", 0, r"\.parquet holds no repeat; restore it, or remove it"),
    ],
)
def test_a_repeat_whose_rows_are_gone_is_refused(made: Path, table: str, keep: int, said: str) -> None:
    path = made / table / f"{ENTRY['id']}.r1.parquet"
    kept = path.read_bytes()
    pq.write_table(pq.read_table(path).slice(0, keep), path)
    try:
        with pytest.raises(StoreError, match=rf"{ENTRY['id']}\.r1{said}"):
            load([made])
    finally:
        path.write_bytes(kept)


def test_a_row_of_another_schema_is_read_by_the_release_that_wrote_it(made: Path) -> None:
    path, kept = changed(made, "cells", "schema_version", 2)
    try:
        with pytest.raises(
            StoreError, match=f"{path}: schema_version is 2, not 1; read it with the release that wrote it"
        ):
            load([made])
    finally:
        path.write_bytes(kept)


def test_a_file_of_other_columns_is_no_table_of_a_run(made: Path) -> None:
    path = made / "samples" / "other.parquet"
    pq.write_table(pa.table({"colour": ["red"]}), path)
    try:
        with pytest.raises(StoreError, match="other.parquet: run_id is missing"):
            load([made])
    finally:
        path.unlink()


def test_a_loss_that_diverged_is_a_result_and_no_fault(made: Path) -> None:
    path, kept = changed(made, "metrics", "value", 1e30)
    try:
        assert max(load([made]).cells[0].repeats[0].curves[0].values) == 1e30
    finally:
        path.write_bytes(kept)


def test_a_window_without_steps_is_read_where_it_is_why_the_cell_failed(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6, changes={"status": "failed", "error_kind": "implausible"})
    changed(folder, "samples", "steps", 0)
    assert next(cell for cell in load([folder]).cells if cell.cell_id == ENTRY["id"]).status == "failed"


def test_windows_shorter_than_a_clock_can_tell_rank_no_cell(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    synthetic.with_windows(folder, ENTRY["id"], lambda row: row | {"seconds": 5e-324})
    cell = next(cell for cell in load([folder]).cells if cell.cell_id == ENTRY["id"])
    assert cell.step is None
    assert cell.unranked == "no steady window"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"plan": None}, "plan: input should be a valid list"),
        ({"plan": ["a"]}, r"plan\[0\]: input should be a valid dictionary.*"),
        ({"plan": [{**ENTRY, "id": 5}]}, r"plan\[0\]\.id: input should be a valid string, not 5"),
        ({"plan": [{**ENTRY, "devices": "x"}]}, r"plan\[0\]\.devices: input should be a valid integer, not 'x'"),
        ({"host": {}}, r"host\.cpu_model: it is missing"),
        ({"host": 5}, "host: input should be a valid dictionary.*"),
        (
            {"host": {**synthetic.HOST, "memory_bytes": "much"}},
            r"host\.memory_bytes: input should be a valid integer, not 'much'",
        ),
        ({"argv": [5]}, r"argv\[0\]: input should be a valid string, not 5"),
        ({"repeats": "three"}, "repeats: input should be a valid integer, not 'three'"),
        ({"created": 5}, "created: input should be a valid string, not 5"),
        ({"reused": [{"cell_id": []}]}, r"reused\[0\]\.cell_id: input should be a valid string"),
        ({"prepared": None}, "prepared: input should be a valid list"),
        (
            {"left": {"repeats": 5, "seconds": -1.0}},
            "left.seconds: input should be greater than or equal to 0, not -1.0",
        ),
        ({"left": {"repeats": 5, "seconds": math.nan}}, "left.seconds: input should be .*, not nan"),
        (
            {"expected": {"a": {"seconds": 0.0, "guessed": True}}},
            "expected.a.seconds: input should be greater than 0, not 0.0",
        ),
        ({"prepared": 5}, "prepared: input should be a valid list, not 5"),
        ({"reused": 5}, "reused: input should be a valid list, not 5"),
    ],
)
def test_a_manifest_that_no_reader_could_use_is_refused_by_field(tmp_path: Path, change: Any, said: str) -> None:
    store = RunStore(synthetic.make_run(tmp_path / "run", windows=1))
    store.write_manifest({**store.manifest(), **change})
    with pytest.raises(StoreError, match=f"run.json: {said}; restore it"):
        load([tmp_path / "run"])


def test_a_manifest_of_a_thousand_brackets_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("[" * 100_000)
    with pytest.raises(StoreError, match="is not JSON"):
        RunStore(tmp_path).manifest()


def test_a_weight_file_and_a_list_of_sums_of_a_thousand_brackets_are_damaged_data(tmp_path: Path) -> None:
    nested = b"[" * 100_000
    weight_file, marker = tmp_path / "net.safetensors", tmp_path / MARKER
    weight_file.write_bytes(struct.pack("<Q", len(nested)) + nested)
    marker.write_bytes(nested)
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(DataError, match="is no readable safetensors file"):
        weights.read(str(weight_file), [])
    with pytest.raises(DataError, match="is damaged"):
        vouch(str(tmp_path), {"a": ""}, "md5", "the archive")


def test_a_damaged_file_is_named_when_a_run_is_resumed(tmp_path: Path) -> None:
    store = RunStore(synthetic.make_run(tmp_path / "run", windows=1))
    path = store.folder / "cells" / f"{ENTRY['id']}.r1.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError, match=path.name):
        store.finished()


@pytest.mark.parametrize(("field", "value"), [("seconds", 1e308), ("begin", 2e10)])
def test_a_cell_that_tells_centuries_breaks_the_protocol(field: str, value: float) -> None:
    sample = {"event": "sample", "t": 1.0, "v": 1, "index": 0, "stage": "steady"}
    sample |= {"begin": 0.5, "seconds": 0.1, "steps": 1, "items": 64}
    check(sample)
    with pytest.raises(ProtocolError, match=f"sample.{field}"):
        check({**sample, field: value})


def test_a_clock_that_tells_no_year_spoils_no_report(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6, changes={"started_unix": 1e17})
    render([folder], tmp_path / "report.html")
    assert moment(1e17) == moment(None) == "–"
    assert moment(0.0) == "1970-01-01 00:00:00"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"settings": [], "versions": 5}'])
def test_an_environment_that_is_none_is_shown_as_text_or_left_out(tmp_path: Path, text: str) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6, changes={"environment_json": text})
    render([folder], tmp_path / "report.html")


@pytest.mark.parametrize("output", ["", "file/report.html"])
def test_a_report_that_cannot_be_written_is_said_so(tmp_path: Path, output: str) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    (tmp_path / "file").write_text("")
    ended = CliRunner().invoke(app, ["report", str(folder), "--output", str(tmp_path / output)])
    assert ended.exit_code == 2
    assert "cannot be written" in ended.output
    assert isinstance(ended.exception, SystemExit)


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_a_check_counts_once_in_a_repeat_that_ended_well(tmp_path: Path, status: str) -> None:
    """A cell that prints one twice fails, and is kept as it is."""
    folder = synthetic.make_run(tmp_path / "run", windows=6, changes={"status": status})
    path = folder / "parity" / f"{ENTRY['id']}.r1.parquet"
    rows = pa.Table.from_pylist(
        [
            {"run_id": "run", "cell_id": ENTRY["id"], "repeat": 1, **row}
            for row in synthetic.due_rows(ENTRY["workload"])
        ],
        schema=arrow_schema("parity"),
    )
    pq.write_table(rows, path)
    assert store.read([folder], "parity").num_rows > len(rows)
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 2)]), path)
    if status == "failed":
        assert store.read([folder], "parity").num_rows > len(rows) + 2
        return
    with pytest.raises(StoreError, match=f"{path}: it holds 2 rows twice: each quantity is checked once; remove"):
        store.read([folder], "parity")


def test_rows_that_are_there_twice_are_counted_however_large_their_key_and_wherever_files_meet() -> None:
    random = np.random.default_rng(1)
    event = ("operation", "direction", "size", "index")
    columns = ("cell_id", "repeat", *event)
    for count in (0, 1, 50):
        rows = pa.table({name: pa.array(random.integers(0, 2, count), pa.int32()) for name in columns})
        cut = int(random.integers(0, count + 1))
        doubled = validate.doubled(pa.concat_tables([rows.slice(0, cut), rows.slice(cut)]), event)
        assert doubled == count - len({tuple(row.values()) for row in rows.to_pylist()})
    # Six columns of 60 000 values: more keys than a whole number of 64 bits has.
    rows = pa.table({name: pa.array(random.permutation(60_000), pa.int32()) for name in columns})
    assert validate.doubled(pa.concat_tables([rows, rows.slice(7, 3)]), event) == 3
