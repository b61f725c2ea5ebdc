"""The windows of a cell: one after the other, within the life of its process, each of as many items as its steps have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.protocol import STAGES

# The phases of a cell: what it says that its start-up took, held against its own events and the host's clock.

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


# The host's clock runs from before the process to after it, so a true cell's windows always lie within it. The rest is rounding.
_SLACK_SECONDS_WINDOWS = 0.01

# The time of a preset is looked at after a window and what follows it: its report, its loss.
_SPENT = 0.9
_LATE_SECONDS = 2.0


def implausible(samples: Sequence[Mapping[str, Any]], batch: int, wall_seconds: float) -> str | None:
    """The fault of the windows of a cell, as a sentence; None if they are possible.

    `samples` are rows of the store in the order in which they came, `batch` the items in a step of all devices together, and
    `wall_seconds` how long the cell's process lived, by the host's clock.
    """
    end = measured = 0.0
    for sample in samples:
        begin, seconds, index = sample["begin_seconds"], sample["seconds"], sample["index"]
        if begin < end - _SLACK_SECONDS_WINDOWS:
            return f"its window {index} begins at {begin:.3f} s, before the one before it ended at {end:.3f} s"
        end = max(end, begin + seconds)
        measured += seconds
        if not seconds or not sample["steps"]:
            return f"its window {index} has {sample['steps']} steps in {seconds:g} s, and each has both"
        if sample["items"] != sample["steps"] * batch:
            expected = f"{sample['steps']} steps of {batch} are {sample['steps'] * batch}"
            return f"its window {index} has {sample['items']} items, and {expected}"
    if measured > end + _SLACK_SECONDS_WINDOWS:
        return f"its windows lasted {measured:.3f} s together, within {end:.3f} s"
    if end > wall_seconds + _SLACK_SECONDS_WINDOWS:
        return f"its last window ended {end:.3f} s after it began, and its process lived for {wall_seconds:.3f} s"
    return None


def out_of_order(samples: Sequence[Mapping[str, Any]]) -> str | None:
    """The fault if a window of an earlier stage comes after one of a later stage: a sentence.

    Else slow windows could be called warm-up.
    """
    for at, sample in enumerate(samples):
        stage, before = sample["stage"], samples[at - 1]["stage"] if at else None
        if before and (stage == STAGES[0] or STAGES.index(stage) < STAGES.index(before)):
            return (
                f"its window {sample['index']} is of the stage {stage}, and the one before it is of the stage {before}"
            )
    return None


def noise(samples: Sequence[Mapping[str, Any]]) -> float | None:
    """Half the width of the 95 % interval of the steady windows' median, relative to it, as bench.timing has it; None of fewer than six."""
    steady = [sample for sample in samples if sample["stage"] == "steady" and sample["seconds"] and sample["steps"]]
    steps: list[float] = sorted(sample["seconds"] / sample["steps"] for sample in steady)
    count = len(steps)
    if count < 6:
        return None
    reach, middle = 0.98 * math.sqrt(count), count // 2
    low, high = max(0, math.floor(count / 2 - reach)), min(count - 1, math.ceil(count / 2 + reach))
    median = steps[middle] if count % 2 else 0.5 * (steps[middle - 1] + steps[middle])
    return 0.5 * (steps[high] - steps[low]) / median


def wrong_end(samples: Sequence[Mapping[str, Any]], stop: str | None, preset: Mapping[str, Any]) -> str | None:
    """The fault if a cell with windows cannot have ended for its reason: a sentence. `stop` is of its event `end`, `preset` of the
    workload's.
    """
    if not samples:
        return None
    if (stop == "count") != bool(preset["epochs"]) or stop not in ("noise", "time", "count"):
        return f"it reports an end by {stop}, and its preset ends by {'count' if preset['epochs'] else 'noise or time'}"
    if not preset["epochs"] and (why := _wrong_time(samples, stop, preset["seconds"])):
        return why
    steady, reached = sum(sample["stage"] == "steady" for sample in samples), noise(samples)
    if stop != "noise" or (steady >= preset["windows"] and reached is not None and reached <= 1.01 * preset["noise"]):
        return None
    of_it = "of an unknown noise" if reached is None else f"of a noise of {reached:.2g}"
    due = f"{preset['windows']} windows and a noise of {preset['noise']:g} are needed"
    return f"it reports an end by noise, after {steady} windows {of_it}, and {due}"


def _wrong_time(samples: Sequence[Mapping[str, Any]], stop: str | None, due: float) -> str | None:
    """The fault if the steady windows end before the time of a preset is spent though nothing else ended them, or begin after it: a
    sentence.
    """
    steady = [sample for sample in samples if sample["stage"] == "steady"]
    if not steady:
        return None
    first, last = steady[0]["begin_seconds"], steady[-1]
    spent, begun = last["begin_seconds"] + last["seconds"] - first, last["begin_seconds"] - first
    if stop == "time" and spent < _SPENT * due:
        return f"it reports an end by time, after windows of {spent:.3g} s, and its preset ends after {due:g} s"
    if begun > due + _LATE_SECONDS:
        return f"it began a window {begun:.3g} s after its first steady one, and its preset ends after {due:g} s"
    return None


def wrong_count(
    samples: Sequence[Mapping[str, Any]], epochs: int | None, steps_an_epoch: int, counted: Sequence[str]
) -> str | None:
    """The fault if a whole run does not have the steps of its epochs: a sentence. `counted`: the stages whose steps are of them."""
    taken, due = (
        sum(sample["steps"] for sample in samples if sample["stage"] in counted),
        (epochs or 0) * steps_an_epoch,
    )
    if not samples or not epochs or taken == due:
        return None
    return f"it reports an end by count, after {taken} steps, and {epochs} epochs of {steps_an_epoch} steps are {due}"


def operations_implausible(operations: Sequence[Mapping[str, Any]], wall_seconds: float) -> str | None:
    """The fault of the windows of single operations, as a sentence: points are measured one after the other, each once."""
    end, last = 0.0, None
    points: set[tuple[Any, ...]] = set()
    for row in operations:
        point, begin = tuple(row[name] for name in ("operation", "direction", "size")), row["begin_seconds"]
        name = " ".join(map(str, point))
        if point != last and point in points:
            return f"its windows of {name} have others between them, and each point is measured once"
        if begin < end - _SLACK_SECONDS_WINDOWS:
            return f"a window of {name} begins at {begin:.3f} s, before the one before it ended at {end:.3f} s"
        end, last = max(end, begin + row["seconds"]), point
        points.add(point)
    if (measured := sum(row["seconds"] for row in operations)) > end + _SLACK_SECONDS_WINDOWS:
        return f"its windows lasted {measured:.3f} s together, within {end:.3f} s"
    if end > wall_seconds + _SLACK_SECONDS_WINDOWS:
        return f"its last window ended {end:.3f} s after it began, and its process lived for {wall_seconds:.3f} s"
    return None


def wrong_length(short: bool | None, task: str, preset: str, epochs: int | None) -> str | None:
    """The fault if a cell declares its run shorter than the specification's, and it is not, or the reverse: a sentence.

    `task` and `epochs` are those of the workload and its preset. `short` is None of a cell that said nothing.
    """
    planned = preset == "quick" if task == "operators" else epochs is None
    if short in (None, planned):
        return None
    return (
        f"it reports a run {'shorter than' if short else 'as long as'} the specification's, and preset {preset} is not"
    )
