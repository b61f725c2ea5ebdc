"""The same cell across versions of CUDA, cuDNN and the framework, across precisions, and across devices.

The contrasts of a table are judged together. Two cells that differ in one factor alone separate its effect from those of
the others, where there are such cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from reports.answers.contrast import Contrast, Side, as_ranked
from reports.answers.sessions import between_runs
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Tables
from reports.wording import apart_in, between_ratios, framework_name, listing, plural
from runner.results.cells import Key

FACTORS = ("CUDA", "cuDNN", "framework")
Versions = tuple[str, str, str]  # of FACTORS, in their order


@dataclass(frozen=True)
class Effect:
    """A contrast, and in words what changed."""

    of: str
    contrast: Contrast
    apart: bool = True  # whether one factor alone differs

    @property
    def subject(self) -> str:
        """The cell that changed, by image and framework; where the image itself changed, both."""
        cells = self.contrast.before.cells[0], self.contrast.after.cells[0]
        return " → ".join(dict.fromkeys(cell.name for cell in cells))


@dataclass(frozen=True)
class Across:
    """One table of effects among cells that share `subject`."""

    subject: str
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Effects:
    """The effects of another precision and of another device in one workload."""

    precisions: tuple[Across, ...]
    devices: tuple[Across, ...]


Same = dict[tuple[Any, ...], list[MeasuredCell]]


def _gathered(cells: Iterable[MeasuredCell], of: Any) -> Same:
    """Ranked cells by a key that `of` makes of each."""
    alike: Same = {}
    for cell in cells:
        if not cell.unranked:
            alike.setdefault(of(cell), []).append(cell)
    return alike


def versions(group: Group, beside: Iterable[MeasuredCell] = ()) -> Across | None:
    """The effects of versions among a group's cells of one framework. None where only one version ran."""
    pairs: list[tuple[Versions, Versions, Side, Side]] = []
    for cells in _gathered(group.cells, lambda cell: (cell.framework, cell.mode, cell.engine)).values():
        rungs = _gathered(cells, _versions)
        sides = {rung: Side(tuple(same)) for rung, same in rungs.items() if len({cell.image for cell in same}) == 1}
        pairs += [(old, new, sides[old], sides[new]) for old, new in _rungs(sorted(sides, key=version_key))]
    judged = between_runs([(before, after) for _, _, before, after in pairs], others=beside)
    rows = as_ranked(judged, [group])
    effects = (_effect(old, new, row) for (old, new, _, _), row in zip(pairs, rows, strict=True))
    return Across(group.key.device, tuple(effects)) if pairs else None


def ladders(tables: Tables) -> dict[str, Across]:
    """Anchor of a group -> the effects of versions in it, for the groups that have any."""
    effects = ((group.anchor, versions(group, tables.cells)) for group in tables.groups)
    return {anchor: across for anchor, across in effects if across is not None}


def _versions(cell: MeasuredCell) -> Versions:
    return str(cell.row.get("cuda_version") or ""), str(cell.row.get("cudnn_version") or ""), cell.version


def version_key(rung: Sequence[str]) -> list[list[tuple[int, str]]]:
    """A key that puts 12.10 after 12.9. A cell reports its versions, so a part may be anything."""
    parts = [re.split(r"[.+-]", word) for word in rung]
    return [[(int(part), "") if re.fullmatch("[0-9]{1,9}", part) else (-1, part) for part in word] for word in parts]


def _rungs(rungs: Sequence[Versions]) -> Iterable[tuple[Versions, Versions]]:
    """The pairs to compare: neighbours in one factor that differ in it alone, and neighbours on the ladder that no such
    pair joins."""
    pairs = []
    for at, _ in enumerate(FACTORS):
        alike: dict[tuple[str, ...], list[Versions]] = {}
        for rung in rungs:
            alike.setdefault((*rung[:at], *rung[at + 1 :]), []).append(rung)
        pairs += [pair for same in alike.values() for pair in pairwise(same)]
    joined = {rung for pair in pairs for rung in pair}
    return pairs + [pair for pair in pairwise(rungs) if pair not in pairs and not joined.issuperset(pair)]


def _effect(old: Versions, new: Versions, row: Contrast) -> Effect:
    name = framework_name(row.cell.framework)
    names = {"framework": name}
    differ = [at for at in range(len(FACTORS)) if old[at] != new[at]]
    words = [f"{names.get(FACTORS[at], FACTORS[at])} {old[at] or 'none'} → {new[at] or 'none'}" for at in differ]
    fixed = [
        f"{names.get(FACTORS[at], FACTORS[at])} {old[at]}" for at in range(len(FACTORS)) if at not in differ and old[at]
    ]
    change = listing(words) + (f", with {listing(fixed)}" if fixed else "")
    return Effect(change, row, apart=len(differ) == 1)


def effects(tables: Tables) -> dict[str, Effects]:
    """Anchor of a ranked workload -> the effects in it."""
    return {
        workload.anchor: Effects(precisions(workload, tables.cells), devices(workload, tables.cells))
        for workload in tables.ranked
    }


def precisions(workload: MeasuredWorkload, beside: Iterable[MeasuredCell] = ()) -> tuple[Across, ...]:
    """For each device, each other precision against fp32 (or the first precision) in the same image."""
    return tuple(_across(workload, beside, "precision", lambda keys: "fp32" if "fp32" in keys else keys[0]))


def devices(workload: MeasuredWorkload, beside: Iterable[MeasuredCell] = ()) -> tuple[Across, ...]:
    """For each precision, each other device against the device that most cells ran on, in the same image."""
    return tuple(_across(workload, beside, "device_model", lambda keys: max(sorted(set(keys)), key=keys.count)))


def _across(
    workload: MeasuredWorkload,
    beside: Iterable[MeasuredCell],
    field: Literal["precision", "device_model"],
    reference: Any,
) -> Iterable[Across]:
    families: dict[Key, list[MeasuredCell]] = {}
    for cell in (cell for group in workload.groups for cell in group.cells if not cell.unranked):
        key = replace(cell.key, precision="") if field == "precision" else replace(cell.key, device_model="")
        families.setdefault(key, []).append(cell)
    for key, cells in families.items():
        values = [str(getattr(cell.key, field)) for cell in cells]
        first = reference(values)
        same = _gathered(cells, lambda cell: (cell.image, cell.framework, cell.mode, cell.engine))
        pairs = [pair for alike in same.values() for pair in _pairs(alike, field, first)]
        rows = between_runs(pairs, others=beside)
        effects = tuple(Effect(f"{first} → {getattr(row.cell.key, field)}", row) for row in rows)
        if effects:
            yield Across(
                f"{key.device}, preset {key.preset}"
                if field == "precision"
                else f"{key.precision}, preset {key.preset}",
                effects,
            )


def _pairs(cells: Sequence[MeasuredCell], field: str, first: str) -> Iterable[tuple[Side, Side]]:
    by = _gathered(cells, lambda cell: (getattr(cell.key, field),))
    if (first,) in by:
        for value, others in by.items():
            if value != (first,):
                yield Side(tuple(by[first,])), Side(tuple(others))


# -- In sentences ------------------------------------------------------------------------------------------------------------------


def changes(tables: Tables, ladders: Mapping[str, Across], effects: Mapping[str, Effects]) -> tuple[str, ...]:
    """In sentences: what a version changed, where the change is real and nothing else changed; and what another precision or
    device changed for all cells that have both."""
    sentences = []
    for workload in tables.ranked:
        for group in workload.groups:
            ladder = ladders.get(group.anchor)
            where = f"{workload.title}, {group.key.device}, {group.key.precision}, {group.key.preset}"
            alone = (effect for effect in (ladder.effects if ladder else ()) if effect.apart)
            real = (effect for effect in alone if effect.contrast.real)
            sentences += [f"{where}: {_change(effect)}" for effect in real]
        of = effects[workload.anchor]
        for table in (*of.precisions, *of.devices):
            sentences += [f"{workload.title}, {table.subject}: {words}" for words in _together(table)]
    return tuple(sentences)


def _together(table: Across) -> Iterator[str]:
    """For each change of a table, the range of the ratios that are real, over all its cells."""
    kinds: dict[str, list[Contrast]] = {}
    for effect in table.effects:
        kinds.setdefault(effect.of, []).append(effect.contrast)
    for of, rows in kinds.items():
        ratios = [row.ratio.value for row in rows if row.real and row.ratio is not None]
        sides = [ratio for ratio in ratios if ratio < 1], [ratio for ratio in ratios if ratio > 1]
        parts = [f"{apart_in(side)} in {len(side)} of {plural(len(rows), 'cell')}" for side in sides if side]
        if parts:
            yield f"{of}: the median step {listing(parts)}."


def _change(effect: Effect) -> str:
    row = effect.contrast
    return f"{effect.of}: {framework_name(row.cell.framework)}'s step {row.change} (ratio, 95 % interval: {between_ratios(row.ratio)})."
