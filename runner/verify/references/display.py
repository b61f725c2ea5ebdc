"""References on the terminal and as JSON: the list, one reference's cells, two compared, and a machine beside the published numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np
from typing_extensions import TypedDict

from runner.results.on_disk.roles import NamedCell
from runner.results.statistics import ALPHA, log_levels, of_kind, step_estimate
from runner.results.steadiness import level_shift, widened
from runner.terminal import print_table
from runner.text import in_a_line, number, print_document
from runner.verify.references.comparability import reference_for
from runner.verify.references.facts import Facts
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
from runner.verify.verdict import LEVEL, MARGINS, CellVerdict, excused, ratio_to_reference, verdict_of

GPUS = ("K80", "P100", "V100")
WORKLOADS = ("cnn-cifar10", "gru-imdb", "mlp-mnist", "cnn-mnist", "densenet121-chestxray", "densenet121-synthetic")
COUNTS = (1, 4)  # of GPUs: the X-rays were measured on both


class ListedReference(TypedDict):
    """A reference. The published numbers have no sessions."""

    name: str
    cell_count: int
    sessions: int | None
    device_models: list[str]
    created: str
    sha256: str
    file: str


class IndexedDevice(Protocol):
    """A device of an index: workload -> (its cells, its machines)."""

    @property
    def name(self) -> str: ...
    @property
    def machines(self) -> int: ...
    @property
    def workloads(self) -> Mapping[str, tuple[int, int]]: ...


class ReferencesDocument(TypedDict):
    """The published numbers, and every reference."""

    references: list[ListedReference]


class ReferenceCell(NamedCell):
    """A cell of a reference: seconds a step, from so many repeats of so many sessions. Facts: all that was recorded of it."""

    step_seconds: float
    step_low: float | None
    step_high: float | None
    repeats: int
    sessions: int
    windows: int
    note: str
    samples_sha256: str
    facts: Facts


class ReferenceDocument(TypedDict):
    """A reference. The level is that of the intervals of its step times."""

    name: str
    created: str
    sha256: str
    run_ids: list[str]
    level: float
    cells: list[ReferenceCell]


class DiffRecord(NamedCell):
    """A cell of the first reference beside that of the second: the ratio of step times, first over second."""

    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    verdict: CellVerdict
    differences: str


class DiffDocument(TypedDict):
    """Two references. The level is that of the intervals of ratios."""

    a: str
    b: str
    level: float
    rows: list[DiffRecord]


class MeasuredRate(TypedDict):
    """The items a second of a cell of your runs."""

    workload: str
    framework: str
    device_model: str
    items_per_second: float | None
    items_per_second_low: float | None
    items_per_second_high: float | None
    preset: str
    parity_passed: bool | None


class PublishedDocument(TypedDict):
    """The published numbers, and the rates of your runs."""

    trainings: list[Published]
    rates: list[MeasuredRate]


def _named(facts: Facts) -> NamedCell:
    return cast(NamedCell, {name: getattr(facts, name) for name in NamedCell.__annotations__})


def _print(rows: Sequence[dict[str, object]], title: str = "") -> None:
    """Rows of one shape as a table."""
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
    references: list[ListedReference] = [{
        "name": "published", "cell_count": len(published), "sessions": None,
        "device_models": sorted({row.gpu or "" for row in published}),
        "created": f"{dates[0]} to {dates[-1]}", "sha256": "", "file": PUBLISHED.name,
    }]  # fmt: skip
    for name, path in shelf.paths().items():
        reference = shelf.find(name)
        models = sorted({cell.facts.device_model for cell in reference.cells})
        references.append(
            {"name": name, "cell_count": len(reference.cells), "sessions": len(reference.run_ids), "device_models": models,
             "created": reference.created, "sha256": reference.sha256, "file": str(path)}
        )  # fmt: skip
    _print_listed(references, as_json)


def print_index(place: str, devices: Iterable[IndexedDevice], as_json: bool) -> None:
    """Print the devices of an index of references, each as a reference; its sessions are machines."""
    _print_listed([
        {"name": in_a_line(device.name, 100), "cell_count": sum(cells for cells, _ in device.workloads.values()),
         "sessions": device.machines, "device_models": [device.name], "created": "", "sha256": "", "file": place}
        for device in devices
    ], as_json)  # fmt: skip


def _print_listed(references: list[ListedReference], as_json: bool) -> None:
    if as_json:
        document: ReferencesDocument = {"references": references}
        return print_document(document)
    return _print([
        {"name": one["name"], "cells": one["cell_count"], "sessions": one["sessions"],
         "devices": f"{len(one['device_models'])} kinds of GPU and CPU" if one["name"] == "published" else ", ".join(one["device_models"]),
         "created": one["created"], "sha256": one["sha256"][:12], "file": one["file"]}
        for one in references
    ])  # fmt: skip


def _place(cell: SavedCell) -> tuple[str, str, float]:
    """The order of the cells of a reference for a person."""
    return (
        cell.facts.workload,
        cell.facts.device_model,
        float(np.mean(log_levels(cell.repeats))),
    )


def print_reference(reference: Reference, workload: str | None, as_json: bool) -> None:
    """Print a reference's cells with their intervals. Raises SavedError for a workload that it does not have."""
    workloads = sorted({cell.facts.workload for cell in reference.cells})
    if workload not in (None, *workloads):
        raise SavedError(f"--workload: {reference.name} has no {workload!r}; it has {in_a_line(', '.join(workloads))}")
    cells: list[ReferenceCell] = []
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
        cells.append(
            {**_named(facts), "step_seconds": step.value, "step_low": step.low, "step_high": step.high,
             "repeats": len(cell.repeats), "sessions": len(sessions), "windows": step.windows,
             "note": "unsteady" if shifts else "", "samples_sha256": cell.samples_sha256, "facts": facts}
        )  # fmt: skip
    if as_json:
        document: ReferenceDocument = {
            "name": reference.name, "created": reference.created, "sha256": reference.sha256,
            "run_ids": list(reference.run_ids), "level": 1 - ALPHA, "cells": cells,
        }  # fmt: skip
        return print_document(document)
    return _print(
        [
            {"cell": f"{one['facts'].name} {one['preset']}", "image": one["image"], "device": one["device_model"],
             "ms a step": 1e3 * one["step_seconds"], "low": _milliseconds(one["step_low"]),
             "high": _milliseconds(one["step_high"]), "repeats": one["repeats"], "sessions": one["sessions"], "note": one["note"]}
            for one in cells
        ],
        f"{reference.name} of {reference.runs}, {reference.created}, sha256 {reference.sha256}; 95 % intervals "
        f"{'over the sessions' if len(reference.run_ids) > 1 else 'over the repeats of one session'}",
    )  # fmt: skip


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def print_diff(first: Reference, second: Reference, as_json: bool) -> None:
    """Print each cell of the first beside the cell of the second that is its reference."""
    rows: list[DiffRecord] = []
    for cell in first.cells:
        facts, chosen = cell.facts, reference_for(cell.facts, [second])
        row: DiffRecord = {
            **_named(facts), "ratio": None, "ratio_low": None, "ratio_high": None, "verdict": "no-reference",
            "differences": chosen.why + (f"; nearest: {chosen.nearest}" if chosen.nearest else ""),
        }  # fmt: skip
        if chosen.cell is not None:
            sides = [list(side.sessions().values()) for side in (cell, chosen.cell)]
            ratio = ratio_to_reference(sides[0], sides[1], facts.device_kind)
            margin = of_kind(MARGINS, facts.device_kind)
            row |= {
                "ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high,
                "verdict": excused(verdict_of(ratio, margin, len(first.cells)), bool(chosen.excuses)),
                "differences": "; ".join(map(str, chosen.excuses + chosen.conditions)),
            }  # fmt: skip
        rows.append(row)
    if as_json:
        document: DiffDocument = {"a": first.name, "b": second.name, "level": LEVEL, "rows": rows}
        return print_document(document)
    return _print(
        [
            {"cell": cell.facts.name, "device": row["device_model"], "ratio": row["ratio"], "low": row["ratio_low"],
             "high": row["ratio_high"], "verdict": row["verdict"], "differs": row["differences"]}
            for cell, row in zip(first.cells, rows, strict=True)
        ],
        f"{first.name} over {second.name}: step times, 90 % intervals",
    )  # fmt: skip


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
        document: PublishedDocument = {
            "trainings": [row for row in published if workload in (None, row.workload)],
            "rates": [_rate_of(cell) for cell in cells],
        }
        return print_document(document)
    for name in [workload] if workload else WORKLOADS:
        devices = devices_of(published, name)
        _print(_beside(name, gpus if set(gpus) & set(devices) else devices, cells), _TITLE.format(name=name))
    return None


_TITLE = "{name}: items a second. Published: the whole training over its seconds; yours: the steady median, without the first step"


def _rate_of(measured: Measured) -> MeasuredRate:
    rate, facts = measured.cell.items_per_second, measured.facts
    return {"workload": facts.workload, "framework": facts.framework, "device_model": facts.device_model,
            "items_per_second": rate.value if rate else None, "items_per_second_low": rate.low if rate else None,
            "items_per_second_high": rate.high if rate else None,
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
