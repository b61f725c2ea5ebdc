"""A process of an engine that prints one answer: its time and what it prints are bounded."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.engines.base import Exit
from runner.errors import EngineError
from runner.text import last_line

if TYPE_CHECKING:
    from runner.engines.base import Running


# When an engine, or this runner, stood still while a cell ran: what the cell printed then came late, and says nothing of the cell.

_PERIOD_SECONDS = 2.0
# An engine answers within milliseconds, and a thread wakes as fast.
_LATE_SECONDS = 1.0


class Pulse:
    """Asks an engine every few seconds for a sign of life, in a thread that nobody waits for."""

    def __init__(self, ask: Callable[[], None], period: float = _PERIOD_SECONDS) -> None:
        self._ask = ask
        self._period = period
        self._ends = threading.Event()
        self._still: list[tuple[float, float]] = []
        # The time of an unanswered question; None without one.
        self._asked: float | None = None
        threading.Thread(target=self._beat, daemon=True).start()

    def end(self) -> list[tuple[float, float]]:
        """Ask no more. From when to when something stood still, by time.monotonic."""
        self._ends.set()
        asked, now = self._asked, time.monotonic()
        hangs = asked is not None and now - asked > _LATE_SECONDS
        return [*self._still, (asked - self._period, now)] if hangs and asked is not None else list(self._still)

    def _beat(self) -> None:
        last = time.monotonic()
        while not self._ends.wait(self._period):
            asked = time.monotonic()
            if asked - last > self._period + _LATE_SECONDS:
                self._still.append((last, asked))
            self._asked = asked
            try:
                self._ask()
                answers = True
            except EngineError:
                answers = False
            last, self._asked = time.monotonic(), None
            if not answers or last - asked > _LATE_SECONDS:
                # It may have stood still since the answer before.
                self._still.append((asked - self._period, last))


# The last line of the log where a framework, or its device, lacks what was asked of it.
UNSUPPORTED = "bench.errors.Unsupported: "
# And where CUDA opens no GPU.
NO_DEVICE = "bench.errors.NoDevice: "
# The words of bench.cuda where this framework opens no GPU, and others may: its build is too new for the driver, or not whole.
OPENS_NONE = "opens no GPU, and the CUDA driver does"
# And where other processes fill the GPU's memory (2) or have the GPU for themselves (46), as a pattern: they may end at any time.
# In compute mode `prohibited` CUDA says 46, too, and only its message tells that.
HELD_BY_OTHERS = r"finds no GPU: cu\w+ says (?:2|46)\b"


@dataclass(frozen=True)
class Printed:
    """The standard output of a process that has ended, and how it ended."""

    output: bytes
    ended: Exit
    seconds: float
    # True if it was stopped because its time was over.
    late: bool
    # True if it was stopped because it printed more than it may; the output is the first part.
    too_long: bool


def printed(running: Running, seconds: float, most: int) -> Printed:
    """Read `most` bytes of a started process at most, until it ends or the seconds are over. Raises EngineError."""
    began, late = time.monotonic(), threading.Event()

    def stop() -> None:
        late.set()
        running.stop()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    output = bytearray()
    try:
        for chunk in running.events():
            output += chunk
            if len(output) > most:
                running.stop()
                break
        ended = running.wait()
    except BaseException:  # Ctrl-C: the process must not stay behind
        with contextlib.suppress(EngineError):
            running.stop()
            running.wait()
        raise
    finally:
        timer.cancel()
    return Printed(bytes(output[:most]), ended, time.monotonic() - began, late.is_set(), len(output) > most)


def refusal(log: str) -> str | None:
    """The sentence with which a process that failed was refused as not supported; None where it was not."""
    last = last_line(log)
    return last.removeprefix(UNSUPPORTED)[:300] if last.startswith(UNSUPPORTED) else None
