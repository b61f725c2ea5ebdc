"""No answer claims more than its evidence: simulated runs whose truth is known, through the sentences that a reader gets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from reports.answers import comparison as compare
from reports.answers import findings, short
from reports.answers.comparison import comparison
from reports.answers.contrast import Side, contrasts
from reports.answers.health import NOT_JUDGED
from reports.data.groups import workloads
from reports.data.model import Group, MeasuredCell, Tables
from reports.wording import between_ratios, bound
from runner.results.statistics import Estimate
from tests.fixtures import measured, regimes, worlds
from tests.fixtures.regimes import Regime
from tests.fixtures.worlds import UNSEEN, WORLDS, World

LONG = os.environ.get("DLBENCH_SIMULATIONS") == "all"
WINDOWS = 16
QUIET = Regime(process=0.01, windows=0.01, count=WINDOWS)
LOUD = Regime(process=0.03, windows=0.01, count=WINDOWS)
WARMS = Regime(process=0.01, windows=0.01, count=WINDOWS, warming=0.12, settles=1 / 3)
DRIFTS = Regime(process=0.01, windows=0.01, count=WINDOWS, warming=0.12)
AT_ONCE = Regime(process=0.01, windows=0.01, count=WINDOWS, warming=0.12, settles=0.1)
HALF = replace(QUIET, unlike=(1.0, 3.0))
ONE = replace(QUIET, unlike=(10.0, *[1.0] * 9))
REGIMES = {
    "quiet": QUIET,
    "loud": LOUD,
    "at once": AT_ONCE,
    "warms": WARMS,
    "drifts": DRIFTS,
    "half are three times as noisy": HALF,
    "one of ten is ten times as noisy": ONE,
}


def simulated(
    random: np.random.Generator, regime: Regime, levels: Sequence[float], repeats: int, workloads: int = 1
) -> Tables:
    """One run of as many workloads, each with a cell at each true level."""
    drawn, began = regimes.timed_run(random, regime, list(levels) * workloads, repeats)
    names = [(f"f{at}", f"w{number}") for number in range(workloads) for at in range(len(levels))]
    return measured.tables({"run": dict(zip(names, drawn, strict=True))}, {"run": dict(zip(names, began, strict=True))})


def claims(tables: Tables) -> tuple[bool, int]:
    """Whether some headline names a fastest cell, and how many cells are said to take longer."""
    found = findings.findings(tables)
    entries = [entry for one in found for entry in one.group.ranked]
    for one in found:
        # What is said is what was counted.
        ranked = one.group.ranked
        assert (" times as long (" in one.detail) == any(entry.apart for entry in ranked)
        longer_once = [entry for entry in ranked if entry.at_least is not None]
        assert (" takes more than " in one.detail) == any(not entry.assumed for entry in longer_once)
        assert (" looks " in one.detail) == any(entry.assumed for entry in longer_once)
    longer = sum(entry.apart or entry.at_least is not None for entry in entries)
    return any(" is fastest" in one.headline for one in found), longer


def false_claims(regime: Regime, cells: int, repeats: int, trials: int, seed: int) -> tuple[float, float]:
    """The shares of runs of equal cells where one is called fastest, and where any is said to take longer."""
    random = np.random.default_rng(seed)
    said = [claims(simulated(random, regime, [1.0] * cells, repeats)) for _ in range(trials)]
    return float(np.mean([fastest for fastest, _ in said])), float(np.mean([longer > 0 for _, longer in said]))


# Where one repeat can be told: the noise is about what is assumed. A regime does not warm up within a single block.
ONCE = ("quiet", "loud")
UNLIKE = ("half are three times as noisy", "one of ten is ten times as noisy")
SLOW_IF_UNLIKE = [pytest.param(name, marks=[pytest.mark.slow] * (name in UNLIKE)) for name in REGIMES]


@pytest.mark.parametrize("name", SLOW_IF_UNLIKE)
@pytest.mark.parametrize(("cells", "repeats"), [(2, 1), (2, 3), (5, 1), (5, 3), (10, 3)])
def test_of_equal_cells_none_is_called_fastest_or_slower_in_a_short_simulation(
    name: str, cells: int, repeats: int
) -> None:
    trials = 60
    fastest, longer = false_claims(REGIMES[name], cells, repeats, trials, seed=cells)
    assert fastest <= (0 if repeats == 1 else 9 / trials)
    # Nine of 60 is what a rule that errs in 5 % exceeds once in a thousand times. Of one repeat only some regimes can be told (ONCE).
    assert longer <= 9 / trials or (repeats == 1 and name not in ONCE)


@pytest.mark.skipif(not LONG, reason="minutes: DLBENCH_SIMULATIONS=all")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("repeats", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("cells", [2, 5, 10, 20])
@pytest.mark.parametrize("name", REGIMES)
def test_of_equal_cells_at_most_one_run_in_20_has_a_false_claim(name: str, cells: int, repeats: int) -> None:
    trials = 1000
    fastest, longer = false_claims(REGIMES[name], cells, repeats, trials, seed=cells + repeats)
    print(f"false fastest: {fastest:.1%}, false slower: {longer:.1%} of {trials} runs")
    # Two or three repeats show unlike noise badly: two of a noisy cell are sometimes as near to each other as those of a quiet one.
    most = {2: 0.11, 3: 0.08}.get(repeats, 0.05) if name in UNLIKE else 0.05
    left_open = 0.021  # three deviations of a share of 5 % of so many trials
    assert fastest <= (0.05 + left_open if repeats > 1 else 0)
    assert longer <= most + left_open or (repeats == 1 and name not in ONCE)


def named(random: np.random.Generator, regime: Regime, levels: Sequence[float], repeats: int) -> tuple[str, str]:
    """The cell that a headline of one simulated run says is fastest, and the one that it says looks so; empty where it names none."""
    (found,) = findings.findings(simulated(random, regime, levels, repeats))
    ends, looks = (found.headline.partition(words) for words in (" is fastest", " looks fastest (one run)"))
    return ends[0] if ends[1] else "", looks[0] if looks[1] else ""


@pytest.mark.parametrize("cells", [2, 5, 10])
@pytest.mark.parametrize("name", ONCE)
def test_of_equal_cells_that_were_measured_once_at_most_one_run_in_20_looks_to_have_a_fastest(
    name: str, cells: int
) -> None:
    trials, random = 1000 if LONG else 40, np.random.default_rng(cells)
    looks = [bool(named(random, REGIMES[name], [1.0] * cells, 1)[1]) for _ in range(trials)]
    print(f"some cell looks fastest: {np.mean(looks):.1%} of {trials} runs")
    assert np.mean(looks) <= (0.05 + 0.021 if LONG else 7 / 40)


def test_a_cell_that_is_a_quarter_faster_looks_fastest_after_one_repeat() -> None:
    random = np.random.default_rng(6)
    assert [named(random, QUIET, [1.0] + [1.25] * 5, 1)[1] for _ in range(20)] == ["f0 1"] * 20


@pytest.mark.parametrize("repeats", [1, 3, 5])
def test_beside_one_cell_that_is_truly_faster_by_two_percent_no_other_is_called_fastest(repeats: int) -> None:
    """Five cells, and processes that differ by more than the cells do: any of them may be seen to be the fastest."""
    trials, random = 1000 if LONG else 40, np.random.default_rng(repeats)
    wrong = [bool(set(named(random, LOUD, [1.0] + [1.02] * 4, repeats)) - {"", "f0 1"}) for _ in range(trials)]
    print(f"another one is named: {np.mean(wrong):.1%} of {trials} runs")
    assert np.mean(wrong) <= (0.05 + 0.021 if LONG else 7 / 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quiet", "half are three times as noisy"])
@pytest.mark.parametrize("apart", [0.01, 0.02, 0.2])
def test_that_some_cells_are_told_slower_makes_no_others_look_slower(name: str, apart: float) -> None:
    """Three cells are equal, and three take longer by as much: what is told of those leaves fewer cells that may be the fastest."""
    trials = 1000 if LONG else 40
    random = np.random.default_rng(int(1000 * apart))
    levels, wrong, told = [1.0] * 3 + [1.0 + apart] * 3, 0, 0
    for _ in range(trials):
        group = simulated(random, REGIMES[name], levels, 3).groups[0]
        ranked, first = group.ranked, group.first.cell.framework
        true = {entry.cell.framework: levels[int(entry.cell.framework[1:])] for entry in ranked}
        slower = [true[entry.cell.framework] for entry in ranked if entry.apart]
        wrong += any(level <= true[first] for level in slower)
        told += len(slower) == 3
    assert wrong / trials <= (0.05 + 0.021 if LONG else 8 / trials)
    assert apart < 0.2 or told / trials >= 0.85


def found(regime: Regime, cells: int, repeats: int, trials: int, seed: int, apart: float = 0.05) -> float:
    """The share of runs where the first cell, truly so much faster than the second and all others, is said to be faster than it."""
    random = np.random.default_rng(seed)
    told = 0
    # As many windows as a cell has: the noise between processes is to be what limits.
    regime = replace(regime, count=60)
    for _ in range(trials):
        tables = simulated(random, regime, [1.0] + [1.0 + apart] * (cells - 1), repeats)
        (group,) = tables.groups
        of = {entry.cell.framework: entry for entry in group.ranked}
        told += group.first.cell.framework == "f0" and of["f1"].apart
    return told / trials


@pytest.mark.parametrize(
    ("regime", "cells", "repeats", "apart", "least", "least_of_all"),
    [
        # Each ratio has room for what one cell's level does from session to session, so 5 % is often left open after three repeats.
        (QUIET, 6, 3, 0.05, 0.55, 0.62),
        (QUIET, 2, 5, 0.05, 0.95, 0.97),
        (WARMS, 2, 5, 0.05, 0.75, 0.82),
        (WARMS, 6, 5, 0.05, 0.8, 0.86),
        (DRIFTS, 6, 5, 0.05, 0.8, 0.86),
        (QUIET, 6, 3, 0.10, 0.95, 0.98),
        (QUIET, 10, 3, 0.10, 0.95, 0.98),
        (AT_ONCE, 6, 3, 0.10, 0.95, 0.98),
        (WARMS, 6, 3, 0.10, 0.95, 0.98),
        (DRIFTS, 6, 3, 0.10, 0.94, 0.97),
    ],
)
def test_a_true_difference_is_told_within_a_run(
    regime: Regime, cells: int, repeats: int, apart: float, least: float, least_of_all: float
) -> None:
    trials = 1000 if LONG else 100
    share = found(regime, cells, repeats, trials, 11, apart)
    print(f"told: {share:.1%} of {trials} runs")
    assert share >= (least_of_all if LONG else least)


def in_world(random: np.random.Generator, world: World, levels: Sequence[float], workloads: int = 1) -> Sequence[Group]:
    """The groups of one run in a world, one a workload, each with a cell at each true level and three repeats."""
    drawn, began = worlds.run(random, world, list(levels) * workloads, 3)
    names = [(f"f{at}", f"w{number}") for number in range(workloads) for at in range(len(levels))]
    series, times = (dict(zip(names, of, strict=True)) for of in (drawn, began))
    return measured.tables({"run": series}, {"run": times}).groups


SOON = (
    "a third of the repeats is 10 % slower",
    "half of the cells heat the device",
    "short bursts of other work",
    "one cell of five has five times the noise",
    "repeats differ by 0.3, 1, 3, 8 and 0.3 %",
    "the session moves each cell by 1 %",
    "one window in ten takes twice as long",
)


@pytest.mark.parametrize("workloads", [1, 2])
@pytest.mark.parametrize("name", [name for name in WORLDS if (LONG and name not in UNSEEN) or name in SOON])
def test_on_a_machine_that_misbehaves_no_equal_cell_is_called_fastest_or_slower(name: str, workloads: int) -> None:
    """Five equal cells a workload, three times each. The bars are of the whole run, with all of its workloads."""
    trials, random = 1000 if LONG else 60, np.random.default_rng([workloads, len(name)])
    fastest = longer = 0
    for _ in range(trials):
        groups = in_world(random, WORLDS[name], [1.0] * 5, workloads)
        told = [sum(entry.apart for entry in group.ranked) for group in groups]
        longer += any(told)
        fastest += any(count == 4 for count in told)
    said = f"false fastest {fastest / trials:.1%}, false slower {longer / trials:.1%} of {trials} runs"
    print(f"{name}, {workloads} workloads: {said}")
    assert fastest / trials <= (0.05 if LONG else 6 / 60)
    # Two tables err in nearly 8 %, so three deviations of what so many trials leave open are added.
    assert longer / trials <= (0.08 + 0.026 * (workloads - 1) if LONG else 10 / 60)


@pytest.mark.parametrize(
    ("name", "least"),
    [("quiet", 0.98), ("one cell of five has five times the noise", 0.36), (SOON[4], 0.7)],
)
def test_what_keeps_two_workloads_from_false_claims_hides_few_true_differences(name: str, least: float) -> None:
    """The first of five cells takes 10 % less time, at both workloads; in the second world it is the noisy one."""
    trials, random = 400 if LONG else 60, np.random.default_rng([10, len(name)])
    told = wrong = 0
    for _ in range(trials):
        for group in in_world(random, WORLDS[name], [1.0] + [1.1] * 4, 2):
            found = [entry for entry in group.ranked if entry.apart and entry.cell.framework != "f0"]
            told += len(found) if group.first.cell.framework == "f0" else 0
            wrong += any(entry.apart for entry in group.ranked if entry.cell.framework == "f0")
    print(f"{name}: told {told / trials / 8:.1%} of {8 * trials} pairs")
    assert told / trials / 8 >= (least if LONG else least - 0.1)
    assert not wrong


def test_a_bad_repeat_of_one_cell_hides_few_differences_between_the_others() -> None:
    """Four of five cells take 10 % longer, and some repeat of some cell takes 30 % longer than it should."""
    trials, random = 400 if LONG else 60, np.random.default_rng(12)
    told = bad = 0
    for _ in range(trials):
        (group,) = in_world(random, WORLDS["one repeat takes 30 % longer"], [1.0] + [1.1] * 4)
        told += sum(entry.apart for entry in group.ranked if entry.cell.framework != "f0")
        bad += any(entry.apart for entry in group.ranked if entry.cell.framework == "f0")
    print(
        f"told: {told / trials / 4:.1%} of {4 * trials} pairs; the fastest is called slower in {bad / trials:.1%} of {trials} runs"
    )
    assert told / trials / 4 >= 0.45
    assert bad == 0


# Seconds of a step on two cores: six cells that the default ten minutes measure three times, and nine that they then measure once.
THRICE = {
    ("tensorflow", "cnn"): 0.152,
    ("torch", "cnn"): 0.159,
    ("jax", "cnn"): 0.379,
    ("tensorflow", "gru"): 0.054,
    ("torch", "gru"): 0.077,
    ("jax", "gru"): 0.075,
}
ONCE_MORE = {
    ("tensorflow_v1", "cnn"): 0.150,
    ("keras_tensorflow", "cnn"): 0.153,
    ("keras_torch", "cnn"): 0.207,
    ("keras_jax", "cnn"): 0.387,
    ("chainer", "cnn"): 1.13,
    ("tensorflow_v1", "gru"): 0.052,
    ("keras_tensorflow", "gru"): 0.056,
    ("keras_jax", "gru"): 0.073,
    ("keras_torch", "gru"): 0.146,
}


def ten_minutes(random: np.random.Generator, noise: float) -> list[MeasuredCell]:
    world = World(process=noise, windows=max(0.02, noise), count=50, step=1.0)
    made, start = [], 0.0
    for levels, repeats in ((THRICE, 3), (ONCE_MORE, 1)):
        drawn, began = worlds.run(random, world, list(levels.values()), repeats)
        for (framework, workload), windows, moments in zip(levels, drawn, began, strict=True):
            later = [start + moment for moment in moments]
            made.append(measured.cell("run", framework, workload, windows, f"{framework}-{workload}", began=later))
        start += (worlds.START_UP + worlds.MEASURED) * repeats * len(levels)
    return made


@pytest.mark.parametrize(("noise", "least"), [(0.01, 0.95), (0.02, 0.95), (0.05, 0.9), (0.1, 0.75)])
def test_the_default_ten_minutes_confirm_an_answer_and_name_no_wrong_framework(noise: float, least: float) -> None:
    trials, random = 400 if LONG else 60, np.random.default_rng(int(1000 * noise))
    confirmed = wrong = 0
    for _ in range(trials):
        cells = ten_minutes(random, noise)
        data = replace(measured.tables({"run": {}}), workloads=workloads(cells))
        said = findings.findings(data)
        answer = short.answers(said, "", (), (), NOT_JUDGED, data.cells)[0]
        confirmed += answer.confidence == "confirmed"
        names = [*(one.headline for one in said), answer.words]
        wrong += any(" is fastest" in words and not words.lower().startswith("tensorflow ") for words in names)
    print(f"noise {noise:.0%}: confirmed {confirmed / trials:.1%}, a wrong name {wrong / trials:.1%} of {trials} runs")
    assert confirmed / trials >= least
    # At a noise of 5 % and more, PyTorch's 5 % are sometimes seen the other way round.
    assert wrong / trials <= (0.02 if LONG else 0 if noise < 0.05 else 3 / 60)


def real(tables: Tables) -> dict[str, bool]:
    """Workload -> whether the second image is called really different from the first."""
    rows = comparison(tables, "f0-1-cpu", "f1-1-cpu").rows
    return {row.cell.key.workload: row.real for row in rows}


def test_two_images_of_one_run_are_compared_within_its_blocks() -> None:
    trials = 1000 if LONG else 60
    random = np.random.default_rng(3)
    wrong = sum(any(real(simulated(random, WARMS, [1.0, 1.0], 3, workloads=6)).values()) for _ in range(trials))
    assert wrong / trials <= (0.07 if LONG else 9 / 60)
    # 94 % are told. Of 60 trials less than nine tenths would be too often, by chance.
    told, trials = 0, max(trials, 120)
    for _ in range(trials):
        # One that warms up tells as much as a quiet one.
        drawn, began = regimes.timed_run(random, WARMS, [1.0, 1.05] + [1.0] * 10, 3)
        names = [(f"f{at % 2}", f"w{at // 2}") for at in range(12)]
        timed = {"run": dict(zip(names, began, strict=True))}
        told += real(measured.tables({"run": dict(zip(names, drawn, strict=True))}, timed))["w0"]
    assert told / trials >= 0.9


@pytest.mark.parametrize("cells", [2, 3, 6])
def test_the_headline_and_compare_never_contradict_each_other(cells: int) -> None:
    """The same two cells of the same run: the same ratio, the same chance and the same verdict, also of a cell that is not the first."""
    random = np.random.default_rng(cells)
    seen = set()
    for trial in range(25):
        levels = np.exp(random.normal(0, 0.03, cells)).tolist()
        tables = simulated(random, [QUIET, LOUD, WARMS][trial % 3], levels, int(random.integers(1, 6)), workloads=2)
        answers = {
            found.group.key: short.answers([found], "", (), (), NOT_JUDGED, tables.cells)[0]
            for found in findings.findings(tables)
        }
        for group in tables.groups:
            confirmed = answers[group.key].confidence == "confirmed"
            assert confirmed == any(entry.apart for entry in group.ranked)
            for entry in group.behind:
                rows = comparison(tables, group.first.cell.image, entry.cell.image).rows
                (row,) = [row for row in rows if row.cell.key == group.key]
                assert (row.ratio, row.p, row.verdict) == (entry.ratio, entry.p, entry.verdict)
                assert entry.apart == (entry.ratio.low is not None and entry.ratio.low > 1 and not entry.once)
                seen.add(row.verdict)
                (back,) = [
                    row
                    for row in comparison(tables, entry.cell.image, group.first.cell.image).rows
                    if row.cell.key == group.key
                ]
                turned = {"slower": "faster", "faster": "slower"}.get(row.verdict, row.verdict)
                assert back.verdict == turned
                assert back.ratio is not None
                assert row.ratio is not None
                assert back.ratio.value == pytest.approx(1 / row.ratio.value)
    assert {"slower", "open", "same"} <= seen


@pytest.mark.parametrize("name", ["quiet", *(pytest.param(name, marks=pytest.mark.slow) for name in UNLIKE)])
def test_runs_of_equal_cells_are_alike_and_the_variances_of_their_rows_are_moderated(name: str) -> None:
    """Two runs of six cells, of which nothing changed, or one cell by 5 %: more rows tell the noise better, where they are alike."""
    trials = 1000 if LONG else 50
    random = np.random.default_rng(8)
    regime = REGIMES[name]
    names = [(f"f{at}", "w") for at in range(6)]
    wrong = told = 0
    for _ in range(trials):
        before = dict(zip(names, regimes.run(random, regime, [1.0] * 6, 3), strict=True))
        for change in (1.0, 1.05):
            after = dict(zip(names, regimes.run(random, regime, [change] + [1.0] * 5, 3), strict=True))
            data = measured.tables({"a": before, "b": after})
            pairs = [
                (Side((data.cells[at],)), Side((other,)))
                for at, cell in enumerate(data.cells)
                for other in data.cells
                if (cell.run_id, other.run_id) == ("a", "b") and cell.framework == other.framework
            ]
            rows = {row.cell.framework: row.real for row in contrasts(pairs, beside=data.cells)}
            wrong, told = (wrong + any(rows.values()), told) if change == 1.0 else (wrong, told + rows["f0"])
    # 5 %, and three deviations of what so many trials leave open. By the variance of each row alone 78 of 100 changes are told.
    assert wrong / trials <= (0.071 if LONG else 8 / 50)
    assert name != "quiet" or told / trials >= 0.9


def test_the_fastest_of_cells_that_other_runs_measured_holds_what_two_sessions_may_differ_by() -> None:
    random = np.random.default_rng(4)
    quiet = Regime(process=0.002, windows=0.002, count=WINDOWS)

    def headline(change: float) -> str:
        first = {("f0", "w"): regimes.run(random, quiet, [1.0], 5)[0]}
        second = {("f1", "w"): regimes.run(random, quiet, [change], 5)[0]}
        (answer,) = findings.findings(measured.tables({"monday": first, "tuesday": second}))
        assert any("no run in common" in caveat for caveat in answer.caveats)
        return answer.headline

    # Two sessions on a CPU are assumed to differ by 2.8 %.
    assert headline(1.03).startswith("Open between f0 1 · monday and f1 1 · tuesday: at most 1.")
    assert headline(1.2) == "f0 1 · monday is fastest"


def test_what_machines_read_says_how_many_repeats_each_side_has() -> None:
    random = np.random.default_rng(5)
    (row,) = compare.records(comparison(simulated(random, QUIET, [1.0, 1.3], 1), "f0-1-cpu", "f1-1-cpu"))
    assert (row["a_repeats"], row["b_repeats"], row["verdict"]) == (1, 1, "open")


@pytest.mark.parametrize("ends", [(0.98, 0.9996), (1.0004, 1.02), (0.5, 0.99999)])
def test_an_end_of_an_interval_that_is_not_1_is_not_written_as_1(ends: tuple[float, float]) -> None:
    written = between_ratios(Estimate(0.99, *ends, 10, 3, ""))
    assert all(float(end) != 1 for end in written.split(" to "))


@pytest.mark.parametrize(("low", "words"), [(1.3572, "1.36"), (1.0044, "1.004"), (1.00001, "1.00001")])
def test_the_bound_of_one_repeat_is_not_written_as_1(low: float, words: str) -> None:
    assert bound(low) == words


@pytest.mark.parametrize(
    ("low", "high", "repeats", "note", "words"),
    [
        (0.3, 2.9, 3, "", "0.300 to 2.90"),
        (0.28, 2.9, 3, "", "3 repeats: too few to tell"),
        (0.0037, 8090.0, 2, "", "two repeats: too few to tell"),
        (1.3, 3.68e6, 2, "", "more than 1.30; two repeats: too few to tell how much"),
        (2e-7, 0.75, 2, "", "less than 0.750; two repeats: too few to tell how much"),
        (0.1, 30.0, 1, "", "one run, and its windows lie too far apart to tell"),
        (0.1, 30.0, 1, "one side has one repeat", "one run on one side, and its windows lie too far apart to tell"),
    ],
)
def test_the_ends_of_an_interval_that_spans_more_than_ten_times_are_words(
    low: float, high: float, repeats: int, note: str, words: str
) -> None:
    assert between_ratios(Estimate(1.0, low, high, 40, repeats, "", note)) == words
