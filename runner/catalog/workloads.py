"""What the planner needs of a workload: the JSON beside its specification, and which framework computes it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.catalog.images import PROJECT
from runner.errors import UserError

BENCH = PROJECT / "bench"


class WorkloadError(UserError):
    """A workload's file that cannot be used; the message names file, field and fix."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Preset(_Frozen):
    """How long a preset measures: by time and noise, or by whole epochs."""

    seconds: float | None = Field(gt=0)  # the most that the measured windows may take together
    windows: int | None = Field(gt=0)  # at least so many windows, where the time allows
    noise: float | None = Field(gt=0)  # relative half width of the median's 95 % interval that is enough
    train_items: int = Field(ge=0)
    test_items: int = Field(ge=0)
    epochs: int | None = Field(gt=0)
    batch: int | None = Field(default=None, gt=0)  # where it is not the workload's; it is part of what a cell is
    most_mop: float | None = Field(
        default=None, gt=0
    )  # operators: points above so many million operations are not measured
    most_bytes: int | None = Field(default=None, gt=0)  # operators: nor points of more traffic; None: no limit
    most_sizes: int | None = Field(
        default=None, ge=2
    )  # operators: the smallest, the largest and so many in all; None: all


class Metric(_Frozen):
    """What tells that a network has learned, and the range a whole run is expected in."""

    name: str
    unit: str
    band: tuple[float, float]
    band_data: Literal["files", "generated"]
    band_needs: str | None = None  # what else a run needs to be expected there, in words


class Workload(_Frozen):
    """One workload as bench/workloads/<name>.json declares it."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    computes: str | None = None  # the workload whose specification, reference and adapters it uses; None: its own
    task: Literal["train", "infer", "operators"]
    data: str
    items: str
    batch: int = Field(gt=0)
    chance: float | None  # of the metric, for a network that has learned nothing
    metric: Metric | None  # none where nothing is learned
    precisions: tuple[str, ...] = Field(min_length=1)
    device_memory_gb: float | None = Field(
        None, gt=0
    )  # what the most wasteful framework takes of a GPU; None: next to nothing
    presets: dict[Literal["quick", "standard", "full"], Preset]

    @property
    def module(self) -> str:
        """The stem of the files that compute it."""
        return (self.computes or self.name).replace("-", "_")

    def preset(self, name: str) -> Preset:
        return next(each for known, each in self.presets.items() if known == name)

    def batch_of(self, preset: str) -> int:
        """The items of a step at a preset."""
        return self.preset(preset).batch or self.batch


def load_workloads(folder: Path = BENCH / "workloads") -> dict[str, Workload]:
    """Every workload by name. Raises WorkloadError."""
    workloads: dict[str, Workload] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            workload = Workload.model_validate_json(path.read_bytes())
        except ValidationError as error:
            found = error.errors()[0]
            field = ".".join(str(part) for part in found["loc"]) or "the file"
            raise WorkloadError(f"{path}: {field}: {found['msg']}; mend it as its neighbours have it") from None
        if workload.name != path.stem:
            raise WorkloadError(f"{path}: name: {workload.name!r} is not the file's name; make them the same")
        workloads[workload.name] = workload
    return workloads


def adapters(folder: Path = BENCH / "frameworks") -> frozenset[tuple[str, str]]:
    """(framework, module) of every file that computes a workload. Any suffix counts: an adapter may be R or Julia."""
    return frozenset(
        (path.parent.name, path.stem) for path in folder.glob("*/*") if path.is_file() and path.name[0] not in "_."
    )
