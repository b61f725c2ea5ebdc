"""The answer on a terminal: the page's order and verdicts, in a table that fits and cuts no name."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from reports.answers import findings
from reports.answers import left as of_runs
from reports.answers.overview import overview
from reports.answers.plain import sections, so_far
from reports.data.tables import load
from reports.page.assembly import page_of
from runner.cli.main import app
from runner.cli.report import print_answer
from tests.fixtures import measured, stored, synthetic

NAMES = ("PyTorch 2.13.0", "JAX 0.10.2", "TensorFlow 2.21.0")


def shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_answer([folder])
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_rows_stand_in_the_order_of_the_report_under_its_headline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], repeats: int
) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=repeats)
    lines = shown(folder, capsys)
    answers = findings.findings(load([folder]))
    headlines = [f"{answer.headline}." for answer in answers]
    assert [line for line in lines if line in headlines] == headlines
    rows = [name for line in lines for name in NAMES if line.startswith(name) and "·" not in line and line[-1] != "."]
    called = [cell.label for answer in answers for cell in answer.group.cells]
    assert rows == called


def test_one_repeat_is_not_confirmed_and_the_remedy_stands_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once = shown(synthetic.make_run(tmp_path / "once"), capsys)
    assert [line.partition(" (about")[0] for line in once if line.startswith("measured once: ")] == [
        "measured once: 3 cells. Repeat with --repeats 3",
        "measured once: 2 cells. Repeat with --repeats 3",
    ]
    # Each figure beside the first says so too: a row may be copied without the line below.
    behind = sum(len(answer.group.behind) for answer in findings.findings(load([tmp_path / "once"])))
    assert sum("  one run: " in line for line in once) == behind
    assert not [line for line in once if line.startswith("confirmed")]
    thrice = shown(synthetic.make_run(tmp_path / "thrice", repeats=3), capsys)
    assert not [line for line in thrice if "measured once" in line or "one run" in line]
    assert len([line for line in thrice if line.startswith("confirmed in this run: 3 repeats; ")]) == 1
    assert [line for line in thrice if line.startswith("PyTorch 2.13.0 is the same as JAX 0.10.2 (")]
    # Once, above all answers.
    (line,) = (line for line in thrice if line.startswith("unsteady"))
    assert line.startswith("unsteady: 1 of 5 ranked cells changed speed while measured; was the machine busy")
    assert thrice.index(line) < min(
        thrice.index(f"{one.headline}.") for one in findings.findings(load([tmp_path / "thrice"]))
    )


def test_the_repeats_that_would_tell_have_the_time_that_they_take() -> None:
    random = np.random.default_rng(1)
    cells = {
        (name, "gru-imdb"): [np.exp(random.normal(level, 0.02) + random.normal(0, 0.02, 20)) for _ in range(3)]
        for name, level in (("torch", 0.0), ("jax", 0.04))
    }
    tables = measured.tables({"run": cells})
    for cell in tables.cells:
        for repeat in cell.repeats:
            assert isinstance(repeat.row, dict)
            repeat.row["wall_seconds"] = 30.0
    (line,) = (line for one in sections(tables) for line in one.below if line.startswith("open: "))
    found = re.search(r"(\d+) repeats would tell: `runner matrix .* --repeats (\d+)` \(about (\d+) min\)", line)
    assert found, line
    assert found[1] == found[2]
    assert int(found[3]) == int(found[1]), "two cells of half a minute each"


@pytest.mark.parametrize(("deviation", "quiet"), [(0.0245, True), (0.0255, False)])
def test_the_chance_of_a_false_difference_is_said_up_to_the_noise_that_was_simulated(
    deviation: float, quiet: bool
) -> None:
    cells = {
        (name, "gru-imdb"): [np.full(20, np.exp(level + off)) for off in (-deviation, 0.0, deviation)]
        for name, level in (("torch", 0.0), ("jax", 1.0))
    }
    (said,) = (line for one in sections(measured.tables({"run": cells})) for line in one.below if "only noise" in line)
    assert ("a chance of at most 5 %" in said) == quiet
    assert ("repeats differ by 2.5" in said) != quiet


@pytest.mark.parametrize(("networks", "lines"), [(6, 6), (7, 6)])
def test_a_run_says_so_far_of_six_networks_at_most(networks: int, lines: int) -> None:
    cells = {
        (name, f"network-{at}"): [np.full(20, level)] * 2
        for at in range(networks)
        for name, level in (("torch", 1.0), ("jax", 2.0))
    }
    assert len(so_far(measured.tables({"run": cells}))) == lines


@pytest.mark.parametrize(("repeats", "said"), [(89, " (about 89 min)"), (90, " (about 1.5 h)")])
def test_hours_are_said_of_ninety_minutes(repeats: int, said: str) -> None:
    tables = measured.tables({"run": {("torch", "gru-imdb"): [np.ones(20)]}})
    for repeat in tables.cells[0].repeats:
        assert isinstance(repeat.row, dict)
        repeat.row["wall_seconds"] = 60.0
    assert of_runs.time_of(tables.cells, repeats) == said


def test_a_run_that_planned_more_repeats_is_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=3)
    stored.remove(folder, lambda row: row["repeat"] > 1)
    said = " ".join(shown(folder, capsys))
    data = load([folder])
    (left,) = of_runs.left(data.cells)
    assert f"Go on with `runner matrix --resume {data.runs[0].run_id}`: {left.repeats} repeats not yet run" in said
    assert "--repeats 3" not in said
    words = [pill.words for pill in page_of(overview(data)).pills]
    assert left.count in words
    assert f"measured once: {left.command}" in words


def test_a_failure_is_a_row_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(synthetic.make_run(tmp_path / "run"), capsys)
    assert [line for line in lines if line.startswith("TensorFlow 2.21.0") and "out-of-memory" in line]


@pytest.mark.parametrize("columns", ["80", None])
def test_runner_report_text_prints_the_table_for_a_terminal_of_80_columns_and_for_a_pipe(
    tmp_path: Path, columns: str | None
) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=3)
    result = CliRunner().invoke(app, ["report", str(folder), "--text"], env={"COLUMNS": columns})
    assert result.exit_code == 0, result.output
    table = [line for line in result.stdout.splitlines() if line.startswith(("framework", "─", *NAMES))]
    assert all(name in result.stdout for name in NAMES)
    if columns:
        assert max(map(len, table)) <= 80
    # Which run this is stands above its answer.
    assert result.stdout.startswith(f"run {folder.name} · 20 November 2026, 23:05 UTC ·")
    assert str(folder) in result.stdout
    both = CliRunner().invoke(app, ["report", str(folder), "--text", "--format", "markdown"])
    assert both.exit_code == 2
    assert "--text and --format markdown: give one of them" in both.stderr


def test_runner_report_text_says_what_a_run_has_not_yet_run(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "begun", manifest={"repeats": 3})
    synthetic.unrun(run, ("torch-2.13.0-cpu", "cnn-cifar10"), ("jax-0.10.2-cpu", "cnn-cifar10"))
    lines = CliRunner().invoke(app, ["report", str(run), "--text"]).stdout.splitlines()
    assert lines[0].startswith("run begun · ")
    assert lines[1].startswith("16 repeats not yet run (4 cells without any repeat), about ")
    assert lines[1].endswith(": `runner matrix --resume begun`")


def test_a_planned_cell_that_is_not_yet_run_is_named_once_in_every_format_and_counted_on_a_terminal(
    tmp_path: Path,
) -> None:
    run = synthetic.make_run(tmp_path / "begun", manifest={"skips": []})
    synthetic.unrun(run, ("torch-2.13.0-cpu", "cnn-cifar10"))
    planned = load([run])
    assert len(planned.waiting) == 5

    def said(how: str) -> str:
        return CliRunner().invoke(app, ["report", str(run), "--format", how]).stdout

    rows = list(csv.DictReader(io.StringIO(said("csv"))))
    assert sorted(row["cell_id"] for row in rows) == sorted(cell.cell_id for cell in planned.cells)
    assert [row["status"] for row in rows].count("missing") == 5
    assert len(json.loads(said("json"))["waiting"]) == 5
    marked = said("markdown").replace("\\", "").partition("### Not yet run")[2]
    for cell in planned.waiting:
        (line,) = (line for line in marked.splitlines() if line.strip(" -").startswith(f"{cell.key.workload}, "))
        assert line.partition(": ")[2].split(", ").count(cell.label) == 1
    # A terminal has one line, with the command that goes on: of ten minutes more than a hundred cells are left.
    (counted,) = (line for line in said("text").splitlines() if "not yet run" in line)
    assert counted == "5 repeats not yet run (5 cells without any repeat), about 3 min: `runner matrix --resume begun`"


def test_a_sentence_is_folded_between_words_at_the_width_of_a_terminal_and_not_in_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    monkeypatch.delenv("COLUMNS", raising=False)
    assert max(map(len, shown(folder, capsys))) > 80
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, shown(folder, capsys))) <= 80


def test_a_cell_that_was_measured_at_standard_is_not_advised_to_be_measured_at_standard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for preset, remedy in (
        ("quick", "or measure for longer with --preset standard"),
        ("standard", "then measure again"),
    ):
        lines = shown(synthetic.make_run(tmp_path / preset, windows=4, everywhere={"preset": preset}), capsys)
        advice = {line for line in lines if line.startswith("not ranked: ")}
        assert advice == {f"not ranked: end what else runs on the machine, {remedy}"}
