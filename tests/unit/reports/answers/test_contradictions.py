"""The headline, the answer on the first screen, the terminal, the page's table and `runner compare` never contradict each other.

The runs are drawn: one repeat to seven, quiet and loud, unsteady, starved of CPUs, too noisy, with few windows.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from reports.answers import comparison, findings, plain, short, standing_words
from reports.answers.contrast import Contrast
from reports.answers.findings import Finding
from reports.answers.health import NOT_JUDGED
from reports.data.groups import workloads
from reports.data.model import MeasuredCell, Ranked, Repeat, StoredRun, Tables
from reports.page import markdown_report, results
from reports.page.page import Entry
from reports.wording import framework_name, number
from runner.results import steadiness
from runner.results.rank.ranking import MARGIN, within
from runner.results.statistics import Array, step_estimate
from tests.fixtures import measured, regimes
from tests.fixtures.regimes import Regime

TRIALS = 1500 if os.environ.get("DLBENCH_SIMULATIONS") == "all" else 45
RUN = StoredRun("run", {"run_id": "run", "created": "2026-11-01T08:00:00+00:00", "repeats": 1})


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
    step = step_estimate([repeat.steady_step_seconds for repeat in repeats])
    return replace(one, step=step and steadiness.widened(step, [repeat.shift for repeat in repeats if repeat.shift]))


def rows_of(tables: Tables, before: MeasuredCell, after: MeasuredCell) -> list[Contrast]:
    """What `compare` says of the second cell beside the first, at every workload."""
    return list(comparison.comparison(tables, before.image, after.image).rows)


def row_of(tables: Tables, before: MeasuredCell, after: MeasuredCell) -> Contrast:
    (row,) = [row for row in rows_of(tables, before, after) if row.cell.key == after.key]
    return row


def entries(tables: Tables) -> dict[str, Entry]:
    shown = results.slices(findings.findings(tables), tables)
    return {one.anchor: one for part in shown for row in part.rows for one in row.entries if one.kind == "ranked"}


def tabled(tables: Tables) -> list[plain.Section]:
    """The sections of the terminal that have a table. What is said of several groups once has none."""
    return [section for section in plain.sections(tables) if section.rows]


def notes_of(finding: Finding, tables: Tables) -> dict[str, tuple[str, ...]]:
    """The row of each cell in the terminal's table of a finding, by the cell's name."""
    sections = zip(findings.findings(tables), tabled(tables), strict=False)
    (section,) = [section for one, section in sections if one.group.key == finding.group.key]
    return {str(row[0]): tuple(map(str, row[1:])) for row in section.rows}


def markdown_of(finding: Finding) -> dict[str, list[str]]:
    """The row of each cell in the Markdown table of a finding, by the cell's name."""
    lines = [line for part in markdown_report.answer(finding) for line in part.splitlines() if line.startswith("| ")]
    cells = [[word.strip() for word in line.strip("| ").split(" | ")] for line in lines[2:]]
    return {words[0].partition(" \\[")[0]: words for words in cells}


def check_order(finding: Finding) -> None:
    """The rows stand in the order of their milliseconds, and each ratio is the quotient of two of these."""
    steps = [entry.cell.step.value for entry in finding.group.ranked if entry.cell.step]
    assert steps == sorted(steps)
    first = finding.group.first.cell.step
    assert first
    for entry, step in zip(finding.group.ranked, steps, strict=True):
        assert entry.ratio.value == pytest.approx(step / first.value, rel=1e-9)
        if entry.verdict == "same":
            assert within(entry.ratio, MARGIN)
        if entry.verdict == "slower":
            assert entry.ratio.low is not None
            assert entry.ratio.low > 1


def check_pair(tables: Tables, finding: Finding, entry: Ranked, seen: Counter[str]) -> None:
    """The page, its spreadsheet, the terminal, Markdown and `compare` say the same of a cell beside the first."""
    first, word = finding.group.first.cell, standing_words.note(entry)
    seen["one run" if entry.once else str(entry.verdict)] += 1
    label = entry.cell.label
    shown = entries(tables)[entry.cell.anchor]
    assert shown.standing == word
    assert shown.mark == ("" if entry.at_least else {"same": "=", "open": "≈"}.get(str(entry.verdict), ""))
    terminal = notes_of(finding, tables)[label]
    assert terminal[-1].split("; ")[0] == word
    assert markdown_of(finding)[label][3] == word
    # The cell that it is slower than may be another one than the first.
    row = row_of(tables, entry.beside or first, entry.cell)
    assert row.verdict == entry.verdict
    assert row.ratio is not None
    assert row.ratio.value == pytest.approx(entry.told.value, rel=1e-9)
    first = entry.beside or first
    record = comparison.records(comparison.comparison(tables, first.image, entry.cell.image))
    (of_cell,) = [one for one in record if one["workload"] == entry.cell.key.workload]
    assert of_cell["verdict"] == row.verdict
    assert of_cell["ratio"] == pytest.approx(of_cell["b_seconds"] / of_cell["a_seconds"], rel=1e-9)
    assert entry.open_by == "" or row.reason == entry.open_by
    turned = row_of(tables, entry.cell, first)
    assert turned.verdict == {"slower": "faster", "faster": "slower"}.get(row.verdict, row.verdict)
    if row.verdict == "open" and entry.at_least:
        looks = (
            f"looks {number(entry.ratio.value)} times" if entry.assumed else f"more than {number(entry.at_least)} times"
        )
        assert looks in row.reason


def check_answers(tables: Tables, finding: Finding) -> None:
    """The headline, the first screen and the terminal name the same leaders, and the same cells that are out."""
    of = finding.standing
    assert of
    (answer, *_) = short.answers([finding], "", (), (), NOT_JUDGED, tables.cells)
    if len(finding.group.ranked) == 1:
        assert answer.confidence in ("not compared", "not measured")
        return
    one_framework = {entry.cell.framework for entry in finding.group.ranked}
    if of.rivals:
        assert answer.confidence == "open" or not of.repeated
        return
    assert (answer.confidence == "confirmed") == (bool(of.out) or of.is_won)
    assert (" is fastest" in answer.words) == (" is fastest" in finding.headline and len(one_framework) > 1)
    if nearest := next(iter(of.out.items()), None):
        assert f"{framework_name(nearest[0])} {number(nearest[1].told.value)} ×" in answer.detail
    for entry in of.out.values():
        assert entry.cell.label in finding.detail or "more take longer" in finding.detail
    assert "Not settled" not in finding.headline + answer.words
    below = " ".join(notes_line for notes_line in under(finding, tables))
    assert of.starved or (("confirmed in this run" in below) == bool(of.slower))


def under(finding: Finding, tables: Tables) -> Sequence[str]:
    sections = zip(findings.findings(tables), tabled(tables), strict=False)
    return next(section.below for one, section in sections if one.group.key == finding.group.key)


@pytest.mark.timeout(1200)
def test_no_answer_contradicts_another() -> None:
    seen: Counter[str] = Counter()
    for seed in range(TRIALS):
        tables = drawn_run(seed)
        for finding in findings.findings(tables):
            if finding.standing:
                check_order(finding)
                check_answers(tables, finding)
                for entry in finding.group.behind:
                    check_pair(tables, finding, entry, seen)
    assert set(seen) == {"slower", "same", "open", "one run"}, "the runs are of every kind"


def test_a_cell_of_one_repeat_does_not_decide_which_of_two_others_is_faster() -> None:
    """The machine gets faster from repeat to repeat. The faster cell has only the first repeats, and so the larger median."""
    random = np.random.default_rng(3)
    drift = [1.0, 0.98, 0.96, 0.92, 0.88, 0.86, 0.84]

    def repeats(level: float, count: int) -> list[Array]:
        return [level * drift[at] * np.exp(random.normal(0, 0.002, 40)) for at in range(count)]

    series = [repeats(1.0, 1), repeats(1.08, 7), repeats(1.0, 3), repeats(1.08, 7)]
    cells = [measured.cell("run", f"f{at}", "v", of_cell, f"f{at}") for at, of_cell in enumerate(series)]
    tables = Tables((RUN,), workloads(cells), (), {}, {})
    (finding,) = findings.findings(tables)
    assert finding.standing
    assert finding.group.first.cell.framework == "f2"
    assert {entry.cell.framework for entry in finding.standing.slower} == {"f1", "f3"}
    check_order(finding)
    check_answers(tables, finding)


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
    assert finding.headline == f"Open between f0 1 and f1 1: {starved} 1 got less than half of its CPUs"
    # The first screen marks the pair, as its legend says.
    assert {name: entry.mark for name, entry in entries(tables).items()} == {"f0": "", "f1": "≈"}
    assert f"Less than half of the CPUs: {starved} 1 ({30 if shares[0] else 40}" in " ".join(finding.caveats)
    section, *_ = tabled(tables)
    assert section.above[-1] == f"{finding.headline}."
    notes = {row[0]: row[-1] for row in section.rows}
    assert "few CPUs" in notes[f"{starved} 1"]
    assert any(line.startswith("open: with all of their CPUs") for line in section.below)
    assert any(line.startswith("few CPUs: 1 of 2 ranked cells ") for line in next(plain.sections(tables)).above)
    row = row_of(tables, cells[0], cells[1])
    assert (row.verdict, row.reason) == (
        "open",
        f"{starved} 1 got less than half of the CPUs; more CPUs may change the order",
    )
