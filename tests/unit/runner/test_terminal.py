"""What is printed at 80 columns and in a pipe: no name is cut, and no two rows look alike."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reports.wording import cell_name
from runner.catalog.images import load_catalog
from runner.catalog.workloads import load_workloads
from runner.cli.main import app
from runner.terminal import folded, print_table
from tests.fixtures.synthetic import make_run

HEADS = ("cell", "workload", "step", "what it means")
ROWS = [
    (cell_name(image.name, framework, None), workload, "12.3 ms", "the same sentence stands in every row of this table")
    for image in load_catalog().values()
    for framework in image.frameworks
    for workload in load_workloads()
]


def printed(capsys: pytest.CaptureFixture[str], rows: list[tuple[str, ...]]) -> list[str]:
    print_table(HEADS, rows, right=("step",))
    return capsys.readouterr().out.splitlines()


def test_no_line_of_a_table_ends_with_spaces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = printed(capsys, [("torch", "ops", "1 ms", "short"), ("jax", "ops", "2 ms", "a longer sentence")])
    assert len(lines) == 4
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_two_rows_with_names_of_the_catalog_look_alike(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = printed(capsys, ROWS)
    wide = lines[1].startswith("─")
    # A row begins where nothing is indented. What a paragraph begins with goes on where four spaces are.
    first: list[str] = []
    for line in lines[2:] if wide else lines:
        if not line.startswith(" "):
            first.append(line)
        elif line.startswith("    ") and not wide:
            first[-1] += line
    assert len(first) == len(set(first)) == len(ROWS)
    assert max(map(len, lines)) <= columns
    # Every name is there, whole.
    text = " ".join(" ".join(lines).split())
    assert all(text.count(name) >= sum(name == row[0] for row in ROWS) for name in {row[0] for row in ROWS})


def test_in_a_pipe_a_row_is_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = printed(capsys, ROWS)[2:]
    assert len(lines) == len(set(lines)) == len(ROWS)
    assert all(line.rstrip().endswith("every row of this table") for line in lines)


def test_a_paragraph_begins_with_as_many_columns_as_no_two_rows_share(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    words = "a sentence that is too long for a column of a table of so few columns"
    assert printed(capsys, [("a", "v", "1", words), ("b", "v", "2", words)])[0] == "a"
    assert printed(capsys, [("a", "v", "1", words), ("a", "w", "1", words)])[0] == "a · v"
    assert printed(capsys, [("a", "v", "1", words), ("a", "v", "1", words)])[0] == "a"


def test_a_sentence_that_is_indented_goes_on_further_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert folded("  fix: look for heat, or a limit") == "  fix: look for\n    heat, or a limit"
    assert folded("look for heat, or a limit") == "look for heat, or a\nlimit"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    make_run(folder / "one", repeats=2, windows=12)
    make_run(folder / "other", repeats=2, windows=12, draw=1)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "images list",
        "doctor",
        "matrix --dry-run --gpus none --engine venv",
        "compare torch jax",
        "compare {out}/one {out}/other",
        "history",
        "verify --run {out}/one",
        "report --text",
        "reference list",
    ],
)
def test_no_line_of_a_command_is_longer_than_80_columns(words: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    takes_out = words.split()[0] in ("matrix", "compare", "history", "verify", "report")
    result = CliRunner().invoke(app, [*words.format(out=out).split(), *(["--out", str(out)] if takes_out else [])])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    lines = result.stdout.splitlines()
    assert lines
    # A command that one may copy is one word.
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []
    rows = [line for line in lines if line.strip()]
    alike = [line for line, same in itertools.groupby(sorted(rows)) if len(list(same)) > 1 and line[0] != " "]
    # A history has sentences, of which several end alike.
    assert alike == [] or words == "history"
