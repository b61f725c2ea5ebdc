"""`--time`: what fits is chosen from how long cells take, and what would not fit is refused with what would."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from runner.errors import UserError
from runner.verify.fleet_run import Level, Site, chosen, length, levels, seconds_of
from tests.fixtures.plans import make_cell

SECONDS = {"cnn-cifar10": 30.0, "gru-imdb": 20.0}


def site(nodes: Mapping[str, int], loads: bool = False, prepare: float = 0.0) -> Site:
    """Nodes of so many GPUs each."""
    node_of = {f"{node}-{gpu}": node for node, gpus in nodes.items() for gpu in range(gpus)}
    cells = [
        make_cell(workload=workload, device_kind="cuda", device_model="H200", device_uuid=uuid)
        for uuid in node_of
        for workload in SECONDS
    ]
    return Site(cells, lambda cell: SECONDS[cell.workload], node_of, prepare, loads)


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("90s", 90), ("1.5h", 5400)])
def test_a_time_is_a_number_and_its_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "0m", "-5m", "m", "1d", "1e3s", "nan", "9999999h"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="such as 30m"):
        seconds_of(text)


def test_levels_grow_and_the_shortest_has_the_quickest_workload() -> None:
    every = levels(site({"a": 4}, loads=True))
    assert every[0] == Level("shortest", ("gru-imdb",), 2, False)
    lengths = [length(level, site({"a": 4}, loads=True)) for level in every]
    assert lengths == sorted(lengths)
    assert [level.loads for level in every] == [False, False, False, True, True, True]
    assert not any(level.loads for level in levels(site({"a": 4})))


def test_nodes_are_measured_side_by_side_and_the_gpus_of_a_node_one_after_another() -> None:
    usual = Level("usual", ("gru-imdb", "cnn-cifar10"), 3, False)
    small, many, large = (
        length(usual, site(nodes)) for nodes in ({"a": 4}, dict.fromkeys("abcdef", 4), {"a": 4, "b": 8})
    )
    assert small == many
    assert large - small == 4 * 3 * 50
    assert length(usual, site({"a": 4}, prepare=600.0)) - small == 600


def test_the_longest_level_that_fits_is_chosen_and_said() -> None:
    """Eight GPUs take 8 x 3 x 50 s = 20 minutes, and half a minute around it."""
    level, sentence = chosen(site({"a": 8, "b": 8}), 30 * 60.0, "30m")
    assert (level.repeats, level.workloads, level.loads) == (3, ("gru-imdb", "cnn-cifar10"), False)
    assert sentence == (
        "--time 30m: level usual: gru-imdb, cnn-cifar10, 3 repeats: about 21 minutes; the next level, long, takes about 34 minutes"
    )
    assert chosen(site({"a": 8}), 10 * 3600.0, "10h")[0].name == "longest"
    assert "next level" not in chosen(site({"a": 8}), 10 * 3600.0, "10h")[1]


def test_where_no_level_fits_the_time_that_would_do_is_named() -> None:
    with pytest.raises(UserError, match=r"the shortest level takes about 6 minutes here .* give --time 6m"):
        chosen(site({"a": 8}), 60.0, "1m")
    assert chosen(site({"a": 8}), 360.0, "6m")[0].name == "shortest"


def test_one_workload_has_no_level_twice() -> None:
    only = site({"a": 2})
    one = Site([cell for cell in only.cells if cell.workload == "gru-imdb"], only.seconds, only.node_of, 0.0, False)
    assert [(level.repeats, level.workloads) for level in levels(one)] == [
        (repeats, ("gru-imdb",)) for repeats in (2, 3, 5, 9)
    ]
