"""`ssh:FILE`: an agent on each host of a file."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.errors import UserError
from runner.machine.devices import Machine
from runner.nodes.transports import transport
from runner.paths import find_program
from runner.results.store import read_bytes
from runner.text import in_a_line, plural

# `local:N`: agents on this machine.


class Local(transport.Nodes):
    """Agents on this machine, each with a part of its CPUs and GPUs."""

    shares_machine = True

    def __init__(self, count: int, machine: Machine) -> None:
        boards = list(dict.fromkeys(gpu.board for gpu in machine.gpus))
        if boards and count > len(boards):
            raise transport.NodesError(
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
            transport.Node(
                f"local-{at + 1}",
                (sys.executable, *transport.AGENT),
                _part(cores, at, count) if alone else None,
                # Without a GPU to share out, an agent itself gives the reason.
                ",".join(uuids[at]) or ("none" if boards or machine.refused else ""),
                count,
            )
            for at in range(count)
        ]

    def there(self) -> Sequence[transport.Node]:
        return self._nodes


def _part(cores: Sequence[tuple[int, ...]], at: int, count: int) -> tuple[int, ...]:
    """The CPUs of one of `count` equal parts: cores that follow one another, since these are of one socket."""
    each = len(cores) // count
    return tuple(sorted(cpu for core in cores[at * each : (at + 1) * each] for cpu in core))


_MOST_HOSTS = 10_000
_MOST_HOSTS_BYTES = 1 << 20
_HOST = re.compile(r"(?=.{1,101}\Z)([A-Za-z0-9][A-Za-z0-9._-]*@)?[A-Za-z0-9][A-Za-z0-9._:-]*")


class Ssh(transport.Nodes):
    """An agent on each host of a file, by the system's ssh, which must not need a password."""

    shares_machine = False
    notes: tuple[str, ...] = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._program = find_program("ssh")
        if self._program is None:
            raise transport.NodesError("--nodes ssh: there is no program ssh on PATH; install OpenSSH's client")
        self.there()

    def there(self) -> Sequence[transport.Node]:
        """The hosts, as the file has them now. A line is HOST, or HOST and the Python of the installation there."""
        try:
            text = read_bytes(self._path, _MOST_HOSTS_BYTES).decode("utf-8-sig")
        except (OSError, ValueError) as error:
            raise UserError(
                f"--nodes ssh: {self._path} cannot be read ({error}); name a file with a host a line"
            ) from None
        nodes: dict[str, transport.Node] = {}
        for number, line in enumerate(text.splitlines(), 1):
            host, *more = line.partition("#")[0].split() or [""]
            if not host:
                continue
            if not _HOST.fullmatch(host) or len(more) > 1:
                raise UserError(
                    f"{self._path}:{number}: {in_a_line(line, 80)!r} is neither HOST nor HOST PYTHON; "
                    "HOST is as ssh takes it, and PYTHON is that of the installation there"
                )
            if host in nodes:
                raise UserError(f"{self._path}:{number}: {host} is there twice; remove one line")
            nodes[host] = transport.Node(host, self._command(host, more[0] if more else sys.executable))
        if not 0 < len(nodes) <= _MOST_HOSTS:
            raise UserError(f"{self._path} names {plural(len(nodes), 'host')}; it must name 1 to {_MOST_HOSTS}")
        return list(nodes.values())

    def _command(self, host: str, python: str) -> tuple[str, ...]:
        # Without a terminal there: it would change the bytes of a frame. A connection that is dead for a minute ends.
        options = ("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=15", "ServerAliveCountMax=4")
        words = [word for option in options for word in ("-o", option)]
        return (str(self._program), "-T", *words, "--", host, shlex.join([python, *transport.AGENT]))
