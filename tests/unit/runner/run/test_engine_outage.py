"""An engine that goes, comes back, stays away or answers late while cells run; in real processes."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import load_catalog
from runner.engines.base import EngineGoneError, Exit, ReadyImage
from runner.engines.process.process import LocalRunning
from runner.errors import HostFaultError
from runner.run import attempt as attempts
from runner.run.attempt import Attempt, AttemptContext, Limits
from runner.run.dispatch import Job
from tests.fixtures.attempts import (
    CELL,
    HANG,
    RECORDED,
    REPLAY,
    SLOT,
    matrix,
    prepared,
    row_of,
    run_in,
    watched,
)
from tests.fixtures.events import at_pace, end_by
from tests.fixtures.waiting import wait_for


def test_an_engine_that_goes_and_comes_back_costs_no_cell(site: Callable[..., AttemptContext], tmp_path: Path) -> None:
    here = site(REPLAY)
    here.engine.gone_for = 3  # type: ignore[attr-defined]
    running = matrix(here)
    running.run_jobs([Job(CELL, 1), Job(replace(CELL, seed=2), 1)], prepared(here))
    assert [outcome.status for outcome in running.outcomes] == ["ok", "ok"]
    assert here.engine.starts == 3  # type: ignore[attr-defined]
    assert here.engine.sweeps == 1  # type: ignore[attr-defined]


def test_a_cell_that_every_restart_cuts_off_is_not_tried_for_ever(
    site: Callable[..., AttemptContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.run.schedule._OUTAGE_SECONDS", 0)
    here = site(REPLAY)
    engine: Any = here.engine

    def start(*_: Any) -> LocalRunning:
        engine.starts += 1
        engine.gone_for = 1
        raise EngineGoneError("the connection was refused")

    engine.start = start
    running = matrix(here)
    running.run_jobs([Job(CELL, 1)], prepared(here))
    assert [outcome.status for outcome in running.outcomes] == ["failed"]
    assert engine.starts == 3
    assert row_of(tmp_path)["error_kind"] == "engine"


def test_an_engine_that_answers_while_it_goes_down_costs_no_cell(site: Callable[..., AttemptContext]) -> None:
    here = site(REPLAY)
    engine: Any = here.engine
    start, refused = engine.start, iter(range(4))

    def refuses(*given: Any) -> LocalRunning:
        if next(refused, None) is not None:
            raise EngineGoneError("the connection was refused")
        started: LocalRunning = start(*given)
        return started

    engine.start = refuses
    running = matrix(here)
    running.run_jobs([Job(CELL, 1)], prepared(here))
    assert [outcome.status for outcome in running.outcomes] == ["ok"]


def test_a_container_that_cannot_be_swept_says_nothing_of_an_engine_that_answers(
    site: Callable[..., AttemptContext],
) -> None:
    here = site(REPLAY)
    engine: Any = here.engine
    engine.gone_for = 1

    def sweep() -> int:
        engine.sweeps += 1
        raise EngineGoneError("no answer in 60 s")

    engine.sweep = sweep
    running = matrix(here)
    running.run_jobs([Job(CELL, 1)], prepared(here))
    assert [outcome.status for outcome in running.outcomes] == ["ok"]
    assert engine.sweeps == 1


def test_a_cell_that_cannot_be_ended_fails_by_name_and_the_next_one_is_measured(
    site: Callable[..., AttemptContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = site("print('no event')")
    wait = LocalRunning.wait

    def left(running: LocalRunning) -> Exit:
        return replace(wait(running), code=137, left="container dlbench-1 could not be ended")

    running = matrix(here)
    with monkeypatch.context() as patch:
        patch.setattr(LocalRunning, "wait", left)
        running.run_jobs([Job(CELL, 1)], prepared(here))
    row = row_of(tmp_path)
    assert (row["status"], row["error_kind"]) == ("failed", "protocol")
    assert row["reason"].endswith("; container dlbench-1 could not be ended")
    here.engine.script = REPLAY  # type: ignore[attr-defined]
    running.run_jobs([Job(replace(CELL, seed=2), 1)], prepared(here))
    assert [outcome.status for outcome in running.outcomes] == ["failed", "ok"]


def test_an_engine_that_stays_away_ends_the_run_and_no_cell_has_a_row_for_it(
    site: Callable[..., AttemptContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.run.schedule._ENGINE_SECONDS", 0.5)
    here = site(REPLAY)
    here.engine.gone_for = 10**6  # type: ignore[attr-defined]
    with pytest.raises(HostFaultError, match="it did not come back; start it"):
        matrix(here).run_jobs([Job(CELL, 1)], prepared(here))
    assert run_in(tmp_path).rows("cells").to_pandas().empty


def test_an_engine_that_goes_down_while_images_are_made_is_waited_for_and_the_image_made(
    site: Callable[..., AttemptContext],
) -> None:
    here = site(REPLAY)
    engine: Any = here.engine
    prepare, tries = engine.prepare, []

    def goes_down_once(image: Any, say: Callable[[str], None]) -> ReadyImage:
        tries.append(image)
        if len(tries) == 1:
            engine.gone_for = 1
            raise EngineGoneError("building it: the connection was aborted")
        made: ReadyImage = prepare(image, say)
        return made

    engine.prepare = goes_down_once
    ready, failed = matrix(here).prepare([load_catalog()[CELL.image]])
    assert (list(ready), failed, len(tries)) == ([CELL.image], {}, 2)


def test_an_engine_that_stays_away_while_images_are_made_ends_the_run_and_fails_no_cell(
    site: Callable[..., AttemptContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.run.schedule._ENGINE_SECONDS", 0.5)
    here = site(REPLAY)
    engine: Any = here.engine

    def goes_down(image: Any, say: Callable[[str], None]) -> ReadyImage:
        engine.gone_for = 10**6
        raise EngineGoneError("building it: the connection was aborted")

    engine.prepare = goes_down
    with pytest.raises(HostFaultError, match="it did not come back; start it"):
        matrix(here).prepare([load_catalog()[CELL.image]])


class LateRunning(LocalRunning):
    """A cell whose engine stands still for a while: it hands over what the cell printed too late, and does nothing that it is told."""

    def events(self) -> Iterator[bytes]:
        time.sleep(1.5)
        yield from super().events()

    def stop(self) -> None: ...

    dump = stop


def late(running: LocalRunning) -> LocalRunning:
    running.__class__ = LateRunning
    return running


def test_a_cell_that_ended_well_while_its_engine_stood_still_is_ok(
    site: Callable[..., AttemptContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_DUMP_SECONDS", 0.1)
    here = site(REPLAY, Limits(1, 60))
    start = here.engine.start
    here.engine.start = lambda *given: late(start(*given))  # type: ignore[method-assign, arg-type, return-value]
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    assert watched(attempt, here.engine.prepare(None, print))[:2] == ("ok", None)  # type: ignore[arg-type]
    assert attempt._kill_at is not None, "the watchdog ended it"


@pytest.mark.parametrize("still", [False, True])
def test_reports_that_come_at_the_end_are_no_lie_only_where_the_engine_stood_still(
    site: Callable[..., AttemptContext], tmp_path: Path, still: bool
) -> None:
    here = site(f"import time; time.sleep(3.7); {REPLAY}")
    # Its windows last for 2.3 s, and end after 3.3 s.
    events = [json.loads(line) for line in at_pace(RECORDED, 8.0).splitlines()]
    end_by(events, 3.5)
    (tmp_path / "recorded").write_text("".join(json.dumps(event) + "\n" for event in events))
    never = threading.Event()
    here.engine.answer = never.wait if still else lambda: None  # type: ignore[method-assign, assignment, return-value]
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, reason, _ = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    never.set()
    assert (status, reason is None) == (("ok", True) if still else ("failed", False)), reason
    assert still or "s after they ended, in bursts or at its end" in reason


def test_the_time_in_which_an_engine_starts_a_cell_is_none_of_the_cells(site: Callable[..., AttemptContext]) -> None:
    here = site(REPLAY, Limits(2, 2))
    start = here.engine.start

    def frozen(*given: Any) -> LocalRunning:
        time.sleep(2.5)
        running: Any = start(*given)
        return running

    here.engine.start = frozen  # type: ignore[method-assign, assignment]
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, _, wall = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert status == "ok"
    assert wall > 2.5


def test_an_interrupt_under_an_engine_that_does_not_answer_ends_within_5_seconds(
    site: Callable[..., AttemptContext],
) -> None:
    here = site(HANG)
    engine: Any = here.engine
    never = threading.Event()
    start = engine.start

    def hung(*given: Any) -> LocalRunning:
        running = start(*given)
        running.end = running.stop
        running.stop = never.wait
        cells.append(running)
        return running

    cells: list[Any] = []
    engine.start, engine.sweep, engine.unavailable = hung, never.wait, never.wait
    running = matrix(here)
    begin = 0.0

    def interrupt() -> None:
        nonlocal begin
        wait_for(lambda: cells)
        begin = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            running.run_jobs([Job(CELL, 1)], prepared(here))
        running.sweep()
        assert time.monotonic() - begin < 5
        assert running.hung
    finally:
        never.set()
        for cell in cells:
            cell.end()


def test_an_interrupt_waits_for_a_slow_engine_that_answers(
    site: Callable[..., AttemptContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.run.schedule._PATIENCE_SECONDS", 0.1)
    swept: list[float] = []
    here = site(REPLAY)
    running = matrix(here)
    here.engine.sweep = lambda: (time.sleep(0.5), swept.append(0.5))  # type: ignore[method-assign, assignment, func-returns-value, return-value]
    running.stop()
    running.sweep()
    assert (swept, running.hung) == ([0.5], False)
