"""Makes a run of a kit's archive. An imported cell goes through the same door as a measured one: runner.admission judges its parcel."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench import identity
from runner import trees
from runner.admission.admit import store_parcel
from runner.admission.judges import HostFacts
from runner.catalog.frameworks import load_frameworks
from runner.catalog.workloads import Workload, load_workloads
from runner.engines.process import installed
from runner.kit.agreement import energies
from runner.kit.archive import Archive, ArchiveError, CheckVerdict, EventWindows, PlannedStep, ReadStep
from runner.kit.refusal import refusal
from runner.kit.steps import CELL, CHECK, EVENTS, PRESET, SEED
from runner.machine import gpu_users
from runner.plan.plan import Cell, Skip
from runner.results import store
from runner.results.parcel import Parcel
from runner.version import runner_version

ENGINE = "host"


@dataclass(frozen=True)
class Outcome:
    """How one step ended, for a person."""

    step: PlannedStep
    status: str  # ok | failed | refused
    reason: str


@dataclass(frozen=True)
class Imported:
    """A run that was made of an archive."""

    run: store.RunStore
    outcomes: tuple[Outcome, ...]
    not_done: int
    # GPU -> joules by its counter, joules by its power over time.
    energies: Mapping[str, tuple[float, float]]
    # (workload, the largest relative difference between a window's clock and CUDA's events)
    events: tuple[tuple[str, float], ...]


def import_archive(archive: Archive, out: Path) -> Imported:
    """Make the run below `out`, in the place of one that an earlier archive of the same measurement made with fewer steps.

    Raises UserError where the archive adds nothing, or has what this release does not know.
    """
    cells = _cells(archive)
    created = datetime.fromisoformat(archive.facts.created)
    folder = out / f"{created.astimezone(UTC):%Y%m%d-%H%M%S}-{archive.facts_sha256[:4]}"
    _check_new(archive, folder)
    # Written aside: a run has its folder when all of it is there. An import that was killed leaves the part only.
    part = out / f".{folder.name}.part"
    trees.remove(part)
    try:
        (part / folder.name).mkdir(parents=True)
        imported = _readable(archive, cells, store.RunStore(part / folder.name))
        if folder.exists():
            folder.rename(part / "replaced")
        (part / folder.name).rename(folder)
    except OSError as error:
        where = error.filename or folder
        raise ArchiveError(f"{where}: no run can be stored there ({error.strerror or error}); check --out") from None
    finally:
        trees.remove(part)
    return replace(imported, run=store.RunStore(folder))


def _check_new(archive: Archive, folder: Path) -> None:
    """Raises ArchiveError where an earlier import has as many steps of this measurement."""
    if not folder.exists():
        return
    try:
        document = json.loads(store.read_bytes(folder / "kit.json"))
        same, steps = document["facts_sha256"] == archive.facts_sha256, len(document["outcomes"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        same, steps = False, 0
    if not same:
        raise ArchiveError(f"{folder} is there already, and is another run; name another folder with --out")
    if steps >= len(archive.steps):
        raise ArchiveError(
            f"{archive.path} is imported already, as {folder} with {steps} steps; remove that folder to import it again"
        )


def _readable(archive: Archive, cells: Mapping[tuple[str, str, str], Cell], run: store.RunStore) -> Imported:
    """Write the run and read all of it, as every command will. Raises ArchiveError for what they would refuse."""
    try:
        imported = _write(archive, cells, run)
        run.manifest()
        for table in store.TABLES:
            store.read([run.folder], table)
    except store.StoreError as error:
        # The advice is for a run that was damaged where it lies.
        why = str(error).replace(f"{run.folder}{os.sep}", "").partition(";")[0]
        raise ArchiveError(f"{archive.path} holds what no command reads ({why}); nothing of it is imported") from None
    return imported


def _write(archive: Archive, cells: Mapping[tuple[str, str, str], Cell], run: store.RunStore) -> Imported:
    code = _code(archive, cells)
    outcomes = tuple(_store(archive, step, cells, code, run) for step in archive.steps)
    _write_manifest(archive, cells, run)
    sums = energies(step.telemetry for step in archive.steps)
    not_done = len(archive.facts.planned) - len(archive.steps)
    imported = Imported(run, outcomes, not_done, sums, tuple(_events(archive)))
    try:
        document = json.dumps(_document(archive, imported), indent=1, allow_nan=False)
    except ValueError:
        raise ArchiveError(f"{archive.path} has numbers whose sum is infinite: no machine measured them") from None
    store.write_bytes(run.folder / "kit.json", document.encode())
    return imported


def _cells(archive: Archive) -> dict[tuple[str, str, str], Cell]:
    """(framework, workload, precision) -> the cell that the engine `host` would make of it. Raises ArchiveError."""
    facts, known = archive.facts, load_frameworks()
    workloads = load_workloads()
    versions = {entry.framework: entry.version for entry in facts.frameworks}
    lock = installed.lock_sha256(facts.packages.model_dump())
    gpu = next((gpu for gpu in facts.gpus if gpu.uuid == facts.device_uuid), None)
    if (facts.device_kind == "cuda") != (gpu is not None):
        raise ArchiveError(f"{archive.path}: facts.json: device_uuid is none of its GPUs; copy the archive again")
    cells = {}
    for step in facts.planned:
        workload = workloads.get(step.workload)
        if step.framework not in known or step.framework not in versions or not _knows(workload, step.precision):
            what = f"{step.framework} {step.workload} {step.precision}"
            raise ArchiveError(
                f"{archive.path}: this release does not know {what}; import it with the release of the kit"
            )
        assert workload is not None
        if step.kind != CELL:
            continue
        cells[step.framework, step.workload, step.precision] = Cell(
            image=installed.image_name(step.framework, versions[step.framework]),
            framework=step.framework,
            workload=step.workload,
            precision=step.precision,
            mode="default",
            device_kind=facts.device_kind,
            device_model=gpu.model if gpu else facts.cpu.model,
            preset=PRESET,
            batch=workload.batch_of(PRESET),
            seed=SEED,
            lock_sha256=lock,
        )
    return cells


def _knows(workload: Workload | None, precision: str) -> bool:
    return workload is not None and precision in workload.precisions


def _code(archive: Archive, cells: Mapping[tuple[str, str, str], Cell]) -> Mapping[tuple[str, str], str]:
    """(framework, workload) -> the digest of the code that its cells must run; empty where the kit has another bench than this checkout."""
    if archive.facts.bench_sha256 != identity.source_digest():
        return {}
    pairs = {(cell.framework, cell.workload) for cell in cells.values()}
    return dict(identity.code_digests(pairs))


def _store(
    archive: Archive,
    step: ReadStep,
    cells: Mapping[tuple[str, str, str], Cell],
    code: Mapping[tuple[str, str], str],
    run: store.RunStore,
) -> Outcome:
    record = step.record
    if record.kind != CELL and record.code and (why := refusal(record.kind, step.output, step.log)):
        return Outcome(record, "refused", why)
    if record.kind == CHECK:
        return _check(step)
    if record.kind == EVENTS:
        return Outcome(record, "ok" if record.code == 0 else "failed", _last_line(step))
    cell = cells[record.framework, record.workload, record.precision]
    host = HostFacts(code_sha256=code.get((cell.framework, cell.workload)), timed=False)
    admitted = store_parcel(run, _parcel(archive, step, cell), cell, host)
    refused = admitted.tables["cells"][0]["error_kind"] == "unsupported"
    return Outcome(record, "refused" if refused else admitted.status, admitted.reason or "")


def _parcel(archive: Archive, step: ReadStep, cell: Cell) -> Parcel:
    """A step of a cell as a parcel. A kit does not note when its output came."""
    record, gpus = step.record, archive.facts.gpus
    lost = ("gpu-lost", f"{record.lost} fell off the bus") if record.lost else None
    return Parcel(
        cell_id=cell.id,
        repeat=record.repeat,
        engine=ENGINE,
        image_digest=installed.image_digest(cell.lock_sha256, archive.facts.python),
        uuids=record.uuids,
        boards=tuple(gpu.board for gpu in gpus if gpu.uuid in record.uuids),
        cpus=len(archive.facts.cpu.cpus),
        code=record.code,
        out_of_memory=record.out_of_memory,
        ended_by=lost or record.ended_by,
        started_unix=record.started_unix,
        wall_seconds=record.wall_seconds,
        jit_cache_grew_bytes=record.jit_cache_grew_bytes,
        xids=record.xids,
        fault=record.fault,
        row_seconds=record.row_seconds,
        proved=record.users.proved,
        unproved=record.users.reasons,
        foreign=tuple(str(process)[: gpu_users.MOST_TEXT] for process in record.users.foreign),
        tape=((None, step.output),) if step.output else (),
        log=step.log,
        telemetry=step.telemetry,
    )


def _check(step: ReadStep) -> Outcome:
    """A check passed where its process says so and its verdict names no failure."""
    try:
        verdict = CheckVerdict.model_validate_json(step.output)
    except ValidationError:
        return Outcome(step.record, "failed", _last_line(step))
    if step.record.code == 0 and not verdict.failed and verdict.compared > 0 and verdict.worst <= 1:
        return Outcome(step.record, "ok", f"at {verdict.worst:.2f} of its bound")
    more = f" ({len(verdict.failed)} of {verdict.compared} quantities fail)" if len(verdict.failed) > 1 else ""
    return Outcome(step.record, "failed", f"{verdict.failed[0] if verdict.failed else 'it failed'}{more}")


def _last_line(step: ReadStep) -> str:
    if step.record.code == 0 and step.record.kind == EVENTS:
        return ""
    return (step.record.ended_by or ("", ""))[1] or (step.log.strip().splitlines() or ["it printed nothing"])[-1][:300]


def _events(archive: Archive) -> list[tuple[str, float]]:
    """Of each such step, how far the clock is from CUDA's events at most. Skips unreadable steps."""
    found = []
    for step in archive.steps:
        if step.record.kind == EVENTS and step.record.code == 0:
            try:
                windows = EventWindows.model_validate_json(step.output).windows
            except ValidationError:
                continue
            gaps = [abs(window.clock_seconds / window.event_seconds - 1) for window in windows if window.event_seconds]
            # Seconds may be so few that a ratio is infinite, which JSON has no word for.
            known = [gap for gap in gaps if math.isfinite(gap)]
            found += [(f"{step.record.framework} {step.record.workload}", max(known))] if known else []
    return found


def _write_manifest(archive: Archive, cells: Mapping[tuple[str, str, str], Cell], run: store.RunStore) -> None:
    facts = archive.facts
    codes = {
        (row["framework"], row["workload"]): row["code_sha256"]
        for row in store.read([run.folder], "cells").to_pylist()
        if row["code_sha256"]
    }
    manifest = {
        "schema_version": store.SCHEMA_VERSION,
        "run_id": run.run_id,
        "created": facts.created,
        "argv": ["kit.py"],
        "seed": SEED,
        "preset": PRESET,
        "repeats": max((step.repeat for step in facts.planned if step.kind == CELL), default=1),
        "engine": ENGINE,
        "devices": [asdict(gpu) for gpu in facts.gpus],
        "devices_refused": [asdict(refused) for refused in facts.refused],
        "host": {
            "cpu_model": facts.cpu.model,
            "cpu_count": len(facts.cpu.cpus),
            "memory_bytes": facts.cpu.memory_bytes,
            "kernel": facts.kernel,
        },
        "plan": [
            cell.as_dict()
            | {"code_sha256": codes.get((cell.framework, cell.workload)), "repeats": _repeats(archive, cell)}
            for cell in cells.values()
        ],
        "skipped": len(facts.left_out),
        "bench_sha256": facts.bench_sha256,
        "runner_version": runner_version(),
        "reused": [],
        "imported": {
            "archive": archive.path.name,
            "sha256": archive.sha256,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }
    run.write_manifest(manifest)
    run.write_skipped([asdict(skip) | {"cell_id": f"skipped-{number}"} for number, skip in enumerate(_skips(archive))])


def _repeats(archive: Archive, cell: Cell) -> int:
    """How many repeats a cell has: those that were measured. Of a cell without any, those that were planned."""

    def of_cell(steps: Iterable[PlannedStep]) -> int:
        key = CELL, cell.framework, cell.workload, cell.precision
        return sum((step.kind, step.framework, step.workload, step.precision) == key for step in steps)

    return of_cell(step.record for step in archive.steps) or of_cell(archive.facts.planned)


def _skips(archive: Archive) -> list[Skip]:
    facts = archive.facts
    versions = {entry.framework: entry.version for entry in facts.frameworks}
    model = next((gpu.model for gpu in facts.gpus if gpu.uuid == facts.device_uuid), facts.cpu.model)
    return [
        Skip(
            image=installed.image_name(left.framework, versions.get(left.framework, "")),
            framework=left.framework,
            workload=left.workload,
            precision=left.precision,
            mode="default",
            device_kind=facts.device_kind,
            device_model=model,
            reason=left.reason,
        )
        for left in facts.left_out
    ]


def _document(archive: Archive, imported: Imported) -> dict[str, Any]:
    """kit.json: what an archive says beside its cells."""
    return {
        "facts_sha256": archive.facts_sha256,
        "facts": archive.facts.model_dump(mode="json"),
        "outcomes": [asdict(each) | {"step": each.step.model_dump()} for each in imported.outcomes],
        "dropped": list(archive.dropped),
        "not_done": imported.not_done,
        "energy_joules": {gpu: list(both) for gpu, both in imported.energies.items()},
        "events": [list(pair) for pair in imported.events],
    }
