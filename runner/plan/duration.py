"""About how long a cell will take: as long as it took before, else a rough guess. For plans and the order of cells only."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from pathlib import Path

from runner.catalog.workloads import Workload
from runner.plan.plan import Cell

# What a cell takes beside its measured windows (start, import, parity, warm-up, evaluation) on two CPU cores, and how long the
# whole run of preset full is.
_OVERHEAD_SECONDS = 20.0
_FULL_SECONDS = 1800.0

# Older runs tell of older images, and reading all of them would take its time: a millisecond or two for each file.
_NEWEST_FILES = 200

# A cell like it: on the same device model, and for want of that on any.
_LIKE = ("framework", "workload", "precision", "preset", "mode", "device_kind", "devices")


class Expectation:
    """Lengths of cells. `seen` are earlier ones, by the key of `seen()`."""

    def __init__(self, workloads: Mapping[str, Workload], seen: Mapping[tuple[object, ...], float]) -> None:
        self._workloads = workloads
        self._seen = seen

    def seconds(self, cell: Cell) -> float:
        like = tuple(getattr(cell, name) for name in _LIKE)
        return self._seen.get((*like, cell.device_model)) or self._seen.get((*like, None)) or self._guess(cell)

    def _guess(self, cell: Cell) -> float:
        seconds = {**self._workloads[cell.workload].presets}[cell.preset].seconds  # type: ignore[index]
        return _OVERHEAD_SECONDS + (seconds if seconds is not None else _FULL_SECONDS)


def seen(results: Path) -> dict[tuple[object, ...], float]:
    """Median wall seconds of the cells that ended well in the newest runs below a folder, by what they were and their device."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[tuple[object, ...], list[float]] = {}
    runs = sorted(results.glob("*/run.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    files = (file for run in runs for file in sorted((run.parent / "cells").glob("*.r*.parquet")))
    for path in itertools.islice(files, _NEWEST_FILES):
        try:
            rows = pq.read_table(path, columns=[*_LIKE, "device_model", "status", "wall_seconds"]).to_pylist()
        except (pa.ArrowException, OSError, KeyError):
            continue  # an estimate can do without a file that cannot be read
        for row in rows:
            if row["status"] == "ok" and row["wall_seconds"]:
                like = tuple(row[name] for name in _LIKE)
                for key in ((*like, row["device_model"]), (*like, None)):
                    found.setdefault(key, []).append(row["wall_seconds"])
    return {key: statistics.median(lengths) for key, lengths in found.items()}
