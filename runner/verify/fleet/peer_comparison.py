"""The GPUs of one model beside one another: in each cell, and under each load. On several nodes, the nodes first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.nodes import settings
from runner.results.datasheets import bare_model
from runner.verify.fleet.device_times import Block, deviations, levels
from runner.verify.fleet.nested import is_nested, nested
from runner.verify.fleet.where import Placed, placed
from runner.verify.outliers import (
    DEVICE,
    FEWEST,
    Deviation,
    FleetFinding,
    ScatterModel,
    fleet_of,
    known_kind,
    known_spread,
)
from runner.verify.probes.load import fleets_of_loads, groups_of_loads, read_loads
from runner.verify.references import among
from runner.verify.references.comparability import reference_for
from runner.verify.references.saved import Reference
from runner.verify.verification import CellFinding, Verification

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
    comparisons = sum((1 + _is_nested(each, where)) * (len(each) >= FEWEST) for each in devices)
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

    def kind(self, cell: CellFinding) -> ScatterModel:
        """How the devices of a cell are compared: by what an index knows of their model, where it has enough machines."""
        chosen = reference_for(cell.facts, self.references)
        logs = among.machine_logs(chosen.cell) if chosen.cell else []
        if len(logs) < among.FEWEST_KNOWN:
            return DEVICE
        return known_kind(float(known_spread(logs)), len(logs))

    def by_node(self, finding: FleetFinding, times: Mapping[str, float]) -> list[FleetFinding]:
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
            deviations=tuple(Deviation(node, value, None, None) for node, value in both.of_node.items()),
        )
        beside = tuple(_explained("", slow.device, each) for slow in both.gpus.slow)
        return [nodes, replace(finding, fleet=both.gpus, spots=spots, beside=(*beside, *finding.beside))]


def _explained(word: str, name: str, of_others: Mapping[str, Sequence[Mapping[str, str]]]) -> str:
    """The first explanation of what is slow: in what it is set up otherwise than most of the others."""
    called = f"{word} {name}".strip()
    clauses = settings.deviant(name, of_others)
    if not clauses:
        return f"{called}: nothing that was recorded is set up otherwise than on the others; look at cooling, power and other work"
    more = f"; and {len(clauses) - _MOST_CLAUSES} more" if len(clauses) > _MOST_CLAUSES else ""
    return f"{called} is set up otherwise: {'; '.join(clauses[:_MOST_CLAUSES])}{more}"


def _compared(cells: Sequence[CellFinding], unfit: Sequence[CellFinding], judge: _Judge) -> list[FleetFinding]:
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
    finding = FleetFinding(
        name=cells[0].facts.name,
        device_model=cells[0].facts.device_model,
        fleet=fleet_of(times, judge.comparisons, judge.kind(cells[0])),
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
