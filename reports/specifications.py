"""What this checkout's bench says of its frameworks and workloads, read from its files (bench.rules)."""

from __future__ import annotations

import functools
from typing import Any

from bench import rules


@functools.cache
def _declared() -> dict[str, dict[str, Any]]:
    """Framework -> its framework.json, for those that this checkout declares."""
    return {name: rules.framework_declaration(name) for name in rules.framework_names()}


def titles() -> dict[str, str]:
    """Framework -> what people call it."""
    return {name: str(declared["title"]) for name, declared in _declared().items()}


def untested(framework: str) -> str:
    """Why a framework's adapters have not been run here; empty where they have."""
    return str(_declared().get(framework, {}).get("untested", ""))


def workloads() -> tuple[str, ...]:
    """The workloads that this checkout has."""
    return tuple(rules.workload_names())


def specification(workload: str) -> dict[str, Any]:
    """A workload's JSON; empty for one that this checkout does not have. A stored name may hold anything."""
    return dict(rules.workload_declaration(workload)) if workload in workloads() else {}
