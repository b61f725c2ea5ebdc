"""Ctrl-C before a command has anything to end in order, and after.

Python raises KeyboardInterrupt wherever it is. While modules are loaded that is a traceback, or nothing at all: the machinery of
imports and many libraries swallow it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType
from typing import NoReturn

# As runner.errors has it, which is not loaded yet.
INTERRUPTED = 130


def _end(*_: object) -> NoReturn:
    with contextlib.suppress(OSError):
        # A print could come in the middle of another one.
        os.write(2, b"runner: interrupted\n")
    os._exit(INTERRUPTED)


def _end_in_order(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, unless modules are being loaded: a command that loads one is no further than one that is killed."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _end()
        frame = frame.f_back
    raise KeyboardInterrupt


def ends_at_once() -> None:
    """From here on Ctrl-C ends this process where it is, unless it is ignored, or somebody else handles it."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end_in_order):
        signal.signal(signal.SIGINT, _end)


def ends_in_order() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt where it ended the process at once before."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, _end_in_order)
