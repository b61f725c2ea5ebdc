"""The sentences at the top of the page. Each is one that the intervals support."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from reports.answers import across, competitors, conditions, left, run_history
from reports.answers import standing as standings
from reports.answers.across import Across, Effect
from reports.answers.contrast import Contrast
from reports.answers.standing import Standing, standing
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Tables
from reports.wording import (
    between_ratios,
    device_name,
    duration,
    framework_name,
    listing,
    number,
    percent,
    plural,
)
from runner.results.cells import MISSING
from runner.results.rank.ranking import OTHER_RUNS, bad_repeats

_ENDS = {"failed": "failed", "missing": "not yet run"}


@dataclass(frozen=True)
class Finding:
    """The answer for one group of comparable cells: a headline, the numbers with their intervals, and the caveats."""

    workload: MeasuredWorkload
    group: Group
    headline: str
    detail: str
    caveats: tuple[str, ...]
    standing: Standing | None = None  # None where no cell is ranked


def names(cells: Iterable[MeasuredCell]) -> dict[str, str]:
    """Anchor -> the cell as a sentence names it."""
    return {cell.anchor: cell.label for cell in cells}


def title(tables: Tables) -> str:
    """The compared frameworks and their devices."""
    frameworks = sorted({framework_name(cell.framework) for cell in tables.grouped})
    models = list(dict.fromkeys(device_name(cell.key.device_model) for cell in tables.grouped))
    if not frameworks:
        return "A run without cells"
    images = plural(len({cell.image for cell in tables.grouped}), "image")
    what = listing(frameworks) if len(frameworks) <= 3 else f"{len(frameworks)} frameworks, {images}"
    where = listing(models) if len(models) <= 2 else f"{len(models)} devices"
    return f"{what} on {where}"


def lead(tables: Tables) -> str:
    """The place, time and size of the run, its end, and the machine's drift meanwhile."""
    cells = tables.cells
    images, workloads = len({cell.image for cell in cells}), len({cell.key.workload for cell in cells})
    presets = listing(sorted({cell.key.preset for cell in cells})) or "no"
    statuses = Counter(cell.status for cell in cells)
    ends = [f"{statuses['ok'] or 'none'} ended well" if statuses["ok"] != len(cells) else "all ended well"]
    ends += [f"{statuses['failed']} failed"] if statuses["failed"] else []
    ends += [f"{statuses['missing']} not yet run"] if statuses["missing"] else []
    skipped = sum(len(entry.rows) for entry in tables.skipped)
    ends += [f"{plural(skipped, 'combination')} skipped"] if skipped else []
    return (
        f"{where(tables)}. {plural(len(cells), 'cell')} from {plural(images, 'image')} and "
        f"{plural(workloads, 'workload')} at the {presets} preset: {listing(ends)}.{_further(cells)}"
        + "".join(f" {note}" for note in notes(tables))
    )


def where(tables: Tables) -> str:
    """When, with which engine, on which machine, and from which archive."""
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


def notes(tables: Tables) -> tuple[str, ...]:
    """Sentences on the machines: which nodes were drained, what moved between the runs and within one, and whether they were busy."""
    cells = tables.cells
    said = (
        *conditions.drained(tables.runs),
        *run_history.between(tables),
        *conditions.drifts(cells),
        conditions.question(cells),
    )
    return tuple(str(note) for note in said if str(note))


def _further(cells: Iterable[MeasuredCell]) -> str:
    """A sentence on all repeats that are not yet run, counted as the end of `runner matrix` counts them; empty where none is."""
    cells = list(cells)
    lack = sum(max(0, cell.planned - len(cell.repeats)) for cell in cells)
    none = sum(not cell.repeats for cell in cells)
    without = f" ({plural(none, 'cell')} without any repeat)" if none else ""
    return f" {plural(lack, 'repeat')} {'is' if lack == 1 else 'are'} still to come{without}." if lack else ""


def moment(text: str) -> str:
    """A stored time as people write it; a text that is none stays."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    time = time.astimezone(UTC) if time.tzinfo else time
    return f"{time.day} {time:%B %Y, %H:%M}" + (" UTC" if time.tzinfo else "")


def findings(tables: Tables) -> tuple[Finding, ...]:
    """One answer for each group of comparable cells."""
    owners = [workload for workload in tables.ranked for _ in workload.groups]
    answered = competitors.once(tables.groups, tables)
    return tuple(_finding(workload, *one) for workload, one in zip(owners, answered, strict=True))


def changes(
    tables: Tables, ladders: Mapping[str, Across], across_cells: Mapping[str, Sequence[Across]] | None = None
) -> tuple[str, ...]:
    """In sentences: what a version changed, where the change is real and nothing else changed; and what another precision or
    device changed for all cells that have both."""
    sentences = []
    for workload in tables.ranked:
        for group in workload.groups:
            ladder = ladders.get(group.anchor)
            where = f"{workload.title}, {group.key.device}, {group.key.precision}, {group.key.preset}"
            effects = ladder.effects if ladder else ()
            real = (effect for effect in effects if effect.apart and effect.contrast.real)
            sentences += [f"{where}: {_change(effect)}" for effect in real]
        known = None if across_cells is None else across_cells.get(workload.anchor, ())
        for table in known if known is not None else _effects(workload, tables):
            sentences += [f"{workload.title}, {table.subject}: {words}" for words in _together(table)]
    return tuple(sentences)


def _effects(workload: MeasuredWorkload, tables: Tables) -> tuple[Across, ...]:
    return (*across.precisions(workload, tables.cells), *across.devices(workload, tables.cells))


def _together(table: Across) -> Iterator[str]:
    """For each change of a table, the range of the ratios that are real, over all its cells."""
    kinds: dict[str, list[Contrast]] = {}
    for effect in table.effects:
        kinds.setdefault(effect.of, []).append(effect.contrast)
    for of, rows in kinds.items():
        ratios = [row.ratio.value for row in rows if row.real and row.ratio is not None]
        parts = []
        for direction, shares in (
            ("less time", sorted(1 - ratio for ratio in ratios if ratio < 1)),
            ("longer", sorted(ratio - 1 for ratio in ratios if ratio > 1)),
        ):
            if shares:
                ends = dict.fromkeys(percent(share) for share in (shares[0], shares[-1]))
                parts.append(f"{' to '.join(ends)} {direction} in {len(shares)} of {plural(len(rows), 'cell')}")
        if parts:
            yield f"{of}: the median step takes {listing(parts)}."


def _change(effect: Effect) -> str:
    row = effect.contrast
    return f"{effect.of}: {framework_name(row.cell.framework)}'s step {row.change} (ratio, 95 % interval: {between_ratios(row.ratio)})."


def _finding(workload: MeasuredWorkload, group: Group, of_runs: tuple[str, ...]) -> Finding:
    called = names(group.cells)
    caveats = (*of_runs, *_caveats(workload, group, called))
    if not group.ranked:
        many = plural(len(group.others), "cell")
        if all(cell.status == MISSING for cell in group.others):
            return Finding(
                workload, group, "Not measured yet", f"{many}, none with a repeat that has been run.", caveats
            )
        return Finding(workload, group, "No answer", f"{many}, none with a measurement that may be ranked.", caveats)
    of = standing(group)
    step = of.first.cell.step
    speed = f"{duration(step.value if step else None)} a step"
    if len(group.ranked) == 1:
        name = called[of.first.cell.anchor]
        alone = standings.detail(of) or "No other comparable cell has a measurement that may be ranked."
        return Finding(workload, group, f"{name}: {speed}", alone, caveats, of)
    about = f"{speed} for {called[of.first.cell.anchor]}. {standings.detail(of)}".strip()
    return Finding(workload, group, standings.headline(of), about, caveats, of)


def measured_once(cells: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    """The cells with one repeat: how much another run of them would differ is not known."""
    return [cell for cell in cells if len(cell.measured) == 1]


def repeats_of(cells: Iterable[MeasuredCell]) -> str:
    """How many repeats cells have: "measured once", "3 repeats", or "1 to 2 repeats"."""
    counts = [len(cell.measured) for cell in cells]
    fewest, most = min(counts), max(counts)
    if most == 1:
        return "measured once"
    return plural(most, "repeat") if fewest == most else f"{fewest} to {plural(most, 'repeat')}"


def _of_the_machine(cells: Sequence[MeasuredCell], called: dict[str, str]) -> list[str]:
    """Effects of the machine on the figures of some cells."""
    caveats = []
    unsteady = [called[cell.anchor] for cell in cells if cell.shifts]
    if unsteady:
        once = any(cell.shifts and len(cell.repeats) == 1 for cell in cells)
        spans = "; with one repeat the interval spans both levels" if once else ""
        caveats.append(f"Unsteady: the level of {listing(unsteady)} changed midway{spans}.")
    hot = [called[cell.anchor] for cell in cells if cell.throttled]
    if hot:
        caveats.append(f"Throttled: the device slowed itself down while it ran {listing(hot)}.")
    disturbed = [called[cell.anchor] for cell in cells if cell.foreign_processes]
    if disturbed:
        caveats.append(f"Disturbed: other processes computed on the GPU of {listing(disturbed)} meanwhile.")
    host_bound = [called[cell.anchor] for cell in cells if cell.host_bound]
    if host_bound:
        caveats.append(
            f"Host-bound: kernels ran in less than half of a step's time in {listing(host_bound)}: it is more the host's than the GPU's."
        )
    few = [f"{called[cell.anchor]} ({percent(cell.cpu_share)})" for cell in cells if cell.cpu_share is not None]
    if few:
        caveats.append(f"Less than half of the CPUs: {listing(few)}: on a quiet machine its step may be shorter.")
    return caveats


def _of_a_bad_repeat(cells: Sequence[MeasuredCell], group: Group, called: dict[str, str]) -> list[str]:
    """The repeat of each cell that lies far from its others, and of each cell that scatters far more than the others of its run."""
    said, blocks = [], group.field.blocks
    bad = {**bad_repeats(blocks.logs), **blocks.loud}
    for cell in cells:
        place = bad.get(cell.anchor)
        if place is not None:
            logs = [repeat.log_median for repeat in cell.repeats if repeat.log_median is not None]
            share = math.exp(logs[place] - float(np.median(logs[:place] + logs[place + 1 :]))) - 1
            change = f"{percent(abs(share))} {'longer' if share > 0 else 'less time'}"
            number_ = cell.measured[place].number
            said.append(f"{called[cell.anchor]}, repeat {number_} took {change} than its others: measure it again.")
    return said


def _caveats(workload: MeasuredWorkload, group: Group, called: dict[str, str]) -> tuple[str, ...]:
    cells = [entry.cell for entry in group.ranked]
    caveats = _of_the_machine(cells, called)
    caveats += _of_a_bad_repeat(cells, group, called)
    single = [called[cell.anchor] for cell in measured_once(cells)]
    if single:
        of = "" if len(single) == len(cells) else f" ({listing(single)})"
        lacking = [cell for cell in measured_once(cells) if left.lacks(cell)]
        how = "; ".join(entry.command for entry in left.left(lacking)) or "use --repeats 3"
        caveats.append(f"Measured once{of}: a second run may differ by more than these intervals; {how}.")
    if any(OTHER_RUNS in entry.ratio.note for entry in group.ranked):
        caveats.append(
            "Some cells have no run in common with the first, or one was measured before a run was resumed and the other after it: "
            "their ratios also hold what two runs are assumed to differ by."
        )
    if len({cell.row.get("core_sha256") for cell in cells}) > 1:
        caveats.append(
            "Not all cells were measured by the same version of the bench: the digests are under Provenance."
        )
    if any(cell.short for cell in cells):
        caveats.append(
            f"Shorter than the specification's run: compare speed, not total time{' or accuracy' if workload.learns else ''}."
        )
    if group.key.data_source == "generated":
        caveats.append(f"{'Trained' if workload.learns else 'Run'} on generated stand-in data.")
    if group.others:
        why = [_ENDS.get(cell.status, cell.unranked) for cell in group.others]
        parts = [f"{called[cell.anchor]} ({words})" for cell, words in zip(group.others, why, strict=True)]
        caveats.append(f"Not ranked: {listing(parts)}.")
    beside = [
        f"{called[cell.anchor]} ({number(cell.score.value)})"
        for cell in cells
        if cell.score and workload.outside_band(cell)
    ]
    if beside and workload.band:
        low, high = workload.band
        caveats.append(
            f"Outside what a correct full run reaches ({workload.metric} {low} to {high}): {listing(beside)}."
        )
    below = [called[cell.anchor] for cell in cells if _at_chance(workload, cell)]
    if below:
        caveats.append(f"{listing(below)} learned nothing: the accuracy is that of chance.")
    return tuple(caveats)


def _at_chance(workload: MeasuredWorkload, cell: MeasuredCell) -> bool:
    return workload.chance is not None and cell.score is not None and cell.score.value <= workload.chance
