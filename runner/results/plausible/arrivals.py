"""When the windows of a cell reached the host: the clock by which a cell's own is judged.

A cell reports a window when it has ended. So between two reports lies the later window, and what the cell does between windows: it
reads the loss, prints some lines, and in a whole run it evaluates. In the cells that were recorded that is 1.5 % of the time at most.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

Value = TypeVar("Value")

# Between windows lies so much of their time at most, and this much more each. A loaded machine interrupts a cell when it prints: some
# milliseconds, which are much beside the short windows of single operations.
_MOST_BETWEEN = 0.25
_SECONDS_EACH = 0.012

# The reports may come over so many times as long as the windows lasted, and this much longer each.
_MOST_RATIO = 2.0
_SECONDS_LATER = 0.005

# Reports are read in ticks (runner.engines.docker.stream), so their times are off by some of these.
_SECONDS_OF_TICKS = 1.2

# The windows are judged in so many parts, and the worst parts do not count: a machine, an engine or this runner may stand still.
_PARTS = 10
_IGNORED_PARTS = 2

# A report that came no later than this beside a later one is in step with it: a tick, and what a loaded machine adds.
_PROMPT_SECONDS = 0.75
# The share of the windows' time that may be reported later: a machine, an engine or this runner may stand still. Below these seconds
# nothing is judged.
_MOST_OUT_OF_STEP = 0.5
_SECONDS_TO_JUDGE = 2.0

# The clocks of a cell and its host have one rate and differ by what a cell rounds.
_SLACK_SECONDS = 0.05


class _Wait(NamedTuple):
    """From the report of a window to that of the next one of a network, or of the same operation. In seconds."""

    # By the host's clock.
    whole: float
    # By the cell's own clock: from the end of the earlier window to that of the later one.
    own: float
    # The parts of both that lay in the phase "evaluate".
    evaluated: float
    own_evaluated: float
    # The length of the later window, by the cell.
    window: float


class _Report(NamedTuple):
    """When the report of a window arrived by the host's clock, when the window ended by the cell's, and how long it lasted."""

    at: float
    end: float
    seconds: float


class Arrivals:
    """Collects when the events of one cell arrived."""

    def __init__(self) -> None:
        self._waits: list[_Wait] = []
        self._reports: list[_Report] = []
        # The work of the last window.
        self._last: tuple[Any, ...] | None = None
        # By both clocks: how long it evaluated since the last window, and since when it does.
        self._evaluated = (0.0, 0.0)
        self._evaluates_since: tuple[float, float] | None = None
        # The zero of the cell's own clock by the host's, at the latest: no event arrives before it happened.
        self.zero: float | None = None
        self._early: str | None = None

    def note(self, event: Mapping[str, Any], at: float) -> None:
        """Take an event that arrived at this time by the host's clock, in seconds."""
        kind = event["event"]
        zero = at - event["t"]
        if self.zero is None or zero < self.zero:
            self.zero = zero
        if kind == "phase" and event["name"] == "evaluate":
            begins = event["state"] == "begin"
            if not begins and self._evaluates_since is not None:
                since, own_since = self._evaluates_since
                whole, own = self._evaluated
                self._evaluated = whole + at - since, own + max(0.0, event["t"] - own_since)
            self._evaluates_since = (at, event["t"]) if begins else None
        elif kind in ("sample", "operation"):
            # Windows of a network's steps follow each other, of any stage. Between two operations inputs are drawn and others warm up.
            what = kind, event.get("operation"), event.get("direction"), event.get("size")
            end = event["begin"] + event["seconds"]
            if end > event["t"] + _SLACK_SECONDS and self._early is None:
                self._early = f"it reported a window at {event['t']:.3f} s of its life that ended at {end:.3f} s"
            if self._last == what:
                before = self._reports[-1]
                self._waits.append(_Wait(at - before.at, end - before.end, *self._evaluated, event["seconds"]))
            self._reports.append(_Report(at, end, event["seconds"]))
            self._last, self._evaluated = what, (0.0, 0.0)

    def implausible(
        self, evaluations: int, began: float | None = None, still: Sequence[tuple[float, float]] = ()
    ) -> str | None:
        """Why the windows cannot have been as the cell says, as a sentence; None where they can.

        `evaluations`: how many may lie between them. `began`: when its engine was called, by the host's clock.
        `still`: from when to when the engine or this runner stood still.
        """
        if self._early:
            return self._early
        if began is not None and self.zero is not None and self.zero < began - _SLACK_SECONDS:
            return f"its clock is {began - self.zero:.3g} s ahead: its process is older than the call that started it"
        waits = list(self._waits)
        # Extra evaluations count as normal time.
        for at in heapq.nlargest(evaluations, range(len(waits)), key=lambda at: waits[at].evaluated):
            wait = waits[at]
            waits[at] = wait._replace(whole=wait.whole - wait.evaluated, own=wait.own - wait.own_evaluated)
        between = far_apart([wait.own for wait in waits], [wait.window for wait in waits])
        return _too_short(waits) or between or _out_of_step(self._reports, still)


def _parts(values: Sequence[Value], count: int) -> list[Sequence[Value]]:
    return [values[part * len(values) // count : (part + 1) * len(values) // count] for part in range(count)]


def _too_short(waits: Sequence[_Wait]) -> str | None:
    """The reason if the reports come over a longer time than the windows can have lasted."""
    parts = [
        (sum(wait.whole for wait in part), sum(wait.window for wait in part), len(part))
        for part in _parts(waits, _PARTS)
    ]
    parts.sort(key=lambda part: part[0] - _MOST_RATIO * part[1])
    seen, said, count = (sum(values) for values in zip(*parts[:-_IGNORED_PARTS], strict=True))
    if seen <= _MOST_RATIO * said + _SECONDS_LATER * count + _SECONDS_OF_TICKS:
        return None
    return f"it says that {count} windows lasted {said:.3g} s together, and they arrived here over {seen:.3g} s"


def far_apart(own: Sequence[float], windows: Sequence[float], evaluated: float = 0.0) -> str | None:
    """The reason if more time lies between the windows, by the cell's own clock, than a cell spends there.

    `own` is the time from the end of each window to that of the next one, and `windows` how long the next ones lasted. `evaluated` of the
    time between all of them was no part of it.
    """
    parts = [
        (sum(whole) - sum(part), sum(part), len(part))
        for whole, part in zip(_parts(own, _PARTS), _parts(windows, _PARTS), strict=True)
    ]
    parts.sort(key=lambda part: part[0] - _MOST_BETWEEN * part[1])
    between, said, count = (sum(values) for values in zip(*parts[:-_IGNORED_PARTS], strict=True))
    if between - evaluated <= _MOST_BETWEEN * said + _SECONDS_EACH * count:
        return None
    return f"it says that {count} windows lasted {said:.3g} s together, and that {between:.3g} s lay between them"


def _out_of_step(reports: Sequence[_Report], still: Sequence[tuple[float, float]]) -> str | None:
    """The reason if the reports came at the end or in bursts, not when the windows ended by the cell's own clock."""
    # How late a report came beside the promptest one after it. So a clock that is behind for good, as after a pause, is not late.
    late, least = [], math.inf
    for report in reversed(reports):
        least = min(least, report.at - report.end)
        late.append((report.at - report.end - least, report))
    # Of most cells no report is late.
    if max((by for by, _ in late), default=0.0) <= _PROMPT_SECONDS:
        return None
    judged = [(by, report) for by, report in late if not _was_held_up(report.at - by, report.at, still)]
    whole = sum(report.seconds for _, report in judged)
    count = sum(by > _PROMPT_SECONDS for by, _ in judged)
    out = sum(report.seconds for by, report in judged if by > _PROMPT_SECONDS)
    if whole < _SECONDS_TO_JUDGE or out <= _MOST_OUT_OF_STEP * whole:
        return None
    most = max(by for by, _ in judged)
    return f"{count} of its {len(judged)} windows were reported up to {most:.3g} s after they ended, in bursts or at its end"


def _was_held_up(due: float, came: float, still: Sequence[tuple[float, float]]) -> bool:
    """True if the engine or this runner stood still between two times."""
    return any(begin <= came and due <= end for begin, end in still)
