"""The weak nodes among many, and the weak GPUs within their nodes: how often they are found, and how often healthy ones are called weak."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from runner.catalog.images import PROJECT
from runner.verify.outliers import FALSE_ALARM, fleet_of, score_limit
from runner.verify.peer_comparison import Nested, is_nested, nested, node_kind
from tests.fixtures.regimes import healthy_devices

LONG = os.environ.get("DLBENCH_SIMULATIONS") == "all"


def rack(
    random: np.random.Generator,
    nodes: int,
    *,
    each: int = 8,
    slow_node: float = 1.0,
    slow_gpu: float = 1.0,
    tails: str = "normal",
    apart: float = 0.0,
) -> tuple[dict[str, float], dict[str, str]]:
    """Each GPU's time, and its node. Node n0 as a whole takes `slow_node` times as long, and the first GPU of n1 `slow_gpu` times.

    `apart` is the standard deviation of the nodes, beside their GPUs'.
    """
    logs = healthy_devices(random, nodes * each, tails).reshape(nodes, each) + apart * random.standard_normal(
        (nodes, 1)
    )
    logs[0] += math.log(slow_node)
    logs[1, 0] += math.log(slow_gpu)
    times = {f"n{node}-{gpu}": 0.01 * math.exp(logs[node, gpu]) for node in range(nodes) for gpu in range(each)}
    return times, {name: name.partition("-")[0] for name in times}


def share(wanted: str, nodes: int, fleets: int, comparisons: int = 2, **kinds: float | str | int) -> float:
    """The share of simulated fleets in which `wanted` holds: node, gpu: it and nothing else is named; alarm: anything is."""
    random = np.random.default_rng([nodes, fleets])
    right = 0
    for _ in range(fleets):
        found = nested(*rack(random, nodes, **kinds), comparisons)  # type: ignore[arg-type]
        right += {
            "node": _named(found) == (["n0"], []),
            "gpu": _named(found) == ([], ["n1-0"]),
            "alarm": _named(found) != ([], []),
        }[wanted]
    return right / fleets


def _named(found: Nested) -> tuple[list[str], list[str]]:
    return [slow.device for slow in found.nodes.slow], [slow.device for slow in found.gpus.slow]


def test_of_128_nodes_one_with_all_eight_gpus_3_percent_slow_is_named_in_95_of_100_fleets() -> None:
    fleets = 2000 if LONG else 200
    assert share("node", 128, fleets, slow_node=1.03) >= 0.95
    random = np.random.default_rng(3)
    gpus = [fleet_of(rack(random, 128, slow_node=1.03)[0]).slow for _ in range(20)]
    assert sum(map(len, gpus)) < 0.2 * 8 * 20, "the GPUs alone do not show it"


def test_healthy_fleets_of_128_nodes_give_a_false_alarm_in_less_than_5_of_100() -> None:
    fleets = 2000 if LONG else 200
    assert share("alarm", 128, fleets) <= 0.05
    assert share("alarm", 128, fleets, apart=0.005) <= 0.05


@pytest.mark.parametrize(("nodes", "each"), [(4, 8), (16, 8), (16, 4), (16, 3), (16, 2), (60, 8)])
def test_few_nodes_and_small_ones_keep_the_stated_false_alarms(nodes: int, each: int) -> None:
    fleets = 4000 if LONG else 500
    # Both comparisons share one in a hundred. Three standard errors of 500 fleets are 1.3 in a hundred.
    assert share("alarm", nodes, fleets, each=each) <= FALSE_ALARM + 3 * math.sqrt(FALSE_ALARM / fleets)


def test_a_weak_gpu_is_named_in_its_node_and_does_not_make_its_node_slow() -> None:
    for nodes, each in ((2, 8), (4, 8), (16, 8), (16, 4), (16, 2)):
        assert share("gpu", nodes, 200, slow_gpu=1.2, each=each) >= 0.95, (nodes, each)


@pytest.mark.parametrize(("nodes", "each", "slow"), [(16, 8, 1.04), (16, 2, 1.06), (4, 8, 1.06)])
def test_a_slow_node_is_named_and_none_of_its_gpus(nodes: int, each: int, slow: float) -> None:
    assert share("node", nodes, 200, slow_node=slow, each=each) >= 0.95


@pytest.mark.parametrize("nodes", [2, 3])
def test_too_few_nodes_are_not_judged_however_slow_one_is(nodes: int) -> None:
    found = nested(*rack(np.random.default_rng(1), nodes, slow_node=1.5))
    assert _named(found) == ([], [])
    assert found.nodes.why_not.startswith(f"{nodes} nodes: at least 4 are needed")
    assert found.gpus.why_not == ""


def test_nodes_that_differ_too_much_are_not_judged() -> None:
    logs = dict(zip("abcdef", (-0.05, -0.03, -0.01, 0.01, 0.03, 0.05), strict=True))
    times = {f"{node}-{gpu}": math.exp(log) for node, log in logs.items() for gpu in range(8)}
    found = nested(times, {name: name[0] for name in times})
    assert "the nodes differ too much to tell" in found.nodes.why_not
    assert found.gpus.why_not == ""


def test_a_node_with_fewer_gpus_than_the_others_needs_a_larger_gap() -> None:
    times, nodes = rack(np.random.default_rng(4), 16, slow_node=1.04)
    assert _named(nested(times, nodes)) == (["n0"], [])
    one = {name: time for name, time in times.items() if nodes[name] != "n0" or name == "n0-0"}
    assert _named(nested(one, nodes)) == ([], [])


def test_nodes_come_by_their_score() -> None:
    times, nodes = rack(np.random.default_rng(4), 16, slow_node=1.04)
    found = nested(times, nodes)
    assert next(iter(found.of_node)) == "n0"
    assert list(found.of_node.values()) == sorted(found.of_node.values(), reverse=True)
    assert found.nodes.slow[0].ratio == pytest.approx(1 + found.of_node["n0"])


def test_nodes_of_one_gpu_are_no_level_of_their_own() -> None:
    assert not is_nested({"a": "n1", "b": "n2"})
    assert not is_nested({"a": "n1", "b": "n1"})
    assert is_nested({"a": "n1", "b": "n1", "c": "n2"})


def test_the_computed_limit_of_many_devices_is_that_of_the_simulation() -> None:
    """Above 256 devices it is computed. A draw exceeds it about as often as is said."""
    random = np.random.default_rng(5)
    limit, exceeded = score_limit(320, 1), 0
    fleets = 3000
    for _ in range(fleets):
        found = fleet_of(rack(random, 40)[0])
        exceeded += math.log(found.slowest) / found.spread > limit
    # Three standard errors of 3000 fleets are 0.55 in a hundred.
    assert abs(exceeded / fleets - FALSE_ALARM) <= 0.0055


def test_more_gpus_in_a_node_scatter_its_level_less() -> None:
    assert node_kind(16).prior < node_kind(8).prior < node_kind(2).prior


# --- the table of docs/verify.md ------------------------------------------------------------------------------------------------


def row(nodes: int, fleets: int) -> str:
    """The row of docs/verify.md of so many nodes of 8 GPUs, in percent of the simulated fleets."""
    shares = [share("node", nodes, fleets, slow_node=ratio) for ratio in (1.03, 1.05, 1.10)]
    shares += [share("gpu", nodes, fleets, slow_gpu=ratio) for ratio in (1.07, 1.10)]
    shares += [share("alarm", nodes, fleets, apart=apart) for apart in (0.0, 0.005, 0.01, 0.02)]
    shares += [share("node", nodes, fleets, slow_node=1.05, tails="t5"), share("alarm", nodes, fleets, tails="t5")]
    return f"| {nodes} | " + " | ".join(f"{100 * value:.0f}" for value in shares) + " |"


@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_the_documentation_says_what_the_simulation_gives(nodes: int) -> None:
    if not LONG:
        pytest.skip("2200 fleets of each size take half a minute; DLBENCH_SIMULATIONS=all simulates them")
    assert row(nodes, 200) in (PROJECT / "docs" / "verify.md").read_text()
