"""Who is slower than whom among some cells: pure numbers, without a store, a report or a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from runner.results.rank.blocks import Blocks, InBlock
from runner.results.rank.ranking import (
    MARGIN,
    OF_SEVERAL,
    ONCE,
    OTHER_RUNS,
    OWN_DEVIATION,
    Contender,
    Field,
    among_tables,
    usual_scatter,
)
from runner.results.statistics import ALPHA


def field(logs: Mapping[str, Sequence[float]], device: str = "cpu", inside: float = 1e-4, run: str = "run") -> Field:
    """Cells by the log medians of their repeats, which one run measured in blocks."""
    blocks = Blocks(
        {
            cell: [InBlock((run, block), log, run) for block, log in enumerate(repeats)]
            for cell, repeats in logs.items()
            if len(repeats) > 1
        }
    )
    levels = {cell: blocks.level(cell) for cell in logs}
    means = {cell: float(np.mean(repeats)) if (at := levels[cell]) is None else at for cell, repeats in logs.items()}
    cells = {cell: Contender(means[cell], repeats, inside, frozenset({run})) for cell, repeats in logs.items()}
    return Field(cells, blocks, device)


def drawn(seed: int, levels: Mapping[str, float], repeats: int = 3, noise: float = 0.005) -> dict[str, list[float]]:
    """The log medians of cells that take so many times as long as the unit, in blocks that differ."""
    random = np.random.default_rng(seed)
    blocks = random.normal(0, 0.05, repeats)
    return {
        cell: (math.log(level) + blocks + random.normal(0, noise, repeats)).tolist() for cell, level in levels.items()
    }


LEVELS = {"a": 1.0, "b": 1.005, "c": 1.3, "d": 1.8, "e": 1.31}


def test_the_places_are_those_of_the_step_times_beside_the_first() -> None:
    of = field(drawn(1, LEVELS))
    assert of.order == ["a", "b", "c", "e", "d"]
    assert of.first == "a"
    assert list(of.places) == ["b", "c", "e", "d"]
    assert [pair.verdict for pair in of.places.values()] == ["same", "slower", "slower", "slower"]
    for name, pair in of.places.items():
        assert pair.ratio.value == pytest.approx(math.exp(of.cells[name].log - of.cells["a"].log))
        assert pair.ratio.low is not None
        assert (pair.ratio.low > 1) == (pair.verdict == "slower")
        assert pair.p is not None
        assert (pair.p < ALPHA) == (pair.verdict == "slower")


@pytest.mark.parametrize("once", [False, True])
def test_a_pair_with_its_sides_exchanged_is_the_same_pair(once: bool) -> None:
    logs = drawn(2, LEVELS)
    of = field({**logs, "c": logs["c"][:1]} if once else logs)
    turned = {"slower": "faster", "faster": "slower", "same": "same", "open": "open"}
    for above in of.order:
        for below in of.order:
            if above != below:
                one, other = of.between(above, below), of.between(below, above)
                assert other.verdict == turned[one.verdict]
                assert one.once == other.once
                assert one.p == (None if other.p is None else pytest.approx(other.p))
                assert one.ratio.low is not None
                assert one.ratio.high is not None
                assert (other.ratio.value, other.ratio.low, other.ratio.high) == pytest.approx(
                    (1 / one.ratio.value, 1 / one.ratio.high, 1 / one.ratio.low)
                )


def test_a_cell_with_one_repeat_changes_nothing_in_what_is_said_of_the_others() -> None:
    logs = drawn(3, LEVELS)
    alone = field(logs)
    # Twice as fast as all others, and twice as slow.
    beside = field({**logs, "fast": [math.log(0.5)], "slow": [math.log(4)]})
    assert beside.first == "a"
    assert {name: beside.places[name] for name in alone.places} == alone.places
    assert beside.order[0] == "fast"
    for name in ("fast", "slow"):
        assert (beside.places[name].once, beside.places[name].verdict, beside.places[name].p) == (True, "open", None)
        assert beside.places[name].ratio.note == ONCE
    assert beside.places["fast"].at_least is None
    at_least = beside.places["slow"].at_least
    assert at_least is not None
    assert 2.5 < at_least < 4


def test_one_repeat_has_room_for_how_the_other_cells_of_the_run_scatter() -> None:
    quiet, noisy = (
        field({**drawn(4, LEVELS, noise=noise), "once": [math.log(1.25)]}).places["once"].ratio
        for noise in (0.005, 0.1)
    )
    assert quiet.low is not None
    assert noisy.low is not None
    assert quiet.low > 1
    assert noisy.low < 0.95
    # Where no cell has two repeats, what is assumed is left.
    only = field({"a": [0.0], "b": [math.log(1.5)]})
    assert only.first == "a"
    assert only.places["b"].at_least is not None
    assert field({"a": [0.0], "b": [math.log(1.05)]}).places["b"].at_least is None
    assert usual_scatter(only.blocks, "cpu", 0.0).observed == 0
    assert only.places["b"].assumed
    # On a busy machine windows scatter, and so do repeats.
    busy = Field({name: replace(one, scatter=0.2) for name, one in only.cells.items()}, only.blocks, "cpu")
    assert busy.places["b"].at_least is None


def test_same_is_said_only_inside_the_margin() -> None:
    logs = drawn(5, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, repeats=5, noise=0.002)
    of = field(logs)
    for pair in of.places.values():
        assert pair.verdict == "same"
        assert pair.ratio.low is not None
        assert pair.ratio.high is not None
        assert 1 / (1 + MARGIN) < pair.ratio.low < pair.ratio.high < 1 + MARGIN
    last = of.order[-1]
    assert of.between(last, of.first, margin=0.01).verdict == "open"
    wide = field(drawn(5, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, noise=0.05))
    assert {pair.verdict for pair in wide.places.values()} == {"open"}


def test_a_cell_that_is_slower_no_longer_counts_when_the_others_are_judged() -> None:
    near = {"a": 1.0, "b": 1.02}
    of = field(drawn(6, near | {f"far{at}": 3.0 + at for at in range(8)}))
    assert of._stages[0]["b"] == 2
    assert {of._stages[0][f"far{at}"] for at in range(8)} == {10}
    # Eight that are as near count all the same.
    level = field(drawn(6, near | {f"near{at}": 1.0 for at in range(8)}))
    assert level._stages[0][level.order[-2]] >= 9


def test_two_cells_that_are_not_the_first_are_judged_among_all() -> None:
    of = field(drawn(7, LEVELS))
    pair, beside = of.between("e", "c"), of.between("c", "a")
    assert pair.verdict in ("same", "open")
    assert of.between("d", "c").verdict == "slower"
    assert beside.verdict == "slower"


@pytest.mark.parametrize("repeats", [3, 5])
def test_where_every_window_took_the_same_time_the_clock_is_too_coarse(repeats: int) -> None:
    # Steps of 30 to 70 ms by a clock of 10 ms. Sums of their logarithms are rounded, which is no scatter.
    of = field({f"{at}": [math.log(at / 100)] * repeats for at in range(3, 8)}, inside=0.0)
    for pair in of.places.values():
        assert (pair.verdict, pair.p) == ("open", None)
        assert pair.ratio.low == pair.ratio.value == pair.ratio.high
    assert of.repeats_to_tell("7", "3") is None, "more repeats say the same"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_ratio_has_room_for_what_one_cell_does_from_session_to_session(device: str) -> None:
    of = field(drawn(8, LEVELS, noise=1e-5), device)
    ratio = of.places["c"].ratio
    assert ratio.error == pytest.approx(math.sqrt(2) * OWN_DEVIATION, rel=0.01)
    # What two sessions average is known better.
    cells = {name: replace(cell, sessions=frozenset({"run", "resumed"})) for name, cell in of.cells.items()}
    assert replace(of, cells=cells).places["c"].ratio.error == pytest.approx(OWN_DEVIATION, rel=0.01)


def test_cells_of_two_runs_have_room_for_what_the_runs_differ_by() -> None:
    first, second = field(drawn(9, LEVELS)), field(drawn(9, {"x": 1.05, "y": 1.5, "z": 2.0, "w": 2.5}), run="later")
    both = Field({**first.cells, **second.cells}, Blocks({**first.blocks.logs, **second.blocks.logs}), "cpu")
    assert both.places["x"].ratio.note == OTHER_RUNS
    assert (both.places["x"].verdict, both.places["c"].verdict, both.places["y"].verdict) == (
        "open",
        "slower",
        "slower",
    )
    error, within = both.places["y"].ratio.error, both.places["c"].ratio.error
    assert error is not None
    assert within is not None
    assert error > 1.5 * within


def test_of_several_tables_in_one_report_each_errs_less_so_that_two_err_in_less_than_eight_percent() -> None:
    """An interval says what its verdict says, at either level."""
    assert 1 - (1 - OF_SEVERAL) ** 2 < 0.08
    alone = field(drawn(1, LEVELS))
    once = field({"a": [0.0], "b": [0.2]})
    assert among_tables([alone, once]) == [alone, once]
    two = field(drawn(4, {"a": 1.0, "b": 1.1}))
    assert [of.level for of in among_tables([two, alone, two])] == [ALPHA, OF_SEVERAL, ALPHA]
    several = among_tables([alone, field(drawn(2, LEVELS))])
    for of, level in ((alone, ALPHA), (several[0], OF_SEVERAL)):
        assert of.level == level
        for pair in of.places.values():
            assert pair.ratio.low is not None
            assert pair.ratio.high is not None
            assert (pair.ratio.low <= 1 <= pair.ratio.high) == (pair.verdict != "slower")
    for name, pair in alone.places.items():
        other = several[0].places[name]
        assert other.verdict == pair.verdict
        assert other.p is not None
        assert pair.p is not None
        assert other.p >= pair.p
