"""The driver of a large run, with stand-in agents whose messages are real frames: a repeat costs as much among many as among few."""

from __future__ import annotations

import json
import os
import queue
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from runner.admission.renew import renew
from runner.catalog.images import PROJECT
from runner.nodes import driver
from runner.nodes.fleet import Fleet, Link, Words
from runner.nodes.fleet_plan import FleetProspect, prospect_of
from runner.nodes.frames import MAGIC, MOST_BODY_BYTES, Decoder, Frame, FrameError, encode
from runner.nodes.transports.transport import Node
from runner.nodes.wire import (
    Beat,
    Begun,
    Ended,
    Failed,
    FromAgent,
    FromDriver,
    Lost,
    Prepare,
    Prepared,
    Progress,
    Returned,
    Run,
    Said,
    from_driver,
    release_versions,
)
from runner.plan.plan import Cell
from runner.results import store
from runner.results.parcel import encode as encode_parcel
from runner.results.store import RunStore
from runner.run import execution
from runner.run.dispatch import Job, blocks
from runner.run.options import Options
from tests.fixtures import stored
from tests.fixtures.nodes import parcel_of
from tests.fixtures.plans import make_cell
from tests.unit.runner.nodes import driven as stand_ins
from tests.unit.runner.nodes import scale


def driven(repeats: int, nodes: int, *words: str) -> dict[str, float]:
    """In a process of its own, whose memory is the driver's."""
    command = [sys.executable, "-m", "tests.unit.runner.nodes.driven", str(repeats), str(nodes), *words]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def test_a_repeat_costs_the_driver_as_much_among_many_as_among_few() -> None:
    few, many = driven(500, 8), driven(4000, 8)
    assert many["message_bytes"] > 5_000, "a message holds what a cell printed in half a minute"
    assert many["run_seconds"] / 4000 < 2.5 * few["run_seconds"] / 500
    assert many["memory_bytes"] < 1 << 29


def test_repeats_that_are_judged_and_stored_end_well() -> None:
    assert driven(20, 2, "store")["run_seconds"] > 0


class Fetching(stand_ins.StandIn):
    """An agent whose registry answers as soon as AT_ONCE nodes, or all that are left, have asked it."""

    NODES = 80
    AT_ONCE = 32
    fetching: list[tuple[Fetching, str]]
    most: list[int]

    def replies(self, message: FromDriver) -> Iterator[Frame]:
        if isinstance(message, Prepare):
            self.fetching.append((self, message.image))
            self.most.append(len(self.fetching))
            if len(self.fetching) == min(self.AT_ONCE, self.NODES - len(self.most) + len(self.fetching)):
                # The driver has this time to ask one node too many.
                threading.Timer(0.1, self.answer_all).start()
        else:
            yield from super().replies(message)

    @classmethod
    def answer_all(cls) -> None:
        waiting, cls.fetching[:] = cls.fetching[:], []
        for agent, image in waiting:
            agent.say(encode(Prepared(image=image, digest="sha256:0", why=None).frame()))


def test_so_many_nodes_fetch_images_at_once_as_a_registry_can_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.Driver, "_admit", stand_ins.no_door)
    monkeypatch.setattr(driver.execution, "planned_code", lambda _: {})
    monkeypatch.setattr(stand_ins, "StandIn", Fetching)
    Fetching.fetching, Fetching.most = [], []
    options = Options(out=tmp_path, seed=1)
    usual = make_cell(image="torch-2.13.0-cpu", device_model=stand_ins.CPU, preset=options.preset, batch=64)
    cells = [stand_ins.cell_of(usual, at) for at in range(2)]
    fleet = stand_ins.fleet_of(Fetching.NODES, cells, lambda _: b"", options)
    prospect: FleetProspect = prospect_of(fleet, options)
    main = driver.Driver(prospect, RunStore(tmp_path / "run"), blocks(cells, 40, 1), stand_ins.Quiet())
    assert not main.run_all()
    assert len(main.outcomes) == Fetching.NODES
    assert max(Fetching.most) == Fetching.AT_ONCE


@pytest.mark.slow
@pytest.mark.alone  # it measures time
@pytest.mark.skipif(os.environ.get("DLBENCH_SPEED") != "all", reason="a minute: DLBENCH_SPEED=all")
def test_a_hundred_thousand_repeats_on_128_nodes_take_a_minute_and_two_gigabytes() -> None:
    found = driven(100_000, 128)
    assert found["plan_seconds"] + found["run_seconds"] <= 60
    assert found["memory_bytes"] <= 2 << 30


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (lambda run: encoded(run.cell, run.repeat + 1), "a parcel is of another repeat"),
        (lambda run: encoded(make_cell(seed=9), run.repeat), "a parcel is of another repeat"),
        (lambda run: encoded(run.cell, run.repeat)[:-1], "is no parcel: it is damaged"),
        (lambda run: encoded(run.cell, run.repeat, code=None, ended_by=("engine", "no")), "one that never ran"),
        (lambda run: encoded(run.cell, run.repeat, uuids=("GPU-1",)), "on devices that were not assigned to it"),
        (lambda run: encoded(run.cell, run.repeat, boards=("GPU-1",)), "devices that were not assigned to it"),
    ],
)
def test_a_node_that_sends_another_parcel_than_it_was_asked_for_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: Callable[[Run], bytes], why: str
) -> None:
    monkeypatch.setattr(driver.execution, "planned_code", lambda _: {})
    options = Options(out=tmp_path, seed=1)
    cell = make_cell(image="torch-2.13.0-cpu", device_model=stand_ins.CPU, preset=options.preset, batch=64)
    prospect: FleetProspect = prospect_of(stand_ins.fleet_of(1, [cell], body, options), options)
    main = driver.Driver(prospect, RunStore(tmp_path / "run"), blocks([cell], 1, 1), stand_ins.Quiet())
    assert not main.run_all()
    assert main.outcomes == []
    (site,) = main._sites.values()
    assert site.cut
    assert why in site.why
    assert not list(tmp_path.rglob("*.parcel"))


def poured(word: str, attempt: str) -> bytes:
    """A frame of which no agent sends many."""
    other = f"{attempt.split('.')[0]}.r9.01234567-1"
    said: dict[str, tuple[FromAgent, bytes]] = {
        "progress": (Progress(attempt=attempt, phase="warm-up"), b""),
        "said": (Said(line="x"), b""),
        "beat": (Beat(), b""),
        "a result again": (Ended(attempt=attempt), b"no parcel"),
        "a result that nobody asked for": (Ended(attempt=other), b"no parcel"),
        "long results that nobody asked for": (Ended(attempt=other), bytes(4 << 20)),
        "failed": (Failed(attempt=other, reason="x"), b""),
        "returned": (Returned(attempt=other, why="x"), b""),
        "lost": (Lost(board="x"), b""),
    }
    if word == "a beat among blanks":
        header = b'{"kind":"beat"' + b" " * (1 << 20) + b"}"
        return struct.pack(">8sII", MAGIC, len(header), 0) + header + b"\n"
    message, body = said[word]
    return encode(message.frame(body))


class Pouring:
    """The pipe of an agent that answers each order, and pours out so many words when it is to run something."""

    def __init__(self, node: Node, cell: Cell, word: str, count: int) -> None:
        self._orders: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._word, self._count, self._decoder = word, count, Decoder()
        self._agent = stand_ins.StandIn(node, [cell], stand_ins.own_parcel, queue.Queue())
        self.runs = 0

    def send(self, content: bytes) -> None:
        self._orders.put(content)

    def chunks(self) -> Iterator[bytes]:
        yield encode(release_versions().frame())
        while (content := self._orders.get()) is not None:
            for frame in self._decoder.feed(content):
                order = from_driver(frame)
                if isinstance(order, Run):
                    self.runs += 1
                    said = poured(self._word, order.attempt)
                    at_once = max(1, 30_000 // len(said))
                    for _ in range(self._count // at_once):
                        yield said * at_once
                for reply in self._agent.replies(order):
                    yield encode(reply)

    def hang_up(self) -> None:
        self._orders.put(None)

    kill = hang_up

    def end(self, patience: float) -> None:
        self.hang_up()

    def waits_for(self) -> str:
        return ""

    def last_words(self) -> tuple[int, bytes]:
        return 0, b""


@pytest.mark.parametrize(
    "word",
    [
        "progress",
        "said",
        "beat",
        "a beat among blanks",
        "a result again",
        "a result that nobody asked for",
        "long results that nobody asked for",
        "failed",
        "returned",
        "lost",
    ],
)
def test_a_node_that_floods_ends_its_own_repeat_in_time_and_the_other_node_measures_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(driver.execution, "planned_code", lambda _: {})
    monkeypatch.setattr(driver.Driver, "_admit", stand_ins.no_door)
    options = Options(out=tmp_path, seed=1)
    cell = make_cell(image="torch-2.13.0-cpu", device_model=stand_ins.CPU, preset=options.preset, batch=64)
    fleet, pipes = Fleet(stand_ins.Nowhere(), options, heard=queue.Queue()), []
    for name, count in (("flood", 200_000), ("quiet", 0)):
        pipe = Pouring(Node(name, ()), cell, word, count)
        pipes.append(pipe)
        fleet.open(Node(name, (), start=lambda pipe=pipe: pipe))  # type: ignore[misc]
    fleet.look(patience=30.0)
    assert len(fleet.taken()) == 2
    prospect = prospect_of(fleet, options)
    main = driver.Driver(prospect, RunStore(tmp_path / "run"), blocks([cell], 6, 1), stand_ins.Quiet())
    begin = time.process_time()
    assert not main.run_all()
    assert [outcome.status for outcome in main.outcomes] == ["ok"] * 6
    assert pipes[0].runs == 1
    assert "more than 5000 messages came at once" in main._sites["flood"].why
    assert time.process_time() - begin < 10, "the driver did not read all that was said"


def test_as_many_results_as_an_agent_may_have_kept_are_no_flood() -> None:
    words = Words()
    kept = tuple(f"{'0' * 16}.r1.01234567-{number}" for number in range(10_000))
    begun = Begun(spooled=kept)
    words.count(begun, len(encode(begun.frame())))
    for attempt in kept:
        words.count(Ended(attempt=attempt), MOST_BODY_BYTES)
    with pytest.raises(FrameError, match="more than 5000 messages came at once"):
        words.count(Ended(attempt=kept[0]), MOST_BODY_BYTES)


class Cut(stand_ins.StandIn):
    """An agent whose machine cuts each repeat: its disk is full."""

    def replies(self, message: FromDriver) -> Iterator[Frame]:
        if isinstance(message, Run):
            yield Returned(attempt=message.attempt, why="/cache: No space left on device").frame()
        else:
            yield from super().replies(message)


@pytest.mark.parametrize("nodes", [1, 2], ids=["the only node", "one of two nodes"])
def test_a_repeat_that_a_node_s_machine_cut_is_measured_elsewhere_or_due_again_at_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(driver.execution, "planned_code", lambda _: {})
    options = Options(out=tmp_path, seed=1)
    cell = make_cell(image="torch-2.13.0-cpu", device_model=stand_ins.CPU, preset=options.preset, batch=64)
    run = stored.measured(tmp_path / "run", [], [cell], repeats=2)

    def drive(fleet: Fleet, left: Sequence[Job]) -> list[str]:
        main = driver.Driver(prospect_of(fleet, options), run, left, stand_ins.Quiet())
        main.run_all()
        return [outcome.status for outcome in main.outcomes]

    jobs = blocks([cell], 2, 1)
    fleet = stand_ins.fleet_of(nodes, [cell], stand_ins.own_parcel, options)
    sound = cast(stand_ins.StandIn, fleet.members["n0"].link)
    fleet.members["n0"].link = cast(Link, Cut(sound.node, [cell], stand_ins.own_parcel, fleet.heard))
    ended = drive(fleet, jobs)
    execution.clear_up(run)
    left = [job for job in jobs if (job.cell.id, job.repeat) not in RunStore(run.folder).finished()]
    assert ("ok" in ended) is (nodes == 2)
    assert len(left) == (0 if nodes == 2 else 2)
    assert drive(stand_ins.fleet_of(1, [cell], stand_ins.own_parcel, options), left) == ["ok"] * len(left)
    renew(run)
    assert store.statuses(run.folder) == {(cell.id, 1): "ok", (cell.id, 2): "ok"}


def encoded(cell: Cell, repeat: int, **fields: Any) -> bytes:
    return encode_parcel(replace(parcel_of(cell, repeat), **fields))


def test_an_answer_that_has_come_counts_however_long_the_answers_before_it_took() -> None:
    options = Options(seed=1)
    fleet = stand_ins.asked(
        12,
        [make_cell(image="torch-2.13.0-cpu", device_model=stand_ins.CPU, preset=options.preset, batch=64)],
        lambda _: b"",
        options,
    )
    assert not fleet.taken()
    fleet.look(patience=-1.0)
    assert [member.why for member in fleet.members.values() if member.why] == []
    assert len(fleet.taken()) == 12


def test_the_table_of_the_document_is_made_by_the_command_that_measures_it() -> None:
    text = scale.DOCUMENT.read_text(encoding="utf-8")
    figures = scale.figures_in(text)
    assert set(figures) == {row.command for row in scale.ROWS}
    assert text == scale.written(text, figures), "`python -m tests.unit.runner.nodes.scale` measures and writes it"
    assert all(re.fullmatch(r"[\d.]+ m?s", figure) for figure in figures.values())
