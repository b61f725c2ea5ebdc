"""Makes a run of an archive, of a kit or of a shared run. An imported cell goes through the same door as a measured one."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from bench import identity
from runner import errors, trees
from runner.admission.admit import image_of, store_parcel
from runner.admission.judges import HostFacts
from runner.admission.renew import renew
from runner.catalog import own_networks
from runner.catalog.frameworks import load_frameworks
from runner.catalog.workloads import load_workloads
from runner.engines.process import installed
from runner.kit.archive import Archive, ArchiveError, KitFacts
from runner.kit.doing import energies, outcome, total
from runner.kit.shared_run import RunFacts
from runner.kit.steps import PRESET, SEED, KitStep
from runner.machine.devices import Gpu, Machine
from runner.plan.combination import Cell, Skip
from runner.plan.plan import Plan, not_planned
from runner.results import store
from runner.results.gpu_facts import bare_model
from runner.results.parcel import Parcel, ParcelError, decode, unpacked_bytes
from runner.run.begin import manifest_of

# The machine and the plan that an archive tells: of a kit, or of a shared run. What it says is checked, and never believed beyond that.

_HOST_IMAGE = re.compile(r"host-[a-z0-9.-]{1,150}")

# (framework, workload) -> the digest of its code.
Code = Mapping[tuple[str, str], str]


class Origin(Protocol):
    """The part of facts that the import needs."""

    @property
    def cells(self) -> tuple[Cell, ...]: ...
    @property
    def skips(self) -> tuple[Skip, ...]: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def code(self) -> Code:
        """The code that was planned, as far as it is known here."""

    def unknown(self) -> str | None:
        """The first thing that this release does not know, or that is not of the machine that facts.json describes, as a clause."""

    def host(self, cell: Cell) -> HostFacts: ...

    def stranger(self, step: KitStep, parcel: Parcel) -> str | None:
        """Why the parcel of a step is of another machine than facts.json names."""

    def manifest(self) -> dict[str, Any]:
        """Fields of run.json."""


def origin_of(facts: KitFacts | RunFacts) -> Origin:
    return KitOrigin(facts) if isinstance(facts, KitFacts) else RunOrigin(facts)


@dataclass(frozen=True)
class KitOrigin:
    """One interpreter on one GPU, or on the CPU."""

    facts: KitFacts

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(step.cell for step in self.facts.planned if step.kind == "cell"))

    @property
    def skips(self) -> tuple[Skip, ...]:
        return self.facts.skips

    @property
    def machine(self) -> Machine:
        return Machine(self.facts.cpu, self.facts.gpus, None, self.facts.refused)

    @property
    def code(self) -> Code:
        """Empty for a kit with another bench than this checkout's: its code is not known here."""
        if self.facts.bench_sha256 != identity.source_digest():
            return {}
        return dict(identity.code_digests({(step.cell.framework, step.cell.workload) for step in self.facts.planned}))

    def unknown(self) -> str | None:
        facts, frameworks = self.facts, load_frameworks()
        try:
            networks = {name: own_networks.of_texts(name, texts) for name, texts in facts.networks.items()}
        except own_networks.OwnNetworkError as error:
            return f"a network of somebody's own ({error})"
        workloads = load_workloads() | networks
        models = {gpu.uuid: gpu.model for gpu in facts.gpus}
        if facts.device_uuid and facts.device_uuid not in models:
            return "a device_uuid that is none of its GPUs"
        kind, model = ("cuda", models[facts.device_uuid]) if facts.device_uuid else ("cpu", facts.cpu.model)
        lock = installed.lock_sha256(facts.packages.model_dump())
        for cell in dict.fromkeys(step.cell for step in facts.planned):
            own = replace(cell, device_kind=kind, device_model=model, devices=1, device_uuid="", scaling="")
            why = not_planned(cell, PRESET, SEED, workloads, frameworks)
            if not why and cell.mode not in frameworks[cell.framework].modes:
                why = f"mode {cell.mode} of {cell.framework}"
            if cell != replace(own, lock_sha256=lock) or not _HOST_IMAGE.fullmatch(cell.image):
                why = why or "a cell of another interpreter or device than facts.json names"
            if why:
                return why
        return None

    def host(self, cell: Cell) -> HostFacts:
        uuids = (self.facts.device_uuid,) if self.facts.device_uuid else ()
        boards = tuple(gpu.board for gpu in self.facts.gpus if gpu.uuid in uuids)
        return HostFacts(code_sha256=self.code.get((cell.framework, cell.workload)), uuids=uuids, boards=boards)

    def stranger(self, step: KitStep, parcel: Parcel) -> str | None:
        digest = installed.image_digest(step.cell.lock_sha256, self.facts.python)
        # The digest is that of a process. Where none could be started, there is none.
        same = parcel.image_digest == digest or (parcel.never_ran and parcel.image_digest is None)
        if (parcel.engine, parcel.node, parcel.attempt) != (installed.ENGINE, None, None) or not same:
            return "it was measured in another interpreter than facts.json names"
        return None

    def manifest(self) -> dict[str, Any]:
        return {
            "argv": ["kit.py"],
            "seed": SEED,
            "preset": PRESET,
            "engine": installed.ENGINE,
        }


@dataclass(frozen=True)
class RunOrigin:
    """All that a run measured on one machine."""

    facts: RunFacts

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(shared.cell for shared in self.facts.planned)

    @property
    def skips(self) -> tuple[Skip, ...]:
        return ()

    @property
    def machine(self) -> Machine:
        return Machine(self.facts.cpu, self.facts.gpus, None)

    @property
    def code(self) -> Code:
        return {
            (shared.cell.framework, shared.cell.workload): shared.code_sha256
            for shared in self.facts.planned
            if shared.code_sha256
        }

    def unknown(self) -> str | None:
        facts, frameworks, workloads = self.facts, load_frameworks(), load_workloads()
        models = {gpu.model for gpu in facts.gpus}
        for shared in facts.planned:
            cell = shared.cell
            if why := not_planned(cell, facts.preset, facts.seed, workloads, frameworks):
                return why
            if cell.mode not in frameworks[cell.framework].modes:
                return f"mode {cell.mode} of {cell.framework}"
            if cell.device_model not in (models if cell.device_kind == "cuda" else {facts.cpu.model}):
                return "a cell of another device than facts.json names"
            if shared.code_sha256 != self.code.get((cell.framework, cell.workload)):
                return f"two codes of {cell.framework} {cell.workload}"
        return None

    def host(self, cell: Cell) -> HostFacts:
        code = self.code.get((cell.framework, cell.workload))
        return HostFacts(image=image_of(cell), code_sha256=code, data_given=self.facts.data_given)

    def stranger(self, step: KitStep, parcel: Parcel) -> str | None:
        cell, gpus = step.cell, {gpu.uuid: gpu for gpu in self.facts.gpus}
        used: Sequence[Gpu | None] = [gpus.get(uuid) for uuid in parcel.uuids]
        if any(gpu is None or bare_model(gpu.model) != bare_model(cell.device_model) for gpu in used):
            return "it was measured on a GPU that facts.json does not name"
        if len(used) != (cell.devices if cell.device_kind == "cuda" else 0):
            return "it was measured on another number of GPUs than its cell has"
        if parcel.boards != tuple(gpu.board for gpu in used if gpu):
            return "its boards are not those of its GPUs"
        if parcel.data_given != self.facts.data_given or parcel.attempt is not None:
            return "it was measured otherwise than facts.json says"
        return None

    def manifest(self) -> dict[str, Any]:
        facts = self.facts
        return {
            "argv": ["runner", "share"],
            "seed": facts.seed,
            "preset": facts.preset,
            "engine": facts.engine,
            "options": {"data": "given" if facts.data_given else None},
        }


# The parcels of an archive unpack to so many times its size, together: those of a machine with sixteen GPUs to eleven times their own.
# Every archive may have the least.
_UNPACKS_TO, _LEAST_UNPACKED_BYTES = 20, 32 << 20

# A clock may be ahead by so much.
_AHEAD_SECONDS = 86_400.0
_YET_TO_COME = "which is yet to come; set the machine's clock, and measure again"


@dataclass(frozen=True)
class StepOutcome:
    """How one step ended, for a person."""

    step: KitStep
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


def import_archive(archive: Archive, out: Path) -> Imported:
    """Make the run below `out`, in the place of one that an earlier archive of the same measurement made with fewer steps.

    Raises UserError where the archive adds nothing, or has what this release does not know.
    """
    origin = origin_of(archive.facts)
    if why := origin.unknown():
        raise ArchiveError(f"{archive.path}: this release does not know {why}; import it with the release that made it")
    created = datetime.fromisoformat(archive.facts.created)
    if created.timestamp() > time.time() + _AHEAD_SECONDS:
        raise ArchiveError(f"{archive.path}: it says that it was measured on {archive.facts.created}, {_YET_TO_COME}")
    folder = out / f"{created.astimezone(UTC):%Y%m%d-%H%M%S}-{archive.facts_sha256[:4]}"
    _check_new(archive, folder)
    # Written aside: a run has its folder when all of it is there. An import that was killed leaves the part only.
    part = out / f".{folder.name}.part"
    trees.remove(part)
    try:
        (part / folder.name).mkdir(parents=True)
        imported = _readable(archive, origin, store.RunStore(part / folder.name))
        if folder.exists():
            folder.rename(part / "replaced")
        (part / folder.name).rename(folder)
    except OSError as error:
        where = error.filename or folder
        fix = errors.fix_of(error, "check --results")
        raise ArchiveError(f"{where}: no run can be stored there ({error.strerror or error}); {fix}") from None
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
        raise ArchiveError(f"{folder} is there already, and is another run; name another folder with --results")
    if steps >= len(archive.steps):
        raise ArchiveError(
            f"{archive.path} is imported already, as {folder} with {steps} steps; remove that folder to import it again"
        )


def _readable(archive: Archive, origin: Origin, run: store.RunStore) -> Imported:
    """Write the run and read all of it, as every command will. Raises ArchiveError for what they would refuse."""
    try:
        imported = _write(archive, origin, run)
        renew(run)
    except store.StoreError as error:
        # The advice is for a run that was damaged where it lies.
        why = str(error).replace(f"{run.folder}{os.sep}", "").partition(";")[0]
        raise ArchiveError(f"{archive.path} holds what no command reads ({why}); nothing of it is imported") from None
    return imported


def _write(archive: Archive, origin: Origin, run: store.RunStore) -> Imported:
    facts = archive.facts
    for name, texts in facts.networks.items() if isinstance(facts, KitFacts) else ():
        for file, text in texts.items():
            store.write_bytes(run.network_folder(name) / file, text.encode("latin-1"))
    outcomes: list[StepOutcome] = []
    dropped: list[str] = []
    sums: list[Mapping[str, tuple[float, float]]] = []
    left = _LEAST_UNPACKED_BYTES + _UNPACKS_TO * archive.size
    for step, content in archive.steps.items():
        if (size := unpacked_bytes(content)) > left:
            dropped.append(f"{step.name}: it unpacks to {size} bytes, and no kit's archive of its size has so many")
            continue
        left -= size
        parcel, cell = _parcel_of(origin, step, content), step.cell
        if isinstance(parcel, str):
            dropped.append(f"{step.name}: {parcel[:400]}")
            continue
        sums.append(energies(parcel.telemetry))
        if step.kind != "cell":
            outcomes.append(StepOutcome(step, *outcome(step, parcel)))
            continue
        admitted = store_parcel(run, parcel, cell, origin.host(cell))
        refused = admitted.tables["cells"][0]["error_kind"] == "unsupported"
        outcomes.append(StepOutcome(step, "refused" if refused else admitted.status, admitted.reason or ""))
    if dropped and not outcomes:
        fix = "" if _YET_TO_COME in dropped[0] else "; copy it again from the machine that it was made on"
        raise ArchiveError(f"{archive.path}: {dropped[0]}{fix}")
    _write_manifest(archive, origin, [each.step for each in outcomes], run)
    imported = Imported(run, tuple(outcomes), len([*facts.steps()]) - len(outcomes), total(sums), tuple(dropped))
    document = {
        "facts_sha256": archive.facts_sha256,
        "facts": facts.model_dump(mode="json"),
        "outcomes": [{"step": each.step.name, "status": each.status, "reason": each.reason} for each in outcomes],
        "dropped": dropped,
        "not_done": imported.not_done,
        "energy_joules": imported.energies,
    }
    store.write_bytes(run.folder / "kit.json", json.dumps(document, indent=1, allow_nan=False).encode())
    return imported


def _parcel_of(origin: Origin, step: KitStep, content: bytes) -> Parcel | str:
    """The parcel of a step, or why it is not that of this step."""
    try:
        parcel = decode(content, step.name)
    except ParcelError as error:
        return str(error)
    if (parcel.cell_id, parcel.repeat) != (step.cell.id, step.repeat):
        return "it is the parcel of another cell"
    if (parcel.started_unix or 0.0) > time.time() + _AHEAD_SECONDS:
        return f"it began on {datetime.fromtimestamp(parcel.started_unix or 0.0, UTC):%Y-%m-%d}, {_YET_TO_COME}"
    return origin.stranger(step, parcel) or parcel


def _write_manifest(archive: Archive, origin: Origin, done: list[KitStep], run: store.RunStore) -> None:
    facts = archive.facts
    planned = [step for step in facts.steps() if step.kind == "cell"]
    # Of another bench than this checkout's, what its cells ran.
    rows = run.rows("cells").to_pylist()
    ran = {(row["framework"], row["workload"]): row["code_sha256"] for row in rows if row["code_sha256"]}
    plan = Plan(origin.cells, origin.skips)
    manifest: dict[str, Any] = manifest_of(run, facts.created, plan, origin.machine, ran | dict(origin.code))
    manifest["host"]["kernel"] = facts.kernel
    # A fact that the archive does not tell is not known.
    manifest["host"] = {name: value for name, value in manifest["host"].items() if value is not None}
    if isinstance(facts, RunFacts):
        manifest["host"] |= {"name": facts.machine, "machine_cpus": facts.machine_cpus}
    elif facts.cpu.quota is None:
        manifest["host"]["cpu_quota"] = None
    measured = Counter(step.cell for step in done if step.kind == "cell")
    counts = Counter(step.cell for step in facts.steps())
    for cell, entry in zip(plan.cells, manifest["plan"], strict=True):
        # Those that were measured. Of a cell without any, those that were planned.
        entry["repeats"] = measured[cell] or counts[cell]
    run.write_manifest(
        manifest
        | origin.manifest()
        | {
            "repeats": max((step.repeat for step in planned), default=1),
            "bench_sha256": facts.bench_sha256,
            "imported": {
                "archive": archive.path.name,
                "sha256": archive.sha256,
                "when": datetime.now(UTC).isoformat(timespec="seconds"),
                "parcels": dict(sorted(run.admitted.items())),
            },
        }
    )
