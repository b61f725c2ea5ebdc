"""The sentences at the top of the page. Each is one that the intervals support."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from reports.answers import across, competitors
from reports.answers.across import Across, Effect
from reports.answers.contrast import Contrast
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Ranked, Tables
from reports.text import between, duration, framework_name, listing, number, percent, plural

_ENDS = {"failed": "failed", "missing": "did not end"}


@dataclass(frozen=True)
class Finding:
    """The answer for one group of comparable cells: a headline, the numbers with their intervals, and the caveats."""

    workload: MeasuredWorkload
    group: Group
    headline: str
    detail: str
    caveats: tuple[str, ...]


def names(cells: tuple[MeasuredCell, ...]) -> dict[str, str]:
    """Anchor -> the cell as a sentence names it: the framework and version, and the image where that is not enough."""
    short = {cell.anchor: cell.label for cell in cells}
    short |= {cell.anchor: f"{framework_name(cell.framework)} {cell.version}" for cell in cells if cell.version}
    often = Counter(short.values())
    return {cell.anchor: short[cell.anchor] if often[short[cell.anchor]] == 1 else cell.label for cell in cells}


def title(tables: Tables) -> str:
    """What was compared and on what."""
    frameworks = sorted({framework_name(cell.framework) for cell in tables.cells})
    devices = list(dict.fromkeys(cell.key.device for cell in tables.cells))
    if not frameworks:
        return "A run without cells"
    if len(devices) > 2:  # counts of one model are one device
        devices = list(dict.fromkeys(cell.key.device_model for cell in tables.cells))
    where = f" on {listing(devices)}" if len(devices) <= 2 else f" on {len(devices)} devices"
    return listing(frameworks) + where


def lead(tables: Tables) -> str:
    """Where, when and how much was run, and how it ended."""
    cells = tables.cells
    when = sorted(str(run.manifest["created"]) for run in tables.runs)
    days = list(dict.fromkeys(_moment(text) for text in when))
    engines = sorted({str(run.manifest["engine"]) for run in tables.runs})
    engine = f"the {listing(engines)} engine" + ("s" if len(engines) > 1 else "")
    images, workloads = len({cell.image for cell in cells}), len(tables.workloads)
    presets = listing(sorted({cell.key.preset for cell in cells})) or "no"
    statuses = Counter(cell.status for cell in cells)
    ends = [f"{statuses['ok']} ended well" if statuses["ok"] != len(cells) else "all ended well"]
    ends += [f"{statuses['failed']} failed"] if statuses["failed"] else []
    ends += [f"{statuses['missing']} did not end"] if statuses["missing"] else []
    skipped = sum(len(entry.rows) for entry in tables.skipped)
    ends += [f"{plural(skipped, 'combination')} left out"] if skipped else []
    host = tables.runs[0].manifest["host"]
    machine = f"{host['cpu_model']}, {plural(host['cpu_count'], 'processor')}"
    hosts = {str(run.manifest["host"]["cpu_model"]) for run in tables.runs}
    machine = machine if len(hosts) == 1 else f"{len(hosts)} machines"
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"{span}, {engine}, {machine}. {plural(len(cells), 'cell')} from {plural(images, 'image')} and "
        f"{plural(workloads, 'workload')} at the {presets} preset: {listing(ends)}."
    )


def _moment(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    moment = moment.astimezone(UTC) if moment.tzinfo else moment
    return f"{moment.day} {moment:%B %Y, %H:%M}" + (" UTC" if moment.tzinfo else "")


def findings(tables: Tables) -> tuple[Finding, ...]:
    """One answer for each group of comparable cells."""
    return tuple(
        _finding(workload, *competitors.once(group, tables)) for workload in tables.ranked for group in workload.groups
    )


def changes(tables: Tables, ladders: Mapping[str, Across]) -> tuple[str, ...]:
    """In sentences: what a version changed, where the change is real and nothing else changed; and what another precision or
    device changed for all cells that have both."""
    sentences = []
    for workload in tables.ranked:
        for group in workload.groups:
            ladder = ladders.get(group.anchor)
            where = f"{workload.title}, {group.key.device}, {group.key.precision}, {group.key.preset}"
            effects = ladder.effects if ladder else ()
            real = (effect for effect in effects if effect.apart and effect.contrast.verdict == "real")
            sentences += [f"{where}: {_change(effect)}" for effect in real]
        for table in (*across.precisions(workload), *across.devices(workload)):
            sentences += [f"{workload.title}, {table.subject}: {words}" for words in _together(table)]
    return tuple(sentences)


def _together(table: Across) -> Iterator[str]:
    """For each change of a table, the range of the ratios that are real, over all its cells."""
    kinds: dict[str, list[Contrast]] = {}
    for effect in table.effects:
        kinds.setdefault(effect.of, []).append(effect.contrast)
    for of, rows in kinds.items():
        ratios = [row.ratio.value for row in rows if row.verdict == "real" and row.ratio is not None]
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
    words = row.words.removeprefix("real: ")
    return f"{effect.of}: {framework_name(row.cell.framework)}'s step {words} (ratio, 95 % interval: {between(row.ratio)})."


def shared(answers: tuple[Finding, ...]) -> tuple[str, ...]:
    """The caveats that all answers have. The page says them once."""
    first = answers[0].caveats if answers else ()
    return tuple(words for words in first if all(words in answer.caveats for answer in answers))


def _finding(workload: MeasuredWorkload, group: Group, of_runs: tuple[str, ...]) -> Finding:
    called = names(group.cells)
    caveats = (*of_runs, *_caveats(workload, group, called))
    if not group.ranked:
        reasons = f"{plural(len(group.others), 'cell')}, none with a measurement that may be ranked."
        return Finding(workload, group, "No answer", reasons, caveats)
    best = group.ranked[0]
    step = best.cell.step
    speed = f"{duration(step.value if step else None)} a step"
    if len(group.ranked) == 1:
        name = called[best.cell.anchor]
        return Finding(workload, group, f"{name}: {speed}", "No other comparable cell was measured.", caveats)
    short = [entry for entry in group.ranked[1:] if entry.ratio.low is None]
    behind = [entry for entry in group.ranked[1:] if entry not in short and _apart(entry)]
    tied = [entry for entry in group.ranked[1:] if entry not in short and not _apart(entry)]
    if tied:
        headline = f"No clear difference between {listing(_first_four([best, *tied], called))}"
        detail = f"{speed} for the first; {_tie(tied, called)} {_slower(behind, called)}"
    elif short:
        headline = f"{called[best.cell.anchor]} has the shortest step; too few windows of {listing(_first_four(short, called))} to compare"
        detail = f"{speed}. {_slower(behind, called)}"
    else:
        headline = f"{called[best.cell.anchor]} is fastest"
        detail = f"{speed}. {_slower(behind, called)}"
    detail = " ".join(filter(None, (detail.strip(), _too_short(short, called))))
    return Finding(workload, group, headline, detail, caveats)


def _apart(entry: Ranked) -> bool:
    """Whether the cell is slower than the best one: its whole interval lies above 1."""
    return entry.ratio.low is not None and entry.ratio.low > 1


def _first_four(entries: list[Ranked], called: dict[str, str]) -> list[str]:
    """The names of cells; of more than four the first three, and how many more there are."""
    level = [called[entry.cell.anchor] for entry in entries]
    return level if len(level) <= 4 else [*level[:3], f"{len(level) - 3} more"]


def _slower(behind: list[Ranked], called: dict[str, str]) -> str:
    parts = [
        f"{called[entry.cell.anchor]} takes {number(entry.ratio.value)} times as long "
        f"({'' if at else '95 % interval '}{between(entry.ratio)})"
        for at, entry in enumerate(behind[:3])
    ]
    if len(behind) > 3:
        parts.append(f"{len(behind) - 3} more take longer")
    return f"{listing(parts)}." if parts else ""


def _tie(tied: list[Ranked], called: dict[str, str]) -> str:
    parts = []
    for entry in tied[:3]:
        low, high = between(entry.ratio).split(" to ")
        parts.append(f"{called[entry.cell.anchor]} may take from {low} to {high} times as long")
    return f"{listing(parts)}."


def _too_short(short: list[Ranked], called: dict[str, str]) -> str:
    """What is known of cells whose ratio to the best one has no interval."""
    parts = [
        f"{called[entry.cell.anchor]} has too few windows for an interval ({entry.ratio.note}); its median is "
        f"{number(entry.ratio.value)} times as long"
        for entry in short[:3]
    ]
    return f"{listing(parts)}." if parts else ""


def _caveats(workload: MeasuredWorkload, group: Group, called: dict[str, str]) -> tuple[str, ...]:
    caveats = []
    cells = [entry.cell for entry in group.ranked]
    unsteady = [called[cell.anchor] for cell in cells if cell.shifts]
    if unsteady:
        caveats.append(f"Unsteady: the level of {listing(unsteady)} changed midway; the interval spans both levels.")
    hot = [called[cell.anchor] for cell in cells if cell.throttled]
    if hot:
        caveats.append(f"Throttled: the device slowed itself down while it ran {listing(hot)}.")
    single = [called[cell.anchor] for cell in cells if len(cell.repeats) == 1]
    if single:
        of = "each" if len(single) == len(cells) else f"of {listing(single)}"
        caveats.append(f"One repeat {of}: the intervals do not say how much another run would differ.")
    if len({cell.row.get("core_sha256") for cell in cells}) > 1:
        caveats.append(
            "Not all cells were measured by the same version of the bench: the digests are under Provenance."
        )
    if any(cell.short for cell in cells):
        caveats.append(
            f"Shorter than the specification's run: speeds compare, totals {'and final accuracies ' if workload.learns else ''}do not."
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
