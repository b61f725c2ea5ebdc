"""Whether a step between runs is found, is remembered, and is not seen where there is none: against simulated histories."""

from __future__ import annotations

import math
import os
import re

import numpy as np
import pytest

from reports.answers.change_point import change, difference, odd_one
from reports.answers.run_history import History, history
from runner.results.rank.ranking import within
from runner.results.statistics import ALPHA, Array
from tests.fixtures import measured
from tests.fixtures.regimes import Regime, noise, run

ALL = os.environ.get("DLBENCH_SIMULATIONS") == "all"
LONG = pytest.mark.skipif(not ALL, reason="minutes: DLBENCH_SIMULATIONS=all")
SESSIONS = (0.0, 0.005, 0.01, 0.02)
LEVEL = 0.05


def told(
    random: np.random.Generator, session: float, runs: int, since: int | None = None, ratio: float = 1.05
) -> History:
    """The history of a cell over nightly runs of three repeats each, whose step takes `ratio` times as long from run `since` on."""
    regime = Regime(session=session, count=8)
    nights = {}
    for night in range(runs):
        level = ratio if since is not None and night >= since else 1.0
        nights[f"day{night:02d}"] = {("torch", "cnn"): run(random, regime, [level], 3)[0]}
    return history(measured.tables(nights))


def moved(histories: list[History]) -> float:
    return sum(any(row.real for row in one.rows) for one in histories) / len(histories)


@pytest.mark.parametrize(
    ("runs", "session"),
    [
        pytest.param(runs, session, marks=() if runs == 6 and session in (0.0, 0.02) else LONG)
        for runs in (4, 6, 10, 20)
        for session in SESSIONS
    ],
)
def test_runs_that_differ_by_themselves_are_said_to_have_moved_in_at_most_five_of_100_histories(
    session: float, runs: int
) -> None:
    random = np.random.default_rng([runs, round(1000 * session)])
    trials = min(1000, 12_000 // runs) if ALL else 100
    alarms = moved([told(random, session, runs) for _ in range(trials)])
    print(f"false alarms: {alarms:.1%} of {trials} histories")
    assert alarms <= LEVEL + 2.5 * math.sqrt(LEVEL * (1 - LEVEL) / trials)


# Of histories with a step of 5 % in the middle, the least share in which it must be told: few runs cannot often.
POWER = {(4, 0.005): 0.15, (6, 0.005): 0.45, (10, 0.005): 0.8, (20, 0.005): 0.95, (10, 0.01): 0.4, (20, 0.01): 0.8}


@pytest.mark.parametrize(
    ("runs", "session"), [pytest.param(*case, marks=() if case == (10, 0.005) else LONG) for case in POWER]
)
def test_a_step_of_five_percent_is_found(runs: int, session: float) -> None:
    random = np.random.default_rng([7, runs, round(1000 * session)])
    found = [told(random, session, runs, runs // 2) for _ in range(400 if ALL else 40)]
    print(f"told: {moved(found):.1%} of {len(found)} histories")
    assert moved(found) >= POWER[runs, session]


def series(random: np.random.Generator, world: str, runs: int) -> Array:
    """Log levels of an unchanged cell over some runs, as the worlds of the table in docs/statistics.md draw them."""
    fresh = random.standard_normal(runs)
    if world.startswith("AR(1) "):
        correlation = float(world.removeprefix("AR(1) "))
        return 0.0076 * noise(random, (runs,), correlation)
    if world == "random walk":
        return 0.005 * np.cumsum(fresh)
    # A daily cycle of 3 %, a run an hour.
    return 0.03 * np.sin(2 * np.pi * (random.uniform() + np.arange(runs) / 24)) + 0.0076 * fresh


# A random walk wanders farther than the worlds that a change is held against.
OF_A_WALK = 0.065


@pytest.mark.parametrize(
    ("world", "runs"),
    [
        pytest.param(world, runs, marks=() if runs == 10 else LONG)
        for world in ("AR(1) 0", "AR(1) 0.5", "AR(1) 0.9", "random walk", "hourly")
        for runs in (4, 6, 10, 20)
    ],
)
def test_neighbouring_runs_that_are_alike_are_not_taken_for_a_change(world: str, runs: int) -> None:
    random, trials = np.random.default_rng([12, runs]), 1000 if ALL else 150
    hours = [float(run) for run in range(runs)] if world == "hourly" else []
    found = [change(series(random, world, runs), hours) for _ in range(trials)]
    changed = [one for one in found if one.p < ALPHA]
    drifts = sum(one.kind == "drift" for one in changed)
    print(f"{world}, {runs} runs: changed {len(changed) / trials:.1%}, of these {drifts} of {len(changed)} drift")
    most = OF_A_WALK if world == "random walk" else LEVEL
    assert len(changed) / trials <= most + 2.5 * math.sqrt(most * (1 - most) / trials)


@pytest.mark.parametrize(("slope", "runs", "least"), [(0.01, 10, 0.65), (0.006, 20, 0.95)])
def test_runs_that_become_slower_one_by_one_drift_and_have_no_date(slope: float, runs: int, least: float) -> None:
    random, trials = np.random.default_rng(13), 1000 if ALL else 100
    found = [change(slope * np.arange(runs) + 0.0076 * random.standard_normal(runs)) for _ in range(trials)]
    drifts = [one for one in found if one.p < ALPHA and one.kind == "drift"]
    steps = sum(one.p < ALPHA and one.kind == "step" for one in found)
    print(f"{slope:.1%} a run, {runs} runs: drifts {len(drifts) / trials:.1%}, steps {steps / trials:.1%}")
    assert len(drifts) / trials >= least
    assert steps / trials <= 0.2
    assert np.median([one.ratio.value for one in drifts]) == pytest.approx(math.exp(slope * (runs - 1)), rel=0.02)


def test_a_line_within_a_day_is_not_told_from_the_daily_cycle() -> None:
    line = 0.01 * np.arange(10)
    assert change(line, [float(hour) for hour in range(10)]).p == 1
    assert change(line, [24.0 * day for day in range(10)]).p < 0.001


def test_a_drift_is_said_with_its_size_and_without_a_date() -> None:
    random, nights = np.random.default_rng(14), {}
    for night in range(12):
        nights[f"day{night:02d}"] = {("torch", "cnn"): run(random, Regime(process=0.002, count=8), [1.01**night], 3)[0]}
    one = history(measured.tables(nights))
    (row,) = one.rows
    (line,) = one.lines
    assert (row.verdict, row.kind, one.exit_code) == ("slower", "drift", 1)
    assert re.search(
        r", fp32: drifts: takes 1\.1\d times as long over 12 runs; nothing recorded changed$",
        line.replace("\u00a0", " "),
    )
    assert "since" not in line
    # The step times are those of the line's ends, and the ratio is their quotient.
    assert row.ratio is not None
    assert row.seconds == pytest.approx((1.0, 1.01**11), rel=0.01)
    assert row.seconds[1] / row.seconds[0] == pytest.approx(row.ratio.value)


@pytest.mark.parametrize("later", [pytest.param(5, marks=LONG), 10, pytest.param(20, marks=LONG)])
def test_a_step_is_still_told_ten_runs_later_with_the_run_since_which_it_is_there(later: int) -> None:
    random = np.random.default_rng([8, later])
    found = [told(random, 0.005, 6 + later, 6) for _ in range(200 if ALL else 20)]
    print(f"told: {moved(found):.1%} of {len(found)} histories")
    assert moved(found) >= 0.85
    since = [row.cell.run_id for one in found for row in one.rows if row.real]
    assert since.count("day06") >= 0.8 * len(since)


def test_the_step_and_its_size_are_said_in_a_line() -> None:
    random = np.random.default_rng(9)
    one = told(random, 0.0, 10, 5, 1.07)
    (line,) = one.lines
    assert one.exit_code == 1
    assert "since day05 takes " in line
    assert "times as long; nothing recorded changed (10 runs)" in line
    assert one.rows[0].ratio is not None
    assert one.rows[0].ratio.value == pytest.approx(1.07, rel=0.02)


@pytest.mark.parametrize("runs", [2, 3])
def test_too_few_runs_cannot_tell_and_say_how_many_would(runs: int) -> None:
    one = told(np.random.default_rng(10), 0.0, runs, runs - 1, 1.5)
    # Of two runs `compare` tells, by their repeats.
    assert one.exit_code == (1 if runs == 2 else 3)
    assert f"open: {runs} runs with the same recorded facts; 4 or more are needed" in one.lines[0]


def test_runs_that_hold_their_level_say_so_and_runs_that_scatter_do_not() -> None:
    random = np.random.default_rng(11)
    assert "same within 5" in told(random, 0.002, 12).lines[0]
    scattered = told(random, 0.05, 6).lines[0]
    assert "open: a difference of 5" in scattered
    assert "more runs narrow it (6 runs)" in scattered


def test_a_change_after_a_step_is_set_against_the_level_since_that_step() -> None:
    random = np.random.default_rng(12)
    nights = {}
    for night in range(12):
        level = 1.0 if night < 5 else 1.1
        nights[f"day{night:02d}"] = {("torch", "cnn"): run(random, Regime(process=0.004, count=8), [level], 3)[0]}
    tables = measured.tables(nights)
    for cell in tables.cells:
        cell.row["driver_version"] = "550" if cell.run_id < "day08" else "570"  # type: ignore[index]
    one = history(tables)
    assert [row.words.replace("\u00a0", " ").partition(":")[0] for row in one.rows] == [
        "same within 5 %",
        "slower",
        "same within 5 %",
    ]
    # The driver changed at day08, three runs after the step: nothing is left for it to explain.
    assert [cell.run_id for cell in one.rows[0].before.cells] == ["day05", "day06", "day07"]
    assert one.rows[0].changed == "driver 550 → 570"
    assert one.rows[1].cell.run_id == "day05"


def test_one_run_after_another_fact_must_exceed_what_two_sessions_may_differ_by() -> None:
    random = np.random.default_rng(13)
    for ratio, verdict in ((1.03, "open"), (1.15, "slower")):
        nights = {
            night: {("torch", "cnn"): run(random, Regime(process=0.001, count=8), [level], 3)[0]}
            for night, level in (("a", 1.0), ("b", ratio))
        }
        tables = measured.tables(nights)
        for cell in tables.cells:
            cell.row["driver_version"] = cell.run_id  # type: ignore[index]
        assert [row.verdict for row in history(tables).rows] == [verdict]


def test_equal_runs_have_no_step_and_an_exact_one_is_found() -> None:
    assert change(np.zeros(8)).p == 1
    exact = change(np.array([0.0] * 4 + [0.1] * 4))
    assert (exact.kind, exact.index, exact.ratio.value) == ("step", 4, pytest.approx(math.exp(0.1)))
    # So clear that it stays so among a thousand cells.
    assert exact.p < 1e-6
    exact = change(0.01 * np.arange(8))
    assert (exact.kind, exact.index, exact.ratio.value) == ("drift", 1, pytest.approx(math.exp(0.07)))
    assert difference(np.zeros(2), np.zeros(2)).value == 1


@pytest.mark.parametrize("since", [1, 5, 9])
def test_the_interval_of_a_step_leaves_out_1_where_it_is_told_and_holds_the_true_step(since: int) -> None:
    random, trials = np.random.default_rng(15), 1000 if ALL else 150
    found = [change(0.0076 * random.standard_normal(10) + 0.05 * (np.arange(10) >= since)) for _ in range(trials)]
    for one in found:
        assert one.ratio.low is not None
        assert one.ratio.high is not None
        assert (one.p < ALPHA) == (not one.ratio.low <= 1 <= one.ratio.high)
    told = [one.ratio for one in found if one.p < ALPHA]
    assert len(told) / trials >= 0.8, "a step is found in the last run as well as in the middle"
    holds = [(ratio.low or 0.0) <= math.exp(0.05) <= (ratio.high or 0.0) for ratio in told]
    assert sum(holds) / len(holds) >= 0.95


def unchanged(levels: Array) -> bool:
    """True if a history would call the cell the same within 5 %."""
    found = change(levels)
    return found.p >= ALPHA and within(found.ratio, 0.05)


def test_of_ten_runs_that_differ_by_2_percent_an_unchanged_cell_is_the_same_in_four_of_five() -> None:
    random, count = np.random.default_rng(9), 300
    said = sum(unchanged(random.normal(0, 0.02, 10)) for _ in range(count)) / count
    assert said >= 0.8 - 2 * math.sqrt(0.8 * 0.2 / count)
    assert sum(unchanged(random.normal(0, 0.01, 10)) for _ in range(100)) >= 95


@pytest.mark.parametrize("place", [3, 5, 7])
def test_a_change_by_the_margin_that_lasted_three_runs_is_hardly_ever_called_the_same(place: int) -> None:
    random, count = np.random.default_rng(10), 300
    stepped = math.log(1.05) * (np.arange(10) >= place)
    said = sum(unchanged(stepped + random.normal(0, 0.02, 10)) for _ in range(count)) / count
    assert said <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / count)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("runs", [5, 7, 20])
def test_of_runs_that_scatter_alike_one_is_seldom_left_out(runs: int, correlation: float) -> None:
    random = np.random.default_rng(runs)
    drawn = random.normal(0, 0.03, (1000, runs))
    for at in range(1, runs):
        drawn[:, at] = correlation * drawn[:, at - 1] + math.sqrt(1 - correlation**2) * drawn[:, at]
    assert np.mean([odd_one(levels) is not None for levels in drawn]) <= 0.02


def test_an_odd_run_lies_apart_from_runs_before_and_after_it() -> None:
    level = np.array([0.0, 0.01, 0.0, 0.01, 0.0, 0.01])
    assert odd_one(np.insert(level, 3, 0.2)) == 3
    assert odd_one(np.insert(level, 3, -0.2)) == 3
    # Less than one notices, a step, two odd runs, the newest, and too few to tell.
    for none in (
        np.insert(level, 3, 0.04),
        np.array([0, 0, 0, 0.2, 0.2, 0.2]),
        np.insert(level, 3, [0.2, 0.2]),
        [*level, 0.2],
    ):
        assert odd_one(np.array(none)) is None
    assert odd_one(np.array([0, 0, 0.2, 0])) is None
    # Just above what one notices.
    still = np.zeros(6)
    assert odd_one(np.insert(still, 3, 0.051)) == 3
    assert odd_one(np.insert(still, 3, 0.049)) is None


@pytest.mark.parametrize(("hours", "kind"), [(23.9, "step"), (24.1, "drift")])
def test_a_drift_takes_more_than_a_day(hours: float, kind: str) -> None:
    levels = np.linspace(0, 0.2, 9) + np.tile([1e-3, -1e-3, 0], 3)
    found = change(levels, tuple(np.linspace(0, hours, 9)))
    assert (found.kind if found.p < ALPHA else "step") == kind


def test_runs_that_agree_to_the_last_digit_are_held_apart_by_a_hundred_thousandth_at_least() -> None:
    assert difference(np.zeros(2), np.zeros(2)).error == pytest.approx(1e-5)
