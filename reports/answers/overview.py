"""All that is said of some runs before any table: computed once, and printed by the page and by Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from reports.answers import across, conditions, findings, run_history
from reports.answers.across import Across, Effects
from reports.answers.findings import Finding
from reports.answers.left import Left, lacks, left
from reports.answers.run_history import History
from reports.data.model import MeasuredCell, Tables
from reports.wording import device_name, framework_name, listing, plural


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
    ladders: Mapping[str, Across]  # by the anchor of a group, for the groups that have any
    effects: Mapping[str, Effects]  # by the anchor of a ranked workload
    changes: tuple[str, ...]  # what versions, precisions and devices changed
    history: History | None  # None of a single run
    left: tuple[Left, ...]


def overview(tables: Tables) -> Overview:
    title, where, size = _title(tables.grouped), _where(tables), _size(tables)
    answers = findings.findings(tables)
    history = run_history.history(tables) if len(tables.runs) > 1 else None
    question, busy = conditions.question(tables.cells), conditions.in_short(tables.cells)
    notes = (
        *conditions.drained(tables.runs),
        *(history.notes if history else ()),
        *map(str, conditions.drifts(tables.cells)),
        *([question] if question else ()),
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
