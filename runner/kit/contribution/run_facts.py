"""The facts.json of a shared run: the machine without its name, and what was measured. The archive around it is a kit's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from runner.kit.steps import KitStep
from runner.machine.devices import Cpu, Gpu
from runner.plan.combination import Cell
from runner.results.untrusted import Hash, Name, Text, shown_as_it_is
from runner.results.validate import Moment

_MOST_CELLS, _MOST_REPEATS = 5000, 1000

Bytes = Annotated[int, Field(ge=0, lt=2**63)]
# In the place of the name of a machine.
Pseudonym = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


@dataclass(frozen=True)
class CpuFacts(Cpu):
    """A processor as another machine tells it."""

    memory_bytes: Bytes
    machine_cpus: Annotated[int, Field(ge=1, le=100_000)] | None = None
    governor: Text | None = None
    energy_preference: Text | None = None
    turbo: Text | None = None


@dataclass(frozen=True)
class GpuFacts(Gpu):
    """A GPU as another machine tells it."""

    memory_bytes: Bytes | None


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class SharedStep(KitStep):
    """A repeat of a cell of any run: several images and GPUs may have one of the same words."""

    @property
    def name(self) -> str:
        return f"cell.{self.cell.id}.r{self.repeat}"


class SharedCell(Frozen):
    """A cell, the digest of the code that was planned for it, and its repeats that ended well."""

    cell: Cell
    code_sha256: Hash | None
    repeats: Annotated[
        tuple[Annotated[int, Field(ge=1, le=10_000)], ...], Field(min_length=1, max_length=_MOST_REPEATS)
    ]


class RunFacts(Frozen):
    """facts.json of a shared run."""

    run: Literal[1]
    created: Annotated[Moment, Field(pattern=r"^20")]
    runner_version: Text
    bench_sha256: Hash
    engine: Name
    preset: Text
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    # True if the user gave a folder of real data.
    data_given: bool
    machine: Pseudonym
    machine_cpus: Annotated[int, Field(ge=1, le=100_000)] | None
    gpus: Annotated[tuple[GpuFacts, ...], Field(max_length=64)]
    cpu: CpuFacts
    kernel: Text
    planned: Annotated[tuple[SharedCell, ...], Field(min_length=1, max_length=_MOST_CELLS)]

    @field_validator("gpus", "cpu", "kernel", "runner_version", "planned", mode="before")
    @classmethod
    def _can_be_shown(cls, value: Any) -> Any:
        return shown_as_it_is(value)

    @model_validator(mode="after")
    def _has_each_once(self) -> RunFacts:
        steps = [(step.cell.id, step.repeat) for step in self.steps()]
        if len(set(steps)) < len(steps):
            raise ValueError("planned: it has a repeat of a cell twice")
        return self

    def steps(self) -> Iterator[KitStep]:
        """The repeats, each of which has a parcel in the archive."""
        for shared in self.planned:
            for repeat in shared.repeats:
                yield SharedStep("cell", shared.cell, repeat)
