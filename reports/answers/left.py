"""The rest of a run that is not yet measured, and the command that goes on with it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.data.model import MeasuredCell, StoredRun
from reports.wording import plural
from runner.results.cells import resume_command
from runner.text import length, visible

# Of more, hours are said.
_MOST_MINUTES = 90


@dataclass(frozen=True)
class Left:
    """The rest of one run."""

    run_id: str
    imported: bool
    out: str  # the folder of its results
    repeats: int
    cells: int  # of them without any repeat
    seconds: float  # an estimate

    @property
    def command(self) -> str:
        if self.imported:
            return "run kit.py again on the machine that measured it"
        return resume_command(self.run_id, self.out)

    @property
    def count(self) -> str:
        """As the end of `runner matrix` counts it."""
        without = f" ({plural(self.cells, 'cell')} without any repeat)" if self.cells else ""
        return f"{plural(self.repeats, 'repeat')} not yet run{without}"

    @property
    def time(self) -> str:
        return f", about {length(self.seconds)}" if self.seconds else ""


def left(cells: Iterable[MeasuredCell], records: Iterable[StoredRun] = ()) -> tuple[Left, ...]:
    """The rest of each run of these cells; a complete run has no entry. `records` hold what the runner stored of the runs."""
    stored = {run.run_id: run.manifest.get("left") for run in records}
    runs: dict[str, list[MeasuredCell]] = {}
    for cell in cells:
        runs.setdefault(cell.run_id, []).append(cell)
    return tuple(entry for run, of_run in runs.items() if (entry := _of(of_run, stored.get(run))).repeats)


def lacks(cell: MeasuredCell) -> int:
    """How many of the cell's repeats are planned and not yet run."""
    return max(0, cell.planned - len(cell.repeats))


def named(waiting: Iterable[MeasuredCell]) -> list[str]:
    """A line for each workload and device with the labels of its cells that are not yet run: a count alone names none."""
    labels: dict[str, list[str]] = {}
    for cell in waiting:
        place = ", ".join((cell.key.workload, cell.key.device, cell.key.precision, cell.key.preset))
        labels.setdefault(visible(place, 200), []).append(visible(cell.label, 200))
    return [f"{place}: {', '.join(cells)}" for place, cells in labels.items()]


def _of(cells: list[MeasuredCell], stored: Mapping[str, Any] | None) -> Left:
    repeats = sum(map(lacks, cells))
    return Left(
        run_id=cells[0].run_id,
        imported=cells[0].imported,
        out=cells[0].out,
        repeats=repeats,
        cells=sum(not cell.repeats for cell in cells),
        # A runner that was killed stored it a while before its last repeat ended.
        seconds=stored["seconds"] * repeats / stored["repeats"] if stored and stored["repeats"] else _seconds(cells),
    )


def _seconds(cells: Iterable[MeasuredCell]) -> float:
    """The rest of these cells, if the run stored no estimate: a cell that was never run takes as long as the middle one of those that
    were."""
    cells = list(cells)
    known = [seconds for cell in cells if (seconds := wall_seconds(cell))]
    typical = float(np.median(known)) if known else 0.0
    return sum(lacks(cell) * (wall_seconds(cell) or typical) for cell in cells)


def alone(cells: Iterable[MeasuredCell], repeats: int | None = None) -> str:
    """The command that measures these cells in a new run, each so often, with those at fp32 that their rank rests on, and nothing else."""
    cells = list(cells)
    precisions = {cell.key.precision for cell in cells}
    # Their rank rests on it.
    precisions |= {"fp32"} if any(cell.at_fp32 or cell.unproved for cell in cells) else set()
    options = {
        "--images": {cell.image for cell in cells},
        "--frameworks": {cell.framework for cell in cells},
        "--workloads": {cell.key.workload for cell in cells},
        "--precision": precisions if precisions != {"fp32"} else set(),
        "--preset": {cell.key.preset for cell in cells} - {"quick"},
        # Without it a framework's other modes would be measured, too.
        "--modes": {cell.mode or "default" for cell in cells},
        "--devices": {str(cell.key.devices) for cell in cells}
        if any(cell.key.devices > 1 for cell in cells)
        else set(),
        "--scaling": {cell.key.scaling for cell in cells} - {"", "weak"},
        "--gpus": {"none"} if all(cell.key.device_kind == "cpu" for cell in cells) else set(),
        "--repeats": {str(repeats)} if repeats else set(),
    }
    words = (f"{name} {shlex.quote(','.join(sorted(values)))}" for name, values in options.items() if values)
    return " ".join(["runner matrix", *words])


def time_of(cells: Iterable[MeasuredCell], repeats: int) -> str:
    """About how long so many repeats of each cell take, in brackets; empty where no repeat recorded its time."""
    minutes = sum(map(wall_seconds, cells)) * repeats / 60
    many = max(1, round(minutes))
    return f" (about {f'{many} min' if many < _MOST_MINUTES else length(60 * many)})" if minutes else ""


def wall_seconds(cell: MeasuredCell) -> float:
    """Of the longest repeat of a cell; 0 where none was recorded."""
    seconds = [repeat.row.get("wall_seconds") for repeat in cell.repeats]
    return max((float(one) for one in seconds if one is not None and math.isfinite(one)), default=0.0)
