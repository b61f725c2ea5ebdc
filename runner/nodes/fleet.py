"""The nodes of a run as they answer: each is looked at, compared with this installation and with the others, and refused with a reason
or taken."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from runner.catalog.architectures import why_not
from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import load_catalog
from runner.catalog.own_networks import OwnNetwork, own_networks
from runner.catalog.workloads import Workload, load_workloads
from runner.known_messages import explained
from runner.nodes import wire
from runner.nodes.frames import MOST_BODY_BYTES, Decoder, FrameError, encode
from runner.nodes.transports.transport import Node, Nodes, NodesError, Pipe, Started
from runner.plan.plan import Cell, not_planned
from runner.run.options import Options
from runner.text import in_a_line

# The driver's connection to the agent of one node: what it sends and hears, in threads of its own.

# An agent hands on a line of progress a second, a beat in five, and some words for each repeat. One that says more than this is broken: it
# would keep the driver from the other nodes. A long frame counts as several, so that a node cannot fill the driver's memory either; the
# longest of an honest agent is its plan, of some megabytes.
_MOST_WORDS = 5000.0
_WORDS_A_SECOND = 50.0
_WORD_BYTES = 16 << 10


class Words:
    """A limit on the messages of a node: many at once, and then so many a second. The result of each repeat is free once."""

    def __init__(self) -> None:
        self._left, self._at = _MOST_WORDS, monotonic()
        # The attempts whose result may still come: those that were ordered, and those that the agent had from before.
        self._due: set[str] = set()
        self._begun = False

    def order(self, attempt: str) -> None:
        """The agent is told to run this attempt: it owes a result."""
        self._due.add(attempt)

    def count(self, message: wire.FromAgent, size: int) -> None:
        """Count a message of so many bytes. Raises FrameError where no agent says so much."""
        if isinstance(message, wire.Ended) and message.attempt in self._due:
            self._due.discard(message.attempt)
            return
        if isinstance(message, wire.Begun) and not self._begun:
            self._begun = True
            self._due.update(message.spooled)
        now = monotonic()
        self._left = min(_MOST_WORDS, self._left + _WORDS_A_SECOND * (now - self._at)) - 1 - size // _WORD_BYTES
        self._at = now
        if self._left < 0:
            raise FrameError(
                f"more than {_MOST_WORDS:.0f} messages came at once, of which a long one counts as several"
            )


@dataclass(frozen=True)
class Heard:
    """A message of an agent, with its bytes; or the end of the pipe, with what is known of the reason."""

    link: Link
    message: wire.FromAgent | None
    body: bytes = b""
    why: str = ""
    # True if the agent sent an invalid message: ignore it from then on.
    broken: bool = False


class Link:
    """A started agent. `heard` is called with each message, and last with the end, from a thread of the link."""

    def __init__(self, node: Node, heard: Callable[[Heard], None]) -> None:
        """Start it. Raises NodesError."""
        self.node = node
        self._heard = heard
        self._pipe: Pipe = node.start() if node.start else Started.of(node)
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._words = Words()
        self.closed = False
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def send(self, message: wire.FromDriver) -> None:
        """Send without waiting: a stuck agent must not block the driver."""
        if isinstance(message, wire.Run):
            self._words.order(message.attempt)
        self._outgoing.put(encode(message.frame()))

    def hang_up(self) -> None:
        """Say that there is no more to do, once all that was sent before has gone."""
        self.closed = True
        self._outgoing.put(None)

    def end(self, patience: float) -> None:
        """Wait for the agent's end, and end what is left of it here."""
        self._pipe.end(patience)

    def waits_for(self) -> str:
        """The thing that the agent waits for before it can start. Empty: nothing."""
        return self._pipe.waits_for()

    def _write(self) -> None:
        # If it is gone, the reading thread says so.
        with contextlib.suppress(OSError, ValueError):
            while (content := self._outgoing.get()) is not None:
                self._pipe.send(content)
        self._pipe.hang_up()

    def _read(self) -> None:
        decoder = Decoder()
        why, broken = "", False
        try:
            for chunk in self._pipe.chunks():
                for frame in decoder.feed(chunk):
                    message = wire.from_agent(frame)
                    self._words.count(message, frame.size)
                    self._heard(Heard(self, message, frame.body))
        except FrameError as error:
            why, broken = str(error), True
            self._pipe.kill()
        except OSError as error:
            why = str(error)
        self.closed = True
        self._heard(Heard(self, None, why=why or self._why_ended(bytes(decoder.noise)), broken=broken))

    def _why_ended(self, noise: bytes) -> str:
        code, words = self._pipe.last_words()
        printed = (words or noise).decode("utf-8", "replace").strip()
        return f"its agent ended with exit code {code}: {explained(printed) or 'it printed nothing'}"


def opened(node: Node, heard: Callable[[Heard], None]) -> Link | NodesError:
    """A link to a node's agent, or why there is none."""
    try:
        return Link(node, heard)
    except NodesError as error:
        return error


# A node must say what it is within this time: its agent asks Docker, NVML and the catalog. A node that answers later joins the run then.
LOOK_SECONDS = 120.0

# The most that a node may have sent unread: one body of any size, or many messages.
_MOST_UNHEARD = 200
_MOST_UNHEARD_BYTES = MOST_BODY_BYTES

# Agents end their cells and remove what these left, before their pipes are cut.
_BYE_SECONDS = 20.0


@dataclass
class Member:
    """A node, as far as it has answered."""

    node: Node
    link: Link | None = None
    hello: wire.Hello | None = None
    # Why it does not take part.
    why: str = ""
    # True if its installation is this one.
    alike: bool = False
    # True if it never answered: it may do so later.
    unreached: bool = False

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def answered(self) -> bool:
        return self.hello is not None or bool(self.why)


@dataclass
class Fleet:
    """The nodes of a run, and what they say in the order in which it comes."""

    nodes: Nodes
    options: Options
    members: dict[str, Member] = field(default_factory=dict)
    heard: queue.Queue[Heard] = field(default_factory=queue.Queue)
    # Node -> how many messages of it, and how many bytes beside these, are in the queue.
    _unheard: dict[str, tuple[int, int]] = field(default_factory=dict)
    _taken_out: threading.Condition = field(default_factory=threading.Condition)
    _closing: bool = False
    _cells: dict[Cell, Cell] = field(default_factory=dict)
    # The cells of equal nodes are one tuple (messages.from_agent). By its id: the tuple, and its cells as the nodes before said them.
    _plans: dict[int, tuple[tuple[Cell, ...], tuple[Cell, ...]]] = field(default_factory=dict)
    # Why a plan does not follow from the options and the node's devices. By the id of its cells and these facts.
    _checked: dict[tuple[Hashable, ...], str | None] = field(default_factory=dict)
    # The installation here, and what a plan may name.
    own: wire.Versions = field(default_factory=wire.release_versions)
    frameworks: Mapping[str, Any] = field(default_factory=load_frameworks)
    workloads: Mapping[str, Workload] = field(default_factory=load_workloads)
    # A person's own, which no node has.
    networks: tuple[OwnNetwork, ...] = ()

    def __post_init__(self) -> None:
        self.networks = tuple(own_networks(self.options.workloads).values())
        self.workloads = {**self.workloads, **{network.name: network for network in self.networks}}

    def taken(self) -> list[Member]:
        """The nodes that take part."""
        return [member for member in self.members.values() if member.hello is not None and not member.why]

    def look(self, patience: float = LOOK_SECONDS) -> None:
        """Look at every node. Raises NodesError where none can take part."""
        for node in self.nodes.there():
            self.open(node)
        end = time.monotonic() + patience
        while not all(member.answered for member in self.members.values()):
            # If all nodes that could take part wait in line, keep waiting.
            if time.monotonic() > end and (self.taken() or not any(map(_waits_for, self.members.values()))):
                # A node whose answer lies here has answered in time.
                for _ in range(self.heard.qsize()):
                    self.greet(self.hear(0.0))
                break
            with contextlib.suppress(queue.Empty):
                self.greet(self.hear(0.5))
        for member in self.members.values():
            if not member.answered:
                member.unreached = True
                waits = _waits_for(member)
                self.refuse(
                    member, f"it waits in line for {waits}" if waits else f"it did not answer in {patience:.0f} s"
                )
        if not self.taken():
            reasons = "\n".join(f"  {member.name}: {member.why}" for member in self.members.values())
            raise NodesError(f"--nodes: no node can take part:\n{reasons}")

    def open(self, node: Node) -> Member:
        """Start a node's agent, also of one that was here before."""
        if (before := self.members.get(node.name)) is not None and before.link is not None:
            # It has ended, or did not in the time that it was given. Nobody else would cut the way to it.
            before.link.end(0.0)
        member = self.members[node.name] = Member(node)
        link = opened(node, self._note)
        if isinstance(link, NodesError):
            member.why = str(link)
        else:
            member.link = link
        return member

    def _note(self, heard: Heard) -> None:
        """Called by the threads of the links. An agent that says more than is heard waits, and no other one for it."""
        name, size = heard.link.node.name, len(heard.body)
        with self._taken_out:
            while not self._closing:
                count, total = self._unheard.get(name, (0, 0))
                if not count or (count < _MOST_UNHEARD and total + size <= _MOST_UNHEARD_BYTES):
                    self._unheard[name] = count + 1, total + size
                    self.heard.put(heard)
                    return
                self._taken_out.wait(0.5)

    def hear(self, timeout: float) -> Heard:
        """The next message of any node. Raises queue.Empty."""
        heard = self.heard.get(timeout=timeout)
        with self._taken_out:
            name = heard.link.node.name
            count, total = self._unheard.get(name, (1, len(heard.body)))
            self._unheard[name] = count - 1, total - len(heard.body)
            self._taken_out.notify_all()
        return heard

    def greet(self, heard: Heard) -> Member | None:
        """Take what a node says before it takes part. The member, where it has now said what it is."""
        member = self.members[heard.link.node.name]
        message = heard.message
        if member.link is not heard.link or member.answered:
            return None
        if message is None:
            member.unreached = not heard.broken
            self.refuse(member, heard.why)
        elif isinstance(message, wire.Versions):
            if why := wire.release_difference(self.own, message):
                self.refuse(member, why)
            else:
                member.alike = True
                options = self.options.model_dump(mode="json") | (
                    {"gpus": member.node.gpus} if member.node.gpus else {}
                )
                look = wire.Look(
                    node=member.name,
                    options=options,
                    networks={network.name: network.texts for network in self.networks},
                    cpus=member.node.cpus,
                    sharing=member.node.sharing,
                )
                heard.link.send(look)
        elif isinstance(message, wire.Refusal):
            self.refuse(member, message.why)
        elif isinstance(message, wire.Hello):
            why = (
                None
                if member.alike
                else "it said what it is before it named its release; install the same checkout there"
            )
            if why := why or self._why_not(message):
                self.refuse(member, why)
            else:
                member.hello = message.model_copy(update={"cells": self._same(message.cells)})
                return member
        return None

    def _same(self, said: tuple[Cell, ...]) -> tuple[Cell, ...]:
        """These cells. A thousand nodes say the same ones: each is kept once."""
        if id(said) not in self._plans:
            self._plans[id(said)] = said, tuple(self._cells.setdefault(cell, cell) for cell in said)
        return self._plans[id(said)][1]

    def refuse(self, member: Member, why: str) -> None:
        """A node takes no part, or no more."""
        member.why = in_a_line(why, wire.MOST_LINE)
        if member.link is not None:
            member.link.send(wire.Bye())
            member.link.hang_up()

    def close(self) -> None:
        """End every agent: each ends its cells and sweeps; one that does not end in time is cut off."""
        self._closing = True
        links = [member.link for member in self.members.values() if member.link is not None]
        for link in links:
            link.send(wire.Bye())
            link.hang_up()
        end = time.monotonic() + _BYE_SECONDS
        for link in links:
            link.end(max(0.1, end - time.monotonic()))
        self.nodes.close()

    def _why_not(self, hello: wire.Hello) -> str | None:
        """Why a node cannot take part beside the others, or says what no agent says."""
        if why := self._wrong_plan(hello):
            return f"its plan has an invalid cell ({why})"
        others = [member.hello for member in self.taken() if member.hello is not None]
        for other in self.taken():
            assert other.hello is not None
            if other.hello.boot_id == hello.boot_id and not self.nodes.shares_machine:
                return f"it is the same machine as {other.name}"
            if shared := {gpu.uuid for gpu in other.hello.gpus} & {gpu.uuid for gpu in hello.gpus}:
                return f"it says that {sorted(shared)[0]} is its own, and so says {other.name}"
        if others and hello.engine != others[0].engine:
            return f"its engine is {hello.engine} ({hello.why_engine}), and that of the others {others[0].engine}; choose with --engine"
        return None

    def _wrong_plan(self, hello: wire.Hello) -> str | None:
        """The fault of the first invalid cell of a node's plan. Equal plans of equal devices are looked at once."""
        boards: dict[str, set[str]] = {}
        for gpu in hello.gpus:
            boards.setdefault(gpu.model, set()).add(gpu.board)
        counts = {model: len(each) for model, each in boards.items()}
        self._same(hello.cells)
        key = (id(hello.cells), hello.architecture, hello.cpu.model, *sorted(counts.items()))
        if key not in self._checked:
            whys = (self._wrong(cell, hello, counts) for cell in hello.cells)
            self._checked[key] = next(filter(None, whys), None)
        return self._checked[key]

    def _wrong(self, cell: Cell, hello: wire.Hello, gpus: Mapping[str, int]) -> str | None:
        """The part of a planned cell that does not follow from the options, this catalog and the node's devices."""
        options = self.options
        if not wire.is_image_name(cell.image):
            return f"image {in_a_line(cell.image, 60)!r}"
        if why := not_planned(cell, options.preset, options.seed, self.workloads, self.frameworks):
            return why
        if why := _not_on(cell.image, hello.architecture):
            return f"{cell.image}: {why}"
        if cell.device_kind == "cpu":
            return None if cell.device_model == hello.cpu.model else "another CPU than its own"
        return None if 0 < cell.devices <= gpus.get(cell.device_model, 0) else "GPUs that it does not have"


@functools.cache
def _not_on(image: str, architecture: str) -> str | None:
    """Why an image of the catalog does not run on an architecture; None where it does, and of an interpreter of the user's."""
    images = load_catalog()
    return why_not(images[image], architecture) if image in images else None


def _waits_for(member: Member) -> str:
    return "" if member.answered or member.link is None else member.link.waits_for()


@contextlib.contextmanager
def opened_fleet(nodes: Nodes, options: Options) -> Iterator[Fleet]:
    """The nodes, looked at; within the block their agents run. Raises NodesError where none can take part."""
    fleet = Fleet(nodes, options)
    try:
        fleet.look()
        yield fleet
    finally:
        fleet.close()


def hellos(members: Sequence[Member]) -> dict[str, wire.Hello]:
    """Node -> what it said that it is."""
    return {member.name: member.hello for member in members if member.hello is not None}
