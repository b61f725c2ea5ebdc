"""What this checkout's bench says of its frameworks and workloads, read from its files: nothing of it is imported."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[2] / "bench"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")


@functools.cache
def _declared() -> dict[str, dict[str, Any]]:
    """Framework -> its framework.json, for those that this checkout declares."""
    found = sorted((BENCH / "frameworks").glob("*/framework.json"))
    return {path.parent.name: json.loads(path.read_text("utf-8")) for path in found}


def titles() -> dict[str, str]:
    """Framework -> what people call it."""
    return {name: str(declared["title"]) for name, declared in _declared().items()}


def untested(framework: str) -> str:
    """Why a framework's adapters have not been run here; empty where they have."""
    return str(_declared().get(framework, {}).get("untested", ""))


def specification(workload: str) -> dict[str, Any]:
    """A workload's JSON; empty for one that this checkout does not know. A stored name may hold anything."""
    path = BENCH / "workloads" / f"{workload}.json"
    if not _NAME.match(workload) or len(workload) > 100 or not path.is_file():
        return {}
    found = json.loads(path.read_text("utf-8"))
    return found if isinstance(found, dict) else {}
