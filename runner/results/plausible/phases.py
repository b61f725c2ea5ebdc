"""The phases of a cell: what it says that its start-up took, held against its own events and the host's clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Microseconds lie between a phase's clock and those of its two events. A machine may interrupt the cell there.
_SLACK_SECONDS = 0.25


class Phases:
    """Collects the phases of one cell."""

    def __init__(self) -> None:
        # (name, when it began on the cell's clock) of those that it is in, the innermost last.
        self._open: list[tuple[str, float]] = []
        # The seconds of the phases before the first window. A phase within another one is a part of it.
        self._start_up = 0.0
        # When the first window arrived by the host's clock, and what it took.
        self._first: tuple[float, float] | None = None
        self._problem: str | None = None
        self._measures = False

    def note(self, event: Mapping[str, Any], at: float | None) -> None:
        """Take an event that arrived at this time by the host's clock, in seconds; None where that is not known."""
        kind = event["event"]
        if kind == "phase" and event["state"] == "begin":
            self._open.append((event["name"], event["t"]))
        elif kind == "phase":
            self._end(event)
        elif not self._measures and kind in ("sample", "operation"):
            self._measures = True
            if at is not None:
                self._first = at, event["seconds"]

    def _end(self, event: Mapping[str, Any]) -> None:
        name, seconds = event["name"], event["seconds"] or 0.0
        began, begin = self._open.pop() if self._open else ("", 0.0)
        between = event["t"] - begin
        if name != began:
            self._problem = self._problem or f"it says that its phase {name} ended, and it was in {began or 'none'}"
        elif abs(seconds - between) > _SLACK_SECONDS:
            took = f"it says that its phase {name} took {seconds:.3g} s"
            self._problem = self._problem or f"{took}, and {between:.3g} s lie between its two events"
        if not self._measures and not self._open:
            self._start_up += seconds

    def implausible(self, began: float | None) -> str | None:
        """The contradiction in the times of its phases, as a sentence. `began`: when its engine was called, by the host's clock."""
        if self._problem or self._first is None or began is None:
            return self._problem
        arrived, window = self._first
        if self._start_up + window <= arrived - began + _SLACK_SECONDS:
            return None
        said = f"it says that its start-up and its first window took {self._start_up + window:.3g} s"
        return f"{said}, and that window arrived here {arrived - began:.3g} s after its engine was called"
