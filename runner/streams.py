"""Standard output and standard error as a command has them: what becomes of a write that fails."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

from runner.errors import naming


class _Guarded:
    """A stream of which each write is made within a context: `guard` makes it."""

    def __init__(self, stream: TextIO, guard: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._stream, self._guard = stream, guard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._guard():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._guard():
            self._stream.flush()


def name_stdout_in_faults() -> None:
    """From now on a write to standard output that fails names it. A write to a full disk names no file."""
    sys.stdout = cast(TextIO, _Guarded(sys.stdout, partial(naming, Path("standard output"))))


@contextlib.contextmanager
def lasting_stderr() -> Iterator[None]:
    """Within the block, no reader of standard error that ends (`2>&1 | head -1`), and no full disk of a log, ends this process."""
    stream = sys.stderr
    with contextlib.redirect_stderr(cast(TextIO, _Guarded(stream, partial(_until_broken, stream)))):
        yield


@contextlib.contextmanager
def _until_broken(stream: TextIO) -> Iterator[None]:
    """Once the reader of a stream is gone, or its disk is full, what is printed goes nowhere."""
    try:
        yield
    except OSError:
        # Send the buffer there too, or Python's exit would fail at it.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
