"""The record of what was tried of each GPU image on a CPU, and the page that shows it: docs/gpu-images.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import Field, FiniteFloat, ValidationError, model_validator

from bench import identity, rules
from runner.catalog.frameworks import Framework
from runner.catalog.images import CatalogError, Image
from runner.catalog.workloads import Workload
from runner.errors import first_problem
from runner.paths import PROJECT
from runner.results import store
from runner.results.validate import Frozen

RECORDS = PROJECT / "docs" / "tried"
PAGE = PROJECT / "docs" / "gpu-images.md"

_LONGEST = 300

# A CPU has no unit for it.
_NOT_ON_A_CPU = "tf32"
# The reference of a training cell's losses and of its first steps, and what bench.same_bits, a load and a profile run: no check reads them.
# framework.json says what is offered and which folders compute it; those are read themselves.
_NOT_READ = (".learning.txt", ".first-steps.npz", "/_bits.py", "/ceilings.py", "/profile.py", "/framework.json")

# How the names of the driver's libraries begin.
_OF_THE_DRIVER = ("libcuda.so", "libnvidia-")

# How the reason begins of a framework that is not imported because NVIDIA's driver is not installed: a fact of the machine.
WITHOUT_DRIVER = "without NVIDIA's driver it cannot be imported: "

Outcome = Literal["ok", "wrong", "error", "unsupported", "unfinished"]

_HEAD = """\
# GPU images: what was tried on a CPU

This page is written by `runner images files`, from the records in `docs/tried`. `runner images try NAME` makes a record. It installs the
image's lock, imports each framework, and holds each adapter against the float64 reference, on the CPU of the machine. It runs no GPU
kernel and loads no GPU library that the framework does not load by itself. **A line here says nothing about a GPU.**

- *Compiled for*: how many steps XLA compiled for a GPU that was not there, of those that the plan offers on it:
  [gpu-compiled.md](gpu-compiled.md).
- *Installed*: "whole lock", or how many of its wheels were not installed. Those are NVIDIA's libraries and the plugins for them. They are
  not installed where the framework imports without them.
- *Checked*: the largest ratio of an error and its bound over all compared quantities. The check holds at 1 and below.
- *A stand-in for the driver*: the framework is not imported where NVIDIA's driver is not installed. Libraries of the driver's names
  stood in for it, whose functions say that there is no GPU (`tests/stand_ins/no_driver.c`).
- *Of older code*: the framework's adapters or the workload were edited after the check. A record without
  `adapter_sha256` cannot tell.
- A check that did not hold, was not finished or was not run stands in the last column, with the reason.
"""


class AdapterCheck(Frozen):
    """One adapter at one precision on the CPU."""

    framework: str
    workload: str
    precision: str
    # ok: parity held; wrong: it did not hold; error: there was no verdict; unsupported: the adapter says that this version of the framework
    # cannot do it; unfinished: it took too long
    outcome: Outcome
    date: date
    # the largest error / bound, and of how many quantities
    worst: FiniteFloat | None = Field(None, ge=0)
    compared: int | None = Field(None, gt=0)
    # the `adapter_sha256` that was checked; None in records that are older than this field
    adapter_sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    # why it is not ok
    reason: str = Field("", max_length=_LONGEST)

    @model_validator(mode="after")
    def _an_outcome_has_its_proof(self) -> AdapterCheck:
        if self.outcome == "ok" and not (self.compared and self.worst is not None and self.worst <= 1):
            raise ValueError('outcome: "ok" needs `compared` quantities and a `worst` of at most 1')
        if self.outcome != "ok" and not self.reason:
            raise ValueError("reason: it is empty; say why the check is not ok")
        return self


class Tried(Frozen):
    """The trial of one image."""

    image: str
    lock_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    date: date
    python: str = Field(max_length=40)
    # venv: an environment made from the lock; docker: the built image
    engine: Literal["venv", "docker"]
    # libraries that stood in for those of the driver, or of the base image, where the framework is not imported without them
    driver: tuple[str, ...] = ()
    # pins of the lock that were not installed
    left_out: tuple[str, ...] = ()
    # framework -> its version, as it says once it is imported
    imported: dict[str, str] = Field(default={})
    # framework, or "" for the whole image -> why it was not imported
    failed: dict[str, str] = Field(default={})
    checks: tuple[AdapterCheck, ...] = ()


def offered(
    image: Image, frameworks: Mapping[str, Framework], workloads: Iterable[Workload]
) -> list[tuple[str, str, str]]:
    """(framework, workload, precision) of each adapter of the image that computes on a CPU, as the plan would have it."""
    return [
        (framework.name, workload.name, precision)
        for framework in (frameworks[name] for name in image.frameworks)
        for workload in workloads
        # A workload that computes another one has that one's adapter.
        if workload.computes is None and workload.module in framework.modules
        for precision in workload.precisions
        if precision != _NOT_ON_A_CPU
        and precision not in image.not_on_cpu
        and rules.MIXED.get(precision, precision) in image.precisions
        and rules.half_reason(framework.name, framework.half, workload.name, precision, "cpu", 1) is None
    ]


def adapter_sha256(framework: str, workload: str) -> str:
    """sha256 (hex) of the adapter that a check is of: the adapter, what it imports, and the workload's files.

    The bench's core is not in it: an edit there would age every line of the page. Nor is what a check never reads: the stored losses, the
    first steps, and what only a profile, a load or bench.same_bits runs.
    """
    files = identity.adapter_files(framework, workload)
    return str(identity.digest([path for path in files if not path.endswith(_NOT_READ)]))


def record_path(image: Image) -> Path:
    return RECORDS / f"{image.name}.json"


def read_record(image: Image) -> Tried | None:
    """The record of an image; None before there is one. Raises CatalogError."""
    path = record_path(image)
    if not path.is_file():
        return None
    try:
        tried = Tried.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CatalogError(f"{path}: {first_problem(error)}; `runner images try {image.name}` makes it anew") from None
    if tried.image != image.name:
        raise CatalogError(f"{path}: image: {tried.image!r} is not the file's name; make them the same")
    return tried


def recorded(image: Image, engine: str, tried: Tried | None) -> set[tuple[str, str, str]]:
    """(framework, workload, precision) of the checks that ended with the image's lock, by this engine, of today's adapters."""
    if tried is None or (tried.lock_sha256, tried.engine) != (image.lock_sha256, engine):
        return set()
    return {
        _key(check)
        for check in tried.checks
        if check.outcome != "unfinished"
        and check.adapter_sha256 in (None, adapter_sha256(check.framework, check.workload))
    }


def write_record(image: Image, tried: Tried) -> Path:
    """Write a record, with the older one's checks of the same lock and engine that the new one did not repeat.

    An older record that cannot be read is replaced: it must not cost the hours that the new one took.
    """
    try:
        before = read_record(image)
    except CatalogError:
        before = None
    # A check in an environment says nothing of one in the built image.
    if before and (before.lock_sha256, before.engine) == (tried.lock_sha256, tried.engine):
        tried = _with_driver_s(tried, before)
        repeated = {_key(check) for check in tried.checks}
        kept = [check for check in before.checks if _key(check) not in repeated and check.framework in tried.imported]
        tried = tried.model_copy(update={"checks": tuple(sorted((*kept, *tried.checks), key=_key))})
    path = record_path(image)
    path.parent.mkdir(exist_ok=True)
    store.write_bytes(path, (tried.model_dump_json(indent=1, exclude_defaults=True) + "\n").encode())
    return path


def _with_driver_s(tried: Tried, before: Tried) -> Tried:
    """The record, with the older one's word on the frameworks that lacked the driver this time and had a stand-in then."""
    missed = {name for name, why in tried.failed.items() if why.startswith(WITHOUT_DRIVER) and name in before.imported}
    if not missed:
        return tried
    return tried.model_copy(
        update={
            "driver": before.driver,
            "imported": tried.imported | {name: before.imported[name] for name in missed},
            "failed": {name: why for name, why in tried.failed.items() if name not in missed},
        }
    )


def _key(check: AdapterCheck) -> tuple[str, str, str]:
    return check.framework, check.workload, check.precision


def page_text(
    images: Iterable[Image],
    offered: Sequence[tuple[str, str, str, str]],
    compiled: Callable[[Image, str], str],
) -> str:
    """docs/gpu-images.md. `offered`: (image, framework, workload, precision) of each check that belongs to a GPU image.

    `compiled`: the column of what was compiled for GPUs that are not here, of an image and a framework.
    """
    rows = [
        [
            "image",
            "framework",
            "compiled for",
            "tried on",
            "installed",
            "checked: error / bound",
            "not checked, or not ok",
        ],
        ["---"] * 7,
    ]
    today: dict[tuple[str, str], str] = {}
    for image in images:
        if image.accelerator == "cuda":
            tried = read_record(image)
            for check in tried.checks if tried else ():
                key = check.framework, check.workload
                if check.adapter_sha256 and key not in today:
                    today[key] = adapter_sha256(*key)
            for framework in image.frameworks:
                own = [
                    (workload, precision)
                    for name, of, workload, precision in offered
                    if (name, of) == (image.name, framework)
                ]
                title, *others = _row(image, framework, tried, own, today)
                rows.append([f"`{image.name}`", title, compiled(image, framework), *others])
    return _HEAD + "\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(
    image: Image,
    framework: str,
    tried: Tried | None,
    offered: Sequence[tuple[str, str]],
    today: Mapping[tuple[str, str], str],
) -> list[str]:
    """The row of one framework. `today`: (framework, workload) -> its digest, for each check that has one."""
    if tried is None:
        return [framework, "never", "nothing", "", "nothing was tried"]
    day = str(tried.date) if tried.lock_sha256 == image.lock_sha256 else f"{tried.date}, **with an older lock**"
    version = tried.imported.get(framework)
    title = f"{framework} {cell_text(version)}" if version else framework
    why = tried.failed.get(framework) or tried.failed.get("")
    if why:
        return [title, day, _installed(image, tried), "", f"not imported: {cell_text(why)}"]
    checks = {(check.workload, check.precision): check for check in tried.checks if check.framework == framework}
    old = {
        at: " **of older code**"
        for at, check in checks.items()
        if check.adapter_sha256 and check.adapter_sha256 != today[framework, check.workload]
    }
    good = [
        f"{name} {at} {check.worst:.2g}{old.get((name, at), '')}"
        for (name, at), check in checks.items()
        if check.outcome == "ok"
    ]
    bad = [
        _not_ok(check, old.get((name, at), ""), offered=(name, at) in offered)
        for (name, at), check in checks.items()
        if check.outcome != "ok"
    ]
    left_out = [at for at in image.not_on_cpu if any(at == checked for _, checked in checks)]
    bad += [f"{at} is skipped on a CPU: {cell_text(image.not_on_cpu[at])}" for at in left_out]
    missing: dict[str, list[str]] = {}
    for name, at in offered:
        if (name, at) not in checks:
            missing.setdefault(name, []).append(at)
    if missing:
        bad.append("not run: " + ", ".join(f"{name} ({', '.join(precisions)})" for name, precisions in missing.items()))
    return [title, day, _installed(image, tried), "; ".join(good), "; ".join(bad) or "-"]


def _not_ok(check: AdapterCheck, old: str, *, offered: bool) -> str:
    """The sentence on a check that is not ok. `old` marks one of older code."""
    what, why = f"{check.workload} {check.precision}", cell_text(check.reason)
    # Nobody runs it again, so it is no check to do.
    if old and not offered:
        return f"{what} is skipped by the plan; the last check, of older code: {check.outcome}: {why}"
    return f"{what}: {check.outcome}{old}: {why}{'' if offered else ' (skipped by the plan)'}"


def _installed(image: Image, tried: Tried) -> str:
    if tried.engine == "docker":
        return "the built image"
    others = [name for name in tried.driver if not name.startswith(_OF_THE_DRIVER)]
    base = "CUDA of NVIDIA's wheels in place of the base image's" if others else "without the base image's CUDA"
    base = f", {base}" if image.cuda_from == "base" else ""
    driver = ", beside a stand-in for the driver" if len(others) < len(tried.driver) else ""
    return (f"all but {len(tried.left_out)} wheels" if tried.left_out else "whole lock") + base + driver


def shortcomings(image: Image, tried: Tried) -> list[str]:
    """The faults that a try found, or that it proved nothing: a sentence each. Without any the image is good on a CPU."""
    excused = {
        name for name, why in tried.failed.items() if image.accelerator == "cuda" and why.startswith(WITHOUT_DRIVER)
    }
    sentences = [f"{name} is not imported: {why}" for name, why in tried.failed.items() if name not in excused]
    bad = [check for check in tried.checks if check.outcome in ("wrong", "error")]
    sentences += [f"{check.framework} {check.workload} {check.precision} is {check.outcome}" for check in bad]
    if tried.checks and all(check.outcome == "unfinished" for check in tried.checks):
        sentences.append("nothing was proved: no check ended within its limit; give a longer --limit")
    elif not tried.checks and (tried.imported or not tried.failed):
        sentences.append("nothing was proved: no check was run")
    elif tried.checks and not bad and all(check.outcome != "ok" for check in tried.checks):
        sentences.append("nothing was proved: no check is ok")
    return sentences


def cell_text(text: str) -> str:
    """A text of an environment as a table's cell: printable ASCII, nothing that Markdown or HTML would read, bounded."""
    plain = " ".join(re.sub(r"[^ -~]+", " ", text)[:_LONGEST].split())
    return re.sub(r"([\\`*_{}\[\]<>|&])", r"\\\1", plain)
