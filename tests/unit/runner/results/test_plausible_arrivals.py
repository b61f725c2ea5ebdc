"""The windows of a cell are held against the times at which its reports arrived here."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from runner.results.plausible.arrivals import Arrivals
from tests.fixtures.more_steps import slow_clock

RECORDED = sorted((Path(__file__).parents[2] / "recorded").glob("*.jsonl"))

Event = dict[str, Any]
# An event -> when it arrived.
Clock = Callable[[Event], float]


def events_of(path: Path) -> list[Event]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def judged(events: Iterable[Event], arrives: Clock = lambda event: event["t"], evaluations: int = 0) -> str | None:
    arrivals = Arrivals()
    for event in events:
        arrivals.note(event, arrives(event))
    return arrivals.implausible(evaluations)


def said(events: Iterable[Event], factor: float) -> list[Event]:
    """The events of a cell that says that its windows lasted `factor` times as long."""
    return [
        event | {"seconds": event["seconds"] * factor} if event["event"] in ("sample", "operation") else event
        for event in events
    ]


def operations(seconds: float, gap: float, count: int = 600) -> list[Event]:
    """Windows of single operations, six of each size, at one after the other and `gap` seconds between."""
    window = {"event": "operation", "operation": "add", "direction": "forward", "seconds": seconds}
    ends = [1.0 + (at + 1) * (seconds + gap) for at in range(count)]
    return [window | {"size": str(at // 6), "begin": end - seconds, "t": end} for at, end in enumerate(ends)]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_windows_of_real_cells_are_plausible(path: Path) -> None:
    assert judged(events_of(path)) is None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("factor", [0.001, 0.1, 0.3])
def test_a_cell_that_says_a_part_of_its_times_is_named(path: Path, factor: float) -> None:
    why = judged(said(events_of(path), factor))
    assert "windows lasted" in str(why)
    assert "and they arrived here over" in str(why)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_windows_whose_stages_take_turns_are_judged_too(path: Path) -> None:
    events = said(events_of(path), 0.1)
    for at, event in enumerate(event for event in events if event["event"] == "sample"):
        event["stage"] = ("warm-up", "steady")[at % 2]
    assert "windows lasted" in str(judged(events))


@pytest.mark.parametrize("factor", [0.001, 0.1])
def test_short_windows_of_single_operations_are_judged_too(factor: float) -> None:
    assert judged(operations(0.01, 0.0002)) is None
    assert judged(said(operations(0.01, 0.0002), factor)) is not None


def test_a_loaded_machine_that_interrupts_each_report_is_no_lie() -> None:
    assert judged(operations(0.01, 0.012)) is None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("bunch", [2, 3, 10])
def test_reports_that_come_in_bunches_are_no_lie(path: Path, bunch: int) -> None:
    """An engine may hand over several reports at once."""
    events = events_of(path)
    handed = {
        id(event): events[min(len(events) - 1, at - at % bunch + bunch - 1)]["t"] for at, event in enumerate(events)
    }
    assert judged(events, lambda event: handed[id(event)]) is None


def in_bursts(events: list[Event], seconds: float) -> str | None:
    """Judged where the reports of the windows wait until so many seconds are over."""
    measured = [event["t"] for event in events if event["event"] == "sample"]
    first, last = measured[0], measured[-1]

    def arrives(event: Event) -> float:
        if not first <= event["t"] <= last:
            return float(event["t"])
        return min(last, first + seconds * math.ceil((event["t"] - first) / seconds))

    return judged(events, arrives)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("seconds", [2.0, 3.0, 5.0, 100.0])
def test_reports_that_come_at_the_end_or_in_bursts_are_named(path: Path, seconds: float) -> None:
    assert "in bursts or at its end" in str(in_bursts(events_of(path), seconds))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_reports_that_came_late_because_the_engine_stood_still_are_no_lie(path: Path) -> None:
    events = events_of(path)
    begin, end = events[30]["t"], events[-20]["t"]
    arrives = {id(event): end if begin < event["t"] < end else event["t"] for event in events}
    arrivals = Arrivals()
    for event in events:
        arrivals.note(event, arrives[id(event)])
    assert arrivals.implausible(0, 0.0, [(begin - 1.0, end)]) is None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_windows_with_half_of_the_time_between_them_are_named_though_their_reports_are_in_step(path: Path) -> None:
    assert "s together, and that" in str(judged(said_late(events_of(path), 0.5)))
    assert "s together, and that" in str(judged(said_late(events_of(path), 0.9)))
    assert judged(said_late(events_of(path), 0.97)) is None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_clock_that_is_slower_than_the_hosts_is_named(path: Path) -> None:
    for factor, words in (
        (0.5, "its clock is slow"),
        (0.8, "its clock is slow"),
        (0.9, "its clock is slow"),
        (0.97, "None"),
    ):
        slow = slow_clock(factor)(events_of(path))
        arrived = {id(event): before["t"] for event, before in zip(slow, events_of(path), strict=True)}
        assert words in str(judged(slow, lambda event, arrived=arrived: arrived[id(event)])), factor  # type: ignore[misc]


@pytest.mark.parametrize("windows", [30, 100])
@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_a_machine_that_interrupts_a_tenth_of_the_reports_is_no_lie(windows: int, seconds: float) -> None:
    """Beside other work a process waits for its turn for some 0.1 s now and then."""
    events, t = [], 1.0
    for at in range(windows):
        gap = 0.0015 + (0.08 if random.Random(at).random() < 0.08 else 0.0)
        events.append(
            {"event": "sample", "stage": "steady", "begin": t + gap, "seconds": seconds, "t": t + gap + seconds}
        )
        t += gap + seconds
    assert judged(events) is None


def test_the_first_tokens_between_windows_are_no_time_that_is_hidden() -> None:
    def decoded(value: float) -> list[Event]:
        events: list[Event] = []
        for at in range(50):
            t = 1.0 + 0.5 * at
            token = {"event": "metric", "name": "time to the first token", "value": value, "t": t + 0.1}
            window = {"event": "sample", "stage": "steady", "begin": t + 0.1, "seconds": 0.399, "t": t + 0.499}
            events += [token, window]
        return events

    assert judged(decoded(0.1)) is None
    assert "lay between them" in str(judged(decoded(0.0)))


def said_late(events: list[Event], factor: float) -> list[Event]:
    """The events of a cell that says a part of its times, and when each window ended."""
    return [
        event | {"begin": event["begin"] + (1 - factor) * event["seconds"], "seconds": factor * event["seconds"]}
        if event["event"] == "sample"
        else event
        for event in events
    ]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_clock_that_is_ahead_of_the_hosts_is_named(path: Path) -> None:
    events = events_of(path)
    for began, expected in ((-1.0, None), (0.3, "its clock is 0.3 s ahead")):
        arrivals = Arrivals()
        for event in events:
            arrivals.note(event, event["t"])
        assert str(expected) in str(arrivals.implausible(0, began))


def on_a_tick(event: Event) -> float:
    """As the engine `docker` reads them."""
    return 0.4 * math.ceil(event["t"] / 0.4)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_reports_that_are_read_on_a_tick_are_judged_alike(path: Path) -> None:
    assert judged(events_of(path), on_a_tick) is None
    assert judged(said(events_of(path), 0.001), on_a_tick) is not None


def test_so_are_those_of_single_operations() -> None:
    assert judged(operations(0.01, 0.0002, 3000), on_a_tick) is None
    assert judged(said(operations(0.01, 0.0002, 3000), 0.001), on_a_tick) is not None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_runner_or_a_cell_that_stands_still_for_a_minute_twice_is_no_lie(path: Path) -> None:
    events = events_of(path)
    early, late = (events[len(events) * place // 5]["t"] for place in (2, 3))
    assert judged(events, lambda event: event["t"] + 60.0 * ((event["t"] > early) + (event["t"] > late))) is None


def whole_run(evaluations: int, each: float, windows: int = 8) -> list[Event]:
    """A run of windows of 0.1 s with an evaluation after every few of them."""
    events: list[Event] = []
    t = 1.0
    for at in range(evaluations * windows):
        t += 0.1 * random.Random(at).uniform(0.99, 1.01)
        events.append({"event": "sample", "stage": "steady", "begin": t - 0.0999, "seconds": 0.0999, "t": t})
        if at % windows == windows - 1:
            events.append({"event": "phase", "name": "evaluate", "state": "begin", "t": t})
            t += each
            events.append({"event": "phase", "name": "evaluate", "state": "end", "t": t})
    return events


@pytest.mark.parametrize("windows", [1, 8])
def test_the_evaluations_of_a_whole_run_do_not_count(windows: int) -> None:
    assert judged(whole_run(10, 30.0, windows), evaluations=10) is None


def test_a_cell_cannot_call_the_time_between_all_its_windows_an_evaluation() -> None:
    events = whole_run(60, 1.0, windows=1)
    assert judged(events, evaluations=0) is not None
    assert judged(events, evaluations=10) is not None


def test_too_few_windows_are_no_pattern() -> None:
    assert judged(said(operations(0.01, 0.0, 5), 0.001)) is None
