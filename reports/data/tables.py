"""From stored frames to typed records: cells are put together from their repeats, grouped by what is comparable, and ranked."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from bench.rules import seconds_column
from reports.data import curves, operators, profiles, telemetry
from reports.data.costs import COSTS
from reports.data.groups import workloads
from reports.data.model import (
    PHASES,
    Curve,
    Key,
    MeasuredCell,
    ParityRow,
    Repeat,
    Run,
    Score,
    Skipped,
    Tables,
    Windows,
)
from reports.specifications import specification
from runner.results import statistics
from runner.results.store import TABLES, RunStore, read

Row = Mapping[str, Any]
Place = tuple[str, str, int]  # run id, cell id, repeat

FRAMES = ("cells", "samples", "metrics", "parity", "operations", "profile", "telemetry")  # of the store

_WHOLE = {name for columns in TABLES.values() for name, kind in columns if kind.startswith("int")}


def load(folders: Sequence[Path]) -> Tables:
    """The page's rows of the runs in `folders`. Raises StoreError where one is no readable run."""
    manifests = [RunStore(folder).manifest() for folder in folders]
    return build(manifests, {name: read(folders, name) for name in FRAMES})


def build(manifests: Sequence[Mapping[str, Any]], frames: Mapping[str, pd.DataFrame]) -> Tables:
    """The page's rows, from each run's manifest and the tables FRAMES of all runs."""
    stored = _rows(frames["cells"])
    ran: dict[tuple[str, str], list[Row]] = {}
    for row in stored:
        if row["status"] != "skipped":
            ran.setdefault((row["run_id"], row["cell_id"]), []).append(row)
    parts = {name: _by_repeat(frames[name]) for name in ("samples", "metrics", "parity", "telemetry")}
    cells = []
    for manifest in manifests:
        plan = {entry["id"]: entry for entry in manifest["plan"]}
        ids = list(plan) + [cell for run, cell in ran if run == manifest["run_id"] and cell not in plan]
        for cell_id in ids:
            rows = ran.get((manifest["run_id"], cell_id), [])
            cells.append(_cell(manifest, cell_id, plan.get(cell_id), rows, parts))
    cells = _labelled(cells)
    runs = tuple(Run(manifest["run_id"], manifest) for manifest in manifests)
    left_out = _skipped(row for row in stored if row["status"] == "skipped")
    return Tables(
        runs, workloads(cells), left_out, operators.rates(frames["operations"]), profiles.profiles(frames["profile"])
    )


def _rows(frame: pd.DataFrame) -> list[Row]:
    """The frame's rows with None for every null. Beside nulls pandas makes whole numbers floats: they become whole again."""
    columns: dict[str, list[Any]] = {}
    for name in frame.columns:
        values, gone = frame[name].tolist(), frame[name].isna().tolist()
        whole = name in _WHOLE
        columns[name] = [None if no else int(value) if whole else value for value, no in zip(values, gone, strict=True)]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _by_repeat(frame: pd.DataFrame) -> dict[Place, pd.DataFrame]:
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


def _windows(frame: pd.DataFrame | None) -> Windows:
    if frame is None:
        empty = np.empty(0)
        return Windows(empty, (), empty, empty, empty, empty)
    begin, seconds, steps, items, index = (
        telemetry.floats(frame, name) for name in ("begin_seconds", "seconds", "steps", "items", "index")
    )
    stage = np.array(frame["stage"].tolist(), dtype=object)
    # A window without steps, or in which the clock stood still, has no step time. No clock resolves less than a nanosecond.
    kept = np.flatnonzero((steps > 0) & (seconds >= 1e-9))
    kept = kept[np.argsort(index[kept], kind="stable")]
    return Windows(index[kept], tuple(stage[kept].tolist()), begin[kept], seconds[kept], steps[kept], items[kept])


def _curves(frame: pd.DataFrame | None, repeat: int) -> tuple[Curve, ...]:
    if frame is None:
        return ()
    curves = []
    for (name, split), part in frame.groupby(["name", "split"], sort=True):
        part = part.sort_values("step", kind="stable")
        columns = (telemetry.floats(part, name) for name in ("step", "train_seconds", "value"))
        curves.append(Curve(str(name), str(split), repeat, *columns))
    return tuple(curves)


def _repeat(row: Row, place: Place, reused: bool, parts: Mapping[str, Mapping[Place, pd.DataFrame]]) -> Repeat:
    windows = _windows(parts["samples"].get(place))
    curves = _curves(parts["metrics"].get(place), place[2])
    signals = telemetry.signals(parts["telemetry"].get(place), telemetry.values_each(len(parts["samples"])))
    repeat = Repeat(place[2], str(row["status"]), reused, None, windows, curves, row, signals)
    return replace(repeat, shift=statistics.level_shift(repeat.steady_step_seconds))


def _cell(
    manifest: Mapping[str, Any],
    cell_id: str,
    planned: Row | None,
    rows: Sequence[Row],
    parts: Mapping[str, Mapping[Place, pd.DataFrame]],
) -> MeasuredCell:
    """One cell from its stored repeats. `planned` is its entry in the manifest's plan; None where the plan has none."""
    run_id = str(manifest["run_id"])
    reused = {(entry["cell_id"], entry["repeat"]) for entry in manifest.get("reused", [])}
    repeats = tuple(
        _repeat(row, (run_id, cell_id, row["repeat"]), (cell_id, row["repeat"]) in reused, parts)
        for row in sorted(rows, key=lambda row: int(row["repeat"]))
    )
    row: Row = next((repeat.row for repeat in repeats if repeat.status == "ok"), rows[0] if rows else planned or {})
    planned_repeats = max(int(manifest["repeats"]) if planned is not None else len(repeats), len(repeats))
    status, reason = _status(repeats, planned_repeats)
    measured = [repeat for repeat in repeats if len(repeat.steady_step_seconds)]
    step = statistics.median_estimate([repeat.steady_step_seconds for repeat in measured])
    if step is not None:
        step = statistics.widened(step, [repeat.shift for repeat in measured if repeat.shift is not None])
    parities = [stored["parity_passed"] for stored in rows if stored["parity_passed"] is not None]
    short = any(stored["short"] for stored in rows)
    return MeasuredCell(
        anchor="",
        label=str(row.get("image")),
        run_id=run_id,
        cell_id=cell_id,
        image=str(row.get("image")),
        framework=str(row.get("framework")),
        mode=str(row.get("mode") or "default"),
        engine=str(row.get("engine") or manifest["engine"]),
        seed=row.get("seed"),
        key=_key(row),
        status=status,
        reason=reason,
        planned=planned_repeats,
        repeats=repeats,
        step=step,
        items_per_step=_items_per_step(measured),
        first_step_seconds=_middle(rows, "first_step_seconds"),
        phases={name: seconds for name in PHASES if (seconds := _middle(rows, seconds_column(name))) is not None},
        costs={**_costs(rows), **curves.waiting(measured)},
        throttled=_throttled(rows),
        score=_score(repeats, str((specification(str(row.get("workload"))).get("metric") or {}).get("name") or "")),
        parity_passed=bool(all(parities)) if parities else None,
        parity=_parity([parts["parity"].get((run_id, cell_id, repeat.number)) for repeat in repeats]),
        short=short,
        total_seconds=None if short or status != "ok" else _total(repeats),
        environment=_environment(row),
        row=row,
        host=manifest.get("host") or {},
        command=_command(row, manifest),
    )


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


def _status(repeats: Sequence[Repeat], planned: int) -> tuple[str, str]:
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


def _items_per_step(repeats: Sequence[Repeat]) -> float | None:
    shares = [repeat.windows.items / repeat.windows.steps for repeat in repeats]
    return float(np.median(np.concatenate(shares))) if shares else None


def _middle(rows: Iterable[Row], column: str) -> float | None:
    values = statistics.clean([row[column] for row in rows if row.get(column) is not None])
    return float(np.median(values)) if len(values) else None


def _costs(rows: Sequence[Row]) -> Mapping[str, float]:
    """The median over the repeats of each cost that some of them recorded."""
    return {cost.name: middle for cost in COSTS if (middle := _middle(rows, cost.name)) is not None}


def _throttled(rows: Iterable[Row]) -> tuple[str, ...]:
    """Why a cell's device slowed down in any repeat; empty where it did not."""
    slowed = (row.get("throttled_by") for row in rows if row.get("throttled"))
    return tuple(sorted({str(why) for reasons in slowed if reasons is not None for why in reasons}))


def _total(repeats: Sequence[Repeat]) -> float | None:
    """Median seconds of the whole training as specified: first step, warm-up, every window; no evaluation."""
    totals = [float(np.sum(repeat.windows.seconds)) for repeat in repeats if len(repeat.windows)]
    return float(np.median(totals)) if totals else None


def _score(repeats: Iterable[Repeat], metric: str) -> Score | None:
    """The last value of the test metric in each repeat that ended well. The metric is the workload's; for a workload that this
    checkout does not have, it is the first metric."""
    name, last, steps = "", [], []
    for repeat in repeats:
        tests = [curve for curve in repeat.curves if curve.split == "test" and curve.name != "loss"]
        tests.sort(key=lambda curve: curve.name != metric)
        if repeat.status == "ok" and tests and math.isfinite(tests[0].values[-1]):
            name = tests[0].name
            last.append(float(tests[0].values[-1]))
            steps.append(int(tests[0].steps[-1]))
    return Score(name, float(np.median(last)), min(last), max(last), len(last), min(steps)) if last else None


def _parity(frames: Iterable[pd.DataFrame | None]) -> tuple[ParityRow, ...]:
    """For each quantity, the tensor nearest to its bound, over all repeats."""
    worst: dict[str, ParityRow] = {}
    tensors: dict[str, set[str]] = {}
    for frame in frames:
        for row in [] if frame is None else _rows(frame):
            quantity, tensor = str(row["quantity"]), str(row["tensor"])
            tensors.setdefault(quantity, set()).add(tensor)
            bound = math.nan if row["bound"] is None else float(row["bound"])
            current = ParityRow(
                quantity, tensor, row["error"], bound, bool(row["passed"]), str(row["variant"] or ""), 0
            )
            kept = worst.get(quantity)
            if kept is None or (current.passed, -current.share) < (kept.passed, -kept.share):
                worst[quantity] = current
    return tuple(replace(row, tensors=len(tensors[name])) for name, row in worst.items())


def _environment(row: Row) -> Mapping[str, Any]:
    """The stored environment event; empty where the cell ended before it."""
    text = row.get("environment_json")
    try:
        event = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {"unreadable environment event": str(text)}
    return event if isinstance(event, dict) else {}


def _command(row: Row, manifest: Mapping[str, Any]) -> str:
    """The command that measures this cell again on a machine of this kind."""
    gpus = "none" if row.get("device_kind") != "cuda" else str(row.get("devices") or 1)
    uuids = row.get("device_uuids")
    if gpus != "none" and uuids is not None and len(uuids):
        gpus = ",".join(str(uuid) for uuid in uuids)
    several = row.get("devices") if int(row.get("devices") or 1) > 1 else None
    options = {
        "gpus": gpus,
        "images": row.get("image"),
        "frameworks": row.get("framework"),
        "workloads": row.get("workload"),
        "precision": row.get("precision"),
        "modes": row.get("mode"),
        "preset": row.get("preset"),
        "engine": row.get("engine") or manifest["engine"],
        "seed": row.get("seed"),
        "repeats": manifest["repeats"],
        "devices": several,
        "scaling": (row.get("scaling") or None) if several else None,
    }
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return shlex.join(["runner", "matrix", *words])


def _labelled(cells: Sequence[MeasuredCell]) -> list[MeasuredCell]:
    """Each cell with an anchor, and a label that no other cell of its group has: with mode, engine and run where needed."""
    engines = {cell.engine for cell in cells}
    labels = []
    for cell in cells:
        parts = (cell.name, cell.engine if len(engines) > 1 else "", cell.uuid)
        labels.append(" · ".join(filter(None, parts)))
    counts = Counter((cell.key, label) for cell, label in zip(cells, labels, strict=True))
    out = []
    for index, (cell, label) in enumerate(zip(cells, labels, strict=True), start=1):
        if counts[cell.key, label] > 1:
            label = f"{label} · {cell.run_id}"
        out.append(replace(cell, anchor=f"cell-{index}", label=label))
    return out


def _skipped(rows: Iterable[Row]) -> tuple[Skipped, ...]:
    reasons: dict[str, list[Row]] = {}
    for row in rows:
        reasons.setdefault(str(row["reason"] or "no reason was given"), []).append(row)
    return tuple(Skipped(reason, tuple(left_out)) for reason, left_out in reasons.items())
