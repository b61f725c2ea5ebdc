"""The machine and the plan that an archive tells: of a kit, or of a shared run. What it says is checked, and never believed beyond that."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bench import identity
from runner.admission.admit import image_of
from runner.admission.judges import HostFacts
from runner.catalog.frameworks import load_frameworks
from runner.catalog.workloads import load_workloads
from runner.engines.process import installed
from runner.kit.archive import KitFacts
from runner.kit.contribution.run_facts import RunFacts
from runner.kit.steps import PRESET, SEED, KitStep
from runner.machine.devices import Gpu, Machine
from runner.plan.combination import Cell, Skip
from runner.plan.plan import not_planned
from runner.results.datasheets import bare_model
from runner.results.parcel import Parcel

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
        facts, frameworks, workloads = self.facts, load_frameworks(), load_workloads()
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
