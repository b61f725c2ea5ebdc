"""A verification for people and for machines: a table on the terminal, Markdown, JUnit XML.

Names and reasons come out of cells and may hold any character. Each text is made visible first, then escaped for its format.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from runner.text import visible
from runner.verify.causes import per_cent
from runner.verify.outliers import FALSE_ALARM
from runner.verify.verdict import FAIL, PASS, CellVerdict
from runner.verify.verify import CellFinding, FleetFinding, Verification

_STYLES: dict[CellVerdict, str] = {**dict.fromkeys(PASS, "green"), **dict.fromkeys(FAIL, "red")}

_ENDS = {
    0: "pass: no cell is slow, and every cell computes the specified network",
    1: "FAIL: see the cells that are slow, wrong or failed",
    2: "undecided: nothing failed, but not every cell has a reference that decides",
}

METHOD = (
    "Ratios are to the reference, with their 90 % interval: verify asks whether a cell is as fast as its reference within the margin, "
    "by two one-sided tests at 5 %. `runner compare` asks whether two cells differ, so it prints the 95 % interval."
)

HEADINGS = ("cell", "measured", "reference", "ratio", "verdict", "likely cause")


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:.4g}"


def cells_of(finding: CellFinding) -> tuple[str, ...]:
    """The row of a finding below HEADINGS, as plain visible text, times in ms a step.

    A row has one interval: the ratio's, or the step time's where there is no ratio.
    """
    step, ratio = finding.measured, finding.ratio
    measured = f"{_milliseconds(step.value)} ms" if step else "–"
    if step and step.low is not None and not ratio:
        measured += f" (95 %: {_milliseconds(step.low)} to {_milliseconds(step.high)})"
    reference = f"{_milliseconds(finding.reference_seconds)} ms, {finding.reference}" if finding.reference else "–"
    if finding.expectation:
        low, high = _milliseconds(finding.expectation.low), _milliseconds(finding.expectation.high)
        reference = f"none; a model says {low} to {high} ms"
    interval = f"{ratio.value:.3f} (90 %: {ratio.low:.3f} to {ratio.high:.3f})" if ratio else "–"
    device = f" on {finding.device_uuid[:12]}" if finding.device_uuid else ""
    name = f"{finding.facts.name} [{finding.facts.image}]{device}"
    cause = "; ".join(cause.name for cause in finding.causes) or "–"
    return tuple(visible(text) for text in (name, measured, reference, interval, finding.kind, cause))


def details(verification: Verification) -> Iterator[str]:
    """What the table has no room for: a line each, visible text."""
    for finding in verification.findings:
        yield visible(f"{finding.kind}: {finding.facts.name}: {finding.reason}", 800)
        if finding.parity_passed:
            yield "  parity: passed, against the float64 reference"
        if finding.nearest:
            yield visible(f"  nearest device with a reference, not compared with: {finding.nearest}")
        if finding.expectation and finding.measured:
            place = finding.expectation.place_of(finding.measured.value)
            yield visible(f"  expectation: {place}; {finding.expectation.model}", 900)
        for cause in finding.causes:
            yield visible(f"  {cause.name}: {cause.evidence}")
            yield visible(f"    fix: {cause.fix}")
    for fleet in verification.fleets:
        yield from _details_of_fleet(fleet)
    if any(finding.ratio for finding in verification.findings):
        yield METHOD


def _details_of_fleet(finding: FleetFinding) -> Iterator[str]:
    fleet = finding.fleet
    head = f"{finding.name} on {fleet.devices} × {finding.device_model}: "
    if fleet.why_not:
        yield visible(head + fleet.why_not)
    elif not fleet.slow:
        middle = f"{_milliseconds(fleet.step_seconds)} ms a step"
        yield visible(f"{head}none stands out; their standard deviation is {per_cent(fleet.spread, 3)} of {middle}")
    for slow in fleet.slow:
        yield visible(
            f"{head}{slow.device} takes {per_cent(slow.ratio - 1, 3)} longer than the fleet's median, {slow.score:.1f} times their "
            f"spread; a device beyond {fleet.limit:.1f} is called slow, which happens in {per_cent(FALSE_ALARM)} of healthy fleets"
        )


def terminal(verification: Verification, console: Console) -> None:
    """The table and what stands below it."""
    table = Table(*HEADINGS)
    for finding in verification.findings:
        *texts, kind, cause = map(escape, cells_of(finding))
        style = _STYLES.get(finding.kind, "yellow")
        table.add_row(*texts, f"[{style}]{kind}[/{style}]", cause)
    console.print(table)
    for line in details(verification):
        console.print(escape(line), highlight=False, soft_wrap=True)
    console.print(_ENDS[verification.exit_code], highlight=False)


def markdown(verification: Verification) -> str:
    """A section for a summary page or an issue."""
    rows = [HEADINGS, ("---",) * len(HEADINGS), *(map(_escaped, cells_of(row)) for row in verification.findings)]
    table = [f"| {' | '.join(row)} |" for row in rows]
    notes = [f"{'  ' if line[0] == ' ' else ''}- {_escaped(line.strip())}" for line in details(verification)]
    return "\n".join([f"### Verification: {_ENDS[verification.exit_code]}", "", *table, "", *notes, ""])


def _escaped(text: str) -> str:
    """Plain text in a Markdown table or list: a character that would be markup stands behind a backslash."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_\[\]|#~!@])", r"\\\1", text)


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
            ET.SubElement(case, "skipped", message=visible(f"{finding.kind}: {finding.reason}"))
    for group in verification.fleets:
        name = visible(f"{group.name} on {group.device_model}")
        case = ET.SubElement(suite, "testcase", classname="fleet", name=name)
        if group.fleet.slow:
            names = ", ".join(f"{slow.device} ({per_cent(slow.ratio - 1, 3)} slower)" for slow in group.fleet.slow)
            ET.SubElement(case, "failure", type="slow", message=visible(names))
        elif group.fleet.why_not:
            ET.SubElement(case, "skipped", message=visible(group.fleet.why_not))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))
