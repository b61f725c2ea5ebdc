"""The environments of the cells: cells that ran in the same environment stand together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reports.data.model import MeasuredCell, Tables

_SAME = (
    "image_digest",
    "lock_sha256",
    "bench_sha256",
    "framework_version",
    "python_version",
    "cuda_version",
    "cudnn_version",
    "driver_version",
    "device_name",
)


@dataclass(frozen=True)
class Environment:
    """One image on one device, the cells that ran in it, and every fact that the first of them recorded, flat."""

    cells: tuple[MeasuredCell, ...]
    facts: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]

    @property
    def row(self) -> Mapping[str, Any]:
        return self.cells[0].row

    @property
    def threads(self) -> str:
        """The threads that the framework says it uses."""
        settings = self.cells[0].environment.get("settings")
        threads = settings.get("threads", settings.get("threads_asked")) if isinstance(settings, dict) else None
        return "–" if threads is None else str(threads)


def environments(tables: Tables) -> tuple[Environment, ...]:
    """The environments of all cells that recorded one."""
    same: dict[tuple[str, ...], list[MeasuredCell]] = {}
    for cell in tables.cells:
        if cell.environment:
            same.setdefault((cell.label, *(str(cell.row.get(name)) for name in _SAME)), []).append(cell)
    return tuple(_environment(cells) for cells in same.values())


def _environment(cells: list[MeasuredCell]) -> Environment:
    facts: dict[str, str] = {}
    varying: set[str] = set()
    for cell in cells:
        for name, value in _flat(cell.environment):
            # Facts such as the clock's zero differ between any two processes. Versions and settings should not.
            if facts.setdefault(name, value) != value and name.split(" ")[0] in ("versions", "settings"):
                varying.add(name)
    return Environment(tuple(cells), tuple(facts.items()), tuple(sorted(varying)))


def _flat(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if name in ("event", "t", "v"):
            continue
        if isinstance(value, dict):
            for inner, deeper in value.items():
                yield f"{name} {inner}", deeper if isinstance(deeper, str) else json.dumps(deeper)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value)
