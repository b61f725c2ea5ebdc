"""What the planner and the reader need of a framework: the JSON beside its adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from runner.catalog.workloads import BENCH
from runner.errors import UserError


class FrameworkError(UserError):
    """A framework's file that cannot be used; the message names file, field and fix."""


class Framework(BaseModel):
    """One framework as bench/frameworks/<name>/framework.json declares it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str = Field(min_length=1)  # as people call it
    modes: dict[str, str]  # how it can compile -> what that is; "default" is its own habit
    # the entrypoint of another language: a program, and a script of this folder
    entrypoint: tuple[str, str] | None = None
    # how it trains on several devices: a process each, those of MPI, or one process that sees all; None: it uses one
    parallel: Literal["processes", "mpi", "one-process"] | None = None
    # in which mixed precisions it trains -> "cpu", "cuda" or a workload with which it does not all the same, and why
    amp: dict[Literal["amp-fp16", "amp-bf16"], dict[str, str]] = Field(default_factory=dict)
    untested: str | None = None  # why it never ran

    @model_validator(mode="after")
    def _has_a_default(self) -> Framework:
        if "default" not in self.modes:
            raise ValueError('modes has no "default"; say what the framework does where nothing is asked for')
        return self


def with_profiler(folder: Path = BENCH / "frameworks") -> frozenset[str]:
    """The frameworks that can profile a step: those with a profile.py."""
    return frozenset(path.parent.name for path in folder.glob("*/profile.py"))


def load_frameworks(folder: Path = BENCH / "frameworks") -> dict[str, Framework]:
    """Every framework by name. Raises FrameworkError."""
    frameworks: dict[str, Framework] = {}
    for path in sorted(folder.glob("*/framework.json")):
        try:
            text = path.read_text(encoding="utf-8").lstrip()
            found = Framework.model_validate_json(f'{{"name": "{path.parent.name}", ' + text.removeprefix("{"))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the file"
            raise FrameworkError(f"{path}: {field}: {first['msg']}; mend it as its neighbours have it") from None
        frameworks[found.name] = found
    return frameworks
