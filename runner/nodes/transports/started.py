"""A started agent, as its process here."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from runner.nodes.transports.transport import Node, NodesError

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
