"""What a transport is, and what it says of a node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from runner.errors import UserError

# What starts an agent with an interpreter.
AGENT = ("-m", "runner", "agent")


class NodesError(UserError):
    """--nodes names what cannot be reached, or no nodes."""


@dataclass(frozen=True)
class Node:
    """A place for an agent, and the command that starts one there."""

    name: str
    command: tuple[str, ...]
    # Where several nodes share one machine: the part that is this one's. None and "": all of it.
    cpus: tuple[int, ...] | None = None
    gpus: str = ""
    # So many nodes share the memory of the machine.
    sharing: int = 1
    environment: Mapping[str, str] | None = None


class Nodes(Protocol):
    """A transport: which nodes there are."""

    # Whether all of them share this machine: then this process holds its devices.
    shares_machine: bool
    notes: tuple[str, ...]
    # When the nodes are taken away, by time.monotonic().
    ends_at: float = math.inf

    def there(self) -> Sequence[Node]:
        """The nodes. Asked again while a run goes on: nodes may come."""
        ...

    def close(self) -> None:
        """Give back what was taken for the nodes, when all agents have ended. It may be called twice."""
        return
