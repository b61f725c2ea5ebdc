"""The table of results: a slice for each device, precision and number of devices; a row for each image, a column for each workload."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup

from bench import rules
from reports import wording
from reports.answers import standing_words
from reports.answers.findings import Finding, measured_once, repeats_of, without_run
from reports.data import groups, telemetry_signals
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Ranked, Repeat, Signal, Tables
from reports.page import page
from reports.page.drawing import Chart, thinned
from runner.results import cells
from runner.results.statistics import Array, Estimate
from runner.text import visible

# The windows of one repeat with the telemetry below them: packed numbers, which the page's script draws when a reader opens them.

_STEPS = 4000  # of a scale: a screen shows no more
_HEIGHT = 190


def sequence(cell: MeasuredCell, repeat: Repeat, most: int) -> Chart | None:
    """Milliseconds a step against seconds since the process began, and below them what the devices did."""
    windows = repeat.windows
    stages = np.array(windows.stage, dtype=object)
    if not (stages != "first").any():
        return None
    times = 1e3 * windows.seconds / windows.steps
    middle = windows.begin + windows.seconds / 2
    points = []
    for stage in ("warm-up", "steady"):
        at = np.flatnonzero(stages == stage)
        at = at[thinned(len(at), most)]
        points.append([_packed(middle[at]), _packed(times[at])])
    steady = repeat.steady_step_seconds
    levels = [float(np.median(steady))] if len(steady) else []
    if repeat.shift is not None:
        levels = [repeat.shift.before, repeat.shift.after]
    top = max([1.5e3 * level for level in levels] + [1.1 * float(np.quantile(times[stages != "first"], 0.97))])
    data = {
        "points": points,
        "levels": [float(f"{1e3 * level:.5g}") for level in levels],
        "top": float(f"{top:.3g}"),
        "signals": _signals(repeat),
    }
    sampled = telemetry_signals.described(repeat)
    words = (
        f"Windows of {cell.label}, repeat {repeat.number}, in their order; the list below has the numbers. {sampled}"
    )
    said = "their median" if repeat.shift is None else "their level before and after the change"
    lines = f"; the dashed line is {said}: {' and '.join(map(wording.duration, levels))}" if levels else ""
    caption = f"Steady windows ● and warm-up ○ in their order{lines}. {sampled}"
    place = Markup('<div class="samples {}" role="img" aria-label="{}" data-samples="{}"></div>').format(
        page.sign_of(cell)[1], visible(words, 2000), packed(json.dumps(data, allow_nan=False, separators=(",", ":")))
    )
    return Chart(f"plot-{cell.anchor}-{repeat.number}", place, visible(words, 2000), caption, _HEIGHT)


def _signals(repeat: Repeat) -> list[dict[str, Any]]:
    """The lines of the devices that are drawn, of each its unit, its name, its places and its values."""
    gpus = dict.fromkeys(signal.device for signal in repeat.signals if signal.device != "cpu")
    shown = {"cpu", *list(gpus)[: telemetry_signals.MOST_DEVICES]}
    return [_signal(signal) for signal in repeat.signals if signal.device in shown and len(signal.values)]


def _signal(signal: Signal) -> dict[str, Any]:
    device = "" if signal.device == "cpu" else f"{signal.device} "
    held = {"held": 1} if signal.name == telemetry_signals.HELD_BACK else {}
    return {
        "unit": visible(signal.unit, 40),
        "name": visible(device + signal.name, 80),
        "x": _packed(signal.seconds),
        "y": _packed(signal.values),
        **held,
    }


def _packed(values: Array | Sequence[float]) -> list[float | list[int]]:
    """[unit, the first value and the differences in that unit]: such numbers are small, and compress well."""
    column = np.asarray(values, dtype="float64")
    column = column[np.isfinite(column)]
    most = float(np.max(np.abs(column))) if len(column) else 0.0
    unit = float(f"{most / _STEPS:.4g}") or 1.0
    return [unit, np.diff(np.rint(column / unit).astype(np.int64), prepend=0).tolist()]


def packed(content: str) -> str:
    """A text as an HTML page can hold it without reading it: gzip in base64, the same bytes for the same text."""
    return base64.b64encode(gzip.compress(content.encode("utf-8"), 6, mtime=0)).decode("ascii")


# The heat and the bar of a ratio end here.
MOST_RATIO = 4.0
# Percent of the colour's strength, behind the fastest.
MOST_HEAT = 22
_NONE = page.Entry("none", "–")
_MARKS = {"same": "=", "open": "≈"}
# A column is narrow where fewer rows than one in so many have something.
_SPARSE = 3
# The kinds of entries that say nothing of a measurement.
_NOTHING = ("waiting", "skipped", "none")


@dataclass(frozen=True)
class _Place:
    """The reader's choice; the results of one place are one table."""

    kind: str
    model: str
    precision: str
    devices: str
    preset: str


def slices(findings: Sequence[Finding], data: Tables) -> tuple[page.Slice, ...]:
    """One table for each place, the one with most ranked cells first: the page shows it before anything is chosen."""
    places: dict[_Place, list[Finding]] = {}
    for finding in findings:
        places.setdefault(_place(finding.group), []).append(finding)
    to_come = [
        (workload, group)
        for workload in groups.workloads(data.waiting)
        for group in (workload.groups if workload.task != "operators" else ())
    ]
    ordered = sorted(places.items(), key=lambda item: _first(*item))
    return tuple(
        _slice(f"results-{at}", place, found, data, to_come) for at, (place, found) in enumerate(ordered, start=1)
    )


def choices(shown: Sequence[page.Slice]) -> tuple[page.Choice, ...]:
    """The reader's choices: each with the values that some slice has, if there are two or more."""
    names = (("gpu", "Device"), ("precision", "Precision"), ("devices", "Devices"), ("preset", "Preset"))
    found = []
    for name, head in names:
        values = tuple(dict.fromkeys(part.place[name] for part in shown))
        if len(values) > 1:
            found.append(page.Choice(name, head, tuple((value, wording.device_name(value)) for value in values)))
    return tuple(found)


def _place(group: Group) -> _Place:
    key = group.key
    devices = f"{key.devices} {key.scaling}".strip()
    return _Place(key.device_kind, key.device_model, key.precision, devices, key.preset)


def _first(place: _Place, found: Sequence[Finding]) -> tuple[bool, bool, bool, int, str]:
    """The order of places: GPUs, one device, fp32, and then the number of ranked cells."""
    ranked = sum(len(finding.group.ranked) for finding in found)
    return place.kind != "cuda", place.devices != "1", place.precision != "fp32", -ranked, place.model


def _slice(
    anchor: str,
    place: _Place,
    found: Sequence[Finding],
    data: Tables,
    to_come: Sequence[tuple[MeasuredWorkload, Group]],
) -> page.Slice:
    several = Counter(finding.workload.name for finding in found)
    columns = tuple(
        _column(finding, named=several[finding.workload.name] > 1)
        for finding in sorted(found, key=lambda finding: -len(finding.group.ranked))
    )
    by_anchor = {finding.group.anchor: finding for finding in found}
    # Bars of all columns have one scale.
    reach = _reach([entry.ratio for finding in found for entry in finding.group.ranked])
    entries = {column.anchor: _entries(by_anchor[column.anchor], data, reach) for column in columns}
    later = list(_to_come(place, found, to_come))
    rows = _rows([*(entries[column.anchor] for column in columns), *(entries for _, entries in later)])
    where = f"{place.precision} on {wording.device_name(place.model)}"
    where += f", {place.devices} devices" if place.devices != "1" else ""
    chosen = {"gpu": place.model, "precision": place.precision, "devices": place.devices, "preset": place.preset}
    return _folded(page.Slice(anchor, where, chosen, (*columns, *(column for column, _ in later)), rows))


def _folded(whole: page.Slice) -> page.Slice:
    """The slice with the rows and columns marked of which nothing has been run yet, where something has: what was measured comes first."""
    rows = [all(entry.kind in _NOTHING for entry in row.entries) for row in whole.rows]
    columns = [all(row.entries[at].kind in _NOTHING for row in whole.rows) for at in range(len(whole.columns))]
    whole = replace(whole, columns=tuple(_narrowed(whole, rows)))
    if all(rows):
        return whole
    count = sum(
        entry.kind == "waiting" and (rows[at] or columns[column])
        for at, row in enumerate(whole.rows)
        for column, entry in enumerate(row.entries)
    )
    parts = [wording.plural(sum(rows), "row")] if any(rows) else []
    parts += [wording.plural(sum(columns), "column")] if any(columns) else []
    are = "is" if count == 1 else "are"
    words = f"{wording.plural(count, 'cell')} that {are} not yet run {are} folded away ({', '.join(parts)})"
    return replace(
        whole,
        rows=tuple(replace(row, unrun=unrun) for row, unrun in zip(whole.rows, rows, strict=True)),
        columns=tuple(replace(column, unrun=unrun) for column, unrun in zip(whole.columns, columns, strict=True)),
        unrun=words if count else "",
    )


def _narrowed(whole: page.Slice, unrun: Sequence[bool]) -> Iterator[page.ResultColumn]:
    """The columns; one in which most rows have nothing is sparse. Rows that are folded away do not count."""
    rows = [row for row, folded in zip(whole.rows, unrun, strict=True) if row.best and not folded]
    for at, column in enumerate(whole.columns):
        figures = sum(row.entries[at].kind not in _NOTHING for row in rows)
        yield replace(column, sparse=_SPARSE * figures < len(rows))


def _to_come(
    place: _Place, found: Sequence[Finding], to_come: Iterable[tuple[MeasuredWorkload, Group]]
) -> Iterator[tuple[page.ResultColumn, list[_Found]]]:
    """A column for each workload that the plan has at this place, of which no cell has been run yet."""
    begun = [finding.group for finding in found]
    for workload, group in to_come:
        if _place(group) == place and not any(_would_join(group.cells[0], other) for other in begun):
            waiting = [_of(cell, page.Entry("waiting", "not yet run")) for cell in group.cells]
            yield _column(Finding(workload, group, "", "", ()), named=False), waiting


def _column(finding: Finding, *, named: bool) -> page.ResultColumn:
    """`named`: another column has the same workload, so the column says its batch and its data."""
    key, workload = finding.group.key, finding.workload
    title = workload.title.partition(",")[0] + (" · inference" if workload.task == "infer" else "")
    beside = f"batch {key.batch}, {key.data_source or 'unknown'} data" if named else ""
    ranked = [entry.cell for entry in finding.group.ranked]
    few = repeats_of(ranked).replace("measured once", "one run") if measured_once(ranked) else ""
    return page.ResultColumn(finding.group.anchor, title, workload.anchor, workload.items, beside, few)


# -- Entries ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """An entry, and what its row needs of it. `level` is the log of its ratio to the fastest; None where it is not ranked."""

    entry: page.Entry
    label: str
    image: str
    framework: str
    group: str  # rows of one group are versions of one thing: the framework, and the mode
    level: float | None


def _entries(finding: Finding, data: Tables, reach: float) -> list[_Found]:
    """The entries of a group's column, whose bars end at `reach`."""
    group, workload = finding.group, finding.workload
    found = [_of(entry.cell, _ranked(entry, group, workload, reach), entry.ratio.value) for entry in group.ranked]
    found = list(_beside(found, group.others))
    present = {one.label for one in found}
    waiting = [_of(cell, page.Entry("waiting", "not yet run")) for cell in data.waiting if _would_join(cell, group)]
    found += [one for one in waiting if one.label not in present]
    present = {one.label for one in found}
    return found + [one for one in _skipped(group, data) if one.label not in present]


def _reach(ratios: Sequence[Estimate]) -> float:
    """The end of the track of the bars of a table. An interval may lengthen it by a third at most."""
    longest = max((ratio.value for ratio in ratios), default=1.0)
    ends = [ratio.high for ratio in ratios if ratio.method != "itself" and ratio.high is not None]
    return min(MOST_RATIO, max([longest, *(min(end, 1.3 * longest) for end in ends)]))


def _beside(ranked: Sequence[_Found], cells: Sequence[MeasuredCell]) -> Iterator[_Found]:
    """A column's entries: the ranked ones, and the cells that are not ranked, each in the row of its other workloads.

    Several runs may have one cell. The ranked one is its entry, or else the newest; its pointer text names the others.
    """
    entries = {one.label: one for one in ranked}
    for cell in sorted(cells, key=lambda cell: cell.run_id, reverse=True):
        name = without_run(cell)
        if (found := entries.get(name)) is None:
            entries[name] = _of(cell, _unranked(cell))
            continue
        also = f"in run {cell.run_id}: {cell.unranked}"
        entry = replace(found.entry, title=f"{found.entry.title}; {also}" if found.entry.title else also)
        entries[name] = replace(found, entry=replace(entry, noted=entry.kind == "ranked"))
    yield from entries.values()


def _of(cell: MeasuredCell, entry: page.Entry, ratio: float | None = None) -> _Found:
    kind = f"{cell.framework} {cell.mode}"
    # A row is a cell of any run. Of several ranked ones an answer has made one.
    label = without_run(cell)
    return _Found(entry, label, cell.image, cell.framework, kind, None if ratio is None else math.log(ratio))


def _skipped(group: Group, data: Tables) -> Iterator[_Found]:
    names = ("workload", "precision", "device_kind", "device_model")
    for skipped in data.skipped:
        for row in skipped.rows:
            if all(row[name] == getattr(group.key, name) for name in names):
                image, framework, mode = str(row["image"]), str(row["framework"]), row["mode"]
                entry = page.Entry("skipped", "–", title=f"skipped: {skipped.reason}")
                label = wording.cell_name(image, framework, mode)
                yield _Found(entry, label, image, framework, f"{framework} {mode}", None)


def _would_join(cell: MeasuredCell, group: Group) -> bool:
    """True if a cell that is not yet run will stand in this group; its kind of data is not known before."""
    return replace(cell.key, data_source=group.key.data_source) == group.key


def _ranked(ranked: Ranked, group: Group, workload: MeasuredWorkload, reach: float) -> page.Entry:
    cell, ratio = ranked.cell, ranked.ratio
    best, once = ranked.is_first, ranked.once
    compared = len(group.ranked) > 1
    # One repeat does not show how much another run would differ: a bar of an interval would claim that it does.
    low, high = (None, None) if best or once else (ratio.low, ratio.high)
    # A cell that one repeat shows to be slower has no sign. The pointer's text says that it is one repeat.
    mark = "" if ranked.at_least else _MARKS.get(ranked.verdict or "", "")
    end = 100 / reach
    return page.Entry(
        "ranked",
        wording.number(ratio.value),
        anchor=cell.anchor,
        title=_title(ranked, workload),
        measures=_measures(cell, ratio, once=once),
        interval=_interval(cell.step),
        best=best and compared,
        standing=standing_words.note(ranked),
        mark=mark,
        unsteady=bool(cell.shifts),
        noted=bool(cell.caveats),
        heat=round(max(0.0, MOST_HEAT * (1 - math.log(max(ratio.value, 1.0)) / math.log(MOST_RATIO)))),
        length=round(min(100.0, end * ratio.value)),
        low=None if low is None else round(min(100.0, end * low)),
        high=None if high is None else round(min(100.0, end * high)),
        cut=bool(high is not None and high > reach) or ratio.value > reach,
    )


def _title(ranked: Ranked, workload: MeasuredWorkload) -> str:
    """The text of an entry for a pointer."""
    cell, ratio = ranked.cell, ranked.ratio
    rate = cell.items_per_second
    parts = [f"{wording.duration(cell.step.value if cell.step else None)} a step ({wording.step_interval(cell.step)})"]
    parts += [f"{wording.number(rate.value)} {workload.items}/s"] if rate else []
    if ratio.method != "itself":
        parts.append(f"{wording.number(ratio.value)} × the fastest ({wording.between_ratios(ratio)})")
        parts.append(standing_words.note(ranked))
    parts.append(wording.plural(len(cell.measured), "repeat"))
    parts += ["unsteady: its level changed midway"] if cell.shifts else []
    parts += [] if cell.cpu_share is None else [f"it got {wording.percent(cell.cpu_share)} of its CPUs"]
    parts += cell.caveats
    return "; ".join(parts)


def _measures(cell: MeasuredCell, ratio: Estimate, *, once: bool) -> str:
    """For the page's script: × the fastest, items a second, milliseconds a step, start-up seconds and joules an item, parted by
    semicolons; of the first three with the ends of the interval, unless there is one repeat."""
    start = start_up(cell)
    parts = (
        _figure(ratio.value) if once or ratio.method == "itself" else _numbers(ratio),
        _numbers(cell.items_per_second),
        _numbers(cell.step, 1e3),
        _figure(start),
        _figure(cell.costs.get("joules_per_item")),
    )
    return ";".join(parts)


def _interval(step: Estimate | None) -> str:
    """Also of one repeat, as the pointer's text has it; empty where it says nothing."""
    if step is None or step.low is None or step.high is None or wording.says_nothing(step):
        return ""
    return f"{_figure(1e3 * step.low)},{_figure(1e3 * step.high)}"


def start_up(cell: MeasuredCell) -> float | None:
    """Seconds until the first step has ended."""
    return sum(cell.start_up.values()) if cell.start_up else None


def _numbers(estimate: Estimate | None, factor: float = 1.0) -> str:
    if estimate is None:
        return ""
    ends = [end for end in (estimate.low, estimate.high) if end is not None and estimate.repeats > 1]
    if len(ends) == 2 and wording.too_wide(*ends):
        ends = []
    return ",".join(_figure(factor * value) for value in (estimate.value, *ends))


def _figure(value: float | None) -> str:
    # The script rounds it to the three digits that are shown. Rounded twice, 1.06501 was 1.06 there and 1.07 in every other place.
    return "" if value is None or not math.isfinite(value) else f"{value:.10g}"


def _unranked(cell: MeasuredCell) -> page.Entry:
    kind, words = failure(cell)
    return page.Entry(kind, words, anchor=cell.anchor, title=cell.unranked)


def failure(cell: MeasuredCell) -> tuple[str, str]:
    """(kind, few words) of a cell that is not ranked."""
    if cell.status == cells.MISSING:
        return "waiting", "not yet run"
    if cell.status != "ok":
        return "failed", str(cell.row.get("error_kind") or "failed").replace("-", " ")[:40]
    if cell.parity_passed is not True:
        return "failed", "wrong result" if cell.parity_passed is False else "not checked"
    if cell.unproved:
        return "unranked", "images differ" if rules.is_own(cell.key.workload) else "no parity at fp32"
    return "unranked", "too noisy" if cell.too_noisy else "too few windows"


# -- Rows -------------------------------------------------------------------------------------------------------------------------


def _rows(columns: Sequence[Sequence[_Found]]) -> tuple[page.Row, ...]:
    """A row for each label, sorted by the first column and then by the next ones; a row of which everything was skipped is none."""
    by_label: dict[str, list[_Found | None]] = {}
    for at, column in enumerate(columns):
        for one in column:
            by_label.setdefault(one.label, [None] * len(columns))[at] = one
    kept = [row for row in by_label.values() if any(one and one.entry.kind != "skipped" for one in row)]
    kept.sort(key=lambda row: [math.inf if one is None or one.level is None else one.level for one in row])
    chosen = _best_versions(kept)
    return tuple(_row(row, best=at in chosen) for at, row in enumerate(kept))


def _row(row: Sequence[_Found | None], *, best: bool) -> page.Row:
    first = next(one for one in row if one)
    name, _, rest = first.label.partition(" · ")
    entries = tuple(one.entry if one else _NONE for one in row)
    return page.Row(name, rest, first.image, first.framework, best, entries)


def _best_versions(rows: Sequence[Sequence[_Found | None]]) -> set[int]:
    """Of each framework as few rows as show its fastest version in every column; where none is ranked, one that says why.

    Choosing does not bias what is said of them: what is said of a column holds for all its pairs together.
    """
    kinds: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        kinds.setdefault(next(one.group for one in row if one), []).append(at)
    chosen: set[int] = set()
    for same in kinds.values():
        wanted = [among for column in range(len(rows[same[0]])) if (among := _shown_for(rows, same, column))]
        while wanted:
            best = max(same, key=lambda at: (sum(at in among for among in wanted), -_mean(rows[at]), -at))
            chosen.add(best)
            wanted = [among for among in wanted if best not in among]
    return chosen


def _shown_for(rows: Sequence[Sequence[_Found | None]], same: Sequence[int], column: int) -> set[int]:
    """Which of these rows show what one column has to say of them: the fastest, else those that failed or are not ranked."""
    found = {at: one for at in same if (one := rows[at][column])}
    levels = {at: one.level for at, one in found.items() if one.level is not None}
    if levels:
        return {at for at, level in levels.items() if level == min(levels.values())}
    return {at for at, one in found.items() if one.entry.kind != "skipped"}


def _mean(row: Sequence[_Found | None]) -> float:
    levels = [one.level for one in row if one and one.level is not None]
    return sum(levels) / len(levels) if levels else 0.0
