"""When an engine, or this runner, stood still while a cell ran: what the cell printed then came late, and says nothing of the cell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from runner.errors import EngineError

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
