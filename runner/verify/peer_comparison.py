"""Each node held against the others, and each GPU against those of its node: which is slow, where, and in what it is set up otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from runner.nodes import node_table
from runner.results.gpu_facts import bare_model
from runner.results.store import RunStore
from runner.results.student import student_quantile
from runner.verify import outliers
from runner.verify.probes.load import fleets_of_loads, groups_of_loads, read_loads
from runner.verify.references import comparability
from runner.verify.references.saved import Reference
from runner.verify.verification import CellFinding, Verification

# The time of each device of a fleet from its repeats, once what moved a block of them is taken out. Pure.

# The block of a repeat: (run id, number of the repeat).
Block = tuple[str, int]


def levels(repeats: Mapping[str, Mapping[Block, float]]) -> tuple[dict[str, float], bool]:
    """Each device's time from its repeats, and whether blocks were shared; `repeats` are seconds by device and block.

    Where blocks hold the repeats of most devices, a device's time is the median of its repeats' distances from the medians of their
    blocks: a drift from block to block then changes nothing, and that within a block changes only one repeat. A block that holds half of
    the devices or fewer is left out. Where no block is shared, a device's time is the median of its repeats.
    """
    logs, shared = within_blocks(repeats)
    return {device: math.exp(median(of_device)) for device, of_device in logs.items()}, shared


def within_blocks(repeats: Mapping[str, Mapping[Block, float]]) -> tuple[dict[str, list[float]], bool]:
    """The log of each repeat's time by device, once what moved its block is taken out, and whether blocks were shared."""
    blocks: dict[Block, list[float]] = {}
    for times in repeats.values():
        for block, seconds in times.items():
            blocks.setdefault(block, []).append(math.log(seconds))
    middles = {block: median(logs) for block, logs in blocks.items() if 2 * len(logs) > max(2, len(repeats))}
    if not middles:
        return {device: list(map(math.log, times.values())) for device, times in repeats.items()}, False
    level = median(middles.values())
    logs = {
        device: [level + math.log(seconds) - middles[block] for block, seconds in times.items() if block in middles]
        for device, times in repeats.items()
    }
    return {device: of_device for device, of_device in logs.items() if of_device}, True


def deviations(repeats: Mapping[str, Mapping[Block, float]]) -> tuple[outliers.Deviation, ...]:
    """How far each device is from the median of all, with 95 % intervals from the scatter of all devices' repeats."""
    logs = within_blocks(repeats)[0]
    gaps = {device: median(of_device) for device, of_device in logs.items()}
    middle = median(gaps.values()) if gaps else 0.0
    freedom = sum(len(of_device) - 1 for of_device in logs.values())
    squares = sum(float(np.sum((np.array(of_device) - np.mean(of_device)) ** 2)) for of_device in logs.values())
    found = []
    for device, gap in gaps.items():
        reach = None
        if freedom and len(logs[device]) > 1:
            reach = student_quantile(0.975, freedom) * math.sqrt(squares / freedom / len(logs[device]))
        ends = (None, None) if reach is None else (math.expm1(gap - middle - reach), math.expm1(gap - middle + reach))
        found.append(outliers.Deviation(device, math.expm1(gap - middle), *ends))
    return tuple(found)


# On which node each GPU of some stored runs is, and how it is set up there.


@dataclass(frozen=True)
class Placed:
    """The GPUs of some runs: where each is, and its facts and its host's in words. By UUID."""

    spots: Mapping[str, outliers.Spot]
    facts: Mapping[str, Mapping[str, str]]

    def of_node(self, gpus: Sequence[str]) -> dict[str, list[Mapping[str, str]]]:
        """The facts of the GPUs of each node."""
        nodes: dict[str, list[Mapping[str, str]]] = {}
        for gpu in gpus:
            if gpu in self.spots:
                nodes.setdefault(self.spots[gpu].node, []).append(self.facts.get(gpu, {}))
        return nodes


def placed(folders: Sequence[Path]) -> Placed:
    """The GPUs of some runs. A run of one machine names it as its host; one of several nodes says which GPUs each of them has."""
    spots: dict[str, outliers.Spot] = {}
    facts: dict[str, Mapping[str, str]] = {}
    for folder in folders:
        manifest = RunStore(folder).manifest()
        host, devices = manifest["host"], {str(entry.get("uuid")): entry for entry in manifest.get("devices") or ()}
        nodes = {str(uuid): entry for entry in manifest.get("nodes", ()) for uuid in _list(entry.get("gpus"))}
        for uuid, entry in devices.items():
            node = nodes.get(uuid)
            name = host.get("name") if node is None else node.get("node")
            if name:
                spots[uuid] = outliers.Spot(str(name), _index(entry.get("index")))
                facts[uuid] = node_table.settings_facts(entry) | node_table.settings_facts(
                    node or host, node_table.OF_HOST
                )
    return Placed(spots, facts)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _index(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000 else None


# Nodes first, then GPUs within their node: which of many nodes is slow as a whole, and which GPU is slow beside its neighbours. Pure.
#
# Eight GPUs that are each 3 % slow stand out nowhere among a thousand: a thousand healthy ones have some that are as slow. Their node
# does: a node's level is the median of its GPUs, which scatters less than half as much as one GPU does. The median and not the mean: one
# GPU that is 20 % slow must not make its node slow.
#
# Then each GPU is compared with the level of its own node, over all nodes together: a slow node accuses none of its GPUs, and many nodes
# tell how far healthy GPUs scatter. A node of one or two GPUs has no level of its own: unless it is slow, its GPUs are compared with all.
#
# Both tests are those of runner.verify.outliers. They share the false alarms.

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

    nodes: outliers.DeviceFleet
    gpus: outliers.DeviceFleet
    # By node: its step time over the median of all nodes, as a share: 0.03 takes 3 % longer. By score, the slowest first.
    of_node: Mapping[str, float]


def node_kind(gpus: float) -> outliers.ScatterModel:
    """How nodes of so many GPUs are compared."""
    # A median of normal values scatters so much more than their mean.
    factor = math.pi / 2 if gpus >= FEWEST_IN_A_NODE else 1.0
    prior = math.sqrt(factor * outliers.PRIOR_SPREAD**2 / gpus + NODE_SPREAD**2)
    return outliers.ScatterModel("node", prior, SMALLEST_NODE_GAP, outliers.MUST_BE_NAMED)


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
    found = outliers.fleet_of(trusted, comparisons, node_kind(usual))
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
) -> outliers.DeviceFleet:
    """Each GPU beside the level of its node."""
    middle = median(levels.values())
    beside = {
        gpu: logs[gpu] - (levels[node] if len(gpus) >= FEWEST_IN_A_NODE or node in slow else middle)
        for node, gpus in of_node.items()
        for gpu in gpus
    }
    least = min(map(len, of_node.values()))
    group = least if least >= FEWEST_IN_A_NODE else 0
    return outliers.fleet_of({gpu: math.exp(middle + gap) for gpu, gap in beside.items()}, comparisons, group=group)


# The GPUs of one model beside one another: in each cell, and under each load. On several nodes, the nodes first.

# The most clauses to show of differences in the setup.
_MOST_CLAUSES = 6


def with_fleets(
    verification: Verification, folders: Sequence[Path] = (), references: Sequence[Reference] = ()
) -> Verification:
    """The same, with each cell's devices of one model compared with one another, and so their loads in these runs. Raises StoreError.

    References of an index say how far machines of a model differ. How loads, and nodes, differ is assumed: an index has neither.
    """
    groups: dict[tuple[str, str, str, str], list[CellFinding]] = {}
    unfit: dict[tuple[str, str, str, str], list[CellFinding]] = {}
    for finding in verification.findings:
        if finding.device_uuid:
            facts, fit = finding.facts, finding.repeat_seconds and finding.kind not in ("wrong", "failed")
            kept = groups if fit else unfit
            kept.setdefault((facts.name, facts.image, facts.preset, bare_model(facts.device_model)), []).append(finding)
    loads = groups_of_loads(read_loads(folders))
    where = placed(folders)
    devices = [list(dict.fromkeys(cell.device_uuid for cell in cells)) for cells in groups.values()]
    devices += [list(each) for each in loads.values()]
    # With nodes each comparison is two.
    comparisons = sum((1 + _is_nested(each, where)) * (len(each) >= outliers.FEWEST) for each in devices)
    judge = _Judge(where, max(1, comparisons), [reference for reference in references if reference.of_machines])
    fleets = [found for key, cells in sorted(groups.items()) for found in _compared(cells, unfit.get(key, ()), judge)]
    fleets += [
        found
        for finding, rates in fleets_of_loads(loads, judge.comparisons)
        for found in judge.by_node(finding, {uuid: 1 / rate for uuid, rate in rates.items()})
    ]
    return replace(verification, fleets=tuple(fleets))


def _is_nested(devices: Collection[str], where: Placed) -> bool:
    return all(device in where.spots for device in devices) and is_nested(
        {device: where.spots[device].node for device in devices}
    )


@dataclass(frozen=True)
class _Judge:
    """The common facts of all comparisons of a verification."""

    where: Placed
    comparisons: int
    # Those of an index.
    references: Sequence[Reference]

    def kind(self, cell: CellFinding) -> outliers.ScatterModel:
        """How the devices of a cell are compared: by what an index knows of their model, where it has enough machines."""
        chosen = comparability.reference_for(cell.facts, self.references)
        logs = comparability.machine_logs(chosen.cell) if chosen.cell else []
        if len(logs) < comparability.FEWEST_KNOWN:
            return outliers.DEVICE
        return outliers.known_kind(float(outliers.known_spread(logs)), len(logs))

    def by_node(self, finding: outliers.FleetFinding, times: Mapping[str, float]) -> list[outliers.FleetFinding]:
        """The comparison of the nodes, and of the GPUs within their nodes; of GPUs of one node, what was found."""
        if not _is_nested(times, self.where):
            return [finding]
        spots = {uuid: self.where.spots[uuid] for uuid in times}
        both = nested(times, {uuid: spot.node for uuid, spot in spots.items()}, self.comparisons)
        of_node = self.where.of_node(list(times))
        each = {uuid: [self.where.facts[uuid]] for uuid in times}
        nodes = replace(
            finding,
            fleet=both.nodes,
            of="node",
            beside=tuple(_explained("node", slow.device, of_node) for slow in both.nodes.slow),
            deviations=tuple(outliers.Deviation(node, value, None, None) for node, value in both.of_node.items()),
        )
        beside = tuple(_explained("", slow.device, each) for slow in both.gpus.slow)
        return [nodes, replace(finding, fleet=both.gpus, spots=spots, beside=(*beside, *finding.beside))]


def _explained(word: str, name: str, of_others: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    """The first explanation of what is slow: in what it is set up otherwise than most of the others."""
    called = f"{word} {name}".strip()
    clauses = node_table.deviant_settings(name, of_others)
    if not clauses:
        return f"{called}: nothing that was recorded is set up otherwise than on the others; look at cooling, power and other work"
    more = f"; and {len(clauses) - _MOST_CLAUSES} more" if len(clauses) > _MOST_CLAUSES else ""
    return f"{called} is set up otherwise: {'; '.join(clauses[:_MOST_CLAUSES])}{more}"


def _compared(cells: Sequence[CellFinding], unfit: Sequence[CellFinding], judge: _Judge) -> list[outliers.FleetFinding]:
    """One cell on the devices of one model, which are compared, and those where it is `unfit` for that, which are named."""
    repeats: dict[str, dict[Block, float]] = {}
    for cell in cells:
        of_device = repeats.setdefault(cell.device_uuid, {})
        of_device |= {(cell.run_id, number): seconds for number, seconds in cell.repeat_seconds.items()}
    times, shared = levels(repeats)
    why = "measured in different runs: a drift of the machine from one run to the next looks like a slow GPU"
    if not shared and _is_nested(repeats, judge.where):
        times = _levels_by_node(repeats, lambda uuid: judge.where.spots[uuid].node)
        why = (
            "the nodes were measured in different runs: what changed from one run to the next looks like a slow node; GPUs of a "
            "node were measured together"
        )
    finding = outliers.FleetFinding(
        name=cells[0].facts.name,
        device_model=cells[0].facts.device_model,
        fleet=outliers.fleet_of(times, judge.comparisons, judge.kind(cells[0])),
        beside=(*(() if shared or len(times) < 2 else (why,)), *_left_out(repeats, times, unfit)),
        cells=tuple((cell.run_id, cell.cell_id) for cell in cells if cell.device_uuid in times),
        deviations=deviations(repeats),
    )
    return judge.by_node(finding, times)


def _levels_by_node(repeats: Mapping[str, Mapping[Block, float]], node: Callable[[str], str]) -> dict[str, float]:
    """The times of GPUs whose nodes were measured in runs of their own: the blocks of a run are those of its node."""
    of_node: dict[str, dict[str, Mapping[Block, float]]] = {}
    for uuid, times in repeats.items():
        of_node.setdefault(node(uuid), {})[uuid] = times
    return {uuid: seconds for each in of_node.values() for uuid, seconds in levels(each)[0].items()}


def _left_out(repeats: Collection[str], times: Collection[str], unfit: Sequence[CellFinding]) -> Iterator[str]:
    """A line for each device that is not compared, with the reason."""
    for device in repeats:
        if device not in times:
            yield f"not compared: {device}: no repeat in a block that most of the GPUs share; measure it again with the others"
    for device, finding in {finding.device_uuid: finding for finding in unfit}.items():
        if device not in repeats:
            yield f"not compared: {device}: {finding.kind}: {finding.reason}"
