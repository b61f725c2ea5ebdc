"""The headline, the answer on the first screen, the terminal, the page's table and `runner compare` never contradict each other.

The runs are drawn: one repeat to seven, quiet and loud, unsteady, starved of CPUs, too noisy, with few windows.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from reports.answers import compare, findings, plain, short
from reports.answers.contrast import Contrast
from reports.answers.findings import Finding
from reports.answers.health import NOT_JUDGED
from reports.data.groups import workloads
from reports.data.model import MOST_TIED, Group, MeasuredCell, Ranked, Repeat, Run, Tables, unsettled
from reports.page import results
from reports.page.page import Entry
from runner.results import steadiness
from runner.results.statistics import Array
from tests.fixtures import measured, regimes
from tests.fixtures.regimes import Regime

TRIALS = 1500 if os.environ.get("DLBENCH_SIMULATIONS") == "all" else 45
RUN = Run("run", {"run_id": "run", "created": "2026-11-01T08:00:00+00:00", "repeats": 1})


def drawn_run(seed: int) -> Tables:
    """One run of two to five cells of each of one or two workloads."""
    random = np.random.default_rng(seed)
    cells, repeats = int(random.integers(2, 6)), int(random.integers(1, 8))
    regime = Regime(
        process=float(random.choice([0.002, 0.01, 0.04])),
        windows=float(random.choice([0.005, 0.05])),
        warming=float(random.choice([0.0, 0.1])),
        count=int(random.choice([4, 16, 40])),
    )
    levels = np.exp(random.normal(0, random.choice([0.0, 0.02, 0.3]), cells)).tolist()
    kind = random.choice(["plain", "unsteady", "starved", "noisy"])
    found: list[MeasuredCell] = []
    for workload in ("v", "w")[: int(random.integers(1, 3))]:
        series, began = regimes.timed_run(random, regime, levels, repeats)
        for at in range(cells):
            # A run that was interrupted has fewer repeats of some cells.
            kept = repeats if random.random() < 0.8 else int(random.integers(1, repeats + 1))
            name = f"f{at}"
            cell = measured.cell("run", name, workload, series[at][:kept], f"{name}-{workload}", began=began[at][:kept])
            found.append(changed(cell, str(kind), random) if random.random() < 0.4 else cell)
    return Tables((RUN,), workloads(found), (), {}, {})


def changed(cell: MeasuredCell, kind: str, random: np.random.Generator) -> MeasuredCell:
    if kind == "starved":
        return replace(cell, cpu_share=float(random.uniform(0.1, 0.49)))
    if kind == "noisy":
        repeats = tuple(replace(one, row={**one.row, "noise": 0.4}) for one in cell.repeats)
        return replace(cell, repeats=repeats)
    if kind == "unsteady":
        return shifted(cell, float(random.uniform(1.03, 1.4)))
    return cell


def shifted(cell: MeasuredCell, ratio: float) -> MeasuredCell:
    """The cell whose first repeat took so many times as long from its middle on, as the store's rows would become it."""

    def moved(repeat: Repeat) -> Repeat:
        seconds = repeat.windows.seconds.copy()
        seconds[len(seconds) // 2 :] *= ratio
        windows = replace(repeat.windows, seconds=seconds)
        return replace(repeat, windows=windows, shift=steadiness.level_shift(seconds))

    repeats = (moved(cell.repeats[0]), *cell.repeats[1:])
    one = replace(cell, repeats=repeats)
    return replace(one, step=compare.Side((one,)).step)


def row_of(tables: Tables, group: Group, entry: Ranked) -> Contrast:
    """What `compare` says of a cell beside the fastest one."""
    rows = compare.comparison(tables, group.ranked[0].cell.image, entry.cell.image).rows
    (row,) = [row for row in rows if row.cell.key == group.key]
    return row


def kind_of(finding: Finding) -> str:
    words = finding.headline
    kinds = {" is fastest": "fastest", " are tied": "tied", "Not settled": "open", " looks fastest (": "looks fastest"}
    found = [kind for part, kind in kinds.items() if part in words]
    return found[0] if found else "alone"


def entries(tables: Tables) -> dict[str, Entry]:
    shown = results.slices(findings.findings(tables), tables)
    return {one.anchor: one for part in shown for row in part.rows for one in row.entries if one.kind == "ranked"}


def check_compare(tables: Tables, finding: Finding, kind: str, seen: Counter[tuple[str, str]]) -> None:
    group = finding.group
    open_ = {cell.anchor for cell in group.unsettled}
    for entry in group.ranked[1:]:
        row = row_of(tables, group, entry)
        seen[kind, row.verdict] += 1
        if row.real:
            # The other side is faster in no answer.
            assert row.longer
            assert kind != "looks fastest" or min(len(row.before.repeats), len(row.after.repeats)) > 1
        if group.ranked[0].cell.anchor in open_ or entry.cell.anchor in open_:
            assert row.verdict == "open"
            assert "got less than half of the CPUs" in row.reason
        if kind == "tied" and not entry.apart:
            assert entry.ratio.high is not None
            assert entry.ratio.high <= MOST_TIED, "a tie leaves little open"


def check_answers(tables: Tables, finding: Finding, kind: str) -> None:
    (answer, *_) = short.answers([finding], "", (), (), NOT_JUDGED, tables.cells)
    confidences = {"fastest": {"confirmed"}, "tied": {"tied"}, "open": {"not judged", "one run", "few repeats"}}
    confidences |= {"looks fastest": {"one run", "few repeats"}, "alone": {"not compared", "not measured"}}
    assert answer.confidence in confidences[kind]
    assert (" is fastest" in answer.words) == (kind == "fastest")
    assert (" looks fastest" in answer.words) == (kind == "looks fastest")
    assert ("tied" in answer.words) == (kind == "tied")
    sections = zip(findings.findings(tables), plain.sections(tables), strict=False)
    under = [line for one, section in sections for line in section.below if one.group.key == finding.group.key]
    sure = [line.partition(":")[0] for line in under if line.startswith(("confirmed:", "tied:", "not confirmed:"))]
    alone = {"fastest": ["confirmed"], "tied": ["tied"], "alone": []}
    assert sure == alone.get(kind, ["not confirmed"])
    shown = entries(tables)
    for entry in finding.group.ranked[1:]:
        once = 1 in (len(entry.cell.measured), len(finding.group.ranked[0].cell.measured))
        # The legend: "tied with it or not settled". More CPUs may change the order of a pair that got few.
        is_open = bool(unsettled(finding.group.ranked[0].cell, entry.cell, entry.ratio.value))
        assert shown[entry.cell.anchor].tied == (is_open or (not once and not entry.apart))


@pytest.mark.timeout(1200)
def test_no_answer_contradicts_another() -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(TRIALS):
        tables = drawn_run(seed)
        for finding in findings.findings(tables):
            kind = kind_of(finding)
            check_answers(tables, finding, kind)
            check_compare(tables, finding, kind, seen)
    kinds = {kind for kind, _ in seen}
    assert kinds == {"fastest", "tied", "open", "looks fastest"}, "the runs are of every kind"
    assert {("fastest", "slower"), ("tied", "open"), ("open", "open")} <= set(seen)


def test_a_cell_of_one_repeat_does_not_decide_which_of_two_others_is_faster() -> None:
    """The machine gets faster from repeat to repeat. The faster cell has only the first repeats, and so the larger median."""
    random = np.random.default_rng(3)
    drift = [1.0, 0.98, 0.96, 0.92, 0.88, 0.86, 0.84]

    def repeats(level: float, count: int) -> list[Array]:
        return [level * drift[at] * np.exp(random.normal(0, 0.002, 40)) for at in range(count)]

    series = [repeats(1.0, 1), repeats(1.03, 7), repeats(1.0, 3), repeats(1.03, 7)]
    cells = [measured.cell("run", f"f{at}", "v", of_cell, f"f{at}") for at, of_cell in enumerate(series)]
    tables = Tables((RUN,), workloads(cells), (), {}, {})
    (finding,) = findings.findings(tables)
    assert cells[1].step
    assert cells[2].step
    assert cells[1].step.value < cells[2].step.value
    verdicts: Counter[tuple[str, str]] = Counter()
    check_answers(tables, finding, kind_of(finding))
    check_compare(tables, finding, kind_of(finding), verdicts)
    assert {verdict for _, verdict in verdicts} >= {"slower"}


@pytest.mark.parametrize("shares", [(0.3, None), (None, 0.4)])
def test_more_cpus_may_change_the_order_says_every_answer(shares: tuple[float | None, float | None]) -> None:
    random = np.random.default_rng(7)
    series = regimes.run(random, Regime(process=0.002, windows=0.005, count=20), [1.0, 2.0], 3)
    cells = [
        replace(measured.cell("run", f"f{at}", "w", series[at], f"f{at}"), cpu_share=share)
        for at, share in enumerate(shares)
    ]
    tables = Tables((RUN,), workloads(cells), (), {}, {})
    (finding,) = findings.findings(tables)
    starved = "f0" if shares[0] else "f1"
    assert finding.headline == f"Not settled: {starved} 1 got less than half of its CPUs"
    # The first screen marks the pair, as its legend says.
    assert {name: entry.tied for name, entry in entries(tables).items()} == {"f0": False, "f1": True}
    assert f"Less than half of the CPUs: {starved} 1 ({30 if shares[0] else 40}" in " ".join(finding.caveats)
    section, *_ = plain.sections(tables)
    assert section.above[-1] == f"{finding.headline}."
    notes = {row[0]: row[-1] for row in section.rows}
    assert "few CPUs" in notes[f"{starved} 1"]
    assert any(line.startswith("not confirmed: ") for line in section.below)
    assert any(line.startswith("few CPUs: ") for line in section.below)
    row = row_of(tables, finding.group, finding.group.ranked[1])
    assert (row.verdict, row.reason) == (
        "open",
        f"{starved} 1 got less than half of the CPUs; more CPUs may change the order",
    )
