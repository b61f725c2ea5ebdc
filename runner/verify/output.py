"""A verification for people and for machines: a table on the terminal, Markdown, JUnit XML.

Names and reasons come out of cells and may hold anything: every text is made visible first, then escaped for its format.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reports.text import visible
from runner.verify.causes import per_cent
from runner.verify.outliers import FALSE_ALARM
from runner.verify.verdict import FAIL, PASS, Kind
from runner.verify.verify import Finding, Verification

_STYLES: dict[Kind, str] = {**dict.fromkeys(PASS, "green"), **dict.fromkeys(FAIL, "red")}

_ENDS = {
    0: "pass: every cell is as fast as its reference, and computes the same network",
    1: "FAIL: see what is slow, wrong or failed",
    2: "could not tell: nothing failed, and not every cell has a reference that decides",
}

HEADINGS = ("cell", "measured", "reference", "ratio", "verdict", "likely cause")


def milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:.4g}"


def cells_of(finding: Finding) -> tuple[str, ...]:
    """The row of a finding below HEADINGS, as plain visible text: times in ms a step, with 95 and 90 % intervals."""
    step, found = finding.measured, finding.ratio
    measured = f"{milliseconds(step.value)} ms" if step else "–"
    if step and step.low is not None:
        measured += f" ({milliseconds(step.low)} to {milliseconds(step.high)})"
    reference = f"{milliseconds(finding.reference_seconds)} ms, {finding.reference}" if finding.reference else "–"
    if finding.expectation:
        low, high = milliseconds(finding.expectation.low), milliseconds(finding.expectation.high)
        reference = f"none; a model says {low} to {high} ms"
    between = f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})" if found else "–"
    device = f" on {finding.device_uuid[:12]}" if finding.device_uuid else ""
    name = f"{finding.facts.name} [{finding.facts.image}]{device}"
    cause = "; ".join(cause.name for cause in finding.causes) or "–"
    texts = (name, measured, reference, between, finding.kind, cause)
    return tuple(visible(text) for text in texts)


def details(found: Verification) -> Iterator[str]:
    """What the table has no room for: a line each, visible text."""
    for finding in found.findings:
        yield visible(f"{finding.kind}: {finding.facts.name}: {finding.reason}", 800)
        if finding.parity_passed:
            yield "  parity: passed, against the float64 reference"
        if finding.nearest:
            yield visible(f"  nearest device with a reference, not compared with: {finding.nearest}")
        if finding.expectation and finding.measured:
            where = finding.expectation.says(finding.measured.value)
            yield visible(f"  expectation: {where}; {finding.expectation.model}", 900)
        for cause in finding.causes:
            yield visible(f"  {cause.name}: {cause.evidence}")
            yield visible(f"    mend: {cause.fix}")
    for one in found.fleets:
        head = f"{one.name} on {one.fleet.devices} × {one.device_model}: "
        if one.fleet.why_not:
            yield visible(head + one.fleet.why_not)
        elif not one.fleet.slow:
            yield visible(
                head
                + f"alike, within {per_cent(one.fleet.spread, 3)} of {milliseconds(one.fleet.step_seconds)} ms a step"
            )
        for slow in one.fleet.slow:
            yield visible(
                head
                + f"{slow.device} takes {per_cent(slow.ratio - 1, 3)} longer than its like, {slow.score:.1f} times their spread "
                f"(beyond {one.fleet.limit:.1f} it is called slow: that any is, happens in {per_cent(FALSE_ALARM)} of healthy fleets)"
            )


def terminal(found: Verification, console: Console) -> None:
    """The table and what stands below it."""
    table = Table(*HEADINGS)
    for finding in found.findings:
        *texts, kind, cause = map(escape, cells_of(finding))
        style = _STYLES.get(finding.kind, "yellow")
        table.add_row(*texts, f"[{style}]{kind}[/{style}]", cause)
    console.print(table)
    for line in details(found):
        console.print(escape(line), highlight=False, soft_wrap=True)
    console.print(_ENDS[found.exit_code], highlight=False)


def markdown(found: Verification) -> str:
    """A section for a summary page or an issue."""
    lines = [f"### Verification: {_ENDS[found.exit_code]}", "", "| " + " | ".join(HEADINGS) + " |", "| --- " * 6 + "|"]
    lines += ["| " + " | ".join(map(_escaped, cells_of(finding))) + " |" for finding in found.findings]
    return "\n".join(
        [*lines, "", *(f"{'  ' if line[0] == ' ' else ''}- {_escaped(line.strip())}" for line in details(found)), ""]
    )


def _escaped(text: str) -> str:
    """Plain text in a Markdown table or list: what would be markup there stands behind a backslash."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_\[\]|#~!@])", r"\\\1", text)


def junit(found: Verification) -> bytes:
    """JUnit XML: a test case a cell and a fleet. What fails is a failure; what could not be told is skipped, with the reason."""
    suite = ET.Element("testsuite", name="runner verify")
    for finding in found.findings:
        name = cells_of(finding)[0]
        case = ET.SubElement(suite, "testcase", classname=visible(finding.facts.workload), name=name)
        text = "\n".join([finding.reason, *(f"{c.name}: {c.evidence}. Mend: {c.fix}" for c in finding.causes)])
        if finding.kind in FAIL:
            ET.SubElement(case, "failure", type=finding.kind, message=visible(finding.reason)).text = visible(
                text, 6000
            )
        elif finding.kind not in PASS:
            ET.SubElement(case, "skipped", message=visible(f"{finding.kind}: {finding.reason}"))
    for one in found.fleets:
        case = ET.SubElement(suite, "testcase", classname="fleet", name=visible(f"{one.name} on {one.device_model}"))
        if one.fleet.slow:
            names = ", ".join(f"{slow.device} ({per_cent(slow.ratio - 1, 3)} slower)" for slow in one.fleet.slow)
            ET.SubElement(case, "failure", type="slow", message=visible(names))
        elif one.fleet.why_not:
            ET.SubElement(case, "skipped", message=visible(one.fleet.why_not))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))
