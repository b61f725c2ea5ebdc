"""A workload as the planner needs it: the JSON beside its specification, validated; and which framework computes it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveFloat, ValidationError

from bench import rules
from runner.catalog.frameworks import load_frameworks
from runner.catalog.names import PresetName
from runner.errors import UserError
from runner.paths import BENCH
from runner.results.validate import Frozen


class WorkloadError(UserError):
    """A workload's file that cannot be used; the message names file, field and fix."""


class Preset(Frozen):
    """How long a preset measures: by time and noise, or by whole epochs."""

    seconds: float | None = Field(gt=0)  # the most that the measured windows may take together
    windows: int | None = Field(gt=0)  # the least number of windows, if the time allows
    noise: float | None = Field(gt=0)  # relative half width of the median's 95 % interval that is enough
    train_items: int = Field(ge=0)
    test_items: int = Field(ge=0)
    epochs: int | None = Field(gt=0)
    # where it is not the workload's; it is part of what a cell is
    batch: int | None = Field(default=None, gt=0)
    # operators: points above these million operations, or bytes of traffic, are not measured; None: no limit
    most_mop: float | None = Field(default=None, gt=0)
    most_bytes: int | None = Field(default=None, gt=0)
    # operators: the number of sizes, the smallest and the largest among them; None: all
    most_sizes: int | None = Field(default=None, ge=2)
    # operators: the least and the most million operations of attention, by device, in place of most_mop and most_bytes
    attention_mop: dict[Literal["cpu", "cuda"], tuple[float, float]] | None = None


class Metric(Frozen):
    """The measure of what a network has learned, and the range in which a whole run is expected."""

    name: str
    unit: str
    band: tuple[float, float]
    band_data: Literal["files", "generated"]
    band_needs: str | None = None  # what else a run needs to be expected there, in words


class Workload(Frozen):
    """One workload as bench/workloads/<name>.json declares it."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    computes: str | None = None  # the workload whose specification, reference and adapters it uses; None: its own
    task: Literal["train", "infer", "decode", "operators"]
    data: str
    items: str
    batch: int = Field(gt=0)
    parity_batch: int | None = Field(default=None, gt=0)  # the items of a batch of the parity check, where it has fewer
    gpu_only: str | None = None  # why a CPU does not measure it, in words; parity is checked there all the same
    chance: float | None  # of the metric, for a network that has learned nothing
    metric: Metric | None  # none where nothing is learned
    precisions: tuple[str, ...] = Field(min_length=1)
    # True: only a plan that names it, or asks for the time to a loss, has it. It trains for longer than a step time needs.
    on_request: bool = False
    # of a GPU, what the most wasteful framework takes, or by precision; None: next to nothing
    device_memory_gb: PositiveFloat | dict[str, PositiveFloat] | None = None
    presets: dict[PresetName, Preset]

    @property
    def module(self) -> str:
        """The stem of the files that compute it."""
        return str(rules.module_of(self.name, {"computes": self.computes}))

    def memory_gb(self, precision: str) -> float:
        """The gigabytes of a GPU's memory that a cell takes at a precision; at one that is not named, the most of all."""
        needs = self.device_memory_gb
        return needs.get(precision, max(needs.values())) if isinstance(needs, dict) else needs or 0.0

    def preset(self, name: str) -> Preset:
        return next(preset for known, preset in self.presets.items() if known == name)

    @property
    def canonical_batch(self) -> int:
        """The items of a batch of the parity check."""
        return int(rules.canonical_batch({"batch": self.batch, "parity_batch": self.parity_batch}))

    def batch_of(self, preset: str) -> int:
        """The items of a step at a preset."""
        return self.preset(preset).batch or self.batch


@functools.cache
def _data_sets() -> tuple[str, ...]:
    """The modules of bench/data that can write a stand-in, and random tensors."""
    modules = sorted((BENCH / "data").glob("*.py"))
    sources = {path.stem: path.read_text(encoding="utf-8") for path in modules}
    return (*(name for name, source in sources.items() if "def write_stand_in(" in source), *rules.RANDOM)


def load_workloads(folder: Path = BENCH / "workloads") -> dict[str, Workload]:
    """Every workload by name. Raises WorkloadError."""
    workloads: dict[str, Workload] = {}
    for name in rules.workload_names(str(folder)):
        path = folder / f"{name}.json"
        try:
            workload = Workload.model_validate(rules.workload_declaration(name, str(folder)))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the file"
            raise WorkloadError(f"{path}: {field}: {first['msg']}; fix it: the other workloads show the form") from None
        except ValueError as error:
            raise WorkloadError(f"{path}: {error}; fix it: the other workloads show the form") from None
        if workload.name != name:
            raise WorkloadError(f"{path}: name: {workload.name!r} is not the file's name; make them the same")
        if workload.task == "train" and workload.data not in _data_sets():
            raise WorkloadError(
                f"{path}: data: there is no data set {workload.data!r}; name one of {', '.join(_data_sets())}"
            )
        workloads[name] = workload
    return workloads


def adapters(folder: Path = BENCH / "frameworks") -> frozenset[tuple[str, str]]:
    """(framework, module) of every workload that a framework computes, in whatever language. Raises FrameworkError."""
    frameworks = load_frameworks(folder)
    return frozenset((name, module) for name, framework in frameworks.items() for module in framework.modules)
