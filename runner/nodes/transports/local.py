"""`local:N`: agents on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from runner.machine.devices import Machine
from runner.nodes.transports import transport
from runner.nodes.transports.transport import Node, Nodes, NodesError
from runner.text import plural


class Local(Nodes):
    """Agents on this machine, each with a part of its CPUs and GPUs."""

    shares_machine = True

    def __init__(self, count: int, machine: Machine) -> None:
        boards = list(dict.fromkeys(gpu.board for gpu in machine.gpus))
        if boards and count > len(boards):
            raise NodesError(
                f"--nodes local:{count}: this machine has {plural(len(boards), 'GPU')} to use, and each node needs one; "
                f"say local:{len(boards)}, or --gpus none"
            )
        cores = [*machine.cpu.cores] or [(cpu,) for cpu in machine.cpu.cpus]
        alone = len(cores) >= count
        self.notes: tuple[str, ...] = (
            () if alone else (f"{count} nodes share {plural(len(cores), 'core')}: their times mean little",)
        )
        uuids = [[gpu.uuid for gpu in machine.gpus if boards.index(gpu.board) % count == at] for at in range(count)]
        self._nodes = [
            Node(
                f"local-{at + 1}",
                (sys.executable, *transport.AGENT),
                _part(cores, at, count) if alone else None,
                # Without a GPU to share out, an agent itself gives the reason.
                ",".join(uuids[at]) or ("none" if boards or machine.refused else ""),
                count,
            )
            for at in range(count)
        ]

    def there(self) -> Sequence[Node]:
        return self._nodes


def _part(cores: Sequence[tuple[int, ...]], at: int, count: int) -> tuple[int, ...]:
    """The CPUs of one of `count` equal parts: cores that follow one another, since these are of one socket."""
    each = len(cores) // count
    return tuple(sorted(cpu for core in cores[at * each : (at + 1) * each] for cpu in core))
