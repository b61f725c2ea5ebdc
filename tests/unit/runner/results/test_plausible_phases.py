"""What a cell says of its start-up is held against its own events and the host's clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.results.plausible.windows import Phases

RECORDED = sorted((Path(__file__).parents[2] / "recorded").glob("*.jsonl"))

Event = dict[str, Any]


def events_of(path: Path) -> list[Event]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def judged(events: list[Event], began: float | None = -0.05, late: float = 0.0) -> str | None:
    """Of events that arrive so much later than the cell's clock says, after an engine that was called at `began`."""
    phases = Phases()
    for event in events:
        phases.note(event, None if began is None else event["t"] + late)
    return phases.implausible(began)


def phase(name: str, state: str, t: float, seconds: float | None = None) -> Event:
    return {"event": "phase", "name": name, "state": state, "seconds": seconds, "t": t}


def window(t: float, seconds: float = 0.1) -> Event:
    return {"event": "sample", "seconds": seconds, "t": t}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("late", [0.0, 0.4, 60.0])
def test_the_phases_of_real_cells_are_plausible_however_late_they_arrive(path: Path, late: float) -> None:
    assert judged(events_of(path), late=late) is None
    assert judged(events_of(path), began=None) is None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("seconds", [0.0, None, 3600.0])
def test_a_phase_that_took_another_time_than_lies_between_its_events_is_named(
    path: Path, seconds: float | None
) -> None:
    events = events_of(path)
    for event in events:
        if event["event"] == "phase" and event["name"] == "import" and event["state"] == "end":
            event["seconds"] = seconds
    assert f"its phase import took {seconds or 0.0:.3g} s, and" in str(judged(events))
    # A kit's archive has no times of arrival.
    assert judged(events, began=None) is not None


def test_phases_that_overlap_cannot_take_longer_than_the_time_to_the_first_window() -> None:
    events = [
        phase("import", "begin", 0.0),
        phase("import", "end", 3.0, 3.0),
        phase("build", "begin", 0.0),
        phase("build", "end", 3.5, 3.5),
        window(4.0),
    ]
    why = judged(events)
    assert why == (
        "it says that its start-up and its first window took 6.6 s, and that window arrived here 4.05 s after its engine was called"
    )
    assert judged(events, late=3.0) is None, "the engine may have been slow"
    assert judged(events, began=None) is None


def test_a_phase_within_a_phase_counts_once() -> None:
    events = [
        phase("build", "begin", 0.0),
        phase("import", "begin", 0.5),
        phase("import", "end", 3.0, 2.5),
        phase("build", "end", 3.5, 3.5),
        phase("compile", "begin", 3.5),
        window(4.0),
    ]
    assert judged(events) is None


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([phase("build", "end", 1.0, 1.0)], "its phase build ended, and it was in none"),
        (
            [phase("import", "begin", 0.0), phase("build", "end", 1.0, 1.0)],
            "its phase build ended, and it was in import",
        ),
    ],
)
def test_a_phase_that_never_began_is_named(events: list[Event], words: str) -> None:
    assert words in str(judged(events))
