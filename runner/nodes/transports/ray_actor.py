"""The actor that Ray runs on each node: it starts an agent there and carries its bytes.

It travels to the node with the actor, by value, so that Ray's Python there need not find the runner. Only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator

_READ_BYTES = 1 << 16
_TAIL_BYTES = 2000
_TAIL_SECONDS = 2.0

# Ray kills the children of a worker that it ends, but not their children. So the agent is the shell's child: when its standard input ends,
# it ends its cells and removes what they left.
_SHELL = ("/bin/sh", "-c", '"$@"; exit $?', "sh")


class Carrier:
    """The actor of one node. Its methods run in threads beside one another."""

    def __init__(self, command: list[str]) -> None:
        # Ray gives its workers a low priority, 15 by default. Cells would inherit it. Only root may raise it.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        self._process = subprocess.Popen(
            [*_SHELL, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._tail = bytearray()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def ready(self) -> int:
        """The priority of the agent: 0 is that of a user's own command, and a higher number is a lower one."""
        return os.getpriority(os.PRIO_PROCESS, self._process.pid)

    def send(self, content: bytes) -> None:
        """Write it to the agent."""
        assert self._process.stdin is not None
        self._process.stdin.write(content)
        self._process.stdin.flush()

    def hang_up(self) -> None:
        """End the agent's standard input."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def chunks(self) -> Iterator[bytes | tuple[int, bytes]]:
        """The agent's output; last its exit code, and the end of its standard error."""
        assert self._process.stdout is not None
        while chunk := os.read(self._process.stdout.fileno(), _READ_BYTES):
            yield chunk
        code = self._process.wait()
        self._reader.join(_TAIL_SECONDS)
        yield code, bytes(self._tail)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self._process.stderr.fileno(), 4096):
                self._tail += chunk
                del self._tail[:-_TAIL_BYTES]
