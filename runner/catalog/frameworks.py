"""A framework as the planner and the reader need it: the JSON beside its adapters, validated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from bench import rules
from runner.errors import UserError
from runner.paths import BENCH
from runner.results.validate import Frozen

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")


class FrameworkError(UserError):
    """A framework's file that cannot be used; the message names file, field and fix."""


class Caveat(Frozen):
    """A note beside a framework's figure: where the framework is measured otherwise than the others.

    The report marks the cells that it is of. An empty list means all of them.
    """

    sentence: str = Field(pattern=r"^[A-Z].*\.$")
    workloads: tuple[str, ...] = ()
    devices: tuple[Literal["cpu", "cuda"], ...] = ()
    modes: tuple[str, ...] = ()


class Framework(Frozen):
    """One framework as bench/frameworks/<name>/framework.json declares it."""

    name: str
    title: str = Field(min_length=1)  # as people call it
    modes: dict[str, str]  # how it can compile -> what that is; "default" is its own habit
    # mode -> the first version of the framework that has it
    modes_since: dict[str, str] = Field(default_factory=dict)
    # mode -> what has it not: a kind of device, a precision, a workload or "several" devices -> the reason
    modes_except: dict[str, dict[str, str]] = Field(default_factory=dict)
    # mode -> the kinds of device where it may be faster than the default at the networks of the Rosetta stone
    contenders: dict[str, tuple[Literal["cpu", "cuda"], ...]] = Field(default_factory=dict)
    # the folder whose adapters it computes with, where its own folder has none for a workload
    adapters: str | None = None
    # the folder of the library that computes for it, whose profile.py and ceilings.py are its own
    backend: str | None = None
    # the entrypoint of another language: a program, and a script of this folder
    entrypoint: tuple[str, str] | None = None
    # how it trains on several devices: a process each, those of MPI, or one process that sees all; None: it uses one
    parallel: Literal["processes", "mpi", "one-process"] | None = None
    # the mixed precisions in which it trains, and half types of whole networks -> exceptions: "cpu", "cuda" or a workload -> the reason
    half: dict[Literal["amp-fp16", "amp-bf16", "fp16", "bf16"], dict[str, str]] = Field(default_factory=dict)
    no_tf32: str | None = None  # why it cannot be told to compute in tf32
    untested: str | None = None  # why it never ran
    caveats: tuple[Caveat, ...] = ()
    # the workloads whose optimiser keeps no count of its steps here, so that a cell cannot tell it
    uncounted: tuple[str, ...] = ()
    # the workloads' modules that it computes; `load_frameworks` reads them from the folders
    modules: frozenset[str] = frozenset()

    @field_validator("no_tf32", "untested")
    @classmethod
    def _a_reason_has_words(cls, reason: str | None) -> str | None:
        # An empty one would count as none: the planner would plan what the file rules out.
        if reason is not None and not reason.strip():
            raise ValueError("it is empty; say why, or remove the field")
        return reason

    @model_validator(mode="after")
    def _modes_are_there(self) -> Framework:
        if "default" not in self.modes:
            raise ValueError('modes has no "default"; say what the framework does where nothing is asked for')
        for name in ("modes_since", "modes_except", "contenders"):
            declared = getattr(self, name)
            if unknown := sorted(set(declared) - set(self.modes)):
                raise ValueError(f"{name}: the framework has no mode {unknown[0]!r}; name one of its modes")
        for mode, version in self.modes_since.items():
            if not _VERSION.fullmatch(version):
                raise ValueError(f'modes_since: {mode}: {version!r} is no version; write it like "2.0"')
        for mode in (mode for caveat in self.caveats for mode in caveat.modes if mode not in self.modes):
            raise ValueError(f"caveats: the framework has no mode {mode!r}; name one of its modes")
        return self


def with_profiler(folder: Path = BENCH / "frameworks") -> frozenset[str]:
    """The frameworks that can profile a step."""
    return frozenset(
        name for name in rules.framework_names(str(folder)) if rules.adapter_path(name, "profile", str(folder))
    )


def load_frameworks(folder: Path = BENCH / "frameworks") -> dict[str, Framework]:
    """Every framework by name. Raises FrameworkError."""
    frameworks: dict[str, Framework] = {}
    module_of = {name: str(rules.module_of(name, rules.workload_declaration(name))) for name in rules.workload_names()}
    for name in rules.framework_names(str(folder)):
        path = folder / name / "framework.json"
        try:
            framework = Framework.model_validate({**rules.framework_declaration(name, str(folder)), "name": name})
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            where = f"{path}: {field}" if field else path
            if first["type"] == "value_error":  # a sentence of this file, with its fix
                raise FrameworkError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None
            raise FrameworkError(f"{where}: {first['msg']}; fix it: the other frameworks show the form") from None
        except ValueError as error:
            raise FrameworkError(f"{path}: {error}; fix it: the other frameworks show the form") from None
        for key in ("adapters", "backend"):
            shared = getattr(framework, key)
            if shared and not (folder / shared).is_dir():
                raise FrameworkError(f"{path}: {key}: there is no folder {shared!r} beside it; name one that is there")
        modules = frozenset(rules.adapters_of(name, str(folder)))
        computed = [name for name, module in module_of.items() if module in modules]
        named = [("caveats", workload) for caveat in framework.caveats for workload in caveat.workloads]
        named += [("uncounted", workload) for workload in framework.uncounted]
        for field, workload in named:
            if workload not in computed:
                raise FrameworkError(
                    f"{path}: {field}: it computes no workload {workload!r}; name one of {', '.join(computed)}"
                )
        frameworks[name] = framework.model_copy(update={"modules": modules})
    return frameworks
