"""What a driver does with words that no agent says, by hand and without a process."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.nodes import driver as drivers
from runner.nodes.driver import Driver
from runner.nodes.fleet import Fleet, Heard, Member
from runner.nodes.tracker import LOST_SECONDS, Verdict
from runner.nodes.transports.transport import Node
from runner.nodes.wire import Beat, Begun, FromAgent, FromDriver, Lost, Prepare, Prepared, Progress, Refusal, Run, Said
from runner.run.dispatch import Job
from runner.run.execution import limits_of
from runner.run.options import Options
from tests.fixtures.nodes import HELLO, attempt_of
from tests.fixtures.plans import CPU, H200, make_cell

CPU_CELL = make_cell(device_model=CPU.model)
GPU_CELL = make_cell(device_kind="cuda", device_model=H200.model)
PREPARED = Prepared(image=CPU_CELL.image, digest="sha256:0", why=None)


class Deaf:
    """A connection that is written to and hung up."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.sent: list[FromDriver] = []
        self.closed = False

    def send(self, message: FromDriver) -> None:
        self.sent.append(message)

    def hang_up(self) -> None:
        self.closed = True


class Quiet:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class By:
    """A driver of one node, to which a test speaks."""

    def __init__(self, folder: Path) -> None:
        node = Node("n1", ())
        self.link = Deaf(node)
        hello = HELLO.model_copy(update={"cells": (CPU_CELL, GPU_CELL), "cpu": CPU, "gpus": (H200,)})
        fleet = Fleet(
            cast(Any, SimpleNamespace(shares_machine=False, notes=(), there=lambda: [node], close=lambda: None)),
            Options(),
        )
        fleet.members = {"n1": Member(node, cast(Any, self.link), hello)}
        durations = SimpleNamespace(seconds=lambda _: 1.0)
        prospect = SimpleNamespace(fleet=fleet, durations=durations, options=Options())
        jobs = [Job(CPU_CELL, 1), Job(GPU_CELL, 1), Job(GPU_CELL, 2)]
        run = SimpleNamespace(folder=folder, run_id="run")
        self.driver = Driver(cast(Any, prospect), cast(Any, run), jobs, cast(Any, Quiet()))
        (member,) = fleet.taken()
        self.driver._begin(member)

    def say(self, *said: FromAgent) -> None:
        for message in said:
            self.driver._hear(Heard(cast(Any, self.link), message))
            self.driver._prepare_some()


@pytest.fixture
def by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> By:
    monkeypatch.setattr(drivers.execution, "planned_code", lambda _: {})
    return By(tmp_path)


def test_a_node_that_begins_twice_is_cut_off(by: By, capsys: pytest.CaptureFixture[str]) -> None:
    by.say(Begun(spooled=()), Begun(spooled=(attempt_of(CPU_CELL, 1, 1),)))
    assert "it sent what no agent sends (it began twice)" in capsys.readouterr().err
    assert by.link.closed


@pytest.mark.parametrize(
    "last", [PREPARED.model_copy(update={"image": "other"}), Refusal(why="no")], ids=["lie", "refusal"]
)
def test_nothing_that_a_node_says_after_it_was_cut_off_is_heard(
    by: By, last: FromAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    claimed = attempt_of(CPU_CELL, 1, 1)
    by.say(last)
    capsys.readouterr()
    by.say(Begun(spooled=(claimed,)), Said(line="all is well"))
    assert by.driver._tracker.verdict(claimed) is Verdict.UNKNOWN
    assert capsys.readouterr().err == ""


def test_the_sentences_of_a_node_that_never_stops_are_limited_and_the_dropped_ones_counted(
    by: By, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(drivers.time, "monotonic", lambda: clock[0])
    by.say(*(Said(line=f"sentence {number}") for number in range(1000)))
    said = capsys.readouterr().err.splitlines()
    assert said == [f"node n1: sentence {number}" for number in range(20)]
    clock[0] += 10.0
    by.say(Said(line="at last"))
    assert capsys.readouterr().err == "node n1: at last (and 980 sentences before it, too many to be shown)\n"


def test_a_node_that_keeps_what_it_offers_is_cut_off_and_the_run_does_not_wait_for_it(
    by: By, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(drivers.time, "monotonic", lambda: clock[0])
    offered = attempt_of(CPU_CELL, 1, 1)
    by.say(Begun(spooled=(offered,)))
    for clock[0] in range(0, 94, 3):
        assert by.driver._is_open()
        assert not by.link.closed
        by.say(Beat())
        by.driver._look_at_the_clock(clock[0])
    assert by.link.closed
    assert (
        "node n1 is lost: 1 finished result that it offered did not come in 90 s, so the measurement is repeated"
        in capsys.readouterr().err
    )
    assert not by.driver._is_open(), "no node is left, and the run can go on another time"
    assert Job(CPU_CELL, 1) in by.driver._tracker.homeless()
    assert by.driver.last_words() == ["drained: n1; look at these nodes before you use them again"]


def test_a_node_that_lives_and_never_ends_its_cell_is_cut_off_and_the_run_ends(
    by: By, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent ends each cell at the limit, three times where its engine goes down; half an hour later it is false."""
    clock = [0.0]
    monkeypatch.setattr(drivers.time, "monotonic", lambda: clock[0])
    by.say(Begun(spooled=()))
    while by.driver._sites["n1"].images:
        by.say(Prepared(image=by.driver._sites["n1"].images[0], digest="sha256:0", why=None))
    by.driver._start_all(0.0)
    (begun,) = [sent.attempt for sent in by.link.sent if isinstance(sent, Run)]
    limits, by.driver._again_at = limits_of(Options()), 0.0
    longest = 3 * (limits.whole + limits.compiling) + 1800
    while not by.link.closed:
        clock[0] += 4.0
        assert clock[0] < longest + 60
        by.say(Beat(), Progress(attempt=begun, phase="warm-up"))
        by.driver._look_at_the_clock(clock[0])
    assert clock[0] > longest
    assert "it says neither that" in capsys.readouterr().err
    assert not by.driver._is_open(), "no node is left, and the run can go on another time"
    assert by.driver._tracker.verdict(begun) is Verdict.LATE


def test_a_gpu_may_be_lost_before_the_node_joins_and_gets_no_cell_then(by: By) -> None:
    by.say(Begun(spooled=()), Lost(board=H200.board), PREPARED)
    while by.driver._sites["n1"].images:
        by.say(Prepared(image=by.driver._sites["n1"].images[0], digest="sha256:0", why=None))
    by.driver._start_all(1.0)
    assert [sent.cell for sent in by.link.sent if isinstance(sent, Run)] == [CPU_CELL]
    assert by.driver._tracker.homeless() == [Job(GPU_CELL, 1), Job(GPU_CELL, 2)]


def test_a_node_that_was_silent_before_its_turn_to_prepare_has_it_when_it_is_back(
    by: By, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "_MOST_PREPARING", 0)
    by.say(Begun(spooled=()))
    by.driver._look_at_the_clock(time.monotonic() + LOST_SECONDS + 1)
    assert "nothing was heard" in by.driver._sites["n1"].why
    monkeypatch.setattr(drivers, "_MOST_PREPARING", 1)
    by.say(Beat())
    assert by.link.sent[-1] == Prepare(image=CPU_CELL.image)
