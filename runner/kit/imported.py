"""Makes a run of a kit's archive. An imported cell goes through the same door as a measured one: runner.admission judges its parcel."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench import identity
from runner import trees
from runner.admission.admit import store_parcel
from runner.admission.judges import HostFacts
from runner.admission.renew import renew
from runner.catalog.frameworks import load_frameworks
from runner.catalog.workloads import Workload, load_workloads
from runner.engines.process import installed
from runner.errors import UserError
from runner.kit.agreement import energies, total
from runner.kit.archive import Archive, ArchiveError, CheckVerdict, EventWindows, PlannedStep, StepEnd, ended
from runner.kit.refusal import refusal
from runner.kit.steps import CELL, CHECK, EVENTS, PRESET, SEED, Device, cell_of
from runner.plan.plan import Cell, Skip
from runner.results import store
from runner.results.parcel import Parcel, decode, unpacked_bytes
from runner.version import runner_version

# The parcels of an archive unpack to so many times its size, together: those of a machine with sixteen GPUs to eleven times their own.
# Every archive may have the least.
_UNPACKS_TO, _LEAST_UNPACKED_BYTES = 20, 32 << 20


@dataclass(frozen=True)
class StepOutcome:
    """How one step ended, for a person."""

    step: PlannedStep
    status: str  # ok | failed | refused
    reason: str


@dataclass(frozen=True)
class Imported:
    """A run that was made of an archive."""

    run: store.RunStore
    outcomes: tuple[StepOutcome, ...]
    not_done: int
    # GPU -> joules by its counter, joules by its power over time.
    energies: Mapping[str, tuple[float, float]]
    # A sentence for each step whose file cannot be read.
    dropped: tuple[str, ...]
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
        same = document["facts_sha256"] == archive.facts_sha256
        steps = len(document["outcomes"]) + len(document["dropped"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        same, steps = False, 0
    if not same:
        raise ArchiveError(f"{folder} is there already, and is another run; name another folder with --out")
    if steps >= len(archive.steps):
        raise ArchiveError(
            f"{archive.path} is imported already, as {folder} with {steps} steps; remove that folder to import it again"
        )


def _readable(archive: Archive, cells: Mapping[PlannedStep, Cell], run: store.RunStore) -> Imported:
    """Write the run and read all of it, as every command will. Raises ArchiveError for what they would refuse."""
    try:
        imported = _write(archive, cells, run)
        renew(run)
    except store.StoreError as error:
        # The advice is for a run that was damaged where it lies.
        why = str(error).replace(f"{run.folder}{os.sep}", "").partition(";")[0]
        raise ArchiveError(f"{archive.path} holds what no command reads ({why}); nothing of it is imported") from None
    return imported


def _write(archive: Archive, cells: Mapping[PlannedStep, Cell], run: store.RunStore) -> Imported:
    code, gpus = _code(archive, cells), archive.facts.gpus
    uuids = (archive.facts.device_uuid,) if archive.facts.device_kind == "cuda" else ()
    boards = tuple(gpu.board for gpu in gpus if gpu.uuid in uuids)
    outcomes: list[StepOutcome] = []
    dropped: list[str] = []
    events: list[tuple[str, float]] = []
    sums: list[Mapping[str, tuple[float, float]]] = []
    left = _LEAST_UNPACKED_BYTES + _UNPACKS_TO * archive.size
    for step, content in archive.steps.items():
        try:
            if step.kind != CELL:
                end = ended(content)
                outcomes.append(_outcome(step, end))
                events += _events(step, end)
                continue
            if (size := unpacked_bytes(content)) > left:
                raise ArchiveError(f"it unpacks to {size} bytes, and no kit's archive of its size has so many")
            left -= size
            parcel = decode(content, step.step.name)
            _check_parcel(archive, step, cells[step], parcel)
        except UserError as error:
            dropped.append(f"{step.step.name}: {str(error)[:400]}")
            continue
        sums.append(energies(parcel.telemetry))
        digest = code.get((step.framework, step.workload))
        host = HostFacts(code_sha256=digest, uuids=uuids, boards=boards)
        admitted = store_parcel(run, parcel, cells[step], host)
        refused = admitted.tables["cells"][0]["error_kind"] == "unsupported"
        outcomes.append(StepOutcome(step, "refused" if refused else admitted.status, admitted.reason or ""))
    if dropped and not outcomes:
        raise ArchiveError(f"{archive.path}: {dropped[0]}; copy it again from the machine that it was made on")
    done = [outcome.step for outcome in outcomes]
    _write_manifest(archive, cells, done, code, run)
    not_done = len(archive.facts.planned) - len(done)
    imported = Imported(run, tuple(outcomes), not_done, total(sums), tuple(dropped), tuple(events))
    try:
        document = json.dumps(_document(archive, imported), indent=1, allow_nan=False)
    except ValueError:
        raise ArchiveError(f"{archive.path} has numbers whose sum is infinite: no machine measured them") from None
    store.write_bytes(run.folder / "kit.json", document.encode())
    return imported


def _check_parcel(archive: Archive, step: PlannedStep, cell: Cell, parcel: Parcel) -> None:
    """Raises ArchiveError where a parcel is of another cell than its name says."""
    digest = installed.image_digest(cell.lock_sha256, archive.facts.python)
    if (parcel.cell_id, parcel.repeat) != (cell.id, step.repeat):
        raise ArchiveError("it is the parcel of another cell")
    if (parcel.engine, parcel.image_digest, parcel.node, parcel.attempt) != (installed.ENGINE, digest, None, None):
        raise ArchiveError("it was measured in another interpreter than facts.json names")


def _cells(archive: Archive) -> dict[PlannedStep, Cell]:
    """The cell of each step that is one, as the kit made it. Raises ArchiveError."""
    facts, known = archive.facts, load_frameworks()
    workloads = load_workloads()
    versions = {entry.framework: entry.version for entry in facts.frameworks}
    lock = installed.lock_sha256(facts.packages.model_dump())
    gpu = next((gpu for gpu in facts.gpus if gpu.uuid == facts.device_uuid), None)
    if (facts.device_kind == "cuda") != (gpu is not None):
        raise ArchiveError(f"{archive.path}: facts.json: device_uuid is none of its GPUs; copy the archive again")
    device = Device(facts.device_kind, gpu.model if gpu else facts.cpu.model, None)
    cells = {}
    for step in facts.planned:
        workload = workloads.get(step.workload)
        if step.framework not in known or step.framework not in versions or not _knows(workload, step.precision):
            what = f"{step.framework} {step.workload} {step.precision}"
            raise ArchiveError(
                f"{archive.path}: this release does not know {what}; import it with the release of the kit"
            )
        if step.kind == CELL:
            cells[step] = cell_of(step.step, versions[step.framework], lock, device)
    return cells


def _knows(workload: Workload | None, precision: str) -> bool:
    return workload is not None and precision in workload.precisions


def _code(archive: Archive, cells: Mapping[PlannedStep, Cell]) -> Mapping[tuple[str, str], str]:
    """(framework, workload) -> the digest of the code that its cells must run; empty where the kit has another bench than this checkout."""
    if archive.facts.bench_sha256 != identity.source_digest():
        return {}
    pairs = {(cell.framework, cell.workload) for cell in cells.values()}
    return dict(identity.code_digests(pairs))


def _outcome(step: PlannedStep, end: StepEnd) -> StepOutcome:
    if end.code and (why := refusal(end.log)):
        return StepOutcome(step, "refused", why)
    if step.kind == CHECK:
        return _check(step, end)
    return StepOutcome(step, "ok", "") if end.code == 0 else StepOutcome(step, "failed", _last_line(end))


def _check(step: PlannedStep, end: StepEnd) -> StepOutcome:
    """A check passed where its process says so and its verdict names no failure."""
    try:
        verdict = CheckVerdict.model_validate_json(end.output)
    except ValidationError:
        return StepOutcome(step, "failed", _last_line(end))
    if end.code == 0 and not verdict.failed and verdict.compared > 0 and verdict.worst <= 1:
        return StepOutcome(step, "ok", f"at {verdict.worst:.2f} of its bound")
    more = f" ({len(verdict.failed)} of {verdict.compared} quantities fail)" if len(verdict.failed) > 1 else ""
    return StepOutcome(step, "failed", f"{verdict.failed[0] if verdict.failed else 'it failed'}{more}")


def _last_line(end: StepEnd) -> str:
    return end.stopped or (end.log.strip().splitlines() or ["it printed nothing"])[-1][:300]


def _events(step: PlannedStep, end: StepEnd) -> list[tuple[str, float]]:
    """How far the clock is from CUDA's events at most. Skips unreadable steps."""
    if step.kind != EVENTS or end.code:
        return []
    try:
        windows = EventWindows.model_validate_json(end.output).windows
    except ValidationError:
        return []
    gaps = [abs(window.clock_seconds / window.event_seconds - 1) for window in windows if window.event_seconds]
    # Seconds may be so few that a ratio is infinite, which JSON has no word for.
    known = [gap for gap in gaps if math.isfinite(gap)]
    return [(f"{step.framework} {step.workload}", max(known))] if known else []


def _write_manifest(
    archive: Archive,
    cells: Mapping[PlannedStep, Cell],
    done: Sequence[PlannedStep],
    code: Mapping[tuple[str, str], str],
    run: store.RunStore,
) -> None:
    facts = archive.facts
    # Of another bench than this checkout's, what its cells ran.
    codes = {
        (row["framework"], row["workload"]): row["code_sha256"]
        for row in run.rows("cells").to_pylist()
        if row["code_sha256"]
    } | dict(code)
    manifest = {
        "schema_version": store.SCHEMA_VERSION,
        "run_id": run.run_id,
        "created": facts.created,
        "argv": ["kit.py"],
        "seed": SEED,
        "preset": PRESET,
        "repeats": max((step.repeat for step in facts.planned if step.kind == CELL), default=1),
        "engine": installed.ENGINE,
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
            | {"code_sha256": codes.get((cell.framework, cell.workload)), "repeats": _repeats(cell, cells, done)}
            for cell in dict.fromkeys(cells.values())
        ],
        "skipped": len(facts.left_out),
        "skips": [asdict(skip) for skip in _skips(archive)],
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


def _repeats(cell: Cell, cells: Mapping[PlannedStep, Cell], done: Sequence[PlannedStep]) -> int:
    """How many repeats a cell has: those that were measured. Of a cell without any, those that were planned."""
    return sum(cells.get(step) == cell for step in done) or sum(each == cell for each in cells.values())


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
        "dropped": list(imported.dropped),
        "not_done": imported.not_done,
        "energy_joules": {gpu: list(both) for gpu, both in imported.energies.items()},
        "events": [list(pair) for pair in imported.events],
    }
