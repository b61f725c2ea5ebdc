"""A verification for people and for machines: a table on the terminal, Markdown, JUnit XML.

Names and reasons come out of cells and may hold any character. Each text is made visible first, then escaped for its format.
"""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench import rules
from reports.answers.export import escaped, in_a_comment
from reports.wording import apart, says_nothing, step_interval, too_wide, wide_ratio
from runner.errors import ExitCode
from runner.results import parity
from runner.results.cells import MOST_NAMES
from runner.results.known_issues import known_issues
from runner.results.on_disk.image_names import NO_LOCK, is_address
from runner.terminal import folded, print_table
from runner.text import number, plural, visible
from runner.verify.causes import per_cent
from runner.verify.outliers import FALSE_ALARM, NAMED, DeviceFleet, FleetFinding
from runner.verify.references.comparability import device_of
from runner.verify.verdict import FAIL, PASS, Ratio
from runner.verify.verification import CellFinding, Together, Verification, margin_text

# A map of nodes and their GPUs for a terminal of 80 columns: each GPU beside the median of all, the slowest node first. Pure.

WIDTH = 80
# The most nodes with a line.
MOST_LINES = 24
_NAME, _NODE = 20, 8


@dataclass(frozen=True)
class Rack:
    """One comparison of nodes, and of the GPUs within them."""

    nodes: FleetFinding
    gpus: FleetFinding

    @property
    def slowest(self) -> float:
        """The largest deviation of all."""
        return max((one.value for one in (*self.nodes.deviations, *self.gpus.deviations)), default=0.0)

    @property
    def named(self) -> int:
        return len(self.nodes.fleet.slow) + len(self.gpus.fleet.slow)


def racks(fleets: Sequence[FleetFinding]) -> list[Rack]:
    """The comparisons of nodes, each with that of its GPUs."""
    pairs = itertools.pairwise(fleets)
    return [Rack(nodes, gpus) for nodes, gpus in pairs if nodes.of == "node" and gpus.of == "GPU" and gpus.spots]


def rack_lines(fleets: Sequence[FleetFinding], width: int = WIDTH) -> Iterator[str]:
    """The map of each model: of the comparison that names most, and of these the one with the slowest. None without nodes."""
    models: dict[str, list[Rack]] = {}
    for rack in racks(fleets):
        models.setdefault(rack.gpus.device_model, []).append(rack)
    for each in models.values():
        yield from _map(max(each, key=lambda rack: (rack.named, rack.slowest)), width)


def _map(rack: Rack, width: int) -> Iterator[str]:
    cells = _cells(rack.gpus)
    columns = sorted({column for of_node in cells.values() for column in of_node})
    named = {slow.device for slow in rack.nodes.fleet.slow}
    weak = {rack.gpus.spots[slow.device].node for slow in rack.gpus.fleet.slow if slow.device in rack.gpus.spots}
    order = [one.device for one in rack.nodes.deviations]
    order.sort(key=lambda node: node not in named | weak)
    values = {one.device: one.value for one in rack.nodes.deviations}
    each = (width - _NAME - _NODE) // max(1, len(columns))
    yield ""
    yield visible(f"{rack.gpus.name} on {rack.gpus.device_model}")[:width]
    yield "step time beside the median of all, in %; ! slow; one column a GPU"[:width]
    if each >= 2:
        yield f"{'node':{_NAME}}{'all':>{_NODE - 1}} " + "".join(f"{column:>{each}}" for column in columns)
    for node in order[:MOST_LINES]:
        of_node = cells.get(node, {})
        mark = "!" if node in named else " "
        head = f"{_cut(visible(node), _NAME - 1):{_NAME}}{_per_cent(values[node], 6)}{mark} "
        row = "".join(_cell(of_node.get(column), each) for column in columns)
        for at in range(0, len(row), width - _NAME - _NODE):
            yield ((head if at == 0 else " " * len(head)) + row[at : at + width - _NAME - _NODE]).rstrip()
    if rest := [values[node] for node in order[MOST_LINES:]]:
        yield f"{plural(len(rest), 'more node')}, from {100 * min(rest):+.1f} to {100 * max(rest):+.1f}"
    yield ""


def _cells(finding: FleetFinding) -> dict[str, dict[int, tuple[float, bool]]]:
    """Node -> column -> (the deviation of its GPU, whether it is slow). A GPU without an index comes after the others."""
    slow = {each.device for each in finding.fleet.slow}
    cells: dict[str, dict[int, tuple[float, bool]]] = {}
    spots = finding.spots
    placed = [one for one in finding.deviations if one.device in spots]
    for one in sorted(placed, key=lambda one: (spots[one.device].index is None, spots[one.device].index or 0)):
        of_node, index = cells.setdefault(spots[one.device].node, {}), spots[one.device].index
        column = index if index is not None and index not in of_node else max(of_node, default=-1) + 1
        of_node[column] = (one.value, one.device in slow)
    return cells


def _cell(cell: tuple[float, bool] | None, width: int) -> str:
    """A GPU in so many columns; a sign where there is no room for a number."""
    if cell is None:
        return f"{'-':>{max(1, width)}}"
    value, slow = cell
    if width >= 6:
        return f"{_per_cent(value, width - 1)}{'!' if slow else ' '}"
    if width >= 4:
        return f"{max(-99, min(99, round(100 * value))):+{width - 1}d}{'!' if slow else ' '}"
    return f"{'!' if slow else '+' if value > 0.02 else '.':>{max(1, width)}}"


def _per_cent(value: float, width: int) -> str:
    text = f"{100 * value:+.1f}"
    return f"{text if len(text) <= width else '>999'[:width]:>{width}}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


# The most cells to name of those with the same sentence.
_NAMED = 3

METHOD = (
    "ratio: measured over reference, above 1 is slower; docs/verify.md says when a cell is slow, and what is assumed"
)

HEADINGS = ("cell", "measured", "reference", "ratio", "assumed", "verdict", "likely cause")


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else number(1e3 * seconds, 4)


def cells_of(finding: CellFinding) -> tuple[str, ...]:
    """The row of a finding below HEADINGS, as plain visible text, times in ms a step.

    A row has one interval: the ratio's, or the step time's where there is no ratio.
    """
    step, ratio = finding.measured, finding.ratio
    measured, reference, interval, assumed = "–", "–", "–", "–"
    if ratio:
        measured = f"{_milliseconds(ratio.measured_seconds)} ms, {plural(ratio.measured_repeats, 'repeat')}"
        word = "machine" if finding.among else "session"
        many = f"{plural(ratio.reference_repeats, 'repeat')} in {plural(ratio.reference_sessions, word)}"
        reference = f"{_milliseconds(ratio.reference_seconds)} ms, {finding.reference}: {many}"
        ends = f"{ratio.low:.3f} to {ratio.high:.3f}"
        if too_wide(ratio.low, ratio.high):
            ends = wide_ratio(ratio.low, ratio.high, "repeats lie too far apart to tell")
        interval = f"{ratio.value:.3f} (90 %: {ends})"
        assumed = _assumed(ratio)
    elif step:
        ends = f" (95 %: {_milliseconds(step.low)} to {_milliseconds(step.high)})" if step.low is not None else ""
        ends = f" ({step_interval(step)})" if says_nothing(step) else ends
        measured = f"{_milliseconds(step.value)} ms{ends}"
    if finding.beside and finding.beside.ratio and not ratio:
        of = finding.beside
        reference = f"{_milliseconds(of.seconds)} ms, {of.image} beside it"
        ends = "–" if of.low is None or of.high is None else f"{number(of.low, 3)} to {number(of.high, 3)}"
        interval = f"{number(finding.beside.ratio, 3)} (95 %: {ends})"
    if finding.reference and not ratio:
        reference = f"{_milliseconds(finding.reference_seconds)} ms, {finding.reference}"
    if finding.expectation:
        low, high = _milliseconds(finding.expectation.low), _milliseconds(finding.expectation.high)
        reference = f"none; a model says {low} to {high} ms"
    # The last four characters, as the report has them: two GPUs of a machine never share them in practice.
    device = f" on {finding.device_uuid.partition('-')[0]} …{finding.device_uuid[-4:]}" if finding.device_uuid else ""
    name = f"{finding.facts.name} [{finding.facts.image}]{device}"
    cause = "; ".join(cause.name for cause in finding.causes) or "–"
    return tuple(visible(text) for text in (name, measured, reference, interval, assumed, finding.kind, cause))


def rows_of(verification: Verification) -> list[tuple[str, ...]]:
    """A row of each cell, and one of all cells of a run together, below HEADINGS."""
    return [*map(cells_of, verification.findings), *map(_row_of_whole, verification.wholes)]


def _row_of_whole(whole: Together) -> tuple[str, ...]:
    interval = f"{whole.ratio:.3f} (90 %: {whole.low:.3f} to {whole.high:.3f})"
    return visible(whole.name), "–", "–", interval, "–", whole.verdict, "–"


def _assumed(ratio: Ratio) -> str:
    """The scatter that is assumed, since no two repeats or sessions show it."""
    known = (("repeats", ratio.between), ("sessions", ratio.between_sessions))
    parts = [f"{name} differ by {per_cent(scatter.deviation)}" for name, scatter in known if not scatter.observed]
    return ", ".join(parts) or "–"


# The causes that keep a verification from an answer, where something cut it short.
_CUT = {ExitCode.CANNOT_BEGIN: "the machine failed before it was decided", ExitCode.INTERRUPTED: "interrupted"}


def ending(verification: Verification) -> str:
    """The result of the whole: no more than its cells do."""
    kinds = [finding.kind for finding in verification.findings]
    gpus = verification.fleets
    nodes = "nodes, the " if any(finding.of == "node" for finding in gpus) else ""
    if verification.exit_code == ExitCode.FOUND:
        failed = [f"{nodes}{'GPUs and the ' if gpus else ''}cells that are slow, wrong or failed"]
        failed += [visible(f"{whole.name}: slow") for whole in verification.wholes if whole.verdict in FAIL]
        return f"FAIL: see the {'; '.join(failed)}"
    if verification.exit_code == ExitCode.OK:
        return _ending_of_pass(verification, nodes)
    counts = [f"{many} {kind}" for kind in dict.fromkeys(kinds) if kind not in PASS and (many := kinds.count(kind))]
    counts += [f"{whole.name}: {whole.verdict}" for whole in verification.wholes if not whole.passes]
    # The line above the end has the command.
    counts += [visible(line.partition(" (")[0]) for line in verification.waiting]
    passed = sum(kind in PASS for kind in kinds)
    if unknown := sum(bool(finding.fleet.why_not) for finding in gpus):
        counts.append(
            f"{unknown} of {plural(len(gpus), 'comparison')} of {'nodes and ' if nodes else ''}GPUs not judged"
        )
    begin = _CUT.get(verification.cut_by, "open")
    return f"{begin}: nothing failed, and {passed} of {plural(len(kinds), 'cell')} passed; {', '.join(counts)}"


def _ending_of_pass(verification: Verification, nodes: str) -> str:
    stood_out = "node and no GPU" if nodes else "GPU"
    kinds = [finding.kind for finding in verification.findings]
    margins = sorted({finding.margin for finding in verification.findings if finding.kind in PASS or finding.sound})
    margin = " or ".join(map(margin_text, margins))
    none = f"no {stood_out} stood out, " if verification.fleets else ""
    if all(finding.beside and finding.beside.ratio and not finding.ratio for finding in verification.findings):
        return (
            f"pass: {none}no cell takes longer than the pinned image beside it by more than its release explains, and every cell computes "
            "the specified network"
        )
    if all(kind in PASS for kind in kinds):
        return f"pass: {none}no cell is slower than its reference by more than {margin}, and every cell computes the specified network"
    if all(
        finding.kind in PASS or (finding.run_id, finding.cell_id) in verification.settled
        for finding in verification.findings
    ):
        count = plural(len(verification.settled), "cell")
        return (
            f"pass: {none}the cells together are not slower than their references by more than {margin}, and every cell computes the "
            f"specified network; {count} open alone, with a ratio inside the margin"
        )
    return (
        f"pass: no {stood_out} stood out, and every cell computes the specified network; "
        "as far as references decide, no cell is slow"
    )


def details(verification: Verification) -> Iterator[str]:
    """The facts without room in the table: a line each, visible text. Cells with the same facts share their lines."""
    alike: dict[tuple[str, ...], list[CellFinding]] = {}
    for finding in verification.findings:
        alike.setdefault((finding.kind, finding.reason, *_beside(finding)), []).append(finding)
    for (kind, reason, *beside), same in alike.items():
        yield visible(f"{kind}: {_names(same)}: {reason}", 800)
        yield from beside
        yield from _proved(same)
    for image in dict.fromkeys(finding.facts.image for finding in verification.findings):
        if is_address(image):
            yield visible(f"{image}: {NO_LOCK}", 400)
    for whole in verification.wholes:
        yield visible(f"{whole.verdict}: {whole.reason}", 800)
    yield from (visible(line, MOST_NAMES) for line in verification.waiting)
    for fleet in verification.fleets:
        yield from _details_of_fleet(fleet)
    yield from _heat(verification)
    if step := next_step(verification):
        yield visible(step, 2000)
    if any(finding.ratio for finding in verification.findings):
        yield METHOD


def next_step(verification: Verification) -> str:
    """The way from `no-reference` to a verdict, with the machine that it takes; empty where every cell has a reference."""
    lacking = [finding for finding in verification.findings if finding.kind == "no-reference"]
    if not lacking:
        return ""
    # Only this needs it.
    from runner.verify.references.contributed.derived_rows import names_a_processor

    machines: dict[str, list[CellFinding]] = {}
    for finding in lacking:
        machines.setdefault(f"{device_of(finding.facts)}, preset {finding.facts.preset}", []).append(finding)
    wanted = "; and one of ".join(f"{machine}: {_names(cells)}" for machine, cells in machines.items())
    runs = list(dict.fromkeys(verification.names.get(finding.run_id, finding.run_id) for finding in lacking))
    shared = any(finding.device_uuid or names_a_processor(finding.facts.device_model) for finding in lacking)
    gpus = any(finding.device_uuid for finding in lacking)
    return (
        f"A verdict needs a reference of {wanted}. Measure such a machine that you trust, or this one while it is well, on several "
        "days, and keep the runs with `runner reference save RUN RUN ... --name NAME`; or take somebody's with `runner reference import "
        f"FILE`, or an index of many with `--references ADDRESS`. `runner verify --run {' '.join(runs)}` then judges what is "
        f"measured here. Without one {'`--each-gpu` compares four GPUs of a model or more, and ' if gpus else ''}`--level 2` holds "
        "parity, ceilings and bits. "
        + (
            f"`runner share {runs[0]} -o FILE.tar.gz` makes this machine a reference of others. "
            if shared
            else "This virtual machine hides which processor it has, so it can be no reference of others. "
        )
        + "docs/verify.md and docs/references.md say more."
    )


def _names(findings: Sequence[CellFinding]) -> str:
    """The cells; of many the first few, and how many more there are."""
    more = f" and {len(findings) - _NAMED} more" if len(findings) > _NAMED else ""
    return ", ".join(finding.facts.name for finding in findings[:_NAMED]) + more


def _proved(findings: Sequence[CellFinding]) -> Iterator[str]:
    """The checks of the measured adapters: first those that all of these cells passed, then those of some only."""
    checked = [finding for finding in findings if finding.parity_passed and finding.proved]
    if not checked:
        return
    everywhere = set.intersection(*(set(finding.proved) for finding in checked))
    if len(checked) < len(findings):
        everywhere = set()
    shared = [quantity for quantity in checked[0].proved if quantity in everywhere]
    if shared:
        yield visible(f"  the adapter that was measured passed: {_quantities(shared)}", 800)
    alike: dict[tuple[str, ...], list[CellFinding]] = {}
    for finding in checked:
        further = tuple(quantity for quantity in finding.proved if quantity not in everywhere)
        alike.setdefault(further, []).append(finding)
    for quantities, same in alike.items():
        if quantities:
            yield visible(f"  that of {_names(same)} {'also ' if shared else ''}passed: {_quantities(quantities)}", 800)


def _quantities(quantities: Iterable[str]) -> str:
    return ", ".join(map(parity.name_of, quantities))


def _beside(finding: CellFinding) -> Iterator[str]:
    """The facts of a cell beside its verdict and the checks of its adapter, as visible text."""
    if finding.parity_passed:
        yield "  parity passed: it computes what the float64 reference computes"
    if finding.among:
        yield visible(f"  {finding.among}")
    if finding.nearest:
        yield visible(f"  nearest device with a reference, not compared with: {finding.nearest}")
    if finding.expectation and finding.measured:
        place = finding.expectation.place_of(finding.measured.value)
        yield visible(f"  expectation: {place}; {finding.expectation.model}", 900)
    if finding.kernel_share is not None and finding.kernel_share < rules.HOST_BOUND:
        share = per_cent(finding.kernel_share)
        yield f"  host-bound: kernels ran in {share} of a step's time; the CPU, Python and the feed decide the rest"
    facts = finding.facts
    versions = {"cuda": facts.cuda_version, "cudnn": facts.cudnn_version}
    for issue in known_issues(facts.framework, facts.mode, facts.precision, versions, facts.compute_capability):
        yield f"  known issue: {issue}"
    if finding.kind == "slow" and finding.beside and finding.beside.ratio and not finding.causes:
        yield (
            f"  no recorded fact explains it: install {finding.facts.framework} {finding.beside.release} into its own environment, and "
            "verify that: if it is as fast as the pinned image, the installation is at fault"
        )
    for cause in finding.causes:
        yield visible(f"  {cause.name}: {cause.evidence}")
        yield visible(f"    fix: {cause.fix}")


def _details_of_fleet(finding: FleetFinding) -> Iterator[str]:
    fleet = finding.fleet
    nodes = len({spot.node for spot in finding.spots.values()})
    where = (
        f"{fleet.devices} nodes of {finding.device_model}"
        if finding.of == "node"
        else f"{fleet.devices} × {finding.device_model}"
    )
    head = f"{finding.name} on {where}{f' within {nodes} nodes' if nodes else ''}: "
    middle = finding.middle or f"{_milliseconds(fleet.step_seconds)} ms a step"
    ends = f"the fastest {apart(fleet.fastest)} and the slowest {apart(fleet.slowest)} as their median of {middle}"
    if fleet.why_not:
        yield visible(f"{head}{fleet.why_not}{'' if fleet.limit is None else f'; {ends}'}", 900)
    elif fleet.named_from is not None:
        least = f"one that {apart(1 + fleet.named_from)} would have been named in {100 * NAMED:g} of 100 such fleets"
        known = (
            f"; healthy ones differ by {per_cent(fleet.assumed, 2)}: {_spread_from(fleet)}" if fleet.machines else ""
        )
        yield visible(f"{head}no {finding.of} stands out; {ends}; {least}{known}", 900)
    for word, group in zip(("faster", "slower"), fleet.groups, strict=False):
        yield visible(f"  the {word} group: {', '.join(map(finding.device_name, group))}", 4000)
    beside = "the median of its node" if finding.spots else "the fleet's median"
    for slow in fleet.slow:
        yield visible(
            f"{head}{finding.device_name(slow.device)} {apart(slow.ratio)} as {beside}, {slow.score:.1f} "
            f"times their spread; a {'node' if finding.of == 'node' else 'device'} beyond {fleet.limit:.1f} is called slow. If healthy "
            f"{finding.of}s differ by {per_cent(fleet.assumed, 2)}, normally, that happens in {per_cent(FALSE_ALARM)} of verifications of "
            f"healthy fleets; {_spread_from(fleet)}"
        )
    for line in finding.beside:
        yield visible(f"  {line}")


def _spread_from(fleet: DeviceFleet) -> str:
    """The source of the spread of healthy devices."""
    if fleet.machines:
        return f"so do {fleet.machines} machines of the index of references"
    return "how much they do differ was not measured"


def _heat(verification: Verification) -> Iterator[str]:
    """A line on what cells of some seconds do not show of the GPUs that were compared."""
    compared = {cell for fleet in verification.fleets for cell in fleet.cells}
    cells = [finding for finding in verification.findings if (finding.run_id, finding.cell_id) in compared]
    seconds = [finding.repeat_length for finding in cells if finding.repeat_length is not None]
    if not seconds:
        return
    heats = [finding.celsius for finding in cells if finding.celsius is not None]
    reached = f"at {max(heats):.0f} °C at most" if heats else "and no temperature was recorded"
    longer = "; `--preset standard` measures longer" if any(one.facts.preset == "quick" for one in cells) else ""
    yield (
        f"each repeat of a cell on a GPU measured {max(seconds):.0f} s at most, {reached}: that says nothing of a GPU that is slow only "
        f"when it is hotter{longer}"
    )


def terminal(verification: Verification) -> None:
    """Print the table and what stands below it."""
    print(folded(ending(verification)))
    rows = rows_of(verification)
    # A column in which no row says anything is no column.
    kept = [at for at in range(len(HEADINGS)) if at == 0 or any(row[at] != "–" for row in rows)]
    print_table([HEADINGS[at] for at in kept], [[row[at] for at in kept] for row in rows])
    for line in rack_lines(verification.fleets):
        print(line)
    for line in details(verification):
        print(folded(line))


def markdown(verification: Verification) -> str:
    """A section for a summary page or an issue."""
    rows = [HEADINGS, ("---",) * len(HEADINGS), *(map(escaped, row) for row in rows_of(verification))]
    table = [f"| {' | '.join(row)} |" for row in rows]
    notes = [f"{'  ' if line[0] == ' ' else ''}- {escaped(line, 1000)}" for line in details(verification)]
    # A line of it must not end the block.
    drawn = [line.replace("`", "'") for line in rack_lines(verification.fleets)]
    block = ["```text", *drawn, "```", ""] if drawn else []
    return in_a_comment("\n".join([f"### Verification: {ending(verification)}", "", *table, "", *block, *notes, ""]))


def junit(verification: Verification) -> bytes:
    """JUnit XML: a test case a cell and a fleet. One that could not be judged is skipped, with the reason."""
    suite = ET.Element("testsuite", name="runner verify")
    for finding in verification.findings:
        name = cells_of(finding)[0]
        case = ET.SubElement(suite, "testcase", classname=visible(finding.facts.workload), name=name)
        if finding.kind in FAIL:
            failure = ET.SubElement(case, "failure", type=finding.kind, message=visible(finding.reason))
            advice = (f"{cause.name}: {cause.evidence}. Fix: {cause.fix}" for cause in finding.causes)
            failure.text = visible("\n".join([finding.reason, *advice]), 6000)
        elif finding.kind not in PASS:
            skipped = ET.SubElement(case, "skipped", message=visible(f"{finding.kind}: {finding.reason}"))
            skipped.text = visible(next_step(verification), 2000) if finding.kind == "no-reference" else None
    for whole in verification.wholes:
        case = ET.SubElement(suite, "testcase", classname="together", name=visible(f"{whole.name}, {whole.run_id}"))
        if whole.verdict in FAIL:
            ET.SubElement(case, "failure", type=whole.verdict, message=visible(whole.reason))
        elif not whole.passes:
            ET.SubElement(case, "skipped", message=visible(f"{whole.verdict}: {whole.reason}"))
    for group in verification.fleets:
        name = visible(f"{group.name} on {group.device_model}{', its nodes' if group.of == 'node' else ''}")
        case = ET.SubElement(suite, "testcase", classname="fleet", name=name)
        if group.fleet.slow:
            names = ", ".join(f"{group.device_name(slow.device)} ({apart(slow.ratio)})" for slow in group.fleet.slow)
            ET.SubElement(case, "failure", type="slow", message=visible(names))
        elif group.fleet.why_not:
            ET.SubElement(case, "skipped", message=visible(group.fleet.why_not))
    for line in verification.waiting:
        case = ET.SubElement(suite, "testcase", classname="run", name="every planned cell is measured")
        ET.SubElement(case, "skipped", message=visible(line, MOST_NAMES))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))
