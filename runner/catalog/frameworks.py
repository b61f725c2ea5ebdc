"""A framework as the planner and the reader need it: the JSON beside its adapters, validated."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bench import rules
from runner.errors import UserError
from runner.paths import BENCH


class FrameworkError(UserError):
    """A framework's file that cannot be used; the message names file, field and fix."""


class Framework(BaseModel):
    """One framework as bench/frameworks/<name>/framework.json declares it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str = Field(min_length=1)  # as people call it
    modes: dict[str, str]  # how it can compile -> what that is; "default" is its own habit
    # the folder whose adapters it computes with, where its own folder has none for a workload
    adapters: str | None = None
    # the folder of the library that computes for it, whose profile.py and ceilings.py are its own
    backend: str | None = None
    # the entrypoint of another language: a program, and a script of this folder
    entrypoint: tuple[str, str] | None = None
    # how it trains on several devices: a process each, those of MPI, or one process that sees all; None: it uses one
    parallel: Literal["processes", "mpi", "one-process"] | None = None
    # the mixed precisions in which it trains -> the exceptions: "cpu", "cuda" or a workload -> the reason
    amp: dict[Literal["amp-fp16", "amp-bf16"], dict[str, str]] = Field(default_factory=dict)
    untested: str | None = None  # why it never ran
    # the workloads' modules that it computes; `load_frameworks` reads them from the folders
    modules: frozenset[str] = frozenset()

    @model_validator(mode="after")
    def _has_a_default(self) -> Framework:
        if "default" not in self.modes:
            raise ValueError('modes has no "default"; say what the framework does where nothing is asked for')
        return self


def with_profiler(folder: Path = BENCH / "frameworks") -> frozenset[str]:
    """The frameworks that can profile a step."""
    return frozenset(
        name for name in rules.framework_names(str(folder)) if rules.adapter_path(name, "profile", str(folder))
    )


def load_frameworks(folder: Path = BENCH / "frameworks") -> dict[str, Framework]:
    """Every framework by name. Raises FrameworkError."""
    frameworks: dict[str, Framework] = {}
    for name in rules.framework_names(str(folder)):
        path = folder / name / "framework.json"
        try:
            framework = Framework.model_validate({**rules.framework_declaration(name, str(folder)), "name": name})
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the file"
            raise FrameworkError(
                f"{path}: {field}: {first['msg']}; fix it: the other frameworks show the form"
            ) from None
        except ValueError as error:
            raise FrameworkError(f"{path}: {error}; fix it: the other frameworks show the form") from None
        for key in ("adapters", "backend"):
            shared = getattr(framework, key)
            if shared and not (folder / shared).is_dir():
                raise FrameworkError(f"{path}: {key}: there is no folder {shared!r} beside it; name one that is there")
        modules = frozenset(rules.adapters_of(name, str(folder)))
        frameworks[name] = framework.model_copy(update={"modules": modules})
    return frameworks
