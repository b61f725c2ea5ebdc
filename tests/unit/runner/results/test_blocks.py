"""Levels of cells within blocks: against dense least squares, and how variances are moderated."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np
import pytest

from runner.results.rank.blocks import CAUTION, PRIOR_FREEDOM, Blocks, Fit, InBlock, moderated, moderated_scatter
from runner.results.statistics import Array
from runner.results.student import questions, student_tail
from tests.fixtures.regimes import shuffled

LONG = os.environ.get("DLBENCH_SIMULATIONS") == "all"


def drawn(cells: int, repeats: int, missing: tuple[tuple[int, int], ...] = (), seed: int = 1) -> Fit:
    """Cells that differ, in blocks that differ by ten times the noise."""
    random = np.random.default_rng(seed)
    logs = random.normal(0, 0.01, (cells, repeats)) + random.normal(0, 0.1, repeats) + np.linspace(0, 1, cells)[:, None]
    return Fit(
        {
            cell: [InBlock(block, float(logs[cell, block])) for block in range(repeats) if (cell, block) not in missing]
            for cell in range(cells)
        }
    )


@pytest.mark.parametrize("missing", [(), ((2, 1),), ((0, 0), (1, 2), (4, 2), (5, 1))])
def test_differences_and_their_errors_are_those_of_least_squares(missing: tuple[tuple[int, int], ...]) -> None:
    blocks = drawn(6, 4, missing)
    rows = [(cell, block, log) for cell, logs in blocks.logs.items() for block, log, *_ in logs]
    design = np.zeros((len(rows), 6 + 4))
    for at, (cell, block, _) in enumerate(rows):
        design[at, [cell, 6 + block]] = 1
    logs = np.array([log for _, _, log in rows])
    solution, _, rank, _ = np.linalg.lstsq(design, logs, rcond=None)
    variance = float(np.sum((logs - design @ solution) ** 2)) / (len(rows) - rank)
    inverse = np.linalg.pinv(design.T @ design)
    contrast = np.zeros(10)
    contrast[[3, 0]] = 1, -1
    found = blocks.difference(3, 0)
    assert found is not None
    assert found.value == pytest.approx(solution[3] - solution[0])
    assert sum(blocks._freedoms) == pytest.approx(len(rows) - rank)
    assert blocks._noise.common == pytest.approx(variance)
    # Moderation moves the error up from that of one common variance, by what the cells' own residuals say.
    assert found.freedom <= len(rows) - rank
    common = math.sqrt(contrast @ inverse @ contrast * variance)
    highest = math.sqrt(max(blocks._noise.variances) / variance) * common
    assert common * 0.999 <= found.error <= highest * 1.001


def timed(cells: int, blocks: int = 3, clock: float = 1.0, warming: float = 0.0) -> Fit:
    """Cells measured one after another, in every second block the other way round, as the machine warms up by `warming`."""
    random = np.random.default_rng(7)
    logs: dict[Hashable, list[InBlock]] = {cell: [] for cell in range(cells)}
    for block in range(blocks):
        for place in range(cells):
            moment = block * cells + place
            log = random.normal(0, 0.01) + warming * math.exp(-moment / 6)
            cell = place if block % 2 == 0 else cells - 1 - place
            logs[cell].append(InBlock(block, log, "run", 1e9 + clock * 60 * moment))
    return Fit(logs)


def test_a_warm_up_is_fitted_with_two_terms_of_the_time_that_has_passed() -> None:
    blocks = timed(6, warming=0.12)
    repeats = [(cell, one) for cell, logs in blocks.logs.items() for one in logs]
    last = 1e9 + 60 * 17
    design = np.zeros((len(repeats), 6 + 3 + 2))
    for at, (cell, one) in enumerate(repeats):
        passed = (one.began - 1e9) / (last - 1e9)
        design[at, [cell, 6 + one.block]] = 1
        design[at, 9:] = math.exp(-passed / 0.1), math.exp(-passed / 0.5)
    logs = np.array([one.log for _, one in repeats])
    solution, _, rank, _ = np.linalg.lstsq(design, logs, rcond=None)
    variance = float(np.sum((logs - design @ solution) ** 2)) / (len(repeats) - rank)
    found = blocks.difference(3, 0)
    assert found is not None
    assert found.value == pytest.approx(solution[3] - solution[0])
    assert blocks.freedom == len(repeats) - rank == 8
    assert blocks._noise.common == pytest.approx(variance)
    # The noise is 1 %, the warm-up 12 %: without the terms it would count as noise.
    assert math.sqrt(blocks._noise.common) < 0.015


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 0.0, 1e308])
def test_without_a_usable_clock_there_are_no_terms_of_a_warm_up(wrong: float) -> None:
    blocks = timed(6, clock=wrong)
    plain = Fit({cell: [one._replace(began=math.nan) for one in logs] for cell, logs in blocks.logs.items()})
    assert blocks.difference(3, 0) == plain.difference(3, 0)
    assert blocks.freedom == 10
    one_is_missing = {
        cell: [one._replace(began=math.nan if (cell, at) == (0, 0) else one.began) for at, one in enumerate(logs)]
        for cell, logs in timed(6).logs.items()
    }
    assert Fit(one_is_missing).freedom == 10


@pytest.mark.parametrize(("cells", "blocks", "freedom"), [(4, 3, 6), (5, 3, 6), (9, 2, 8), (3, 5, 6), (2, 9, 6)])
def test_the_terms_of_a_warm_up_are_there_by_the_design_alone(cells: int, blocks: int, freedom: int) -> None:
    """Three blocks or more, and at least six degrees of freedom left: of 6, 8, 8, 8 and 8 without the terms."""
    assert timed(cells, blocks).freedom == freedom


def test_each_session_warms_up_by_itself_and_a_clock_that_jumps_disturbs_nothing_but_the_terms() -> None:
    one = timed(6, warming=0.12)
    two = {
        cell: [*logs, *(repeat._replace(session="resumed", block=10 + repeat.block) for repeat in logs)]
        for cell, logs in one.logs.items()
    }
    assert Fit(two).freedom == 36 - 6 - 5 - 4
    jumped = {
        cell: [repeat._replace(began=repeat.began + 3600 * (repeat.block > 0)) for repeat in logs]
        for cell, logs in timed(6).logs.items()
    }
    found, plain = Fit(jumped).difference(3, 0), timed(6).difference(3, 0)
    assert found is not None
    assert plain is not None
    assert abs(found.value - plain.value) < 3 * plain.error


def test_a_shift_of_a_whole_block_changes_nothing() -> None:
    blocks = drawn(4, 3)
    shifted = Fit(
        {cell: [InBlock(block, log + (block == 1)) for block, log, *_ in logs] for cell, logs in blocks.logs.items()}
    )
    before, after = blocks.difference(2, 1), shifted.difference(2, 1)
    assert before is not None
    assert after is not None
    assert (after.value, after.error, after.freedom) == pytest.approx((before.value, before.error, before.freedom))


def test_cells_that_no_block_joins_have_no_difference_within_blocks() -> None:
    pair = {name: [InBlock(1, 0.0), InBlock(2, 0.1), InBlock(5, at)] for at, name in enumerate("abx")}
    apart = {name: [InBlock(3, 0.0), InBlock(4, 0.1), InBlock(6, at)] for at, name in enumerate("cdy")}
    blocks = Blocks(pair | apart)
    assert blocks.difference("a", "b") is not None
    assert blocks.difference("a", "c") is None
    assert blocks.difference("a", "nowhere") is None
    # A cell that was measured in both runs joins them.
    joined = Blocks(pair | apart | {"e": [InBlock(block, 0.1 * block) for block in range(1, 5)]})
    assert joined.difference("a", "c") is not None
    # Two cells in three blocks leave two degrees of freedom: they are compared without their blocks.
    assert Blocks({name: pair[name] for name in "ab"}).difference("a", "b") is None
    # One cell alone shows no noise: its blocks could explain all of it.
    assert Blocks({"a": pair["a"]}).difference("a", "a") is None
    assert Blocks({}).difference("a", "b") is None


def test_variances_of_alike_cells_become_one_and_that_of_a_noisy_cell_stays_its_own() -> None:
    freedoms = np.full(12, 3.0)
    alike = moderated(np.full(12, 3e-4), freedoms)
    assert alike.variances == pytest.approx(np.full(12, 1e-4))
    assert alike.error({0: 1.0, 1: 1.0}) == pytest.approx((math.sqrt(2e-4), 36))
    unlike = moderated(3 * np.array([1e-6] * 6 + [1e-2] * 6), freedoms)
    # The common variance is 5e-3. By hand: the shares of 12 alike cells with 36 degrees of freedom scatter by 11 / 19, and these by 1.
    part = CAUTION * 11 / 19
    own = 1e-2 * (1 - part) + 5e-3 * part
    assert unlike.variances == pytest.approx([5e-3] * 6 + [own] * 6, rel=1e-3)
    error, freedom = unlike.error({0: 0.5, 6: 0.5})
    assert error == pytest.approx(math.sqrt((5e-3 + own) / 2), rel=1e-3)
    # Satterthwaite: what comes from the common variance has 36 degrees of freedom, what comes from a cell's own has 3.
    common, noisy = 5e-3 * (1 + part), 1e-2 * (1 - part)
    assert freedom == pytest.approx((common + noisy) ** 2 / (common**2 / 36 + noisy**2 / 3), rel=1e-3)


@pytest.mark.parametrize("cells", [3, 4, 5])
def test_of_few_cells_the_noise_of_one_is_taken_out_of_the_residuals_of_the_others(cells: int) -> None:
    """Each residual holds a part of all cells: by itself the variance of the noisy cell would seem too small by a factor 1 - 1/cells."""
    random = np.random.default_rng(cells)
    logs = random.normal(0, 1e-6, (cells, 9))
    logs[0] += random.normal(0, 0.03, 9)
    joined = Fit({cell: list(map(InBlock, range(9), row.tolist())) for cell, row in enumerate(logs)})
    assert joined._noise.own[0] == pytest.approx(np.var(logs[0], ddof=1), rel=1e-3)
    assert joined._noise.own[1] == pytest.approx(0, abs=1e-7)


def test_the_level_of_a_cell_is_the_mean_of_its_own_logs_where_the_design_is_complete() -> None:
    logs = drawn(4, 3).logs
    blocks = Blocks(logs)
    for cell, repeats in logs.items():
        assert blocks.level(cell) == pytest.approx(np.mean([one.log for one in repeats]))
    assert blocks.level("nowhere") is None
    # One cell has no other beside it, and two in three blocks have too few to show their noise.
    assert Blocks({0: logs[0]}).level(0) is None
    assert Blocks({0: logs[0], 1: logs[1]}).level(0) is None


def test_a_cell_that_lacks_the_slow_block_is_not_faster_for_that() -> None:
    slow = {cell: [InBlock(block, cell + 0.5 * (block == 2)) for block in range(3)] for cell in range(5)}
    lacking = Blocks(slow | {0: slow[0][:2]})
    levels = [lacking.level(cell) for cell in range(5)]
    assert None not in levels
    assert np.diff(np.array(levels, dtype=float)) == pytest.approx([1, 1, 1, 1])


@pytest.mark.parametrize("bad", [(), ((3, 1),)], ids=["all alike", "one is loud"])
@pytest.mark.parametrize("missing", [(), ((2, 1), (0, 3))])
def test_differences_of_levels_are_those_of_the_fit(
    missing: tuple[tuple[int, int], ...], bad: tuple[tuple[int, int], ...]
) -> None:
    logs = {
        cell: [one._replace(log=one.log + 0.3 * ((cell, one.block) in bad)) for one in repeats]
        for cell, repeats in drawn(7, 4, missing).logs.items()
    }
    for blocks in (Blocks(logs), Blocks(timed(7, 4, warming=0.12).logs)):
        levels = {cell: blocks.level(cell) for cell in blocks.logs}
        for above in range(7):
            for below in set(range(7)) - {above}:
                found = blocks.difference(above, below)
                first, second = levels[above], levels[below]
                assert found is not None
                assert first is not None
                assert second is not None
                assert found.value == pytest.approx(first - second, abs=1e-9)


def test_a_loud_cell_leaves_the_fit_and_is_named_with_its_repeat_and_widens_no_other_interval() -> None:
    quiet = drawn(6, 3).logs
    logs = {**quiet, 3: [one._replace(log=one.log + 0.3 * (one.block == 1)) for one in quiet[3]]}
    blocks, before = Blocks(logs), Blocks(quiet)
    assert blocks.loud == {3: 1}
    assert before.loud == {}
    found, usual = blocks.difference(1, 0), before.difference(1, 0)
    assert found is not None
    assert usual is not None
    assert found.error < 1.5 * usual.error
    # The loud cell is judged by its own scatter, which three repeats hardly know.
    own = blocks.difference(3, 0)
    assert own is not None
    assert own.error > 0.05
    assert 2 <= own.freedom < 3
    # Not joined with the others in one fit, the bad repeat would have widened them all.
    within = Fit(logs).difference(1, 0)
    assert within.error > 2 * found.error


def programs(*loud: int) -> Blocks:
    """Two workloads of five programs. Some cells are loud."""
    quiet = drawn(10, 3).logs
    return Blocks(
        {
            cell: [
                one._replace(log=one.log + 0.3 * (one.block == 1) * (cell in loud), program=int(str(cell)) % 5)
                for one in repeats
            ]
            for cell, repeats in quiet.items()
        }
    )


def test_two_loud_cells_of_one_program_show_together_how_far_its_repeats_scatter() -> None:
    alone, both = programs(3).difference(3, 0), programs(3, 8).difference(3, 0)
    assert alone is not None
    assert both is not None
    assert both.error == pytest.approx(alone.error, rel=0.2)
    assert alone.freedom < 3 < 4 <= both.freedom < 5
    # Cells of two programs say nothing of one another.
    apart = programs(3, 9).difference(3, 0)
    assert apart is not None
    assert apart.freedom < 3


def test_a_quiet_cell_of_a_program_with_a_loud_one_is_known_no_better_than_its_own_repeats_show() -> None:
    usual, doubted = programs().difference(8, 0), programs(3).difference(8, 0)
    assert usual is not None
    assert doubted is not None
    assert doubted.doubted
    assert doubted.freedom == 2 < 4 < usual.freedom
    other = programs(3).difference(7, 0)
    assert other is not None
    assert not other.doubted
    assert other.freedom > 4


def test_of_three_cells_none_is_loud_and_of_more_at_most_a_third() -> None:
    def spoiled(cells: int, loud: int) -> Blocks:
        """Each loud cell is ten times as far off as the one before it."""
        return Blocks(
            {
                cell: [
                    one._replace(log=one.log + 0.3 * 10**cell * (cell < loud and one.block == cell % 3))
                    for one in repeats
                ]
                for cell, repeats in drawn(cells, 3).logs.items()
            }
        )

    assert spoiled(3, 1).loud == {}
    assert spoiled(9, 2).loud == {0: 0, 1: 1}
    assert set(spoiled(9, 4).loud) == {1, 2, 3}


def test_cells_whose_times_are_all_equal_are_not_loud() -> None:
    """A clock's step leaves no noise: one repeat that is a step off is no bad repeat."""
    logs = {
        cell: [InBlock(block, math.log(0.03 + 0.01 * cell + 0.01 * (cell == 0 and block == 1))) for block in range(3)]
        for cell in range(6)
    }
    assert Blocks(logs).loud == {}


def test_how_repeats_scatter_is_moderated_by_what_is_assumed() -> None:
    assumed = 0.02
    nothing = Blocks({}).scatter(assumed)
    assert (nothing.deviation, nothing.freedom, nothing.observed) == (assumed, math.inf, 0)
    # Where the repeats scatter as assumed, the deviation stays, and is known better.
    usual = moderated_scatter(assumed, 10 * assumed**2, 10)
    assert (usual.deviation, usual.freedom) == (pytest.approx(assumed), pytest.approx(PRIOR_FREEDOM + 10))
    # A quiet run still has the assumed part; that of a noisy one hardly counts.
    quiet = moderated_scatter(assumed, 0.0, 10)
    assert quiet.deviation == pytest.approx(assumed * math.sqrt(PRIOR_FREEDOM / (PRIOR_FREEDOM + 10)))
    noisy = moderated_scatter(assumed, 10 * (5 * assumed) ** 2, 10)
    weight = PRIOR_FREEDOM / 25
    assert noisy.freedom == pytest.approx(weight + 10)
    assert noisy.deviation == pytest.approx(5 * assumed, rel=0.01)


def test_a_loud_cell_says_nothing_of_how_the_others_scatter() -> None:
    quiet = drawn(6, 3).logs
    level = {cell: [one._replace(block=(cell, one.block)) for one in repeats] for cell, repeats in quiet.items()}
    assert Blocks(level).scatter(0.02).observed == 12
    loud = Blocks({**quiet, 3: [one._replace(log=one.log + 0.5 * (one.block == 1)) for one in quiet[3]]})
    assert loud.scatter(0.02).observed == 10
    assert loud.scatter(0.02).deviation == pytest.approx(
        Blocks({k: v for k, v in quiet.items() if k != 3}).scatter(0.02).deviation
    )
    assert Blocks({}).scatter(0.02).observed == 0


# How many of some cells are noisier than the others, and how many times.
UNLIKE: dict[str, tuple[Callable[[int], int], float]] = {
    "alike": (lambda cells: 0, 1.0),
    "one is three times as noisy": (lambda cells: 1, 3.0),
    "half are three times as noisy": (lambda cells: cells // 2, 3.0),
    "one is ten times as noisy": (lambda cells: 1, 10.0),
    "two are ten times as noisy": (lambda cells: 2, 10.0),
    "all but one are ten times as noisy": (lambda cells: cells - 1, 10.0),
}


@pytest.mark.slow
@pytest.mark.parametrize(("cells", "repeats"), [(3, 5), (4, 5), (5, 5), (6, 3), (10, 3)])
@pytest.mark.parametrize("name", UNLIKE)
def test_equal_cells_of_unlike_noise_are_not_called_apart(name: str, cells: int, repeats: int) -> None:
    random = np.random.default_rng(cells)
    trials = 2000 if LONG else 60
    many, times = UNLIKE[name]
    noise = 0.01 * np.where(np.arange(cells) < many(cells), times, 1.0)
    wrong = sum(
        _apart(in_one_run(random.permutation(noise)[:, None] * random.standard_normal((cells, repeats)), random))
        for _ in range(trials)
    )
    # 6 %, and three deviations of what so many trials leave open.
    assert wrong / trials <= (0.076 if LONG else 10 / 60)


def in_one_run(logs: Array, random: np.random.Generator) -> Fit:
    """Cells in the orders of the runner."""
    began = shuffled(random, *logs.shape)
    return Fit(
        {
            cell: [InBlock(block, log, "run", float(began[block, cell])) for block, log in enumerate(row)]
            for cell, row in enumerate(logs.tolist())
        }
    )


@pytest.mark.parametrize("repeats", [3, 5])
def test_one_noisy_cell_among_quiet_ones_is_not_called_apart(repeats: int) -> None:
    """Ten times the noise of the others: one common variance would call some cell apart in a fifth of the runs."""
    random = np.random.default_rng(repeats)
    trials, wrong, by_one_variance = 400, 0, 0
    for _ in range(trials):
        noise = np.array([0.03] + [0.003] * 9)[:, None] * random.standard_normal((10, repeats))
        blocks = Fit({cell: list(map(InBlock, range(repeats), noise[cell].tolist())) for cell in range(10)})
        wrong += _apart(blocks)
        flat = Fit({cell: list(map(InBlock, range(repeats), noise[cell].tolist())) for cell in range(10)})
        flat.__dict__["_noise"] = replace(flat._noise, weights=np.ones(10))
        by_one_variance += _apart(flat)
    assert wrong / trials <= 0.08
    assert by_one_variance / trials > 0.12


def _apart(blocks: Fit) -> bool:
    """Whether some cell is called slower than the one that was seen to be fastest, as a report asks all pairs.

    Its first step decides: as long as no cell is slower, all count.
    """
    cells = len(blocks.logs)
    best = int(np.argmin(blocks._levels))
    found = [blocks.difference(cell, best) for cell in range(cells) if cell != best]
    return any(
        questions(cells, one.freedom, 0.05) * student_tail(one.value / one.error, one.freedom) < 0.05
        for one in found
        if one
    )


def test_a_clock_that_was_set_meanwhile_leaves_every_level_near_its_times() -> None:
    """A repeat that began hours before its session, by its clock, was once said to have taken e^(10^9) seconds."""
    random = np.random.default_rng(3)
    for trial in range(20):
        logs = {
            cell: [
                InBlock(block, float(random.normal(0, 0.01)), "run", 1.7e9 + 60 * (8 * block + at))
                for block in range(4)
            ]
            for at, cell in enumerate("abcdefgh")
        }
        logs["a"][0] = logs["a"][0]._replace(began=1.7e9 - 8 * 3600, log=0.05 * (trial % 3))
        blocks = Blocks(logs)
        assert all(abs(blocks.level(cell) or 0.0) < 0.2 for cell in logs)


def test_two_runs_that_only_a_loud_cell_joined_are_not_compared_within_blocks() -> None:
    random = np.random.default_rng(4)
    quiet = {
        f"{run}{cell}": [InBlock((run, block), float(random.normal(0, 0.002)), run) for block in range(4)]
        for run in "ab"
        for cell in range(4)
    }
    bridge = [InBlock((run, block), float(random.normal(0, 0.5)), run) for run in "ab" for block in range(4)]
    blocks = Blocks({**quiet, "x": bridge})
    assert "x" in blocks.loud
    assert blocks.difference("a0", "b0") is None
    assert blocks.difference("a0", "a1") is not None


def test_a_block_that_one_cell_has_alone_moves_no_level_of_the_others() -> None:
    fit = drawn(4, 3)
    slow = [*fit.logs[0], InBlock(3, fit.level(0) + 0.7), InBlock(4, fit.level(0) + 0.8)]
    more = Fit({**fit.logs, 0: slow})
    for cell in range(1, 4):
        assert more.level(cell) == pytest.approx(fit.level(cell), abs=0.005)
