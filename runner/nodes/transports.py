"""How a node is reached: `local:N` starts N agents on this machine, `ssh:FILE` one on each host of a file."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from runner.errors import UserError
from runner.machine import detect
from runner.machine.devices import Machine
from runner.paths import find_program
from runner.results.store import read_bytes
from runner.text import in_a_line, plural

# What starts an agent with this interpreter.
AGENT = ("-m", "runner", "agent")

_MOST_LOCAL = 64
_MOST_HOSTS = 10_000
_MOST_HOSTS_BYTES = 1 << 20
_HOST = re.compile(r"(?=.{1,101}\Z)([A-Za-z0-9][A-Za-z0-9._-]*@)?[A-Za-z0-9][A-Za-z0-9._:-]*")

# The end of what an agent, or ssh, prints on standard error.
_TAIL_BYTES = 2000
# How long is waited for it when the agent has ended.
_TAIL_SECONDS = 2.0


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

    def there(self) -> Sequence[Node]:
        """The nodes. Asked again while a run goes on: nodes may come."""
        ...


def nodes_of(text: str, gpus: str = "all", share: bool = False) -> Nodes:
    """The transport that --nodes names. Raises NodesError. `gpus` and `share` are the options of these names."""
    kind, _, rest = text.partition(":")
    if kind == "local" and re.fullmatch("[0-9]{1,3}", rest) and 0 < int(rest) <= _MOST_LOCAL:
        return Local(int(rest), detect.detect(gpus, share))
    if kind == "ssh" and rest:
        return Ssh(Path(rest))
    raise NodesError(
        f"--nodes: {text!r} is neither local:N, with N from 1 to {_MOST_LOCAL}, nor ssh:FILE, a file with a host a line"
    )


class Local:
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
                (sys.executable, *AGENT),
                _part(cores, at, count) if alone else None,
                ",".join(uuids[at]) or "none",
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


class Ssh:
    """An agent on each host of a file, by the system's ssh, which must not need a password."""

    shares_machine = False
    notes: tuple[str, ...] = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._program = find_program("ssh")
        if self._program is None:
            raise NodesError("--nodes ssh: there is no program ssh on PATH; install OpenSSH's client")
        self.there()

    def there(self) -> Sequence[Node]:
        """The hosts, as the file has them now. A line is HOST, or HOST and the Python of the installation there."""
        try:
            text = read_bytes(self._path, _MOST_HOSTS_BYTES).decode("utf-8-sig")
        except (OSError, ValueError) as error:
            raise NodesError(
                f"--nodes ssh: {self._path} cannot be read ({error}); name a file with a host a line"
            ) from None
        nodes: dict[str, Node] = {}
        for number, line in enumerate(text.splitlines(), 1):
            host, *more = line.partition("#")[0].split() or [""]
            if not host:
                continue
            if not _HOST.fullmatch(host) or len(more) > 1:
                raise NodesError(
                    f"{self._path}:{number}: {in_a_line(line, 80)!r} is neither HOST nor HOST PYTHON; "
                    "HOST is as ssh takes it, and PYTHON is that of the installation there"
                )
            if host in nodes:
                raise NodesError(f"{self._path}:{number}: {host} is there twice; remove one line")
            nodes[host] = Node(host, self._command(host, more[0] if more else sys.executable))
        if not 0 < len(nodes) <= _MOST_HOSTS:
            raise NodesError(f"{self._path} names {plural(len(nodes), 'host')}; it must name 1 to {_MOST_HOSTS}")
        return list(nodes.values())

    def _command(self, host: str, python: str) -> tuple[str, ...]:
        # Without a terminal there: it would change the bytes of a frame. A connection that is dead for a minute ends.
        options = ("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=15", "ServerAliveCountMax=4")
        words = [word for option in options for word in ("-o", option)]
        return (str(self._program), "-T", *words, "--", host, shlex.join([python, *AGENT]))


@dataclass
class Started:
    """A started agent: its process here, which is the agent's own or ssh's. It is in a session of its own: Ctrl-C is the driver's."""

    process: subprocess.Popen[bytes]
    # The end of its standard error.
    tail: bytearray = field(default_factory=bytearray)
    reader: threading.Thread | None = None

    @classmethod
    def of(cls, node: Node) -> Started:
        """Start a node's agent. Raises NodesError."""
        try:
            process = subprocess.Popen(
                node.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=node.environment,
                start_new_session=True,
            )
        except OSError as error:
            raise NodesError(f"{node.name}: {node.command[0]} cannot be started ({error.strerror})") from None
        started = cls(process)
        started.reader = threading.Thread(target=started._read_errors, daemon=True)
        started.reader.start()
        return started

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self.process.stderr.fileno(), 4096):
                self.tail += chunk
                del self.tail[:-_TAIL_BYTES]

    def last_words(self) -> bytes:
        """The end of what the agent, which has ended, printed on its standard error."""
        if self.reader is not None:
            # The agent's end may be seen before its last words are read. A process that it left may hold the pipe for ever.
            self.reader.join(_TAIL_SECONDS)
        return bytes(self.tail)

    def hang_up(self) -> None:
        """End the agent's standard input: it ends its cells and itself."""
        with contextlib.suppress(OSError, ValueError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def end(self, patience: float) -> None:
        """Wait for the end, but not longer than this; then end the process here, which ends the agent's pipes."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
