"""About how long a cell takes, and an image until it is ready: as long as before, otherwise a rough guess; and which images the disk
can hold. For plans only."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.catalog.images import Image
from runner.catalog.workloads import Workload
from runner.engines.base import Engine
from runner.engines.cell_cache import Room
from runner.plan.plan import Cell, Plan, tiers
from runner.results import store

# Which images the disk can hold.

# The files of an environment, as they were counted: 3 889 of tinygrad to 28 407 of PyTorch.
LEAST_FILES, MOST_FILES = 3_900, 28_500

_OTHER_DISK = "take another disk: XDG_CACHE_HOME, or the engine's data-root"

# How the reason begins of an image that is left out for want of disk.
TOO_LARGE = "the disk cannot hold it"


def fitting(plan: Plan, images: Mapping[str, Image], engine: Engine) -> Plan:
    """The plan without the images that the disk cannot hold. Those that are measured first have the first claim on the disk.

    In the catalog's order the images of one framework would fill a small disk before the next framework has one.
    """
    folder = engine.images_folder()
    if not folder or not folder.exists():
        return plan
    room = Room.of(folder)
    free_bytes, free_files = room.bytes, room.files
    held: set[str] = set()  # the parts of the images that fit
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(cell.image for tier in tiers(plan.cells, images) for cell in tier):
        parts = engine.disk_parts(images[name])
        needed = sum(size for part, size in parts.items() if part not in held)
        # An image that is there takes no room, also on a disk that is full.
        if needed and free_files is not None and free_files < LEAST_FILES:
            reasons[name] = (
                f"{TOO_LARGE}: beside the images that come first the disk takes {free_files} more files, and an image has "
                f"{LEAST_FILES} or more (`df -i` counts them); "
                f"free some, or {_OTHER_DISK}"
            )
            continue
        if needed and needed > free_bytes:
            reasons[name] = (
                f"{TOO_LARGE} beside the images that come first: it takes about {needed / 1e9:.1f} GB; free some, choose with "
                f"--images, or {_OTHER_DISK}"
            )
            continue
        free_bytes -= needed
        if needed and free_files is not None:
            free_files -= LEAST_FILES
        held.update(parts)
    fits = tuple(cell for cell in plan.cells if cell.image not in reasons)
    left_out = [cell.left_out(reasons[cell.image]) for cell in plan.cells if cell.image in reasons]
    return Plan(fits, (*plan.skips, *left_out))


# Seconds of a cell beside its measured windows (start, import, parity, warm-up, evaluation) on two CPU cores, and of a training of fixed
# length by preset.
_OVERHEAD_SECONDS = 20.0
_TRAINING_SECONDS = {"quick": 60.0, "standard": 600.0, "full": 1800.0}

# Seconds to fetch and install an image, before any has been: a fixed part, and for each byte of wheels its way over a link of 1 Gbit/s and
# its unpacking and compiling. Fifteen CPU images took 14 to 83 s on two busy cores that had the wheels near; 0.9 GB took 83 s. uv unpacks
# and compiles on all cores; that more than eight help is not assumed. The first image that is made corrects all of it.
_PREPARE_SECONDS = 30.0
_FETCH_SECONDS_A_BYTE = 8e-9
_UNPACK_SECONDS_A_BYTE = 52e-9
_MEASURED_CORES, _MOST_CORES = 2, 8

# Older runs are of older images.
_NEWEST_RUNS = 50

# A cell that took longer than a week, a longer preparation than a day, or a larger image than 1 TB, is a damaged file.
_MOST_CELL_SECONDS = 7 * 86400.0
_MOST_SECONDS = 86400.0
_MOST_BYTES = 10**12

# As if two kinds of cells had taken what was guessed: without them one slow cell would stretch all that is left, and it takes three to say
# that the machine is slow.
_AS_GUESSED = (1.0, 1.0)

# A cell takes about as long as another with the same values of these, on the same device model if one ran there.
_ALIKE = ("framework", "workload", "precision", "preset", "mode", "device_kind", "devices")
_KIND = (*_ALIKE, "device_model")


@dataclass(frozen=True)
class Preparation:
    """How long an image took until it was ready, and how many bytes had to be fetched or built for it."""

    image: str
    bytes: int
    seconds: float


@dataclass
class Durations:
    """Lengths of cells and preparations, in seconds. They learn while a run goes on.

    `earlier` are those of cells that ran before, as `earlier_seconds` returns them; `prepared` those of images, oldest first.
    """

    workloads: Mapping[str, Workload]
    earlier: Mapping[tuple[object, ...], float]
    prepared: list[Preparation] = field(default_factory=list)
    # Of the machine that makes the images.
    cores: int = _MEASURED_CORES
    # Of a run that goes on, by the ids of its cells: what its run.json says that a repeat takes, and whether that was a guess. Its report
    # says how long the rest takes by the same numbers.
    stored: dict[str, tuple[float, bool]] = field(default_factory=dict)
    # Of a run that goes on: what its run.json says of the cells that had ended.
    ended: list[dict[str, Any]] = field(default_factory=list)
    _learned: dict[tuple[object, ...], list[float]] = field(default_factory=dict)
    # How long the cells of each kind took, relative to the guess.
    _paces: dict[tuple[object, ...], list[float]] = field(default_factory=dict)

    def seconds(self, cell: Cell) -> float:
        """The estimate of a cell's seconds, by the nearest figure: its like in this run, then what the resumed run stored, then its
        like in earlier runs, then the guess at this run's pace.
        """
        alike = _alike(cell)
        if learned := self._learned.get((*alike, cell.device_model)):
            return statistics.median(learned)
        guess = self._guess(cell) * self._pace()
        if cell.id in self.stored:
            seconds, guessed = self.stored[cell.id]
            return guess if guessed else seconds
        return self.earlier.get((*alike, cell.device_model)) or self.earlier.get((*alike, None)) or guess

    def guessed(self, cell: Cell) -> bool:
        """True if nothing like the cell has been measured, in this run or in earlier ones."""
        alike = _alike(cell)
        known = (*alike, cell.device_model), (*alike, None)
        if known[0] in self._learned:
            return False
        return self.stored[cell.id][1] if cell.id in self.stored else not any(key in self.earlier for key in known)

    def learn(self, cell: Cell, seconds: float) -> None:
        """A cell of this run ended well after so many seconds."""
        kind = (*_alike(cell), cell.device_model)
        self._paces.setdefault(kind, []).append(seconds / self._guess(cell))
        self._learned.setdefault(kind, []).append(seconds)

    def took(self) -> list[dict[str, Any]]:
        """Seconds of the cells of this run that ended well, for its run.json: the median of each kind of cell."""
        known = {_kind_of(entry): entry for entry in self.ended}
        for kind, seconds in list(self._learned.items()):
            words = tuple(map(str, kind))
            known[words] = {**dict(zip(_KIND, words, strict=True)), "seconds": round(statistics.median(seconds), 3)}
        return list(known.values())

    def preparing(self, image: str, cost: int) -> float:
        """Seconds until an image is ready, with `cost` bytes to fetch or build; 0 if there are none."""
        if not cost:
            return 0.0
        if same := [each for each in self.prepared if each.image == image]:
            # Less of it may have been here then.
            return same[-1].seconds * self._guessed_preparing(cost) / self._guessed_preparing(same[-1].bytes)
        pace = [each.seconds / self._guessed_preparing(each.bytes) for each in self.prepared]
        return self._guessed_preparing(cost) * (statistics.median(pace) if pace else 1.0)

    def _guessed_preparing(self, cost: int) -> float:
        unpack = _UNPACK_SECONDS_A_BYTE * _MEASURED_CORES / min(max(1, self.cores), _MOST_CORES)
        return _PREPARE_SECONDS + (_FETCH_SECONDS_A_BYTE + unpack) * cost

    def _pace(self) -> float:
        """How long cells take in this run, relative to their guess. Each kind counts once, however many repeats it has had."""
        # A copy: another thread may learn of a kind of cell meanwhile.
        return statistics.median([*_AS_GUESSED, *map(statistics.median, list(self._paces.values()))])

    def _guess(self, cell: Cell) -> float:
        # Stored figures already hold the pace of the run until then.
        if cell.id in self.stored:
            return self.stored[cell.id][0]
        seconds = self.workloads[cell.workload].preset(cell.preset).seconds
        return _OVERHEAD_SECONDS + (seconds if seconds is not None else _TRAINING_SECONDS[cell.preset])


def _alike(cell: Cell) -> tuple[object, ...]:
    return tuple(str(getattr(cell, name)) for name in _ALIKE)


def _kind_of(entry: Mapping[str, Any]) -> tuple[str, ...]:
    # As text, since a file that no run wrote may hold lists.
    return tuple(str(entry.get(name)) for name in _KIND)


def earlier_seconds(results: Path) -> dict[tuple[object, ...], float]:
    """Median wall seconds of the cells that ended well in the newest runs below a folder.

    The keys are the values of _ALIKE with the device model, and with None for all device models together.
    """
    lengths: dict[tuple[object, ...], list[float]] = {}
    for path in _newest(results)[:_NEWEST_RUNS]:
        entries = (_manifest(path) or {}).get("took")
        for entry in entries if isinstance(entries, list) else ():
            seconds = entry.get("seconds") if isinstance(entry, dict) else None
            # NaN fails these bounds, too.
            if isinstance(seconds, int | float) and 0 < seconds <= _MOST_CELL_SECONDS:
                *alike, model = _kind_of(entry)
                for key in ((*alike, model), (*alike, None)):
                    lengths.setdefault(key, []).append(seconds)
    return {key: statistics.median(values) for key, values in lengths.items()}


def earlier_preparations(results: Path, engine: str) -> list[Preparation]:
    """How long the images took that this engine prepared in the newest runs below a folder, oldest first."""
    found: list[Preparation] = []
    for path in reversed(_newest(results)[:_NEWEST_RUNS]):
        manifest = _manifest(path)
        if manifest is not None and manifest.get("engine") == engine:
            found += _preparations(manifest.get("prepared"))
    return found


def _manifest(path: Path) -> dict[str, Any] | None:
    """The content of a run.json. None if it cannot be read: an estimate can do without."""
    try:
        manifest = json.loads(store.read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _preparations(entries: object) -> Iterator[Preparation]:
    """The entries of a run.json that a run can have written. An estimate can do without the others."""
    for entry in entries if isinstance(entries, list) else ():
        image, size, seconds = (entry.get(name) if isinstance(entry, dict) else None for name in _PREPARED)
        if not (isinstance(image, str) and isinstance(size, int) and isinstance(seconds, int | float)):
            continue
        if 0 < size <= _MOST_BYTES and 0 < seconds <= _MOST_SECONDS:
            yield Preparation(image, size, float(seconds))


# The fields of an entry, in the order of Preparation's.
_PREPARED = ("image", "bytes", "seconds")


def _newest(results: Path) -> Sequence[Path]:
    """The run.json of every run below a folder, newest first."""
    return sorted(results.glob("*/run.json"), key=lambda path: path.lstat().st_mtime, reverse=True)
