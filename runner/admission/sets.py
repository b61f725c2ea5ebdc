"""Judges of sets: what each parcel of a run may be by itself, and not beside another one. All doors come through the tables of a run.

The first of two repeats of one cell stands, since one of them was measured. Of two cells neither does: nobody knows which was.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from runner.admission.windows_alike import Forms, KnownWindows, forms
from runner.results.rows import chosen, floats, place_codes, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

# (cell id, repeat)
Place = tuple[str, int]

# A reason begins so. Rows that have it are made anew with the tables: the other repeat may be gone.
BESIDE = "beside another repeat of this run it cannot be: "

# The windows of two repeats on one device may overlap by so much, and by half of the shorter ones: a clock is set meanwhile.
_MOST_OVERLAP_SECONDS, _MOST_OVERLAP = 5.0, 0.5

# Telemetry as that of another repeat: half of at least so many rows are equal in every column, of those that have one of these: counters
# of the machine, which only rise, and what a GPU draws. A cell's own counters begin at 0 in each repeat.
_OF_THE_MACHINE = ("machine_cpu_seconds", "energy_joules", "power_watts", "pcie_sent_bytes", "pcie_received_bytes")
_FEWEST_ROWS = 10
_SAME_ROWS = 0.5
_MOST_ALIKE = 20

# Of the rows of one repeat so many stand for all: those of the lowest marks, which a copy has as well.
_MOST_MARKS = 128


@dataclass(frozen=True)
class NoisePrint:
    """By what a repeat is known again in another run, whoever brings it: the noise of its windows, and rows of its telemetry."""

    windows: Forms = ()
    telemetry: tuple[int, ...] = ()


class KnownNoises:
    """The repeats of many runs, to find the one of which another is a copy."""

    def __init__(self) -> None:
        self._known: list[tuple[NoisePrint, str]] = []
        self._windows: KnownWindows[str] = KnownWindows()
        self._of_mark: dict[int, list[int]] = defaultdict(list)

    def add(self, noise: NoisePrint, where: str) -> None:
        """Know this repeat again."""
        at = len(self._known)
        self._known.append((noise, where))
        self._windows.add(noise.windows, where)
        for mark in noise.telemetry:
            self._of_mark[mark].append(at)

    def copied_by(self, noise: NoisePrint) -> tuple[str, str] | None:
        """How a repeat has the noise of a known one, and where that is; None where it has its own."""
        for where in self._windows.like(noise.windows):
            return "it has the windows of", where
        shared = Counter(at for mark in noise.telemetry for at in self._of_mark.get(mark, ()))
        for at, _ in shared.most_common(_MOST_ALIKE):
            other, where = self._known[at]
            lowest = sorted({*noise.telemetry, *other.telemetry})[:_MOST_MARKS]
            both = {*noise.telemetry} & {*other.telemetry}
            if len(lowest) >= _FEWEST_ROWS and sum(mark in both for mark in lowest) > _SAME_ROWS * len(lowest):
                return "it has the telemetry of", where
        return None


def noises(tables: Mapping[str, pa.Table]) -> dict[Place, NoisePrint]:
    """The noise of each repeat, as far as it has some."""
    windows = dict(_forms(tables["samples"]))
    rows: dict[Place, tuple[int, ...]] = {}
    codes, places, marks = _marks(tables["telemetry"])
    for code, place in enumerate(places):
        rows[place] = tuple(np.unique(marks[codes == code])[:_MOST_MARKS].tolist())
    return {place: NoisePrint(windows.get(place, ()), rows.get(place, ())) for place in {**windows, **rows}}


@dataclass(frozen=True)
class _Repeat:
    place: Place
    # Nothing else computes on these meanwhile.
    devices: tuple[str, ...]
    begin: float
    end: float


def together(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> dict[Place, str]:
    """The repeats of a run that cannot be beside another one of it, and why."""
    reasons: dict[Place, str] = {}
    order = {cell["id"]: at for at, cell in enumerate(manifest["plan"])}
    for one, other, why in itertools.chain(
        _at_once(tables, manifest), _same_windows(tables["samples"]), _same_telemetry(tables["telemetry"])
    ):
        first, second = sorted((one, other), key=lambda place: (order.get(place[0], -1), place[1]))
        names = [f"repeat {repeat} of the cell {cell}" for cell, repeat in (first, second)]
        reasons.setdefault(second, f"{BESIDE}{why} {names[0]}")
        if first[0] != second[0]:
            reasons.setdefault(first, f"{BESIDE}{why} {names[1]}")
    return reasons


def _at_once(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> Iterator[tuple[Place, Place, str]]:
    """The repeats whose windows were at one time on one device, by one clock."""
    columns = ["cell_id", "repeat", "node", "given_uuids", "device_kind", "started_unix"]
    spans = _spans(tables)
    repeats = [
        _repeat(row, spans[place])
        for row in rows_of(tables["cells"].select(columns))
        if row["started_unix"] and (place := (row["cell_id"], row["repeat"])) in spans
    ]
    if _was_set_back(repeats, manifest):
        return
    of_device: dict[str, list[_Repeat]] = defaultdict(list)
    for repeat in repeats:
        for device in repeat.devices:
            of_device[device].append(repeat)
    for each in of_device.values():
        each.sort(key=lambda repeat: (repeat.begin, repeat.place))
        latest = each[0]
        for repeat in each[1:]:
            shorter = min(repeat.end - repeat.begin, latest.end - latest.begin)
            if min(latest.end, repeat.end) - repeat.begin > min(_MOST_OVERLAP_SECONDS, _MOST_OVERLAP * shorter):
                yield latest.place, repeat.place, "it ran on the same device at the same time as"
            latest = max(latest, repeat, key=lambda each: each.end)


def _spans(tables: Mapping[str, pa.Table]) -> dict[Place, tuple[float, float]]:
    """When the first window of each repeat began and the last one ended, in seconds of its process.

    A process begins when its engine has made room for it, and ends before its engine says so: only its windows are its device's.
    """
    spans: dict[Place, tuple[float, float]] = {}
    for name in ("samples", "operations"):
        for place, rows in _by_place(tables[name]) if name in tables else ():
            begins, seconds = (floats(tables[name], column)[rows] for column in ("begin_seconds", "seconds"))
            spans[place] = float(np.min(begins)), float(np.max(begins + seconds))
    return spans


def _repeat(row: Mapping[str, Any], span: tuple[float, float]) -> _Repeat:
    node = row["node"] or ""
    devices = row["given_uuids"] or () if row["device_kind"] == "cuda" else ("cpu",)
    began = float(row["started_unix"])
    return _Repeat(
        (row["cell_id"], row["repeat"]),
        tuple(f"{node} {device}" for device in devices),
        began + span[0],
        began + span[1],
    )


def _was_set_back(repeats: Sequence[_Repeat], manifest: Mapping[str, Any]) -> bool:
    """True if the clock of the machine was set back between two sessions of a run: its times say nothing of what was at once."""
    resumed = [_unix(moment) for moment in manifest.get("resumed", [])]
    before = {(entry["cell_id"], entry["repeat"]) for entry in manifest.get("reused", [])}
    backwards = any(later < earlier for earlier, later in itertools.pairwise([_unix(manifest["created"]), *resumed]))
    return backwards or (
        bool(resumed) and any(repeat.end > resumed[-1] + 1.0 for repeat in repeats if repeat.place in before)
    )


def _unix(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _same_windows(samples: pa.Table) -> Iterator[tuple[Place, Place, str]]:
    """The repeats whose windows are those of another one."""
    known: KnownWindows[Place] = KnownWindows()
    every = dict(_forms(samples))
    for place, each in every.items():
        known.add(each, place)
    for place, each in every.items():
        yield from ((place, other, "it has the windows of") for other in {*known.like(each)} - {place})


def _forms(samples: pa.Table) -> Iterator[tuple[Place, Forms]]:
    """The forms of the windows of each repeat that has some."""
    for place, rows in _by_place(samples):
        steady = np.array([stage == "steady" for stage in samples["stage"].take(rows).to_pylist()], bool)
        seconds, steps = (floats(samples, name)[rows][steady] for name in ("seconds", "steps"))
        if np.all(steps > 0) and (each := forms(seconds / steps)):
            yield place, each


def _by_place(table: pa.Table) -> Iterator[tuple[Place, npt.NDArray[np.int64]]]:
    """The rows of each repeat."""
    if not len(table):
        return
    codes, places = place_codes(table)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        yield places[int(codes[rows[0]])], rows


def _same_telemetry(telemetry: pa.Table) -> Iterator[tuple[Place, Place, str]]:
    """The repeats whose telemetry is that of another one."""
    codes, places, marks = _marks(telemetry)
    if not places:
        return
    order = np.lexsort((codes, marks))
    marks, codes = marks[order], codes[order]
    # A row counts once for a repeat that has it.
    new = np.diff(marks, prepend=marks[0] + np.uint64(1)).astype(bool)
    once = new | np.diff(codes, prepend=-1).astype(bool)
    marks, codes, new = marks[once], codes[once], new[once]
    rows = np.bincount(codes, minlength=len(places))
    equal: dict[tuple[int, int], int] = defaultdict(int)
    begins = np.flatnonzero(new)
    ends = np.append(begins[1:], len(marks))
    # Rows of an idle device are equal in many repeats, and tell nothing.
    shared = (ends - begins > 1) & (ends - begins <= _MOST_ALIKE)
    for begin, end in zip(begins[shared].tolist(), ends[shared].tolist(), strict=True):
        for one, other in itertools.combinations(codes[begin:end].tolist(), 2):
            equal[one, other] += 1
    for (one, other), count in equal.items():
        most = max(int(rows[one]), int(rows[other]))
        if most >= _FEWEST_ROWS and count > _SAME_ROWS * most:
            yield places[one], places[other], "it has the telemetry of"


def _marks(telemetry: pa.Table) -> tuple[npt.NDArray[np.int64], list[Place], npt.NDArray[np.uint64]]:
    """Of each row that tells repeats apart: the code of its repeat, and a digest of its numbers. The places stand by their codes."""
    telling = np.any([~np.isnan(floats(telemetry, name)) for name in _OF_THE_MACHINE], axis=0)
    telemetry = chosen(telemetry, telling)
    marks = np.zeros(len(telemetry), np.uint64)
    if not len(telemetry):
        return np.zeros(0, np.int64), [], marks
    codes, places = place_codes(telemetry)
    kinds = [field.name for field in telemetry.schema if str(field.type) in ("double", "int64")]
    names = [name for name in kinds if name not in ("seconds", "foreign_process_count")]
    with np.errstate(over="ignore"):
        for name in names:
            marks = marks * np.uint64(0x9E3779B97F4A7C15) + np.nan_to_num(floats(telemetry, name)).view(np.uint64)
    return codes, places, marks
