"""What a driver costs with stand-in agents: `python -m tests.unit.runner.nodes.driven REPEATS NODES [store]` prints JSON.

Every message is a frame that is encoded, decoded and checked as on a pipe: what the nodes say that they are, the plan, each order, and each
repeat with all that a cell of half a minute printed. Only the processes and the pipes are not there. With `store` each repeat is judged
and stored as well; without it that is passed over, and the cost is that of the plan, the tracker and the messages. What the agents
take of the CPU, which are elsewhere in a real run, does not count.
"""

from __future__ import annotations

import json
import queue
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from runner.nodes import driver
from runner.nodes.fleet import Fleet, Heard, Link, Member
from runner.nodes.fleet_plan import FleetProspect, prospect_of
from runner.nodes.frames import Decoder, Frame, encode
from runner.nodes.transports.transport import Node
from runner.nodes.wire import (
    Begin,
    Begun,
    Ended,
    FromDriver,
    Look,
    Prepare,
    Prepared,
    Progress,
    Run,
    from_agent,
    from_driver,
)
from runner.plan.plan import Cell
from runner.results import parcel
from runner.results.store import RunStore
from runner.run.dispatch import Job, blocks
from runner.run.options import Options
from runner.run.schedule import Outcome
from tests.fixtures.nodes import HELLO, parcel_of
from tests.fixtures.plans import make_cell

CELLS, IMAGES = 2000, 27
CPU = HELLO.cpu.model


class Quiet:
    """An observer that shows nothing."""

    def preparing(self, image: str, line: str) -> None:
        pass

    def started(self, job: Job) -> None:
        pass

    def printed(self, job: Job, event: Mapping[str, Any]) -> None:
        pass

    def ended(self, outcome: Outcome) -> None:
        pass


@dataclass
class StandIn:
    """An agent in the driver's own process. It answers each order at once."""

    node: Node
    cells: Sequence[Cell]
    # The parcel of each repeat, however many messages hand it over.
    body: Callable[[Run], bytes]
    heard: queue.Queue[Heard]
    received: Decoder = field(default_factory=Decoder)
    sent: Decoder = field(default_factory=Decoder)

    # Seconds of CPU that an agent would take elsewhere.
    seconds: float = 0.0

    def send(self, message: FromDriver) -> None:
        content = encode(message.frame())
        begin = time.process_time()
        for frame in self.received.feed(content):
            for reply in self.replies(from_driver(frame)):
                content = encode(reply)
                self.seconds += time.process_time() - begin
                self.say(content)
                begin = time.process_time()
        self.seconds += time.process_time() - begin

    def replies(self, message: FromDriver) -> Iterator[Frame]:
        if isinstance(message, Look):
            own = {"boot_id": self.node.name, "gpus": (), "cells": tuple(self.cells)}
            yield HELLO.model_copy(update=own).frame()
        elif isinstance(message, Begin):
            yield Begun(spooled=()).frame()
        elif isinstance(message, Prepare):
            yield Prepared(image=message.image, digest="sha256:0", why=None).frame()
        elif isinstance(message, Run):
            yield Progress(attempt=message.attempt, phase="warm-up").frame()
            yield Ended(attempt=message.attempt).frame(self.body(message))

    def say(self, content: bytes) -> None:
        for each in self.sent.feed(content):
            self.heard.put(Heard(cast(Link, self), from_agent(each), each.body))

    def hang_up(self) -> None:
        pass

    def waits_for(self) -> str:
        return ""

    def end(self, patience: float) -> None:
        pass


class Nowhere:
    """A transport without further nodes."""

    shares_machine = False
    notes = ()

    def there(self) -> Sequence[Node]:
        return ()

    def close(self) -> None:
        pass


def own_parcel(run: Run) -> bytes:
    """The parcel of the repeat that was ordered."""
    return parcel.encode(parcel_of(run.cell, run.repeat))


def no_door(main: driver.Driver, name: str, site: Any, job: Job, attempt: str, body: bytes) -> Outcome:
    """In the place of Driver._admit: every repeat is fine."""
    return Outcome(job, "ok", None, 31.0)


def fleet_of(nodes: int, cells: Sequence[Cell], body: Callable[[Run], bytes], options: Options) -> Fleet:
    """Nodes that have said what they are."""
    fleet = asked(nodes, cells, body, options)
    while not fleet.heard.empty():
        fleet.greet(fleet.heard.get())
    assert len(fleet.taken()) == nodes, [member.why for member in fleet.members.values() if member.why][:1]
    return fleet


def asked(nodes: int, cells: Sequence[Cell], body: Callable[[Run], bytes], options: Options) -> Fleet:
    """Nodes of which the driver has not yet heard what they are: they have said it."""
    fleet = Fleet(Nowhere(), options, heard=queue.Queue())
    for at in range(nodes):
        node = Node(f"n{at}", ())
        agent = StandIn(node, cells, body, fleet.heard)
        fleet.members[node.name] = Member(node, cast(Link, agent))
        agent.say(encode(fleet.own.frame()))
    for _ in range(nodes):
        fleet.greet(fleet.heard.get())
    return fleet


def driven(repeats: int, nodes: int, store: bool) -> dict[str, float]:
    """Run so many repeats on so many nodes: seconds of CPU, bytes of memory, and the size of a repeat's message."""
    if not store:
        driver.Driver._admit = no_door  # type: ignore[method-assign]
    driver.execution.planned_code = lambda _: {}
    with tempfile.TemporaryDirectory() as name:
        any_parcel = parcel.encode(parcel_of())
        body = own_parcel if store else lambda _: any_parcel
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.process_time()
        options = Options(out=Path(name), seed=1)
        usual = make_cell(image="torch-2.13.0-cpu", device_model=CPU, preset=options.preset, batch=64)
        cells = [cell_of(usual, at) for at in range(min(CELLS, repeats))]
        prospect: FleetProspect = prospect_of(fleet_of(nodes, cells, body, options), options)
        jobs = blocks(prospect.plan.cells, -(-repeats // len(cells)), 1)[:repeats]
        planned = time.process_time()
        agents = [cast(StandIn, member.link) for member in prospect.fleet.members.values()]
        looking = sum(agent.seconds for agent in agents)
        run = RunStore(Path(name) / "run")
        main = driver.Driver(prospect, run, jobs, Quiet())
        assert not main.run_all()
        assert len(main.outcomes) == repeats
        bad = {outcome.reason for outcome in main.outcomes if outcome.status != "ok"}
        assert not bad, bad
        end = time.process_time()
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return {
            "plan_seconds": planned - begin - looking,
            "run_seconds": end - planned - sum(agent.seconds for agent in agents) + looking,
            "memory_bytes": more * 1024,
            "message_bytes": len(any_parcel),
        }


def cell_of(usual: Cell, at: int) -> Cell:
    """One of the cells of a plan. An agent's plan would have other names for their modes."""
    return replace(usual, image=f"torch-2.13.{at % IMAGES}-cpu", mode=f"mode-{at // IMAGES}")


if __name__ == "__main__":
    print(json.dumps(driven(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["store"])))
