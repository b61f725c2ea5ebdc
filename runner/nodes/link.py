"""The driver's connection to the agent of one node: what it sends and hears, in threads of its own."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from runner.known_messages import explained
from runner.nodes.transports.started import Started
from runner.nodes.transports.transport import Node, NodesError, Pipe
from runner.nodes.wire import messages
from runner.nodes.wire.frames import Decoder, FrameError, encode

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

    def count(self, message: messages.FromAgent, size: int) -> None:
        """Count a message of so many bytes. Raises FrameError where no agent says so much."""
        if isinstance(message, messages.Ended) and message.attempt in self._due:
            self._due.discard(message.attempt)
            return
        if isinstance(message, messages.Begun) and not self._begun:
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
    message: messages.FromAgent | None
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

    def send(self, message: messages.FromDriver) -> None:
        """Send without waiting: a stuck agent must not block the driver."""
        if isinstance(message, messages.Run):
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
                    message = messages.from_agent(frame)
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
