"""Stored runs as what references are made of and held against: each cell with its facts and the ceilings of its environment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.results import cells, store
from runner.results.cells import StoredCell
from runner.results.statistics import Array
from runner.verify.ceilings import Ceilings, CeilingsError, parse
from runner.verify.references.facts import Facts, facts_of
from runner.verify.references.saved import FEWEST_WINDOWS, Reference, SavedCell, make
from runner.verify.references.telemetry import Telemetry, summarise


@dataclass(frozen=True)
class Measured:
    """One stored cell."""

    cell: StoredCell
    facts: Facts
    ceilings: Ceilings | None
    telemetry: Telemetry | None
    machine_gpus: int  # that the run was to use

    @property
    def repeats(self) -> list[Array]:
        """Seconds a step of each steady window of the repeats that ended well and have enough of them."""
        fine = [repeat.steady_step_seconds for repeat in self.cell.repeats if repeat.status == "ok"]
        return [seconds for seconds in fine if len(seconds) >= FEWEST_WINDOWS]


def ceilings_path(folder: Path, image: str, framework: str, device_kind: str) -> Path:
    """Where a run keeps the ceilings of one environment."""
    return folder / "ceilings" / f"{image}.{framework}.{device_kind}.json"


def read_runs(folders: Sequence[Path]) -> list[Measured]:
    """Every cell of some stored runs. Raises StoreError."""
    measured = []
    for folder in folders:
        manifest = store.RunStore(folder).manifest()
        gpus = len(manifest.get("devices") or ())
        rows, samples = cells.rows_of(store.read([folder], "cells")), cells.by_repeat(store.read([folder], "samples"))
        for cell, _ in cells.stored_cells([manifest], rows, samples):
            ceilings = _ceilings(folder, cell)
            facts = facts_of(cell, manifest, ceilings.cpus if ceilings else None)
            measured.append(Measured(cell, facts, ceilings, _telemetry(folder, cell), gpus))
    return measured


def _ceilings(folder: Path, cell: StoredCell) -> Ceilings | None:
    """The ceilings that the run measured for this cell's environment; None where it measured none."""
    stored = ceilings_path(folder, cell.image, cell.framework, cell.key.device_kind)
    path = folder / "ceilings" / stored.name  # the names are a stored row's: none of them leads out of the folder
    if not path.is_file():
        return None
    try:
        return parse(path.read_bytes())
    except CeilingsError as error:
        raise store.StoreError(f"{path}: {error}; remove the file, or restore it") from None


def _telemetry(folder: Path, cell: StoredCell) -> Telemetry | None:
    """Of the first repeat that has some; None where the run kept none."""
    for repeat in cell.repeats:
        path = folder / "telemetry" / f"{store.file_name(cell.cell_id, repeat.number)}.parquet"
        if path.parent != folder / "telemetry" or not path.is_file():
            continue
        windows = repeat.windows
        steady = [at for at, stage in enumerate(windows.stage) if stage == "steady"]
        spans = [(float(windows.begin[at]), float(windows.begin[at] + windows.seconds[at])) for at in steady]
        if found := summarise(_rows(path), spans):
            return found
    return None


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of one repeat's telemetry, with the columns that a summary needs. Raises StoreError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(
            path, columns=["device", "seconds", "sm_megahertz", "throttle_reasons"]
        ).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise store.StoreError(f"{path} cannot be read as telemetry ({error}); remove or restore it") from None
    return rows


def reference_of(folder: Path, name: str, runner_version: str) -> Reference:
    """A reference from one stored run: every cell that ended well and passed parity. Raises StoreError and SavedError."""
    manifest = store.RunStore(folder).manifest()
    return make(name, str(manifest["created"]), str(manifest["run_id"]), runner_version, _fit(read_runs([folder])))


def _fit(measured: Iterable[Measured]) -> list[SavedCell]:
    return [
        SavedCell(
            facts=one.facts,
            repeats=tuple(tuple(map(float, repeat)) for repeat in one.repeats),
            ceilings=one.ceilings,
            telemetry=one.telemetry,
        )
        for one in measured
        if one.cell.status == "ok" and one.cell.parity_passed is True and one.repeats
    ]
