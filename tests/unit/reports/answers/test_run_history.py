"""`runner history` over stored runs: what moved, after which recorded change, and what moved without one."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from reports.answers import run_history
from reports.answers.comparison import comparison
from reports.data import tables
from runner.cli.main import app
from runner.results.rank import ranking
from tests.fixtures import drawn, measured, stored, synthetic
from tests.fixtures.regimes import Regime, timed_run

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
    (moved,) = [row for row in found["rows"] if row["verdict"] == "slower"]
    assert (moved["framework"], moved["workload"]) == ("torch", "cnn-cifar10")
    assert moved["differences"] == "driver 550.54 → 570.10"
    # Both nights before the change are one state, whose repeats count alike.
    assert moved["a_runs"] == "20261120 20261121"
    assert result.exit_code == 1
    shown = ask(tmp_path).stdout
    assert "driver 550.54 → 570.10" in shown
    assert "gru-imdb" not in shown
    assert "gru-imdb" in ask(tmp_path, "--all").stdout


def test_a_cell_that_no_longer_computes_right_is_said_in_every_format(tmp_path: Path) -> None:
    broken = ("torch-2.13.0-cpu", "cnn-cifar10")
    why = {"status": "failed", "error_kind": "parity", "reason": "the gradient of conv1.w is wrong"}
    for day in range(5):
        folder = night(tmp_path, day, "550.54")
        if day >= 3:
            stored.change(folder, "cells", lambda row: row | why if (row["image"], row["workload"]) == broken else row)
    for how in ("text", "markdown", "json", "csv"):
        result = ask(tmp_path, "--format", how)
        assert result.exit_code == 1
        assert result.stdout.count("the gradient of conv1.w is wrong") == 1
        assert "20261123" in result.stdout
    assert "1 cell that worked before failed since." in " ".join(ask(tmp_path).stdout.split())
    (record,) = json.loads(ask(tmp_path, "--format", "json").stdout)["broken"]
    assert (record["workload"], record["verdict"], record["b_runs"]) == ("cnn-cifar10", "fails since", "20261123")
    rows = csv.DictReader(io.StringIO(ask(tmp_path, "--format", "csv").stdout))
    assert [row["verdict"] for row in rows if (row["image"], row["workload"]) == broken] == ["fails since"]


def test_one_run_has_no_history_and_says_how_it_gets_one(tmp_path: Path) -> None:
    night(tmp_path, 0, "550.54")
    result = ask(tmp_path)
    assert (
        "There is one run, 20261120. Measure again with the same options, then run `runner history` once more."
        in result.stdout
    )
    assert result.exit_code == 3


def test_repeats_that_are_too_noisy_are_said_to_be(tmp_path: Path) -> None:
    for day in (0, 1):
        folder = night(tmp_path, day, "550.54", repeats=2)
        stored.change(folder, "cells", lambda row: {**row, "noise": 0.9})
    result = ask(tmp_path)
    assert "too noisy or with too few windows to compare: " in result.stdout
    assert "PyTorch 2.13.0, cnn-cifar10" in result.stdout
    assert "No cell was measured" not in result.stdout
    assert result.exit_code == 3


def test_a_cell_that_is_too_noisy_in_every_run_is_named_beside_the_others(tmp_path: Path) -> None:
    noisy = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")["id"]
    for day in (0, 1):
        folder = night(tmp_path, day, "550.54", repeats=2)
        stored.change(folder, "cells", lambda row: {**row, "noise": 0.9} if row["cell_id"] == noisy else row)
    result = ask(tmp_path)
    assert "4 comparisons over 2 runs: " in result.stdout
    assert "too noisy or with too few windows to compare: PyTorch 2.13.0, cnn-cifar10." in " ".join(
        result.stdout.split()
    )
    assert json.loads(ask(tmp_path, "--format", "json").stdout)["not_compared"] == ["PyTorch 2.13.0, cnn-cifar10"]


def test_a_number_that_moved_while_nothing_recorded_changed_is_told_so(tmp_path: Path) -> None:
    for day in range(7):
        night(tmp_path, day, "550.54", repeats=2)
    night(tmp_path, 7, "550.54", SLOW, repeats=1)
    found = run_history.history(tables.load(sorted(tmp_path.iterdir())))
    assert [row.cell.framework for row in found.moved] == ["torch"]
    assert found.moved[0].changed == "nothing recorded changed"
    assert [cell.run_id for cell in found.moved[0].after.cells] == ["20261127"]


@pytest.mark.parametrize(("odd", "factor"), [(6, 0.51), (2, 1.3), (4, 1.1)])
def test_one_odd_run_is_named_and_no_level_is_made_of_it(odd: int, factor: float, tmp_path: Path) -> None:
    for day in range(1, 8):
        night(tmp_path, day, "550.54", dict.fromkeys(synthetic.LEVELS, factor) if day == odd else None)
    result = ask(tmp_path, "--format", "json")
    found = json.loads(result.stdout)
    for row in found["rows"]:
        assert f"2026112{odd} alone took" in row["reason"]
        assert f"2026112{odd}" not in row["a_runs"] + row["b_runs"]
        assert (row["verdict"], row["a_seconds"]) == ("same", pytest.approx(row["b_seconds"], rel=0.02))
    assert f"Apart from all others, and not counted: 2026112{odd} ({len(found['rows'])} rows)" in found["summary"]
    assert result.exit_code == 0


def test_what_was_seen_of_the_machine_in_an_odd_run_is_said_with_it(tmp_path: Path) -> None:
    for day in range(1, 8):
        run = night(tmp_path, day, "550.54", dict.fromkeys(synthetic.LEVELS, 1.5) if day == 4 else None)
        stored.change(run, "cells", lambda row, day=day: {**row, "other_cpus": 1.0 if day == 4 else 0.0})
    (row, *_) = json.loads(ask(tmp_path, "--format", "json").stdout)["rows"]
    assert "a step (CPUs busy with other work 0 → 1.00), and does not count" in row["reason"]


def test_the_newest_run_is_never_left_out(tmp_path: Path) -> None:
    for day in range(1, 8):
        night(tmp_path, day, "550.54", dict.fromkeys(synthetic.LEVELS, 1.3) if day == 7 else None)
    found = json.loads(ask(tmp_path, "--format", "json").stdout)
    assert {row["verdict"] for row in found["rows"]} == {"slower"}
    assert "Apart" not in found["summary"]


def test_runs_come_in_the_order_of_their_time_not_of_their_names(tmp_path: Path) -> None:
    late = synthetic.make_run(tmp_path / "a", repeats=2, manifest={"created": "2026-11-22T00:00:00+00:00"})
    early = synthetic.make_run(tmp_path / "b", repeats=2, draw=1, manifest={"created": "2026-11-21T00:00:00+00:00"})
    found = run_history.history(tables.load([late, early]))
    assert found.runs == ("b", "a")
    assert {row.after.cells[0].run_id for row in found.rows} == {"a"}


@pytest.mark.parametrize(("moved", "level"), [(0.0, 0.9), (0.2, 0.95)])
def test_the_level_of_a_row_is_that_of_its_interval(moved: float, level: float) -> None:
    """Where no change is told the interval is that of two one-sided tests at 5 %."""
    random = np.random.default_rng(3)
    runs = {
        f"run-{at}": {
            ("torch", "w"): [np.exp(random.normal(moved * (at > 4), 0.005) + random.normal(0, 0.01, 16)) for _ in "abc"]
        }
        for at in range(10)
    }
    (row,) = run_history.document(run_history.history(measured.tables(runs)))["rows"]
    assert row["verdict"] == ("slower" if moved else "same")
    assert row["level"] == pytest.approx(level)


def test_the_formats_hold_the_rows(tmp_path: Path) -> None:
    night(tmp_path, 0, "550.54")
    night(tmp_path, 1, "570.10", SLOW)
    assert ask(tmp_path, "--format", "csv").stdout.count("\n") == 1 + 5
    text = ask(tmp_path, "--format", "markdown").stdout
    assert text.startswith("**5 comparisons over 2 runs: 1 changed")
    assert "driver 550.54 → 570.10" in text
    assert sum(line.startswith("| ") for line in text.splitlines()) == 2 + 1


@pytest.mark.slow
def test_what_moved_nearly_all_cells_is_said_once_at_the_top(tmp_path: Path) -> None:
    slow = {place: 1.1 for place in synthetic.LEVELS if place != synthetic.UNSTEADY}
    for day in range(8):
        night(tmp_path, day, "550.54", slow if day > 4 else None, repeats=2)
    result = ask(tmp_path)
    assert result.stdout.startswith("4 of 5 cells became slower since 20261125. The machine did that, or something")
    assert result.stdout.count("The machine did that") == 1
    assert json.loads(ask(tmp_path, "--format", "json").stdout)["moved_together"].startswith("4 of 5 cells")
    # Of two runs the cells show it together, where none of them alone has runs enough.
    pair = ask(tmp_path, str(tmp_path / "20261124"), str(tmp_path / "20261125"), "--format", "markdown").stdout
    assert "cells moved together: a step takes " in pair
    assert "open: 2 runs with the same recorded facts" in pair


def test_where_nothing_moved_each_cell_has_a_line(tmp_path: Path) -> None:
    for day in range(6):
        night(tmp_path, day, "550.54", repeats=2)
    lines = ask(tmp_path).stdout.splitlines()
    assert sum(line.startswith("PyTorch 2.13.0 ") and "cnn-cifar10" in line for line in lines) == 1
    assert lines[-2].startswith("5 comparisons over 6 runs: ")


def test_on_a_narrow_terminal_it_is_a_table_with_each_reason_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(3):
        night(tmp_path, day, "550.54" if day < 2 else "570.10", repeats=2)
    monkeypatch.setenv("COLUMNS", "80")
    shown = ask(tmp_path).stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert " ".join(shown).startswith("device ")
    assert "preset quick, since 20261122 ms a step, before and since" in " ".join(shown)
    assert ["workload", "runs", "before", "since", "ratio", "95", "%", "verdict"] in map(str.split, shown)
    assert sum("driver 550.54 → 570.10" in line for line in shown) == 1
    (row,) = (line for line in shown[shown.index("PyTorch 2.13.0") :][:3] if "cnn-cifar10" in line)
    assert row.split()[:2] == ["cnn-cifar10", "3"]


def test_the_lines_of_a_cells_states_name_the_run_that_each_is_of(tmp_path: Path) -> None:
    for day in range(6):
        night(tmp_path, day, "550.54" if day < 3 else "570.10", repeats=2)
    found = run_history.history(tables.load(sorted(tmp_path.iterdir())))
    lines = [line for line in found.lines if line.startswith("PyTorch 2.13.0, cnn-cifar10")]
    assert len(lines) > 1
    assert len({line.partition(": ")[0] for line in lines}) == len(lines)
    assert ", since 20261123: " in lines[0]
    # The columns of the table name them too.
    rows = [line for line in ask(tmp_path).stdout.splitlines() if line.startswith("PyTorch 2.13.0 ")]
    assert sum("cnn-cifar10" in row for row in rows) == len(lines)


def test_a_run_whose_run_json_is_damaged_is_named_and_the_history_goes_on(tmp_path: Path) -> None:
    for draw, name in enumerate(("monday", "tuesday")):
        synthetic.make_run(tmp_path / name, repeats=2, windows=12, draw=draw)
    well = ask(tmp_path)
    for name, text in (("cut", '{"run_id": '), ("list", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    beside = ask(tmp_path)
    assert (beside.exit_code, beside.stdout) == (well.exit_code, well.stdout)
    lines = beside.stderr.splitlines()
    assert [line.split(" ")[1].rstrip(":") for line in lines] == [
        f"{tmp_path}/{name}/run.json" for name in ("cut", "list")
    ]
    # Who names it wants it.
    assert f"{tmp_path}/cut/run.json is not JSON" in ask(tmp_path, "monday", "cut").stderr
    for name in ("monday", "tuesday"):
        (tmp_path / name / "run.json").write_text("")
    none = ask(tmp_path)
    assert (none.exit_code, none.stdout) == (2, "")
    assert "no run can be read, so there is no history" in none.stderr


@pytest.mark.parametrize("seed", range(12))
def test_report_compare_and_history_print_one_step_time_of_a_run(seed: int) -> None:
    random, runs = np.random.default_rng([33, seed]), {}
    warming = Regime(process=0.01, windows=0.02, warming=0.12, settles=0.3, count=16)
    began = {}
    for day in ("d1", "d2"):
        series, starts = timed_run(random, warming, np.exp(random.normal(0, 0.1, 5)).tolist(), 4)
        # A run that was interrupted has fewer repeats of some cells.
        kept = [4 if random.random() < 0.7 else int(random.integers(1, 4)) for _ in series]
        names = [("torch", f"w{at}") for at in range(5)]
        runs[day] = {name: cell[:many] for name, cell, many in zip(names, series, kept, strict=True)}
        began[day] = {name: start[:many] for name, start, many in zip(names, starts, kept, strict=True)}
    printed = {
        day: {cell.key.workload: cell.step for cell in measured.tables({day: runs[day]}, {day: began[day]}).cells}
        for day in runs
    }
    both = measured.tables(runs, began)
    compared = comparison(both, "d1", "d2", "run").rows
    assert len(compared) == 5
    for row in compared:
        before, after = (printed[day][row.cell.key.workload] for day in runs)
        assert before
        assert after
        assert row.before.step
        assert row.after.step
        assert row.ratio
        assert (row.before.step.value, row.after.step.value) == pytest.approx((before.value, after.value), rel=1e-9)
        assert row.ratio.value == pytest.approx(after.value / before.value, rel=1e-9)
    for moved in run_history.history(both).rows:
        before, after = (printed[day][moved.cell.key.workload] for day in runs)
        assert before
        assert after
        assert moved.seconds == pytest.approx((before.value, after.value), rel=1e-9)
        assert moved.ratio
        assert moved.ratio.value == pytest.approx(after.value / before.value, rel=1e-9)


def test_runs_of_two_gpus_of_one_model_name_them(tmp_path: Path) -> None:
    for at in (1, 2):
        gpus = [{"kind": "cuda", "model": "Synthetic GPU", "uuid": f"GPU-{at}"}]
        run = synthetic.make_run(tmp_path / f"run{at}", repeats=2, draw=at, manifest={"devices": gpus})
        synthetic.add_scaling(run, {1: 0.1}, repeats=2)
    rows = run_history.history(tables.load([tmp_path / "run1", tmp_path / "run2"])).rows
    assert {row.changed for row in rows if row.cell.key.device_kind == "cuda"} == {"GPU GPU-1 → GPU-2"}


def test_a_history_compares_no_cell_with_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take time that grows as the square of the runs: 83 s of CPU for 300 runs of six cells, and 9 s without."""
    runs = [synthetic.make_run(tmp_path / f"run{at}", windows=12, draw=at, repeats=2) for at in range(3)]

    def refuse(*_: object) -> None:
        raise AssertionError("two cells are compared")

    monkeypatch.setattr(ranking.Field, "_pair", refuse)
    found = run_history.history(tables.load(runs, tables.STEPS))
    assert len(found.rows) == 5


@pytest.mark.parametrize(
    ("slower", "code"),
    [({}, 3), (dict.fromkeys(("torch", "tensorflow", "jax"), 1.06), 1), ({"torch": 1.1}, 1)],
    ids=["nothing", "all by 6 %", "one by 10 %"],
)
def test_of_two_runs_history_has_the_code_of_compare_and_says_why(
    slower: dict[str, float], code: int, tmp_path: Path
) -> None:
    """A CI that compares yesterday with today may ask either."""
    random = np.random.default_rng(51)
    for day, factors in (("20", {}), ("21", slower)):
        cells = {
            (name, work): drawn.steady(random, (0.1 + 0.02 * at) * factors.get(name, 1.0))
            for work in ("cnn-cifar10", "gru-imdb")
            for at, name in enumerate(drawn.IMAGES)
        }
        drawn.write(tmp_path / f"d{day}", cells, created=f"2026-11-{day}T10:00:00+00:00")
    told = CliRunner().invoke(app, ["compare", "d20", "d21", "--results", str(tmp_path)])
    by_history = ask(tmp_path)
    assert (told.exit_code, by_history.exit_code) == (code, code)
    words = "takes 1.10 times as long" if slower == {"torch": 1.1} else "That is slower"
    assert (words in by_history.stdout) == (code == 1)
