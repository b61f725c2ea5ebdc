"""The options of a run: each is declared here or in its base class, and nowhere else.

The command line makes its options of these fields, and run.json keeps them: `options.model_dump(mode="json")`.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError, field_serializer

from runner.catalog.own_networks import is_path
from runner.errors import UserError, first_problem
from runner.plan.request import Request


class UsageError(UserError):
    """An option asks for what cannot be done. The message names the option and what to give instead."""


class Options(Request):
    """The options of a run: cells, devices, modes, and the folder of results."""

    gpus: str = Field(
        default="all",
        description="all (where CUDA_VISIBLE_DEVICES is set: those that it leaves), none, or indices (3, or 3:0 for a MIG instance) "
        "or UUIDs between commas. With one GPU, cells run one at a time.",
    )
    least_gpus: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Begin only where cells use GPUs and so many can be used, of all nodes together. One that is lost or busy does not "
        "count.",
    )
    share: bool = Field(default=False, description="Use GPUs that somebody else computes on as well.")
    cool_down: bool = Field(
        default=False, description="Before each cell, let its GPU get as cool as it was at the start."
    )
    lock_clocks: int | None = Field(
        default=None,
        ge=100,
        le=10_000,
        description="Lock the SM clock of the GPUs at this many MHz while the run lasts, as root may. Default: the clocks float.",
    )
    wait: bool = Field(
        default=True, description="Wait while another runner holds a GPU; otherwise end at once and say which."
    )
    engine: str = Field(
        default="auto",
        description="auto, docker, podman, apptainer, venv or host (the interpreter that the runner is in).",
    )
    nodes: str | None = Field(
        default=None,
        description="Measure on several machines: ssh:FILE, a host a line; slurm:PARTITION; ray; local:N, N agents on this machine.",
    )
    repeats: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="How often each cell is run, in shuffled blocks. One repeat does not show how much another would differ. "
        "`runner matrix` takes 3 where none are given; for 3 to 6 cells 5, for 2 cells 7 (not with --preset full).",
    )
    timeout: float | None = Field(
        default=None,
        ge=1,
        le=10**9,
        allow_inf_nan=False,
        description="Seconds after which a cell counts as hanging; default: 900 (quick), 3600 (standard), 172800 (full).",
    )
    out: Path = Field(default=Path("results"), description="Folder of the results.")
    data: Path | None = Field(default=None, description="Folder of the real data sets; without it, stand-ins are made.")
    base_image: str | None = Field(
        default=None, description="Base image of a site without a registry, e.g. 'site:{python}'."
    )
    images_from: Path | None = Field(
        default=None,
        description="A folder of `runner images export`: an image that is not here is loaded from it. It is for --engine docker.",
    )
    catalog: Path | None = Field(
        default=None,
        description="A folder of images to run instead of this checkout's, such as a ladder that `runner blame` made.",
    )
    build: bool = Field(
        default=False,
        description="With --nodes: build on the nodes what they can neither load nor pull. One machine always does.",
    )
    python: Path | None = Field(
        default=None, description="With --engine host: the interpreter to measure; default: the runner's own."
    )
    against: str = Field(
        default="none",
        description="With --engine host: measure this image of the catalog beside the interpreter, in the same blocks; nearest: of each "
        "framework the nearest release; none: nothing.",
    )
    profile: bool = Field(
        default=False, description="After each measurement, run a few steps under the framework's own profiler."
    )

    @field_serializer("workloads", when_used="json")
    def _absolute_networks(self, words: tuple[str, ...]) -> list[str]:
        """A person's own network is named by its path, and the others by their names."""
        return [str(Path(word).absolute()) if is_path(word) else word for word in words]

    @field_serializer("data", "python", "images_from", "catalog", when_used="json")
    def _absolute(self, path: Path | None) -> str | None:
        """A run may be resumed from another folder. A name that is no file here is the name of a program: it stays."""
        return None if path is None else str(path.absolute() if path.exists() else path)


def stored_options(path: Path, stored: object) -> Options:
    """The options that the run.json at `path` holds. Raises UsageError where this release does not know them."""
    try:
        return Options.model_validate(stored)
    except ValidationError as error:
        problem = first_problem(error)
        raise UsageError(f"{path}: options: {problem}; fix the field, or start a new run") from None
