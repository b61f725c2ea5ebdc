"""Nodes first, then GPUs within their node: which of many nodes is slow as a whole, and which GPU is slow beside its neighbours. Pure.

Eight GPUs that are each 3 % slow stand out nowhere among a thousand: a thousand healthy ones have some that are as slow. Their node
does: a node's level is the median of its GPUs, which scatters less than half as much as one GPU does. The median and not the mean: one
GPU that is 20 % slow must not make its node slow.

Then each GPU is compared with the level of its own node, over all nodes together: a slow node accuses none of its GPUs, and many nodes tell
how far healthy GPUs scatter. A node of one or two GPUs has no level of its own: unless it is slow, its GPUs are compared with all.

Both tests are those of runner.verify.outliers. They share the false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from runner.verify.outliers import MUST_BE_NAMED, PRIOR_SPREAD, DeviceFleet, ScatterModel, fleet_of

# How much healthy nodes are assumed to differ, beside what their GPUs do: the standard deviation of the log step time. It was not measured.
NODE_SPREAD = 0.005

# A node is called slow from this gap on. It is below a GPU's: what slows all GPUs of a node is a setting or the cooling, which can be
# changed.
SMALLEST_NODE_GAP = 0.02

# In a node with fewer GPUs the level cannot be told from one weak GPU.
FEWEST_IN_A_NODE = 3


@dataclass(frozen=True)
class Nested:
    """Both comparisons of one cell."""

    nodes: DeviceFleet
    gpus: DeviceFleet
    # By node: its step time over the median of all nodes, as a share: 0.03 takes 3 % longer. By score, the slowest first.
    of_node: Mapping[str, float]


def node_kind(gpus: float) -> ScatterModel:
    """How nodes of so many GPUs are compared."""
    # A median of normal values scatters so much more than their mean.
    factor = math.pi / 2 if gpus >= FEWEST_IN_A_NODE else 1.0
    prior = math.sqrt(factor * PRIOR_SPREAD**2 / gpus + NODE_SPREAD**2)
    return ScatterModel("node", prior, SMALLEST_NODE_GAP, MUST_BE_NAMED)


def is_nested(nodes: Mapping[str, str]) -> bool:
    """True if nodes are compared: there are several, and any has several GPUs. `nodes` is the node of each GPU."""
    return 1 < len(set(nodes.values())) < len(nodes)


def nested(step_seconds: Mapping[str, float], nodes: Mapping[str, str], comparisons: int = 1) -> Nested:
    """The slow nodes, and the slow GPUs within their nodes. `comparisons` share the false alarms; this makes two of them."""
    of_node: dict[str, list[str]] = {}
    for gpu in step_seconds:
        of_node.setdefault(nodes[gpu], []).append(gpu)
    logs = {gpu: math.log(seconds) for gpu, seconds in step_seconds.items()}
    levels = {node: median(logs[gpu] for gpu in gpus) for node, gpus in of_node.items()}
    middle = median(levels.values())
    # A node with fewer GPUs than the others scatters more: its gap counts for less.
    usual = median(map(len, of_node.values()))
    trust = {node: math.sqrt(min(1.0, len(gpus) / usual)) for node, gpus in of_node.items()}
    trusted = {node: math.exp(middle + trust[node] * (level - middle)) for node, level in levels.items()}
    found = fleet_of(trusted, comparisons, node_kind(usual))
    slow = tuple(
        replace(node, ratio=math.exp(levels[node.device] - middle))
        for node in found.slow
        if _is_all_of_it(levels[node.device] - middle, [logs[gpu] - middle for gpu in of_node[node.device]])
    )
    gpus = _within(logs, levels, of_node, {node.device for node in slow}, comparisons)
    order = sorted(levels, key=lambda node: -trust[node] * (levels[node] - middle))
    return Nested(replace(found, slow=slow), gpus, {node: math.expm1(levels[node] - middle) for node in order})


def _is_all_of_it(gap: float, gaps: list[float]) -> bool:
    """True if most GPUs of a node share its gap: of two, one alone may have made it."""
    return 2 * sum(own > gap / 2 for own in gaps) > len(gaps)


def _within(
    logs: Mapping[str, float],
    levels: Mapping[str, float],
    of_node: Mapping[str, list[str]],
    slow: set[str],
    comparisons: int,
) -> DeviceFleet:
    """Each GPU beside the level of its node."""
    middle = median(levels.values())
    beside = {
        gpu: logs[gpu] - (levels[node] if len(gpus) >= FEWEST_IN_A_NODE or node in slow else middle)
        for node, gpus in of_node.items()
        for gpu in gpus
    }
    least = min(map(len, of_node.values()))
    group = least if least >= FEWEST_IN_A_NODE else 0
    return fleet_of({gpu: math.exp(middle + gap) for gpu, gap in beside.items()}, comparisons, group=group)
