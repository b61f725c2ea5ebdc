"""What two runs of one machine differ by themselves, named and not taken for a change: against simulated runs."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from reports.answers.contrast import Contrast, Side
from reports.answers.sessions import CommonShift, between_runs
from reports.data.groups import OTHER_RUNS, blocks_of, group_of
from reports.data.model import MeasuredCell
from tests.fixtures import measured
from tests.fixtures.regimes import Regime, run

ALL = os.environ.get("DLBENCH_SIMULATIONS") == "all"
CELLS = 6
# Two runs of a machine, the second an hour after the first.
REGIMES = {
    "exchangeable": (Regime(), Regime()),
    "a session effect of 1 %": (Regime(session=0.01),) * 2,
    "a session effect of 2 %": (Regime(session=0.02),) * 2,
    "a session effect of 3 %": (Regime(session=0.03),) * 2,
    "warming by 12 % between the runs": (Regime(warming=0.06), Regime(level=0.88)),
    "warming by 12 % in the first run": (Regime(warming=0.12), Regime(level=0.88)),
    "warming by 12 % in both": (Regime(warming=0.12),) * 2,
}
ALWAYS = ("a session effect of 1 %", "a session effect of 2 %", "warming by 12 % between the runs")


def compared(
    random: np.random.Generator, regimes: tuple[Regime, Regime], levels: list[float], repeats: int, device: str = "cpu"
) -> tuple[tuple[Contrast, ...], CommonShift | None]:
    """The same cells of two runs, those of the second truly at `levels`."""
    before = measured.run_cells("monday", run(random, regimes[0], [1.0] * len(levels), repeats), device)
    after = measured.run_cells("tuesday", run(random, regimes[1], levels, repeats), device)
    return between_runs([(Side((old,)), Side((new,))) for old, new in zip(before, after, strict=True)], common=True)


def share(trials: list[bool]) -> float:
    return sum(trials) / len(trials)


LONG = pytest.mark.skipif(not ALL, reason="minutes: DLBENCH_SIMULATIONS=all")


def settings(*repeats: int) -> list[object]:
    """(regime, repeats): few always, all of them where long simulations were asked for."""
    return [
        pytest.param(regime, count, marks=() if regime in ALWAYS and count == 3 else LONG)
        for regime in REGIMES
        for count in repeats
    ]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("regime", "repeats"), settings(3, 5, 9))
def test_an_unchanged_machine_is_called_slower_in_at_most_five_of_100_tables(regime: str, repeats: int) -> None:
    random, trials = np.random.default_rng(repeats), 200 if ALL else 40
    answers = [compared(random, REGIMES[regime], [1.0] * CELLS, repeats) for _ in range(trials)]
    slower = share([any(row.longer for row in rows) for rows, _ in answers])
    print(f"called slower: {slower:.1%} of {trials} tables")
    assert slower <= 0.05
    if "warming by 12 %" in regime and "both" not in regime:
        assert share([shift is not None and shift.known for _, shift in answers]) >= 0.95
        assert all("All 6 cells moved together" in shift.said for _, shift in answers if shift and shift.moved == CELLS)


@pytest.mark.parametrize(("shift", "repeats"), [(1.02, 3), (0.98, 3), (1.015, 5), pytest.param(1.015, 9, marks=LONG)])
def test_what_a_session_did_to_all_cells_is_named_and_no_cell_is_called_slower_for_it(
    shift: float, repeats: int
) -> None:
    random, trials = np.random.default_rng(15), 200 if ALL else 20
    answers = [compared(random, (Regime(), Regime(level=shift)), [1.0] * CELLS, repeats) for _ in range(trials)]
    named = share([found is not None and "The machine did that" in found.said for _, found in answers])
    slower = share([any(row.longer for row in rows) for rows, _ in answers])
    print(f"named: {named:.1%}, called slower: {slower:.1%} of {trials} tables")
    assert named >= 0.9
    assert slower <= 0.05


@pytest.mark.parametrize(("regime", "repeats"), settings(3, 5))
def test_one_cell_that_is_truly_slower_by_ten_percent_is_found_among_six_or_the_runs_are_too_far_apart(
    regime: str, repeats: int
) -> None:
    random, trials = np.random.default_rng(10 + repeats), 200 if ALL else 40
    answers = [compared(random, REGIMES[regime], [1.1] + [1.0] * (CELLS - 1), repeats) for _ in range(trials)]
    if regime == "warming by 12 % between the runs":
        # The machine became faster by about as much as the cell became slower: it looks as if it had stayed.
        assert share([shift is not None and shift.large for _, shift in answers]) >= 0.95
        assert not any(row.longer for rows, _ in answers for row in rows[1:])
        return
    assert share([rows[0].longer for rows, _ in answers]) >= 0.9
    assert share([any(row.real for row in rows[1:]) for rows, _ in answers]) <= 0.05


@pytest.mark.parametrize("level", [1.1, 1.65, 0.9])
def test_a_shift_beyond_what_two_sessions_may_differ_by_is_never_called_the_same(level: float) -> None:
    random, quiet = np.random.default_rng(6), Regime(process=0.005, windows=0.005)
    rows, shift = compared(random, (quiet, quiet), [level] * CELLS, 3)
    assert shift is not None
    assert shift.large
    assert {row.verdict for row in rows} == {"open"}
    said = shift.said.replace("\u00a0", " ")
    assert "Two runs of one machine are assumed to differ by at most 8.5 %: the change may be real." in said
    assert "runner matrix --images A,B" in said


@pytest.mark.parametrize("level", [1.06, 1.1])
def test_a_cell_that_stayed_while_five_became_slower_is_not_called_faster(level: float) -> None:
    random, quiet = np.random.default_rng(7), Regime(process=0.003, windows=0.003)
    rows, shift = compared(random, (quiet, quiet), [1.0] + [level] * (CELLS - 1), 3)
    assert shift is not None
    assert "so it is not the machine alone" in shift.said
    assert len(shift.stayed) == 1
    assert not rows[0].real
    assert all(row.beside is None and row.undecided for row in rows)


def test_one_repeat_against_three_claims_nothing() -> None:
    random, quiet = np.random.default_rng(8), Regime(process=0.003, windows=0.003)
    before = measured.run_cells("monday", run(random, quiet, [1.0] * CELLS, 1))
    after = measured.run_cells("tuesday", run(random, quiet, [1.5] * CELLS, 3))
    rows, _ = between_runs([(Side((a,)), Side((b,))) for a, b in zip(before, after, strict=True)], common=True)
    assert {row.verdict for row in rows} == {"open"}
    assert all("one repeat" in row.reason for row in rows)


def test_a_shift_that_the_cells_show_is_named_with_its_size_and_theirs_is_not() -> None:
    random = np.random.default_rng(1)
    quiet = Regime(process=0.002, windows=0.002)
    rows, shift = compared(random, (quiet, Regime(process=0.002, windows=0.002, level=1.017)), [1.0] * CELLS, 3)
    assert shift is not None
    assert shift.said.replace("\u00a0", " ").startswith("All 6 cells moved together: they take 1.7 % longer.")
    assert {row.words for row in rows} == {"same within 5\u00a0%"}
    assert all(row.reason.endswith("judged beside what moved all cells") for row in rows)
    rows, shift = compared(random, (quiet, quiet), [1.05] * 5 + [1.0], 3)
    assert shift is not None
    assert shift.said.startswith("5 of 6 cells moved together")
    assert not rows[-1].real


def test_cells_that_do_not_agree_have_no_common_shift_and_must_exceed_what_sessions_may_differ_by() -> None:
    random = np.random.default_rng(2)
    quiet = Regime(process=0.002, windows=0.002)
    for levels in ([1.1] * 3 + [1.0] * 3, [1.1, 1.0, 1.0], [1.1, 1.0, 1.0, 1.1]):
        rows, shift = compared(random, (quiet, quiet), levels, 3)
        assert shift is None
        assert [row.longer for row in rows] == [level > 1 for level in levels]
    (row, *_), _ = compared(random, (quiet, quiet), [1.0] * 3, 3)
    assert row.reason.endswith("two runs may differ by as much: `runner history` with several runs of each tells")
    # Of three cells nobody can tell whether 3 % was the machine: that is less than two sessions of a CPU may differ by.
    assert not any(row.longer for row in compared(random, (quiet, quiet), [1.03] * 3, 3)[0])
    assert all(row.longer for row in compared(random, (quiet, quiet), [1.045] * 3, 3, "cuda")[0])


def test_sides_of_one_run_have_no_session_between_them() -> None:
    random = np.random.default_rng(3)
    quiet = Regime(process=0.002, windows=0.002)
    old, new = measured.run_cells("one", run(random, quiet, [1.0, 1.03], 3))
    (row,), shift = between_runs([(Side((old,)), Side((new,)))])
    assert shift is None
    assert row.longer
    (apart,), _ = between_runs([(Side((old,)), Side(measured.run_cells("other", run(random, quiet, [1.03], 3))))])
    assert not apart.longer


def resumed_day(random: np.random.Generator, session: float) -> tuple[MeasuredCell, MeasuredCell]:
    """Two equal cells of one run: one measured before the run was resumed, the other after it."""
    day = Regime(process=0.003, windows=0.003, session=session)
    old, new = measured.run_cells("one", run(random, day, [1.0], 3) + run(random, day, [1.0], 3))
    before = replace(old, repeats=tuple(replace(repeat, reused=True) for repeat in old.repeats))
    return before, replace(new, key=before.key)


def test_a_cell_measured_before_a_run_was_resumed_is_not_called_faster_than_one_after_it() -> None:
    random, claimed, named = np.random.default_rng(9), [], []
    for _ in range(100):
        before, after = resumed_day(random, 0.01)
        (row,), _ = between_runs([(Side((before,)), Side((after,)))])
        claimed.append(row.real)
        cells = (before, after)
        group = group_of("group", before.key, cells, blocks_of(cells))
        named.append((group.ranked[1].p or 1.0) < 0.05)
        assert OTHER_RUNS in group.ranked[1].ratio.note
    assert share(claimed) <= 0.05
    assert share(named) <= 0.05


def test_a_cell_that_lacks_a_repeat_does_not_hide_the_drift_of_the_others() -> None:
    random = np.random.default_rng(4)
    warming = Regime(process=0.002, windows=0.002, warming=0.12)
    before, after = (run(random, regime, [1.0] * CELLS, 3) for regime in (warming, Regime(process=0.002, level=0.9)))
    before[0] = before[0][:2]
    pairs = [
        (Side((old,)), Side((new,)))
        for old, new in zip(measured.run_cells("a", before), measured.run_cells("b", after), strict=True)
    ]
    rows, shift = between_runs(pairs, common=True)
    assert shift is not None
    assert not any(row.real for row in rows)
    assert all(row.beside and row.beside.half_width and row.beside.half_width < 0.1 for row in rows)


def test_one_repeat_has_no_common_shift_and_stays_undecided() -> None:
    random = np.random.default_rng(5)
    rows, shift = compared(random, (Regime(), Regime(level=1.1)), [1.0] * CELLS, 1)
    assert shift is None
    assert {row.verdict for row in rows} == {"open"}
