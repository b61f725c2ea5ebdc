"""The table of simulated machines in docs/statistics.md has each of them, and holds what is said of it."""

from __future__ import annotations

from tests import world_table
from tests.fixtures.worlds import UNSEEN, WORLDS
from tests.world_table import EDGES, Shape, claims

# Percent of the runs of a row.
MOST_FASTEST, MOST_SLOWER = 5.0, 8.0


def test_each_machine_has_its_rows_in_the_order_of_their_list() -> None:
    first = [name for name, _ in world_table.table()]
    assert [name for name in first if name in WORLDS] == list(WORLDS)
    assert len(first) == len(WORLDS) + sum(map(len, EDGES.values()))
    assert set(UNSEEN) <= set(first)


def test_false_claims_stay_below_their_bars_but_in_the_machines_that_are_named() -> None:
    for name, (fastest, slower, _, wrong) in world_table.table():
        assert fastest <= MOST_FASTEST or name in UNSEEN, name
        assert (slower > MOST_SLOWER) == (name in UNSEEN), name
        assert wrong <= 1.0, name


def test_two_repeats_do_not_show_that_both_are_slow_and_call_few_equal_cells_slower() -> None:
    """21 % when several noisy cells of two repeats left the fit of the others."""
    of = claims("a third of the repeats is 10 % slower", Shape(repeats=2), 60)
    assert of.slower <= 8 / 60
    assert of.fastest == 0
    one_bad = claims("one repeat takes 30 % longer", Shape(repeats=2), 30)
    assert one_bad.found >= 0.5
