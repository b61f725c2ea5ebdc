"""Judges of sets: what each parcel of a run may be by itself, and not beside another one. All doors come through the tables of a run.

The first of two repeats of one cell stands, since one of them was measured. Of two cells neither does: nobody knows which was.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from runner.results.rows import chosen, floats, place_codes, rows_of
from runner.results.statistics import Array

if TYPE_CHECKING:
    import pyarrow as pa


# Repeats whose windows are those of another one: as they are, scaled, mirrored, begun later, backwards or in another order. Pure.
#
# Two repeats differ by their noise. A pattern that both have, such as that of their data, is not a thousand times as large.

# How a window differs from the one before it is the same to a thousandth of what such differences are. Windows that differ by less than
# the last figure have no pattern.
_SAME = 1e-3
_FEWEST_WINDOWS = 12
_LEAST_PATTERN = 1e-5
_MOST_DIFFERENCES = 64

# A copy may leave out so many windows at its beginning.
_MOST_LATER = 8
# The least share of equal differences: of windows as they are, where a forger may have changed some, and of those in another order,
# which more pairs of honest repeats are held to.
_AS_THEY_ARE, _IN_ANOTHER_ORDER = 0.5, 0.9
# A clock that counts in few steps makes windows that are equal by chance: those are not looked for in another order.
_DISTINCT = 0.9
# Forms are not looked at further whose first two differences have another proportion, as an angle, or of whose first ones fewer are equal.
_ANGLE = 0.02
_HEAD, _LEAST_HEAD = _FEWEST_WINDOWS - 1, 0.4

# The differences between neighbouring windows: as they are, backwards, and by size.
Forms = tuple[tuple[float, ...], ...]

Where = TypeVar("Where")


@dataclass(frozen=True)
class _Form:
    differences: Array
    is_by_size: bool
    is_first: bool
    least_share: float


def forms(seconds: Array) -> Forms:
    """Those of the steady windows of a repeat, in seconds a step; none where it has no pattern."""
    if len(seconds) < _FEWEST_WINDOWS or not np.all(seconds > 0):
        return ()
    own = np.diff(seconds / np.median(seconds))
    if np.median(np.abs(own)) < _LEAST_PATTERN:
        return ()
    if len(np.unique(seconds)) < _DISTINCT * len(seconds):
        return (tuple(own[:_MOST_DIFFERENCES].tolist()),)
    orders = (own[: _MOST_DIFFERENCES + _MOST_LATER], -own[::-1][:_MOST_DIFFERENCES], np.diff(np.sort(seconds)))
    return tuple(tuple(order[: _MOST_DIFFERENCES + _MOST_LATER].tolist()) for order in orders)


def _every(each: Forms) -> Iterator[_Form]:
    for order, differences in enumerate(map(np.array, each)):
        by_size = order == 2
        for later in range(_MOST_LATER + 1 if order == 0 and len(each) > 1 else 1):
            rest = differences[later : later + _MOST_DIFFERENCES]
            first = order == 0 and not later
            if len(rest) >= _HEAD:
                yield _Form(rest, by_size, first, _AS_THEY_ARE if first and len(each) > 1 else _IN_ANOTHER_ORDER)


def _angle(differences: Array) -> float:
    """The proportion of the first differences, which no factor changes."""
    return float(np.arctan2(differences[1], differences[0]) % np.pi)


def _share(own: Array, others: Array) -> Array:
    """How many differences of each row are those of `own`, times a factor."""
    if not len(others) or not np.any(own):
        return np.zeros(len(others))
    factors = np.median(others[:, own != 0] / own[own != 0], axis=1, keepdims=True)
    same = np.abs(others - factors * own) <= _SAME * np.abs(factors) * np.median(np.abs(own))
    shares: Array = np.mean(same, axis=1)
    return shares


def _are_alike(one: _Form, other: _Form) -> bool:
    if one.is_by_size != other.is_by_size or not (one.is_by_size or one.is_first or other.is_first):
        return False
    most = min(len(one.differences), len(other.differences))
    share = _share(one.differences[:most], other.differences[None, :most])[0]
    return bool(share >= max(one.least_share, other.least_share))


class KnownWindows(Generic[Where]):
    """The windows of many repeats, to find the one of which another is a copy."""

    def __init__(self) -> None:
        self._known: list[tuple[float, _Form, Where]] = []
        self._sorted: tuple[Array, Array] | None = None

    def add(self, each: Forms, where: Where) -> None:
        """Know these again."""
        self._known += [(_angle(form.differences), form, where) for form in _every(each)]
        self._sorted = None

    def _by_angle(self) -> tuple[Array, Array]:
        """The angles of all known forms, and their first differences."""
        if self._sorted is None:
            self._known.sort(key=lambda known: known[0])
            heads = [form.differences[:_HEAD] for _, form, _ in self._known]
            self._sorted = np.array([angle for angle, _, _ in self._known]), np.array(heads).reshape(-1, _HEAD)
        return self._sorted

    def like(self, each: Forms) -> Iterator[Where]:
        """The places of known repeats whose windows have one of these forms."""
        angles, heads = self._by_angle()
        for form in _every(each):
            angle = _angle(form.differences)
            # An angle near 0 may be one near the other end.
            for near in (angle, angle - np.pi, angle + np.pi):
                begin, end = np.searchsorted(angles, [near - _ANGLE, near + _ANGLE])
                shares = _share(form.differences[:_HEAD], heads[begin:end])
                for at in np.flatnonzero(shares >= _LEAST_HEAD) + begin:
                    _, other, where = self._known[at]
                    if _are_alike(form, other):
                        yield where


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
