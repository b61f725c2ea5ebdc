"""References on the terminal and as JSON: the list, one reference's cells, two compared, and a machine beside the published numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from runner.results.statistics import of_kind, step_estimate
from runner.results.steadiness import level_shift, widened
from runner.terminal import print_table
from runner.text import in_a_line, number
from runner.verify.references.comparability import reference_for
from runner.verify.references.measured import Measured, read_runs
from runner.verify.references.published import (
    PUBLISHED,
    Published,
    PublishedError,
    devices_of,
    items_per_second,
    load_published,
    training_times,
)
from runner.verify.references.saved import Reference, SavedCell, SavedError, Shelf
from runner.verify.verdict import MARGINS, excused, ratio_to_reference, verdict_of

GPUS = ("K80", "P100", "V100")
WORKLOADS = ("cnn-cifar10", "gru-imdb", "mlp-mnist", "cnn-mnist", "densenet121-chestxray", "densenet121-synthetic")
COUNTS = (1, 4)  # of GPUs: the X-rays were measured on both


def _print(rows: Sequence[dict[str, object]], as_json: bool, title: str = "") -> None:
    """Rows of one shape as a table, or as JSON."""
    if as_json:
        print(json.dumps(list(rows), indent=2, allow_nan=False))
        return
    if title:
        print(in_a_line(title, 900))
    heads = tuple(rows[0]) if rows else ("nothing",)
    print_table(heads, [[_text(value, "ratio" in row) for value in row.values()] for row in rows])


def _text(value: object, ratios: bool) -> str:
    """A value of a table. Ratios have as many decimals each, so that 1.000 stands beside 0.986."""
    if value is None:
        return "–"
    return (f"{value:.3f}" if ratios else number(value, 4)) if isinstance(value, float) else str(value)


def print_list(shelf: Shelf, as_json: bool) -> None:
    """Print every reference, the published numbers first."""
    published = load_published()
    dates = sorted(row.date for row in published)
    first: dict[str, object] = {
        "name": "published", "cells": len(published), "sessions": None,
        "devices": f"{len({row.gpu for row in published})} kinds of GPU and CPU",
        "created": f"{dates[0]} to {dates[-1]}", "sha256": "", "file": PUBLISHED.name,
    }  # fmt: skip
    rows = [first]
    for name, path in shelf.paths().items():
        reference = shelf.find(name)
        devices = ", ".join(sorted({cell.facts.device_model for cell in reference.cells}))
        rows.append(
            {"name": name, "cells": len(reference.cells), "sessions": len(reference.run_ids), "devices": devices,
             "created": reference.created,
             "sha256": reference.sha256 if as_json else reference.sha256[:12], "file": str(path)}
        )  # fmt: skip
    _print(rows, as_json)


def _place(cell: SavedCell) -> tuple[str, str, float]:
    """The order of the cells of a reference for a person."""
    return (
        cell.facts.workload,
        cell.facts.device_model,
        float(np.median(np.concatenate([*map(np.array, cell.repeats)]))),
    )


def print_reference(reference: Reference, workload: str | None, as_json: bool) -> None:
    """Print a reference's cells with their intervals. Raises SavedError for a workload that it does not have."""
    workloads = sorted({cell.facts.workload for cell in reference.cells})
    if workload not in (None, *workloads):
        raise SavedError(f"--workload: {reference.name} has no {workload!r}; it has {in_a_line(', '.join(workloads))}")
    rows: list[dict[str, object]] = []
    # As the table of a run: by workload, the fastest first.
    for cell in sorted(reference.cells, key=_place):
        # Repeats of one session are not independent where there are several: the session is the unit.
        sessions = list(cell.sessions().values())
        units = sessions[0] if len(sessions) == 1 else [np.concatenate(session) for session in sessions]
        facts, step = cell.facts, step_estimate(units)
        if step is None or workload not in (None, facts.workload):
            continue
        shifts = [shift for session in sessions for shift in map(level_shift, session) if shift]
        # As the report has it: an unsteady cell of one repeat has an interval over both levels.
        step = widened(step, shifts)
        ends = [None if end is None else 1e3 * end for end in (step.low, step.high)]
        row: dict[str, object] = {
            "cell": f"{facts.name} {facts.preset}",
            "image": facts.image,
            "device": facts.device_model,
        }
        row |= {"ms a step": 1e3 * step.value, "low": ends[0], "high": ends[1], "repeats": len(cell.repeats)}
        row |= {"sessions": len(sessions), "note": "unsteady" if shifts else ""}
        more = {"windows": step.windows, "samples_sha256": cell.samples_sha256, "facts": facts.model_dump()}
        rows.append(row | more if as_json else row)
    _print(
        rows,
        as_json,
        f"{reference.name} of {reference.runs}, {reference.created}, sha256 {reference.sha256}; 95 % intervals "
        f"{'over the sessions' if len(reference.run_ids) > 1 else 'over the repeats of one session'}",
    )


def print_diff(first: Reference, second: Reference, as_json: bool) -> None:
    """Print each cell of the first beside the cell of the second that is its reference."""
    rows: list[dict[str, object]] = []
    for cell in first.cells:
        facts, chosen = cell.facts, reference_for(cell.facts, [second])
        row: dict[str, object] = {
            "cell": facts.name,
            "device": facts.device_model,
            **dict.fromkeys(("ratio", "low", "high")),
        }
        if chosen.cell is None:
            verdict, differs = "no-reference", chosen.why + (f"; nearest: {chosen.nearest}" if chosen.nearest else "")
        else:
            sides = [list(side.sessions().values()) for side in (cell, chosen.cell)]
            ratio = ratio_to_reference(sides[0], sides[1], facts.device_kind)
            row |= {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
            margin = of_kind(MARGINS, facts.device_kind)
            verdict = excused(verdict_of(ratio, margin, len(first.cells)), bool(chosen.excuses))
            differs = "; ".join(map(str, chosen.excuses + chosen.conditions))
        rows.append(row | {"verdict": verdict, "differs": differs})
    _print(rows, as_json, f"{first.name} over {second.name}: step times, 90 % intervals")


def print_published(workload: str | None, gpus: Sequence[str], folders: Sequence[Path], as_json: bool) -> None:
    """Print the published trainings by framework and GPU in items a second, with the machines of some runs beside them.

    A workload that was published for none of these GPUs is shown for its own devices: Knet and Flux did not name their GPU's model.
    """
    published = load_published()
    names = sorted({*WORKLOADS, *(row.workload for row in published)}) if as_json else list(WORKLOADS)
    if workload not in (None, *names):
        raise PublishedError(f"--workload: {workload!r} has no published numbers; these have: {', '.join(names)}")
    published_gpus = sorted({row.gpu for row in published if row.gpu})
    if wrong := [gpu for gpu in gpus if gpu not in published_gpus]:
        raise PublishedError(f"--gpu: nothing was published of {wrong[0]!r}; choose of {', '.join(published_gpus)}")
    cells = read_runs(folders)
    if as_json:
        rows = [row.model_dump() for row in published if workload in (None, row.workload)]
        print(json.dumps({"published": rows, "runs": [_rate_of(cell) for cell in cells]}, indent=2, allow_nan=False))
        return
    for name in [workload] if workload else WORKLOADS:
        devices = devices_of(published, name)
        _print(_beside(name, gpus if set(gpus) & set(devices) else devices, cells), False, _TITLE.format(name=name))


_TITLE = "{name}: items a second. Published: the whole training over its seconds; yours: the steady median, without the first step"


def _rate_of(measured: Measured) -> dict[str, object]:
    rate, facts = measured.cell.items_per_second, measured.facts
    return {"workload": facts.workload, "framework": facts.name, "device": facts.device_model,
            "items_per_second": rate.value if rate else None, "low": rate.low if rate else None, "high": rate.high if rate else None,
            "preset": facts.preset, "parity_passed": measured.cell.parity_passed}  # fmt: skip


def _beside(workload: str, gpus: Sequence[str], cells: Sequence[Measured]) -> list[dict[str, object]]:
    """A row for each framework and interface, with the newest number of each GPU; then a row for each measured cell."""
    cells = [cell for cell in cells if cell.facts.workload == workload]
    newest: dict[tuple[str, str], Published] = {}
    for row in sorted(training_times(load_published(), workload, gpus, COUNTS), key=lambda row: row.date):
        newest[_framework_of(row), str(row.gpu)] = row
    devices = list(dict.fromkeys(cell.facts.device_model for cell in cells))
    rows: list[dict[str, object]] = []
    for framework in sorted({framework for framework, _ in newest}):
        by_gpu = {gpu: newest.get((framework, gpu)) for gpu in gpus}
        dates = ", ".join(sorted({row.date[:4] for row in by_gpu.values() if row}))
        rates = {gpu: _rounded(items_per_second(row, workload)) if row else None for gpu, row in by_gpu.items()}
        rows.append({"framework": framework, "when": dates, **rates, **dict.fromkeys(devices)})
    for cell in sorted(cells, key=lambda cell: cell.cell.step.value if cell.cell.step else math.inf):
        rate, facts = cell.cell.items_per_second, cell.facts
        if rate and cell.cell.parity_passed:
            interval = f" ({rate.low:.0f} to {rate.high:.0f})" if rate.low is not None and rate.high is not None else ""
            own = dict.fromkeys(devices) | {facts.device_model: f"{rate.value:.0f}{interval}"}
            version = f"{facts.name} {facts.framework_version or ''}"
            rows.append({"framework": version, "when": facts.preset, **dict.fromkeys(gpus), **own})
    return rows


def _framework_of(row: Published) -> str:
    """Framework, interface and language of a published number, how many GPUs where several, and its precision where that is not fp32."""
    several = f"x{row.gpu_count}" if (row.gpu_count or 1) > 1 else ""
    parts = [row.framework, row.api or "native", "" if row.language == "python" else row.language or "", several]
    parts.append("" if row.precision == "fp32" else row.precision or "")
    return " ".join(part for part in parts if part)


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)
