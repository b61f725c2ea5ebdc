"""Facts of this checkout's frameworks and workloads, read from the bench's files (bench.rules)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import rules
from runner.errors import UserError


class SpecificationError(UserError):
    """A file of the bench that cannot be read. The message names file, field and fix."""


def _read(read: Callable[[str], Any], name: str, path: Path) -> dict[str, Any]:
    """A JSON object of the bench with a title. Raises SpecificationError."""
    try:
        declared = read(name)
    except ValueError as error:
        raise SpecificationError(f"{path}: {error}; fix it: the files beside it show the form") from None
    if not isinstance(declared, dict) or not isinstance(declared.get("title"), str):
        raise SpecificationError(f"{path}: title: it is not a text; fix it: the files beside it show the form")
    return declared


@functools.cache
def _declared() -> dict[str, dict[str, Any]]:
    """Framework -> its framework.json, for those that this checkout declares."""
    folder = Path(rules.FRAMEWORKS)
    return {
        name: _read(rules.framework_declaration, name, folder / name / "framework.json")
        for name in rules.framework_names()
    }


def titles() -> dict[str, str]:
    """Framework -> what people call it."""
    return {name: str(declared["title"]) for name, declared in _declared().items()}


def untested(framework: str) -> str:
    """Why a framework's adapters have not been run here; empty where they have."""
    return str(_declared().get(framework, {}).get("untested", ""))


def caveats(framework: str, workload: str, device: str, mode: str) -> tuple[str, ...]:
    """The caveats of framework.json for the figure of such a cell (runner.catalog.frameworks.Caveat)."""
    stated = _declared().get(framework, {}).get("caveats", [])
    cell = {"workloads": workload, "devices": device, "modes": mode}
    return tuple(
        str(caveat["sentence"])
        for caveat in stated
        if all(not caveat.get(name) or value in caveat[name] for name, value in cell.items())
    )


def workloads() -> tuple[str, ...]:
    """The workloads that this checkout has."""
    return tuple(rules.workload_names())


def specification(workload: str) -> dict[str, Any]:
    """A workload's JSON; empty for one that this checkout does not have. A stored name may hold anything."""
    if workload not in workloads():
        return {}
    path = Path(rules.WORKLOADS) / f"{workload}.json"
    declared = _read(rules.workload_declaration, workload, path)
    for name, kind in (("chance", int | float | None), ("metric", dict | None)):
        if not isinstance(declared.get(name), kind):
            raise SpecificationError(f"{path}: {name}: it has a wrong type; fix it: the files beside it show the form")
    return declared
