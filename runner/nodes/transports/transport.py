"""The interface of a transport, its description of a node, and the pipe to an agent that it started."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runner.errors import CannotBeginError

# The arguments that start an agent with an interpreter.
AGENT = ("-m", "runner", "agent")


class NodesError(CannotBeginError):
    """--nodes names what cannot be reached, or no nodes."""


class Pipe(Protocol):
    """The way to a started agent. One thread sends and hangs up, another one reads; a third one ends it."""

    def send(self, content: bytes) -> None:
        """Write it to the agent's standard input. Raises OSError or ValueError where the agent is gone."""
        ...

    def chunks(self) -> Iterator[bytes]:
        """The agent's output, as it comes, until its end. Raises OSError, with the reason, if the way to it breaks."""
        ...

    def last_words(self) -> tuple[int, bytes]:
        """The exit code of an agent whose chunks have ended, and the end of what it printed on its standard error."""
        ...

    def hang_up(self) -> None:
        """End the agent's standard input: it ends its cells and itself."""
        ...

    def kill(self) -> None:
        """Cut the way at once: the agent's pipes end."""
        ...

    def end(self, patience: float) -> None:
        """Wait for the agent's end, but not longer than this; then cut the way."""
        ...

    def waits_for(self) -> str:
        """The thing that the agent waits for before it can start: "4 GPUs and 16 CPUs", for example. Empty: nothing."""
        ...


@dataclass(frozen=True)
class Node:
    """A place for an agent, and the command that starts one there."""

    name: str
    command: tuple[str, ...]
    # This node's part of a machine that several nodes share. None and "": all of it.
    cpus: tuple[int, ...] | None = None
    gpus: str = ""
    # The number of nodes that share the memory of the machine.
    sharing: int = 1
    environment: Mapping[str, str] | None = None
    # Starts the command; raises NodesError. None: the command is a process of this machine.
    start: Callable[[], Pipe] | None = None


class Nodes(Protocol):
    """A transport: which nodes there are."""

    # True if all of them share this machine: then this process holds its devices.
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


# A started agent, as its process here.

# The end of what an agent, or ssh, prints on standard error.
_TAIL_BYTES = 2000
# How long is waited for it when the agent has ended.
_TAIL_SECONDS = 2.0
_READ_BYTES = 1 << 16


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

    def send(self, content: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(content)
        self.process.stdin.flush()

    def chunks(self) -> Iterator[bytes]:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            while chunk := os.read(stdout.fileno(), _READ_BYTES):
                yield chunk

    def last_words(self) -> tuple[int, bytes]:
        code = self.process.wait()
        if self.reader is not None:
            # The agent's end may be seen before its last words are read. A process that it left may hold the pipe for ever.
            self.reader.join(_TAIL_SECONDS)
        return code, bytes(self.tail)

    def hang_up(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, patience: float) -> None:
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()

    def waits_for(self) -> str:
        return ""
