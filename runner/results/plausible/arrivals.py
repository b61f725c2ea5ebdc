"""When the windows of a cell reached the host: the clock by which a cell's own is judged.

A cell reports a window when it has ended. So between two reports lies the later window, and what the cell does between windows: it
reads the loss, prints some lines, and in a whole run it evaluates. In the cells that were recorded that is 1.5 % of the time at most.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from bench import rules

Value = TypeVar("Value")

# Between windows lies so much of their time at most, and this much more each. A loaded machine interrupts a cell when it prints: some
# milliseconds, which are much beside the short windows of single operations.
_MOST_BETWEEN = 0.25
_SECONDS_EACH = 0.012
# Between most windows of a network lies less: 1.5 % and 1.5 ms in the cells that were recorded. Of the windows so many do not count, which
# a loaded machine interrupts, or before which a cell copies its parameters; and four at least.
_MOST_BETWEEN_MOST = 0.04
_SECONDS_EACH_OF_MOST = 0.004
_INTERRUPTED = 0.1
_FEWEST_INTERRUPTED = 4

# The reports may come over so many times as long as the windows lasted, and this much longer each.
_MOST_RATIO = 2.0
_SECONDS_LATER = 0.005

# Reports are read in ticks (runner.engines.docker.read_back), so their times are off by some of these.
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
# The promptest reports of each part of the windows may come later and later by so much of the time, and this much in all: a tick, and
# what a loaded machine adds. A pause of the machine or the cell makes all later ones late, and two do not count.
_MOST_DRIFT = 0.05
_SECONDS_OF_DRIFT = 0.3


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
    # Of the time before it, how long first tokens took, by the cell.
    prompts: float
    # True of a network's windows, not of those of single operations.
    of_network: bool


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
        # Since the last window.
        self._prompts = 0.0
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
        elif kind == "metric" and event["name"] == rules.FIRST_TOKEN:
            self._prompts += event["value"] or 0.0
        elif kind in ("sample", "operation"):
            # Windows of a network's steps follow each other, of any stage. Between two operations inputs are drawn and others warm up.
            what = kind, event.get("operation"), event.get("direction"), event.get("size")
            end = event["begin"] + event["seconds"]
            if end > event["t"] + _SLACK_SECONDS and self._early is None:
                self._early = f"it reported a window at {event['t']:.3f} s of its life that ended at {end:.3f} s"
            if self._last == what:
                before = self._reports[-1]
                wait = _Wait(
                    at - before.at,
                    end - before.end,
                    *self._evaluated,
                    event["seconds"],
                    self._prompts,
                    kind == "sample",
                )
                self._waits.append(wait)
            self._reports.append(_Report(at, end, event["seconds"]))
            self._last, self._evaluated, self._prompts = what, (0.0, 0.0), 0.0

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
        apart = _far_apart(waits) or _most_far_apart(waits)
        return _too_short(waits) or apart or _out_of_step(self._reports, still) or _drifts(self._reports)


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


def _far_apart(waits: Sequence[_Wait]) -> str | None:
    """The reason if more time lies between the windows, by the cell's own clock, than a cell spends there."""
    parts = [
        (sum(wait.own - wait.window for wait in part), sum(wait.window for wait in part), len(part))
        for part in _parts(waits, _PARTS)
    ]
    parts.sort(key=lambda part: part[0] - _MOST_BETWEEN * part[1])
    between, said, count = (sum(values) for values in zip(*parts[:-_IGNORED_PARTS], strict=True))
    if between <= _MOST_BETWEEN * said + _SECONDS_EACH * count:
        return None
    return f"it says that {count} windows lasted {said:.3g} s together, and that {between:.3g} s lay between them"


def _most_far_apart(waits: Sequence[_Wait]) -> str | None:
    """The same of most windows of a network, by less time."""
    gaps = [(wait.own - wait.window - wait.prompts, wait.window) for wait in waits if wait.of_network]
    gaps.sort(key=lambda gap: gap[0] - _MOST_BETWEEN_MOST * gap[1])
    most = gaps[: len(gaps) - max(_FEWEST_INTERRUPTED, math.ceil(_INTERRUPTED * len(gaps)))]
    between, said = sum(gap for gap, _ in most), sum(window for _, window in most)
    if between <= _MOST_BETWEEN_MOST * said + _SECONDS_EACH_OF_MOST * len(most):
        return None
    return f"it says that {len(most)} windows lasted {said:.3g} s together, and that {between:.3g} s lay between them"


def _drifts(reports: Sequence[_Report]) -> str | None:
    """The reason if the cell's clock is slower than the host's: the reports then come later and later.

    Reports that came within two seconds show no clock: a busy machine delays each of them by as much. No preset measures so short.
    """
    if not reports or reports[-1].at - reports[0].at < _SECONDS_TO_JUDGE:
        return None
    parts = [part for part in _parts(reports, _PARTS) if part]
    promptest = [min(part, key=lambda report: report.at - report.end) for part in parts]
    steps = [(later.at - earlier.at, later.end - earlier.end) for earlier, later in itertools.pairwise(promptest)]
    steps.sort(key=lambda step: step[0] - (1.0 + _MOST_DRIFT) * step[1])
    here, own = (sum(step[at] for step in steps[:-_IGNORED_PARTS]) for at in (0, 1))
    if here <= (1.0 + _MOST_DRIFT) * own + _SECONDS_OF_DRIFT:
        return None
    return f"its clock is slow: {own:.3g} s of it took {here:.3g} s here"


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
