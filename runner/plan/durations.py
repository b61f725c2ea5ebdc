"""About how long a cell will take: as long as it took before, otherwise a rough guess. For plans and the order of cells only."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.catalog.workloads import Workload
from runner.plan.plan import Cell

# What a cell takes beside its measured windows (start, import, parity, warm-up, evaluation) on two CPU cores, and how long the
# whole run of preset full is.
_OVERHEAD_SECONDS = 20.0
_FULL_SECONDS = 1800.0

# Reading takes a millisecond or two for each file, and older runs are of older images.
_NEWEST_FILES = 200

# A cell takes about as long as another with the same values of these, on the same device model if one ran there.
_ALIKE = ("framework", "workload", "precision", "preset", "mode", "device_kind", "devices")


@dataclass(frozen=True)
class Durations:
    """Lengths of cells. `earlier` are those of cells that ran before, as `earlier_seconds` returns them."""

    workloads: Mapping[str, Workload]
    earlier: Mapping[tuple[object, ...], float]

    def seconds(self, cell: Cell) -> float:
        alike = tuple(getattr(cell, name) for name in _ALIKE)
        return self.earlier.get((*alike, cell.device_model)) or self.earlier.get((*alike, None)) or self._guess(cell)

    def _guess(self, cell: Cell) -> float:
        seconds = self.workloads[cell.workload].preset(cell.preset).seconds
        return _OVERHEAD_SECONDS + (seconds if seconds is not None else _FULL_SECONDS)


def earlier_seconds(results: Path) -> dict[tuple[object, ...], float]:
    """Median wall seconds of the cells that ended well in the newest runs below a folder.

    The keys are the values of _ALIKE with the device model, and with None for all device models together.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    lengths: dict[tuple[object, ...], list[float]] = {}
    runs = sorted(results.glob("*/run.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    files = (file for run in runs for file in sorted((run.parent / "cells").glob("*.r*.parquet")))
    for path in itertools.islice(files, _NEWEST_FILES):
        try:
            rows = pq.read_table(path, columns=[*_ALIKE, "device_model", "status", "wall_seconds"]).to_pylist()
        except (pa.ArrowException, OSError, KeyError):
            # An estimate can do without a file that cannot be read.
            continue
        for row in rows:
            if row["status"] == "ok" and row["wall_seconds"]:
                alike = tuple(row[name] for name in _ALIKE)
                for key in ((*alike, row["device_model"]), (*alike, None)):
                    lengths.setdefault(key, []).append(row["wall_seconds"])
    return {key: statistics.median(seconds) for key, seconds in lengths.items()}
