"""Stored rows put together: each cell with its repeats, their windows, how they ended, and how long a step took.

The report and `runner verify` both begin with these cells.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd

from runner.results import statistics
from runner.results.statistics import Array, Estimate, Shift
from runner.results.store import TABLES

Row = Mapping[str, Any]
Place = tuple[str, str, int]  # run id, cell id, repeat

_WHOLE = {name for columns in TABLES.values() for name, kind in columns if kind.startswith("int")}


@dataclass(frozen=True)
class Windows:
    """The measured windows of one repeat, in their order, as parallel columns."""

    index: Array
    stage: tuple[str, ...]
    begin: Array
    seconds: Array
    steps: Array
    items: Array

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, kw_only=True)
class StoredRepeat:
    """One process of a cell: how it ended and what it measured. The row's other columns stay in `row`."""

    number: int
    status: str
    shift: Shift | None
    windows: Windows
    row: Row

    @property
    def steady_step_seconds(self) -> Array:
        """Seconds per step of each steady window."""
        return _steady_step_seconds(self.windows)


@dataclass(frozen=True)
class Key:
    """What cells must share to be compared."""

    workload: str
    precision: str
    preset: str
    device_kind: str
    device_model: str
    devices: int
    batch: int
    data_source: str
    scaling: str = ""  # of several devices: weak, where the batch is that of each, or strong

    @property
    def device(self) -> str:
        if self.devices == 1:
            return self.device_model
        return f"{self.devices} × {self.device_model}" + (f", {self.scaling} scaling" if self.scaling else "")


@dataclass(frozen=True, kw_only=True)
class StoredCell:
    """One cell of one run with all its repeats. Its status is that of its worst repeat; `missing` where a planned repeat did not end."""

    run_id: str
    cell_id: str
    image: str
    framework: str
    mode: str
    engine: str
    key: Key
    status: str
    reason: str
    planned: int  # repeats
    repeats: tuple[StoredRepeat, ...]
    step: Estimate | None
    items_per_step: float | None
    first_step_seconds: float | None
    parity_passed: bool | None
    environment: Mapping[str, Any]
    row: Row  # of the first repeat that ended well, else of the first

    @property
    def measured(self) -> list[StoredRepeat]:
        """The repeats that have a steady window."""
        return [repeat for repeat in self.repeats if len(repeat.steady_step_seconds)]

    @property
    def items_per_second(self) -> Estimate | None:
        """Items per second: the step time's estimate, inverted."""
        step, items = self.step, self.items_per_step
        if step is None or items is None or step.value <= 0:
            return None
        low, high = (None if end is None else items / end for end in (step.high, step.low))
        return Estimate(items / step.value, low, high, step.windows, step.repeats, step.method, step.note)

    @property
    def shifts(self) -> tuple[tuple[int, Shift], ...]:
        """(repeat, shift) of each repeat whose level changed midway."""
        return tuple((repeat.number, repeat.shift) for repeat in self.repeats if repeat.shift is not None)

    @property
    def variant(self) -> tuple[str, str]:
        """What the cell computes instead of the specification, and why. Both are empty where it computes the specification."""
        settings = self.environment.get("settings")
        entries = settings if isinstance(settings, dict) else {}
        return str(entries.get("variant") or ""), str(entries.get("variant_reason") or "no reason was given")


def stored_cells(
    manifests: Sequence[Mapping[str, Any]], cells: Sequence[Row], samples: Mapping[Place, pd.DataFrame]
) -> list[tuple[StoredCell, list[Row]]]:
    """Every cell of some runs with its rows, in the order of the plans; a row without a plan's entry comes last in its run.

    `cells` are the rows of that table and `samples` the parts of that one by repeat.
    """
    ran: dict[tuple[str, str], list[Row]] = {}
    for row in cells:
        if row["status"] != "skipped":
            ran.setdefault((row["run_id"], row["cell_id"]), []).append(row)
    result = []
    for manifest in manifests:
        plan = {entry["id"]: entry for entry in manifest["plan"]}
        ids = list(plan) + [cell for run, cell in ran if run == manifest["run_id"] and cell not in plan]
        for cell_id in ids:
            rows = sorted(ran.get((manifest["run_id"], cell_id), []), key=lambda row: int(row["repeat"]))
            result.append((_cell(manifest, cell_id, plan.get(cell_id), rows, samples), rows))
    return result


def rows_of(frame: pd.DataFrame) -> list[Row]:
    """The frame's rows with None for every null. Beside nulls pandas makes whole numbers floats: they become whole again."""
    columns: dict[str, list[Any]] = {}
    for name in frame.columns:
        values, nulls = frame[name].tolist(), frame[name].isna().tolist()
        whole = name in _WHOLE
        pairs = zip(values, nulls, strict=True)
        columns[name] = [None if null else int(value) if whole else value for value, null in pairs]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def by_repeat(frame: pd.DataFrame) -> dict[Place, pd.DataFrame]:
    """The frame cut up by run, cell and repeat, each part in its stored order."""
    if frame.empty:
        return {}
    keys = ["run_id", "cell_id", "repeat"]
    parts = cast("dict[tuple[str, str, int], Any]", frame.groupby(keys, sort=False).indices)
    # A repeat's rows come from one file and lie together. A slice costs nothing; picking rows copies them.
    return {
        (run, cell, int(repeat)): frame.iloc[rows[0] : rows[-1] + 1]
        if np.ptp(rows) + 1 == len(rows)
        else frame.iloc[rows]
        for (run, cell, repeat), rows in parts.items()
    }


def floats(frame: pd.DataFrame, name: str) -> Array:
    """A column as floats, NaN for every null."""
    return frame[name].to_numpy(dtype=np.float64, na_value=math.nan)


def middle(rows: Iterable[Row], name: str) -> float | None:
    """The median of a column over the rows that have it."""
    values = statistics.clean([row[name] for row in rows if row.get(name) is not None])
    return float(np.median(values)) if len(values) else None


def _windows(frame: pd.DataFrame | None) -> Windows:
    if frame is None:
        empty = np.empty(0)
        return Windows(empty, (), empty, empty, empty, empty)
    begin, seconds, steps, items, index = (
        floats(frame, name) for name in ("begin_seconds", "seconds", "steps", "items", "index")
    )
    stage = np.array(frame["stage"].tolist(), dtype=object)
    # A window without steps, or in which the clock stood still, has no step time. No clock resolves less than a nanosecond.
    kept = np.flatnonzero((steps > 0) & (seconds >= 1e-9))
    kept = kept[np.argsort(index[kept], kind="stable")]
    return Windows(index[kept], tuple(stage[kept].tolist()), begin[kept], seconds[kept], steps[kept], items[kept])


def _steady_step_seconds(windows: Windows) -> Array:
    steady = [stage == "steady" for stage in windows.stage]
    return windows.seconds[steady] / windows.steps[steady]


def _repeat(row: Row, frame: pd.DataFrame | None) -> StoredRepeat:
    windows = _windows(frame)
    shift = statistics.level_shift(_steady_step_seconds(windows))
    return StoredRepeat(number=row["repeat"], status=str(row["status"]), shift=shift, windows=windows, row=row)


def _cell(
    manifest: Mapping[str, Any],
    cell_id: str,
    planned: Row | None,
    rows: Sequence[Row],
    samples: Mapping[Place, pd.DataFrame],
) -> StoredCell:
    """One cell from its rows by repeat; `planned` is its entry in the manifest's plan; None where the plan has none."""
    run_id = str(manifest["run_id"])
    repeats = tuple(_repeat(row, samples.get((run_id, cell_id, row["repeat"]))) for row in rows)
    row: Row = next((repeat.row for repeat in repeats if repeat.status == "ok"), rows[0] if rows else planned or {})
    count = max(int(manifest["repeats"]) if planned is not None else len(repeats), len(repeats))
    status, reason = _status(repeats, count)
    passed = [row["parity_passed"] for row in rows if row["parity_passed"] is not None]
    cell = StoredCell(
        run_id=run_id,
        cell_id=cell_id,
        image=str(row.get("image")),
        framework=str(row.get("framework")),
        mode=str(row.get("mode") or "default"),
        engine=str(row.get("engine") or manifest["engine"]),
        key=_key(row),
        status=status,
        reason=reason,
        planned=count,
        repeats=repeats,
        step=None,
        items_per_step=None,
        first_step_seconds=middle(rows, "first_step_seconds"),
        parity_passed=all(passed) if passed else None,
        environment=_environment(row),
        row=row,
    )
    return replace(cell, step=_step(cell.measured), items_per_step=_items_per_step(cell.measured))


def _step(repeats: Sequence[StoredRepeat]) -> Estimate | None:
    """Seconds a step; of an unsteady repeat either level may be the one to come, so the interval holds both."""
    step = statistics.median_estimate([repeat.steady_step_seconds for repeat in repeats])
    if step is None:
        return None
    return statistics.widened(step, [repeat.shift for repeat in repeats if repeat.shift is not None])


def _items_per_step(repeats: Sequence[StoredRepeat]) -> float | None:
    shares = [repeat.windows.items / repeat.windows.steps for repeat in repeats]
    return float(np.median(np.concatenate(shares))) if shares else None


def _key(row: Row) -> Key:
    return Key(
        workload=str(row.get("workload") or "unknown"),
        precision=str(row.get("precision") or "unknown"),
        preset=str(row.get("preset") or "unknown"),
        device_kind=str(row.get("device_kind") or "unknown"),
        device_model=str(row.get("device_model") or "unknown"),
        devices=int(row.get("devices") or 1),
        batch=int(row.get("batch") or 0),
        data_source=str(row.get("data_source") or ""),
        scaling=str(row.get("scaling") or ""),
    )


def _status(repeats: Sequence[StoredRepeat], planned: int) -> tuple[str, str]:
    """The worst status among the planned repeats, and the sentence for it."""
    bad = [repeat for repeat in repeats if repeat.status != "ok"]
    if bad:
        first = bad[0].row
        reason = f"{first['error_kind'] or 'failed'}: {first['reason'] or 'no reason was given'}"
        share = f"{len(bad)} of {planned} repeats: " if planned > 1 else ""
        return "failed", share + reason
    if len(repeats) < planned:
        return (
            "missing",
            f"{len(repeats)} of {planned} repeats ended before the run was stopped; --resume runs the rest",
        )
    return "ok", ""


def _environment(row: Row) -> Mapping[str, Any]:
    """The stored environment event; empty where the cell ended before it printed one."""
    text = row.get("environment_json")
    try:
        environment = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {"unreadable environment event": str(text)}
    return environment if isinstance(environment, dict) else {}
