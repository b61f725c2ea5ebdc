"""The map of nodes and GPUs in a terminal: it fits 80 columns, and what is slow comes first."""

from __future__ import annotations

import numpy as np
import pytest

from runner.verify.outliers import Deviation, FleetFinding, Spot
from runner.verify.output import MOST_LINES, rack_lines
from runner.verify.peer_comparison import deviations, nested


def fleets(nodes: int, each: int, slow: str = "", weak: str = "", name: str = "node-{}") -> list[FleetFinding]:
    """The two comparisons of healthy nodes, but for a slow one (20 %) and a weak GPU (30 %)."""
    random = np.random.default_rng(1)
    spots = {f"{name.format(node)}/{gpu}": Spot(name.format(node), gpu) for node in range(nodes) for gpu in range(each)}
    times = {
        uuid: float(np.exp(0.005 * random.standard_normal()))
        * (1.2 if spot.node == slow else 1.3 if uuid == weak else 1.0)
        for uuid, spot in spots.items()
    }
    both = nested(times, {uuid: spot.node for uuid, spot in spots.items()}, 2)
    of_nodes = tuple(Deviation(node, value, None, None) for node, value in both.of_node.items())
    of_gpus = deviations({uuid: {("run", 1): seconds} for uuid, seconds in times.items()})
    cell, model = "torch gru-imdb fp32", "NVIDIA H200"
    return [
        FleetFinding(cell, model, both.nodes, deviations=of_nodes, of="node"),
        FleetFinding(cell, model, both.gpus, deviations=of_gpus, spots=spots),
    ]


def test_a_node_has_a_line_and_the_slow_ones_come_first() -> None:
    drawn = list(rack_lines(fleets(6, 8, slow="node-4", weak="node-2/3")))
    rows = [line for line in drawn if line.startswith("node-")]
    assert len(rows) == 6
    first, second = rows[0].split(), rows[1].split()
    assert first[0] == "node-4"
    assert first[1].startswith("+")
    assert first[1].endswith("!")
    assert 19 < float(first[1].rstrip("!")) < 21
    assert second[0] == "node-2"
    assert [word.endswith("!") for word in second[1:]] == [False, *(at == 3 for at in range(8))]
    assert not any("!" in row for row in rows[2:])


@pytest.mark.parametrize(("nodes", "each"), [(4, 4), (5, 8), (5, 16), (5, 72), (128, 8)])
@pytest.mark.parametrize("name", ["n{}", "a-rack-with-a-very-long-name-{}.example.org"])
def test_every_line_fits_80_columns(nodes: int, each: int, name: str) -> None:
    drawn = list(rack_lines(fleets(nodes, each, weak=f"{name.format(1)}/0", name=name)))
    assert max(map(len, drawn)) <= 80
    assert sum(line.count("!") for line in drawn if not line.startswith("step")) == 1


def test_of_many_nodes_the_first_are_shown_and_the_others_counted() -> None:
    drawn = list(rack_lines(fleets(128, 8, slow="node-77", weak="node-101/0")))
    rows = [line for line in drawn if line.startswith("node-")]
    assert [row.split()[0] for row in rows[:2]] == ["node-77", "node-101"]
    assert len(rows) == MOST_LINES
    assert any(line.startswith(f"{128 - MOST_LINES} more nodes, from -0.") for line in drawn)


def test_a_node_without_one_of_its_gpus_keeps_the_columns_of_the_others() -> None:
    nodes, gpus = fleets(4, 4)
    kept = tuple(one for one in gpus.deviations if one.device != "node-1/2")
    rows = list(
        rack_lines([nodes, FleetFinding(gpus.name, gpus.device_model, gpus.fleet, deviations=kept, spots=gpus.spots)])
    )
    (row,) = (row for row in rows if row.startswith("node-1"))
    assert row.split()[4] == "-"


def test_one_machine_has_no_map() -> None:
    nodes, gpus = fleets(4, 4)
    assert list(rack_lines([gpus])) == []
    assert list(rack_lines([])) == []
    assert list(rack_lines([nodes])) == []


def test_a_name_of_a_node_is_made_visible() -> None:
    drawn = "\n".join(rack_lines(fleets(4, 4, name="\x1b[31mn{}")))
    assert "\x1b" not in drawn
