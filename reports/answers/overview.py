"""All that is said of some runs before any table: computed once, and printed by the page and by Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from reports.answers import across, findings, run_history
from reports.answers.findings import Finding
from reports.answers.left import Left, lacks, left
from reports.data.model import MeasuredCell, StoredRun, Tables
from reports.data.telemetry_signals import FEW, cpus_busy, given
from reports.wording import apart, device_name, framework_name, listing, number, plural
from runner.results.on_disk.other_work import OtherWork
from runner.results.statistics import Array
from runner.results.student import student_tail
from runner.text import in_a_line

# The conditions of the machines that measured: nodes that were given up, a drift that all cells of a run share, and signs of other work.
#
# A low share of the CPUs alone shows nothing of other work: a small network leaves most of them idle. Less than one CPU does, and so does
# another framework that got more at the same work (reports/data/telemetry_signals.py). Runs of older releases do not record what others
# took (runner/results/on_disk/other_work.py).

# Of a node's name and of a reason, both from run.json.
_MOST = 300
# The share of runs without a drift that are said to have one.
ALPHA = 0.01
# A smaller drift is real on a quiet machine, but below what cells are compared by.
SMALLEST = 0.02
MOST_NAMED = 6  # of the cells that a sentence names


def drained_nodes(runs: Iterable[StoredRun]) -> tuple[str, ...]:
    """A sentence for each node that these runs gave up for good. The node's results count, and somebody must look at it."""
    return tuple(
        f"Node {in_a_line(entry['node'], _MOST)} was drained: {in_a_line(entry.get('lost') or 'no reason is stored', _MOST)}. "
        "Look at it before you use it again."
        for run in runs
        for entry in run.manifest.get("nodes") or ()
        if entry.get("drained")
    )


# -- A drift of all cells ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drift:
    """The common drift of the cells of one run on one device, from the first repeat to the last."""

    run_id: str
    cells: int
    alike: int  # of them, those that moved in the direction of the mean
    repeats: tuple[int, int]  # the numbers of the first and the last
    ratio: float  # of the mean step times, the last to the first

    def __str__(self) -> str:
        change = "shorter" if self.ratio < 1 else "longer"
        who = f"all {self.cells} cells" if self.alike == self.cells else f"{self.alike} of {plural(self.cells, 'cell')}"
        first, last = self.repeats
        return (
            f"Drift in run {self.run_id}: from repeat {first} to repeat {last} a step {apart(self.ratio)} "
            f"in the mean of its cells, and is {change} in {who}. So the machine changed, not what one cell does."
        )


def drifts(cells: Iterable[MeasuredCell]) -> tuple[Drift, ...]:
    """The drift of each run and device model, where it is beyond noise. Cells that lack a repeat of the others are left out."""
    families: dict[tuple[str, str], dict[str, MeasuredCell]] = {}
    for cell in cells:
        if not cell.unranked and len(cell.measured) > 1:
            families.setdefault((cell.run_id, cell.key.device_model), {})[cell.anchor] = cell
    found = []
    for (run_id, _), family in families.items():
        blocks = max((tuple(repeat.number for repeat in cell.measured) for cell in family.values()), key=len)
        whole = [cell for cell in family.values() if tuple(repeat.number for repeat in cell.measured) == blocks]
        logs = np.array([cell.log_levels for cell in whole])
        change = common_change(logs)
        if change is not None and abs(change) >= math.log(1 + SMALLEST):
            alike = int(np.sum((logs[:, -1] - logs[:, 0]) * change > 0))
            found.append(Drift(run_id, len(whole), alike, (blocks[0], blocks[-1]), math.exp(change)))
    return tuple(found)


def common_change(logs: Array) -> float | None:
    """The mean change of (cells, repeats) log times from the first repeat to the last; None where it may be noise.

    The test is of a straight line over the repeats that all cells share, as the analysis of variance has it: beside the noise
    that is left after each cell's and each repeat's mean, with (cells - 1) (repeats - 1) degrees of freedom. It takes two cells.
    """
    cells, repeats = logs.shape
    freedom = (cells - 1) * (repeats - 1)
    if not freedom:
        return None
    means = logs.mean(axis=0)
    left = logs - logs.mean(axis=1, keepdims=True) - means + logs.mean()
    line = np.arange(repeats) - (repeats - 1) / 2
    error = math.sqrt(float(np.sum(left**2)) / freedom * float(line @ line) / cells)
    height = abs(float(line @ means))
    if height == 0 or (error and student_tail(height / error, freedom) >= ALPHA):
        return None
    return float(means[-1] - means[0])


# -- Other work --------------------------------------------------------------------------------------------------------------------


def doubt_by_other_work(cells: Iterable[MeasuredCell]) -> str:
    """A sentence for the top of a report; empty where nothing hints at other work on the machine."""
    cells = list(cells)
    noisy = [cell for cell in cells if cell.ended_well and cell.too_noisy]
    parts = []
    if noisy:
        low = _low(noisy)
        of_cpus = f"; {len(low)} of them got less than half of their CPUs, one {_share(low)}" if low else ""
        parts.append(
            f"{plural(len(noisy), 'cell')} {'is' if len(noisy) == 1 else 'are'} too noisy to be ranked ({_named(noisy)}){of_cpus}"
        )
    if low := _low(_starved(cells)):
        got = f"{plural(len(low), 'cell')} got less than half of {'its' if len(low) == 1 else 'their'} CPUs"
        parts.append(f"{got} ({_named(_starved(cells))}), one {_share(low)}")
    if taken := _taken(cells):
        most = max(taken)
        parts.append(
            f"other work kept CPUs busy beside {plural(len(taken), 'cell')}, at most {most.cpus:.2g} beside one that had {most.of_the_cell}"
        )
    return f"Other programs may have slowed some cells: {'; '.join(parts)}." if parts else ""


def _taken(cells: Iterable[MeasuredCell]) -> list[OtherWork]:
    return [cell.other_work for cell in cells if cell.other_work]


def _named(cells: Iterable[MeasuredCell]) -> str:
    """The names of cells with their workloads; of many the first ones, and how many more there are."""
    names = [f"{cell.label}, {cell.key.workload}" for cell in cells]
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return "; ".join([*names[:MOST_NAMED], *more])


def other_work_in_short(cells: Iterable[MeasuredCell]) -> str:
    """The same in a few words; empty where there is no question."""
    cells = list(cells)
    low = _low([*(cell for cell in cells if cell.ended_well and cell.too_noisy), *_starved(cells)])
    if taken := _taken(cells):
        return f"other work took {number(max(taken).cpus, 2)} CPUs"
    return (
        f"a cell got {_share(low)} CPUs" if low else "perhaps other programs ran" if doubt_by_other_work(cells) else ""
    )


def _starved(cells: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    return [cell for cell in cells if cell.cpu_share is not None and not cell.too_noisy]


def _low(cells: Iterable[MeasuredCell]) -> list[tuple[float, int]]:
    """(CPUs that it kept busy, CPUs that it was given) of each cell with few of them, the least share first."""
    shares = ((busy, threads) for cell in cells if (busy := cpus_busy(cell)) is not None and (threads := given(cell)))
    return sorted((pair for pair in shares if pair[0] < FEW * pair[1]), key=lambda pair: pair[0] / pair[1])


def _share(low: list[tuple[float, int]]) -> str:
    return f"{number(low[0][0], 2)} of {low[0][1]}"


@dataclass(frozen=True)
class Overview:
    """The runs, and the answers that rest on them."""

    tables: Tables
    title: str  # the compared frameworks and their devices
    where: str  # when, with which engine, on which machine, and from which archive
    lead: str  # the same with the size of the run, its end, and the notes
    # Sentences on the machines: which nodes were drained, what moved between the runs and within one, and whether they were busy.
    notes: tuple[str, ...]
    busy: str  # the last of them in a few words; empty where nothing hints at other work
    findings: tuple[Finding, ...]
    ladders: Mapping[str, across.Across]  # by the anchor of a group, for the groups that have any
    effects: Mapping[str, across.Effects]  # by the anchor of a ranked workload
    changes: tuple[str, ...]  # what versions, precisions and devices changed
    history: run_history.History | None  # None of a single run
    left: tuple[Left, ...]


def overview(tables: Tables) -> Overview:
    title, where, size = _title(tables.grouped), _where(tables), _size(tables)
    answers = findings.findings(tables)
    history = run_history.history(tables) if len(tables.runs) > 1 else None
    doubt, busy = doubt_by_other_work(tables.cells), other_work_in_short(tables.cells)
    notes = (
        *drained_nodes(tables.runs),
        *(history.notes if history else ()),
        *map(str, drifts(tables.cells)),
        *([doubt] if doubt else ()),
    )
    ladders, effects = across.ladders(tables), across.effects(tables)
    return Overview(
        tables=tables,
        title=title,
        where=where,
        lead=" ".join([f"{where}. {size}", *notes]),
        notes=notes,
        busy=busy,
        findings=answers,
        ladders=ladders,
        effects=effects,
        changes=across.changes(tables, ladders, effects),
        history=history,
        left=left(tables.cells, tables.runs),
    )


def _title(cells: Sequence[MeasuredCell]) -> str:
    frameworks = sorted({framework_name(cell.framework) for cell in cells})
    models = list(dict.fromkeys(device_name(cell.key.device_model) for cell in cells))
    if not frameworks:
        return "A run without cells"
    images = plural(len({cell.image for cell in cells}), "image")
    what = listing(frameworks) if len(frameworks) <= 3 else f"{len(frameworks)} frameworks, {images}"
    where = listing(models) if len(models) <= 2 else f"{len(models)} devices"
    return f"{what} on {where}"


def _where(tables: Tables) -> str:
    when = sorted(str(run.manifest["created"]) for run in tables.runs)
    days = list(dict.fromkeys(moment(text) for text in when))
    engines = sorted({str(run.manifest["engine"]) for run in tables.runs})
    engine = f"the {listing(engines)} engine" + ("s" if len(engines) > 1 else "")
    host = tables.runs[0].manifest["host"]
    machine = f"{host['cpu_model']}, {plural(host['cpu_count'], 'processor')}"
    hosts = {str(run.manifest["host"]["cpu_model"]) for run in tables.runs}
    machine = machine if len(hosts) == 1 else f"{len(hosts)} machines"
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    archives = [run.manifest["imported"]["sha256"][:12] for run in tables.runs if run.manifest.get("imported")]
    imported = f". Imported from the archive {listing(archives)}" if archives else ""
    return f"{span}, {engine}, {machine}{imported}"


def _size(tables: Tables) -> str:
    """The size of the runs and how they ended, as the end of `runner matrix` counts what is not yet run."""
    cells = tables.cells
    images, workloads = len({cell.image for cell in cells}), len({cell.key.workload for cell in cells})
    presets = listing(sorted({cell.key.preset for cell in cells})) or "no"
    statuses = Counter(cell.status for cell in cells)
    ends = [f"{statuses['ok'] or 'none'} ended well" if statuses["ok"] != len(cells) else "all ended well"]
    ends += [f"{statuses['failed']} failed"] if statuses["failed"] else []
    ends += [f"{statuses['missing']} not yet run"] if statuses["missing"] else []
    skipped = sum(len(entry.rows) for entry in tables.skipped)
    ends += [f"{plural(skipped, 'combination')} skipped"] if skipped else []
    lack, none = sum(map(lacks, cells)), sum(not cell.repeats for cell in cells)
    without = f" ({plural(none, 'cell')} without any repeat)" if none else ""
    further = f" {plural(lack, 'repeat')} {'is' if lack == 1 else 'are'} still to come{without}." if lack else ""
    return (
        f"{plural(len(cells), 'cell')} from {plural(images, 'image')} and {plural(workloads, 'workload')} "
        f"at the {presets} preset: {listing(ends)}.{further}"
    )


def moment(text: str) -> str:
    """A stored time as people write it; a text that is none stays."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    time = time.astimezone(UTC) if time.tzinfo else time
    return f"{time.day} {time:%B %Y, %H:%M}" + (" UTC" if time.tzinfo else "")
