"""A verification in the words of a report's health: the answer, each cell beside its reference, each GPU beside the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reports.answers.health import CellHealth, Confidence, FleetHealth, GpuHealth, Health, NodeHealth, advice
from reports.wording import apart, cell_name, listing, times
from runner.text import plural
from runner.verify.outliers import FleetFinding
from runner.verify.output import racks as racks_of
from runner.verify.peer_comparison import with_fleets
from runner.verify.references.facts import Facts
from runner.verify.references.saved import Reference
from runner.verify.verdict import PASS
from runner.verify.verification import CellFinding, Verification, assess, margin_text

# Slow nodes and GPUs in a sentence, and comparisons of each; the pictures have all.
_MOST_NAMED = 4

# A GPU's index and the causes of what it measured, by its UUID.
Boards = Mapping[str, tuple[int | None, str]]


def judged(
    folders: Sequence[Path], references: Sequence[Reference], devices: Sequence[Mapping[str, Any]], runs: str
) -> Health:
    """The health of what some stored runs measured on these devices. `runs` are their ids, as a command takes them. Raises UserError."""
    verification = with_fleets(assess(folders, references), folders)
    return _judged(verification, references, _boards(devices, verification.findings), runs)


def _judged(verification: Verification, references: Sequence[Reference], boards: Boards, runs: str) -> Health:
    """The same from a verification."""
    # One GPU of a model is compared with nothing.
    every = [
        replace(finding, name=_name(_facts(finding, verification.findings)))
        for finding in verification.fleets
        if finding.fleet.devices > 1 and finding.deviations
    ]
    fleets = [finding for finding in every if finding.of == "GPU"]
    cells = tuple(
        CellHealth(one.run_id, one.cell_id, one.device_uuid, one.kind, one.reason) for one in verification.findings
    )
    answer, confidence, detail = _answer(verification, every, references, boards)
    racks = {(rack.gpus.name, rack.gpus.device_model, rack.gpus.cells): rack.nodes for rack in racks_of(every)}
    shown = tuple(
        _fleet(finding, verification.findings, boards, racks.get((finding.name, finding.device_model, finding.cells)))
        for finding in fleets
    )
    gpus = len({one.device_uuid for one in verification.findings} - {""})
    return Health(answer, confidence, detail, cells, shown, advice(confidence, runs, fleets=bool(fleets), gpus=gpus))


# The answer, how sure it is, and what it rests on.
Answer = tuple[str, Confidence, str]


def _answer(
    verification: Verification, fleets: Sequence[FleetFinding], references: Sequence[Reference], boards: Boards
) -> Answer:
    """From the comparisons of GPUs and nodes, and from the references."""
    findings = verification.findings
    racks = [finding for finding in fleets if finding.of == "node"]
    unjudged = [finding for finding in racks if finding.fleet.why_not]
    every, fleets = fleets, [finding for finding in fleets if finding.of == "GPU"]
    named = {slow.device for finding in fleets for slow in finding.fleet.slow}
    if slow_nodes := {slow.device for finding in racks for slow in finding.fleet.slow}:
        nodes = {one.device for finding in racks for one in finding.deviations}
        are = "is" if len(slow_nodes) == 1 else "are"
        # A slow GPU of a node that is not slow is a second fault, and a person looks for it elsewhere.
        slow_ones = f"nodes and {plural(len(named), 'GPU')} slow" if named else f"nodes {are} slow"
        return f"{len(slow_nodes)} of {len(nodes)} {slow_ones}", "one run", _slow(every, boards)
    if named:
        gpus = {one.device for finding in fleets for one in finding.deviations}
        one_repeat = any(one.low is None for finding in fleets for one in finding.deviations if one.device in named)
        are = "is" if len(named) == 1 else "are"
        sure: Confidence = "one run" if one_repeat else "confirmed"
        return f"{len(named)} of {len(gpus)} GPUs {are} slow", sure, _slow(fleets, boards)
    if beside := _beside_references(verification):
        return beside
    if fleets and not unjudged and not any(finding.fleet.why_not for finding in fleets):
        count = len({one.device for finding in fleets for one in finding.deviations})
        return f"Yes: none of {count} GPUs stands out", "one run", _sentence(fleets[0])
    if unjudged and not any(finding.fleet.why_not for finding in fleets):
        few = all(finding.fleet.limit is None for finding in unjudged)
        answer = "Not judged: too few nodes" if few else _too_different("nodes", unjudged)
        return answer, "not judged", _sentence(unjudged[0])
    if fleets:
        few = all(finding.fleet.limit is None for finding in fleets)
        answer = "Not judged: too few GPUs of one model" if few else _too_different("GPUs", fleets)
        return answer, "not judged", next(_sentence(finding) for finding in fleets if finding.fleet.why_not)
    why = next((finding.reason for finding in findings if finding.kind == "no-reference"), "")
    if not why and references and findings:
        return "Not judged: see why", "not judged", findings[0].reason
    return "Not judged: no reference", "not judged", why if references else ""


def _too_different(word: str, fleets: Sequence[FleetFinding]) -> str:
    return (
        f"Open: the {word} are two groups"
        if any(one.fleet.groups for one in fleets)
        else f"Open: the {word} differ too much"
    )


def _beside_references(verification: Verification) -> Answer | None:
    """The answer of the cells that have a ratio to a reference; None where none has."""
    compared = [finding for finding in verification.findings if finding.ratio]
    if not compared:
        return None
    sure: Confidence = "confirmed" if min(map(_sessions, compared)) > 1 else "one run"
    if slow := [finding for finding in compared if finding.kind == "slow"]:
        names = "; ".join(f"{_name(finding.facts)}: {finding.reason}" for finding in slow[:3])
        return f"{len(slow)} of {plural(len(compared), 'cell')} slower than the reference", sure, names
    wholes = verification.wholes
    if slow_wholes := [whole for whole in wholes if whole.verdict == "slow"]:
        return f"All {slow_wholes[0].cells} cells together: slower than the reference", sure, slow_wholes[0].reason
    passed = sum(finding.kind in PASS for finding in compared)
    settled = len(verification.settled)
    open_wholes = [whole for whole in wholes if not whole.passes]
    if passed + settled < len(compared) or open_wholes:
        why = [whole.reason for whole in open_wholes] or [one.reason for one in compared if one.kind not in PASS]
        return f"Open: {passed} of {plural(len(compared), 'cell')} pass", "not judged", why[0]
    margins = " or ".join(map(margin_text, sorted({finding.margin for finding in compared})))
    if settled:
        count = plural(len(compared), "cell")
        return f"Yes: {count} together match the reference", sure, "; ".join(whole.reason for whole in wholes)
    detail = f"no cell takes longer than its reference by more than {margins}"
    return f"Yes: {passed} of {plural(passed, 'cell')} match the reference", sure, detail


def _name(facts: Facts) -> str:
    """A cell as all of the report names it."""
    return f"{cell_name(facts.image, facts.framework, facts.mode)} · {facts.workload} {facts.precision}"


def _facts(finding: FleetFinding, findings: Sequence[CellFinding]) -> Facts:
    """Of the cells that were compared, which are alike."""
    return next(one.facts for one in findings if (one.run_id, one.cell_id) in finding.cells)


def _sessions(finding: CellFinding) -> int:
    return finding.ratio.reference_sessions if finding.ratio else 0


def _fleet(
    finding: FleetFinding, findings: Sequence[CellFinding], boards: Boards, nodes: FleetFinding | None
) -> FleetHealth:
    """One comparison of GPUs, with that of their `nodes` where there are several."""
    facts = _facts(finding, findings)
    slow = {each.device for each in finding.fleet.slow}
    gpus = []
    for one in finding.deviations:
        index, why = boards.get(one.device, (None, ""))
        named = one.device in slow
        why = why if named else ""
        node = finding.spots[one.device].node if one.device in finding.spots else ""
        gpus.append(GpuHealth(index, one.device[-4:], one.value, one.low, one.high, named, why, node))
    beyond = finding.fleet.named_beyond
    return FleetHealth(
        model=finding.device_model,
        cell=finding.name,
        workload=facts.workload,
        image=facts.image,
        gpus=tuple(sorted(gpus, key=lambda gpu: (gpu.index is None, gpu.index or 0, gpu.uuid_end))),
        low=None if beyond is None else 1 / (1 + beyond) - 1,
        high=beyond,
        judged=not finding.fleet.why_not,
        sentence=_sentence(finding if nodes is None or not nodes.fleet.slow else nodes),
        nodes=() if nodes is None else _nodes(nodes),
    )


def _nodes(finding: FleetFinding) -> tuple[NodeHealth, ...]:
    """The nodes, the slowest first, with the first explanation of those that are slow."""
    slow = zip((slow.device for slow in finding.fleet.slow), finding.beside, strict=False)
    why = {node: words.removeprefix(f"node {node}").removeprefix(":").strip() for node, words in slow}
    return tuple(
        NodeHealth(one.device, one.value, one.device in why, why.get(one.device, "")) for one in finding.deviations
    )


def _sentence(finding: FleetFinding) -> str:
    """The result of the comparison of one fleet."""
    fleet = finding.fleet
    word = "nodes of" if finding.of == "node" else "×"
    head = f"{finding.name} on {fleet.devices} {word} {finding.device_model}"
    if fleet.why_not:
        return f"{head}: {fleet.why_not}"
    if fleet.slow:
        each = (f"{_called(finding, slow.device)} {apart(slow.ratio)} as the median" for slow in fleet.slow)
        return f"{head}: {', '.join(each)}"
    return f"{head}: the slowest {apart(fleet.slowest / fleet.fastest)} as the fastest"


def _slow(fleets: Iterable[FleetFinding], boards: Boards) -> str:
    """Each slow node and GPU once, with how much longer it takes in each comparison that names it."""
    beyond: dict[str, list[str]] = {}
    for finding in fleets:
        for slow in finding.fleet.slow:
            called = _called(finding, slow.device, boards.get(slow.device, (None, ""))[0])
            beyond.setdefault(called, []).append(f"{times(slow.ratio)} times at {finding.name}")
    sentences = [
        f"{called} takes longer than the median, as long as: {listing(each[:_MOST_NAMED])}"
        for called, each in list(beyond.items())[:_MOST_NAMED]
    ]
    more = len(beyond) - _MOST_NAMED
    return "; ".join([*sentences, *([f"and {more} more"] if more > 0 else [])])


def _called(finding: FleetFinding, device: str, index: int | None = None) -> str:
    if finding.of == "node":
        return f"node {device}"
    spot = finding.spots.get(device)
    name = "GPU" if index is None else f"GPU {index}"
    return f"{name} …{device[-4:]}" + (f" of node {spot.node}" if spot else "")


def _boards(devices: Iterable[Mapping[str, Any]], findings: Iterable[CellFinding]) -> Boards:
    """The index of each GPU that the runs recorded, and the causes that its cells show."""
    indices: dict[str, int | None] = {}
    for entry in devices:
        index = entry.get("index")
        indices[str(entry.get("uuid"))] = index if isinstance(index, int) and 0 <= index < 10_000 else None
    causes: dict[str, list[str]] = {}
    for finding in findings:
        causes.setdefault(finding.device_uuid, []).extend(_measured_causes(finding))
    return {uuid: (indices.get(uuid), "; ".join(dict.fromkeys(causes.get(uuid, ())))) for uuid in {**indices, **causes}}


def _measured_causes(finding: CellFinding) -> Iterator[str]:
    """The causes that may be one GPU's alone."""
    for cause in finding.causes:
        if cause.name.startswith("throttled") or cause.name in (
            "a busy GPU",
            "a lower clock",
            "a narrow PCIe link",
            "a lower power limit",
        ):
            yield cause.name
