"""`runner history` over stored runs: what moved, after which recorded change, and what moved without one."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from reports.answers import history
from reports.data import tables
from runner.cli.main import app
from tests.fixtures import synthetic

SLOW = {("torch-2.13.0-cpu", "cnn-cifar10"): 1.08}


def ask(out: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["history", *words, "--out", str(out)])


def night(
    out: Path, day: int, driver: str, slower: dict[tuple[str, str], float] | None = None, repeats: int = 3
) -> Path:
    return synthetic.make_run(
        out / f"2026112{day}",
        repeats=repeats,
        draw=day,
        slower=slower,
        everywhere={"driver_version": driver},
        manifest={"created": f"2026-11-2{day}T23:00:00+00:00"},
    )


def test_a_number_that_moved_is_told_with_the_change_before_it(tmp_path: Path) -> None:
    for day in (0, 1):
        night(tmp_path, day, "550.54")
    night(tmp_path, 2, "570.10", SLOW)
    result = ask(tmp_path, "--format", "json")
    found = json.loads(result.stdout)
    (moved,) = [row for row in found["rows"] if row["verdict"] == "real"]
    assert (moved["framework"], moved["workload"]) == ("torch", "cnn-cifar10")
    assert moved["differences"] == "driver 550.54 → 570.10"
    # Both nights before the change are one state, whose repeats count alike.
    assert moved["a_runs"] == "20261120 20261121"
    assert result.exit_code == 1
    shown = ask(tmp_path).stdout
    assert "driver 550.54 → 570.10" in shown
    assert "gru-imdb" not in shown
    assert "gru-imdb" in ask(tmp_path, "--all").stdout


def test_a_number_that_moved_while_nothing_recorded_changed_is_told_so(tmp_path: Path) -> None:
    for day in (0, 1, 2):
        night(tmp_path, day, "550.54", repeats=2)
    night(tmp_path, 3, "550.54", SLOW, repeats=1)
    found = history.history(tables.load(sorted(tmp_path.iterdir())))
    assert [row.cell.framework for row in found.moved] == ["torch"]
    assert found.moved[0].changed == "nothing recorded changed"
    assert [cell.run_id for cell in found.moved[0].after.cells] == ["20261123"]


def test_runs_come_in_the_order_of_their_time_not_of_their_names(tmp_path: Path) -> None:
    late = synthetic.make_run(tmp_path / "a", repeats=2, manifest={"created": "2026-11-22T00:00:00+00:00"})
    early = synthetic.make_run(tmp_path / "b", repeats=2, draw=1, manifest={"created": "2026-11-21T00:00:00+00:00"})
    found = history.history(tables.load([late, early]))
    assert found.runs == ("b", "a")
    assert {row.after.cells[0].run_id for row in found.rows} == {"a"}


def test_one_run_has_no_history_and_ends_with_2(tmp_path: Path) -> None:
    night(tmp_path, 0, "550.54")
    result = ask(tmp_path)
    assert result.exit_code == 2
    assert result.stdout.strip() == "No cell was measured by more than one of these runs."


def test_the_formats_hold_the_rows(tmp_path: Path) -> None:
    night(tmp_path, 0, "550.54")
    night(tmp_path, 1, "570.10", SLOW)
    assert ask(tmp_path, "--format", "csv").stdout.count("\n") == 1 + 5
    text = ask(tmp_path, "--format", "markdown").stdout
    assert text.startswith("**5 comparisons over 2 runs: 1 moved")
    assert "driver 550.54 → 570.10" in text
    assert sum(line.startswith("| ") for line in text.splitlines()) == 2 + 1
