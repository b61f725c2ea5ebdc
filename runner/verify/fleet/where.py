"""On which node each GPU of some stored runs is, and how it is set up there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.nodes import settings
from runner.results.store import RunStore
from runner.verify.outliers import Spot


@dataclass(frozen=True)
class Placed:
    """The GPUs of some runs: where each is, and its facts and its host's in words. By UUID."""

    spots: Mapping[str, Spot]
    facts: Mapping[str, Mapping[str, str]]

    def of_node(self, gpus: Sequence[str]) -> dict[str, list[Mapping[str, str]]]:
        """The facts of the GPUs of each node."""
        nodes: dict[str, list[Mapping[str, str]]] = {}
        for gpu in gpus:
            if gpu in self.spots:
                nodes.setdefault(self.spots[gpu].node, []).append(self.facts.get(gpu, {}))
        return nodes


def placed(folders: Sequence[Path]) -> Placed:
    """The GPUs of some runs. A run of one machine names it as its host; one of several nodes says which GPUs each of them has."""
    spots: dict[str, Spot] = {}
    facts: dict[str, Mapping[str, str]] = {}
    for folder in folders:
        manifest = RunStore(folder).manifest()
        host, devices = manifest["host"], {str(entry.get("uuid")): entry for entry in manifest.get("devices") or ()}
        nodes = {str(uuid): entry for entry in manifest.get("nodes", ()) for uuid in _list(entry.get("gpus"))}
        for uuid, entry in devices.items():
            node = nodes.get(uuid)
            name = host.get("name") if node is None else node.get("node")
            if name:
                spots[uuid] = Spot(str(name), _index(entry.get("index")))
                facts[uuid] = settings.facts(entry) | settings.facts(node or host, settings.OF_HOST)
    return Placed(spots, facts)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _index(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000 else None
