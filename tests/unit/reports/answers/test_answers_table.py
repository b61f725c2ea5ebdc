"""The table `answers`: read by DuckDB, by the documents' own query, and by pandas, it has the figures of the CSV and of the page."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import duckdb
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import runner
from reports.answers import answers_table
from reports.answers.answers_table import StandingRecord
from runner.cli.main import app
from runner.paths import PROJECT
from runner.results.on_disk.schema import ANSWERS, TABLES, columns_of
from tests import column_page, json_schemas
from tests.fixtures import stored, synthetic

# A CPU run whose cells are ranked and fail, with three repeats.
CPU_RUN = "20261120-000000-aaaa"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The H200's two archives, of two precisions and three modes with failed and unranked cells, and a run on a CPU."""
    folder = tmp_path_factory.mktemp("answers") / "results"
    for name in ("fp32", "amp-bf16"):
        call("import", str(PROJECT / "docs" / "h200" / f"{name}.tar.gz"), out=folder)
    synthetic.make_run(folder / CPU_RUN, repeats=3)
    call("report", CPU_RUN, "--text", out=folder)
    return folder


def call(*words: str, out: Path) -> str:
    ended = CliRunner().invoke(app, [*words, "--out", str(out)])
    assert ended.exit_code in (0, 1), ended.output
    return ended.stdout


def runs(out: Path) -> list[str]:
    return sorted(path.parent.name for path in out.glob("*/run.json"))


def lines_of(out: Path) -> Iterator[Mapping[str, str]]:
    """The lines of each run's CSV."""
    for run in runs(out):
        yield from csv.DictReader(io.StringIO(call("report", run, "--format", "csv", out=out)))


def as_csv(value: Any) -> str:
    return "" if value is None else str(value)


def rows_of(relation: duckdb.DuckDBPyRelation) -> list[dict[str, Any]]:
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def test_each_figure_of_the_documents_query_is_that_of_one_cell_in_the_csv(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list(lines_of(out))
    assert {line["precision"] for line in lines} >= {"fp32", "amp-bf16"}
    assert {line["mode"] for line in lines} >= {"default", "graph"}
    assert {line["status"] for line in lines} >= {"ok", "failed", "missing"}
    (query,) = re.findall(r"```sql\n(.+?)```", (PROJECT / "docs" / "results-format.md").read_text(), re.DOTALL)
    monkeypatch.chdir(out.parent)
    printed = rows_of(duckdb.sql(query))
    for row in printed:
        alike = [line for line in lines if all(line[name] == as_csv(value) for name, value in row.items())]
        assert len(alike) == 1, row
    assert len(printed) == sum(line["ranked"] == "True" for line in lines) > 5


def test_each_cell_of_a_run_is_one_row_with_every_figure_of_its_line_in_the_csv(out: Path) -> None:
    lines = {(line["run_id"], line["cell_id"]): line for line in lines_of(out)}
    rows = rows_of(duckdb.sql(f"select * from '{out}/*/tables/answers.parquet'"))
    assert len(rows) == len(lines) == 26
    for row in rows:
        line = lines[row["run_id"], row["cell_id"]]
        assert {name: as_csv(value) for name, value in row.items()} == line
    planned = {
        (run, entry["id"]) for run in runs(out) for entry in json.loads((out / run / "run.json").read_text())["plan"]
    }
    assert {(row["run_id"], row["cell_id"]) for row in rows} == planned


def test_the_json_and_the_trackers_have_the_figures_of_the_table(out: Path) -> None:
    stored_steps = {
        (row["run_id"], row["cell_id"]): row["step_seconds"]
        for row in rows_of(duckdb.sql(f"select * from '{out}/*/tables/answers.parquet'"))
    }
    ranked = 0
    for run in runs(out):
        groups = json.loads(call("report", run, "--format", "json", out=out))["answers"]
        for cell in (cell for group in groups for cell in group["cells"]):
            assert cell["step_seconds"] == stored_steps[run, cell["cell_id"]]
            ranked += cell["ranked"]
        if ranked:
            steps = {1e9 * step for step in stored_steps.values() if step is not None}
            bencher = json.loads(call("report", run, "--bmf", out=out))
            assert {entry["latency"]["value"] for entry in bencher.values()} <= steps
            action = json.loads(call("report", run, "--format", "github-action-benchmark", out=out))
            assert [entry["name"] for entry in action] == list(bencher)
            assert all(
                entry["value"] == pytest.approx(bencher[entry["name"]]["latency"]["value"] / 1e6) for entry in action
            )
            assert {(type(entry["value"]), entry["unit"]) for entry in action} == {(float, "ms/step")}
    assert ranked > 5


def test_python_reads_the_table_with_one_call_that_alone_loads_pandas(out: Path) -> None:
    frames = runner.read(CPU_RUN, out=out)
    stored_rows = pq.read_table(out / CPU_RUN / "tables" / "answers.parquet").to_pandas()
    assert frames.answers.equals(stored_rows)
    assert len(frames.samples) == len(stored.rows_of(out / CPU_RUN, "samples"))
    assert {*frames.telemetry.columns} == {column.name for column in TABLES["telemetry"]}
    assert set(runner.read(*runs(out), out=out).answers["run_id"]) == set(runs(out))
    program = "import sys, runner\nassert not {'pandas', 'pyarrow', 'numpy', 'typer'} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=PROJECT)
    # The tables agree with the parcels by now.
    program = (
        "import sys; from runner.cli.main import app; import typer.testing as t\n"
        f"assert t.CliRunner().invoke(app, ['report', '--text', {str(out / CPU_RUN)!r}]).exit_code == 0\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=PROJECT)


def test_a_table_that_was_edited_or_is_of_other_code_or_older_parcels_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = synthetic.make_run(tmp_path / "results" / CPU_RUN, repeats=2)
    path = folder / "tables" / "answers.parquet"
    rows = answers_table.answers_of(folder)
    first = path.read_bytes()
    path.write_bytes(first[:-1])
    assert answers_table.answers_of(folder) == rows
    assert path.read_bytes() == first
    monkeypatch.setattr(answers_table, "code_digest", lambda: b"other")
    answers_table.answers_of(folder)
    assert path.read_bytes() != first
    monkeypatch.undo()
    synthetic.with_windows(folder, rows["cell_id"][0].as_py(), lambda row: {**row, "seconds": 2 * row["seconds"]})
    assert not path.exists()
    slower = answers_table.answers_of(folder)
    assert path.exists()
    assert slower != rows


def test_a_folder_that_cannot_be_written_has_answers_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = synthetic.make_run(tmp_path / "results" / CPU_RUN, repeats=2)
    stored.forbid_tables_in(folder, monkeypatch)
    assert len(runner.read(folder).answers) == 6
    assert not (folder / "tables" / "answers.parquet").exists()


def test_the_files_say_of_each_column_what_it_holds_and_its_unit_and_the_page_of_columns_is_made_of_them(
    out: Path,
) -> None:
    for table in (ANSWERS, *TABLES):
        for field in pq.read_schema(out / CPU_RUN / "tables" / f"{table}.parquet"):
            assert len(field.metadata[b"description"]) > 5, field
            words = field.name.split("_")
            if {"seconds", "bytes", "watts", "joules", "celsius", "megahertz", "percent"} & set(words):
                assert field.metadata[b"unit"], f"{table}.{field.name} has no unit"
    assert column_page.PAGE.read_text() == column_page.text(), "`make docs` makes docs/columns.md again"
    assert {column.name for column in columns_of(ANSWERS)} == set(get_type_hints(StandingRecord))


def test_each_schema_of_the_json_has_a_name_with_its_version() -> None:
    names = [json_schemas.schema_of(command)["$id"] for command in json_schemas.DOCUMENTS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"urn:dlbench-matrix:schema:1:[a-z-]+", name) for name in names)
