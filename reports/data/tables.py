"""From stored frames to typed records: cells are put together from their repeats, grouped by what is comparable, and ranked."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.rules import seconds_column
from reports.data import curves, operators, profiles, telemetry
from reports.data.costs import COSTS
from reports.data.groups import workloads
from reports.data.model import (
    PHASES,
    Curve,
    MeasuredCell,
    ParityRow,
    Repeat,
    Run,
    Score,
    Skipped,
    Tables,
)
from reports.specifications import specification
from runner.results.cells import (
    Place,
    Row,
    StoredCell,
    StoredRepeat,
    by_repeat,
    floats,
    middle,
    rows_of,
    stored_cells,
)
from runner.results.store import RunStore, read

FRAMES = ("cells", "samples", "metrics", "parity", "operations", "profile", "telemetry")  # of the store


def load(folders: Sequence[Path]) -> Tables:
    """The page's rows of the runs in `folders`. Raises StoreError where one is no readable run."""
    manifests = [RunStore(folder).manifest() for folder in folders]
    return build(manifests, {name: read(folders, name) for name in FRAMES})


def build(manifests: Sequence[Mapping[str, Any]], frames: Mapping[str, pd.DataFrame]) -> Tables:
    """The page's rows, from each run's manifest and the tables FRAMES of all runs."""
    stored = rows_of(frames["cells"])
    parts = {name: by_repeat(frames[name]) for name in ("samples", "metrics", "parity", "telemetry")}
    by_id = {str(manifest["run_id"]): manifest for manifest in manifests}
    cells = stored_cells(manifests, stored, parts["samples"])
    labelled = _labelled([_cell(by_id[cell.run_id], cell, rows, parts) for cell, rows in cells])
    runs = tuple(Run(manifest["run_id"], manifest) for manifest in manifests)
    left_out = _skipped(row for row in stored if row["status"] == "skipped")
    return Tables(
        runs, workloads(labelled), left_out, operators.rates(frames["operations"]), profiles.profiles(frames["profile"])
    )


def _curves(frame: pd.DataFrame | None, repeat: int) -> tuple[Curve, ...]:
    if frame is None:
        return ()
    curves = []
    for (name, split), part in frame.groupby(["name", "split"], sort=True):
        part = part.sort_values("step", kind="stable")
        columns = (floats(part, name) for name in ("step", "train_seconds", "value"))
        curves.append(Curve(str(name), str(split), repeat, *columns))
    return tuple(curves)


def _repeat(
    stored: StoredRepeat, place: Place, reused: bool, parts: Mapping[str, Mapping[Place, pd.DataFrame]]
) -> Repeat:
    return Repeat(
        number=stored.number,
        status=stored.status,
        shift=stored.shift,
        windows=stored.windows,
        row=stored.row,
        reused=reused,
        curves=_curves(parts["metrics"].get(place), stored.number),
        signals=telemetry.signals(parts["telemetry"].get(place), telemetry.values_each(len(parts["samples"]))),
    )


def _cell(
    manifest: Mapping[str, Any],
    stored: StoredCell,
    rows: Sequence[Row],
    parts: Mapping[str, Mapping[Place, pd.DataFrame]],
) -> MeasuredCell:
    """One cell of the page from the stored one and its rows."""
    reused = {(entry["cell_id"], entry["repeat"]) for entry in manifest.get("reused", [])}
    places = [(stored.run_id, stored.cell_id, repeat.number) for repeat in stored.repeats]
    repeats = tuple(
        _repeat(repeat, place, place[1:] in reused, parts) for repeat, place in zip(stored.repeats, places, strict=True)
    )
    short = any(row["short"] for row in rows)
    metric = specification(stored.key.workload).get("metric") or {}
    return MeasuredCell(
        anchor="",
        label=stored.image,
        run_id=stored.run_id,
        cell_id=stored.cell_id,
        image=stored.image,
        framework=stored.framework,
        mode=stored.mode,
        engine=stored.engine,
        seed=stored.row.get("seed"),
        key=stored.key,
        status=stored.status,
        reason=stored.reason,
        planned=stored.planned,
        repeats=repeats,
        step=stored.step,
        items_per_step=stored.items_per_step,
        first_step_seconds=stored.first_step_seconds,
        phases={name: seconds for name in PHASES if (seconds := middle(rows, seconds_column(name))) is not None},
        costs={**_costs(rows), **curves.waiting([repeat for repeat in repeats if len(repeat.steady_step_seconds)])},
        throttled=_throttled(rows),
        score=_score(repeats, str(metric.get("name") or "")),
        parity_passed=stored.parity_passed,
        parity=_parity([parts["parity"].get(place) for place in places]),
        short=short,
        total_seconds=None if short or stored.status != "ok" else _total(repeats),
        environment=stored.environment,
        row=stored.row,
        host=manifest.get("host") or {},
        command=_command(stored.row, manifest),
    )


def _costs(rows: Sequence[Row]) -> Mapping[str, float]:
    """The median over the repeats of each cost that some of them recorded."""
    return {cost.name: value for cost in COSTS if (value := middle(rows, cost.name)) is not None}


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
        for row in [] if frame is None else rows_of(frame):
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
