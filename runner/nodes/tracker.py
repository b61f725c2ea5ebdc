"""Which node measures what in a run over several nodes, and which result counts. Pure: it starts nothing and reads no clock.

Nodes with devices of one model share the jobs of that model. The repeats of a cell go to different nodes as long as there are enough, so
that how fast a node is lies in the scatter of a cell and is never read as a framework's speed. On a node the dispatcher of a single
machine chooses the devices. Every attempt has a number of its own: what comes from an attempt that was given up does not count.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from runner.plan.plan import Cell
from runner.run.dispatch import Dispatcher, Job, Place, run_alone

# A node of which nothing was heard for so long gets no more work; after this its work is given to others. Its agent says something every
# five seconds (runner.nodes.node_agent).
SILENT_SECONDS = 30.0
LOST_SECONDS = 90.0

# A node sends what it offers before anything else that it does, and one result is 42 kB. A node of which no offered result comes in this
# time will not send it.
OFFERED_SECONDS = 90.0

# A driver that stood still itself (Ctrl-Z, a machine that slept) has heard nothing meanwhile, and no node is to blame.
_GAP_SECONDS = 5.0

# A job is not begun more often than this, and fails where two nodes were lost under it: it may be the cell that ends them. A node under
# which cells were lost twice is drained: it gets no more work in this run.
MOST_TRIES = 3
_MOST_LOSSES = 2
_MOST_INCIDENTS = 2

# To share all that waits out anew takes about 20 µs a job. Where few nodes come to many, it is done so seldom that it takes at most a tenth
# of the driver's time: with 100 000 jobs that wait, a newcomer may stand idle for 20 s.
_SHARE_SECONDS = 2e-4
_MANY_NEWCOMERS = 0.25

_KINDS = ("cuda", "cpu")


class Verdict(Enum):
    """The worth of a result."""

    ROW = auto()  # it is the row of its job
    LATE = auto()  # its attempt was given up: it is kept aside
    AGAIN = auto()  # it came before
    UNKNOWN = auto()  # nobody began this attempt


@dataclass(frozen=True)
class Assignment:
    """One attempt at a job: on which node, and on which of its devices."""

    attempt: str
    job: Job
    node: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Incident:
    """The effect of the loss of a node, or of its agent: which jobs wait again, which fail, and whether the node is drained."""

    again: tuple[Job, ...]
    failed: tuple[Job, ...]
    drained: bool


@dataclass
class _Node:
    """A node that takes part, or did."""

    name: str
    number: int
    heard: float
    cells: Collection[Cell] = ()
    dispatchers: dict[str, Dispatcher] = field(default_factory=dict)
    # Model -> the boards that are left of it.
    boards: dict[str, set[str]] = field(default_factory=dict)
    # Model -> seconds of the work that waits or runs, for each board.
    load: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, set[Job]] = field(default_factory=lambda: {kind: set() for kind in _KINDS})
    running: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in _KINDS})
    joined: bool = False
    silent: bool = False
    lost: bool = False
    incidents: int = 0
    # Live attempts whose results it has from before and is to send, and when the last of them came or they were offered.
    offered: set[str] = field(default_factory=set)
    came: float = 0.0

    def room(self, cell: Cell) -> bool:
        """True if it has the devices of a cell, and may run it."""
        return cell.takes <= len(self.boards.get(cell.device_model, ())) and cell in self.cells


class Tracker:
    """The jobs of a run, over its nodes. `seconds` says about how long a cell takes, and `nonce` sets this driver's attempts apart."""

    def __init__(self, jobs: Sequence[Job], seconds: Callable[[Cell], float], nonce: str) -> None:
        self._seconds = seconds
        self._nonce = nonce
        self._count = 0
        self._order = {job: at for at, job in enumerate(jobs)}
        self._by_key = {job.key: job for job in jobs}
        self._alone = run_alone(jobs)
        self._nodes: dict[str, _Node] = {}
        # Jobs that no node takes, with the waiting of all nodes in `_where`.
        self._homeless: dict[Job, None] = dict.fromkeys(jobs)
        self._where: dict[Job, str] = {}
        self._live: dict[Job, Assignment] = {}
        self._issued: dict[str, Assignment] = {}
        # Attempts of this driver whose result came, and attempts that ended with their agent, before a result came.
        self._came: set[str] = set()
        # Live attempts of this driver, and when they were begun.
        self._since: dict[str, float] = {}
        self._cut: set[str] = set()
        self._done: set[Job] = set()
        self._tries: dict[Job, int] = {}
        self._lost_with: dict[Job, list[str]] = {}
        # Cell -> the nodes that have or had a repeat of it, and how many.
        self._repeats: dict[Cell, dict[str, int]] = {}
        # Nodes that may have something to begin.
        self._look_at: dict[str, None] = {}
        self._checked: float | None = None
        # Nodes that joined since all that waits was shared out, and those of them that have not even been offered what no other takes.
        self._newcomers, self._fresh = 0, False
        self._now = self._shared_at = 0.0

    # --- nodes

    def watch(self, name: str, now: float) -> None:
        """A node is in the run from now on, and is to say something from time to time."""
        node = self._nodes.setdefault(name, _Node(name, len(self._nodes), now))
        node.heard, node.lost, node.silent = now, False, False

    def join(self, name: str, places: Sequence[Place], cells: Collection[Cell], now: float) -> None:
        """A node is ready for these cells: it gets its share of what waits, from the others where these have it."""
        self.watch(name, now)
        node = self._nodes[name]
        node.cells, node.joined = cells, True
        node.dispatchers = {
            kind: Dispatcher((), [place for place in places if place.kind == kind], self._seconds) for kind in _KINDS
        }
        node.boards = {}
        for place in places:
            node.boards.setdefault(place.model, set()).add(place.board)
        self._newcomers, self._fresh, self._now = self._newcomers + 1, True, now

    def heard(self, name: str, now: float) -> bool:
        """A node said something. Whether it had been given up, and may join again."""
        node = self._nodes.get(name)
        if node is None:
            return False
        node.heard, node.silent = now, False
        self._look_at[name] = None
        return node.lost and node.incidents < _MOST_INCIDENTS

    def check(self, now: float) -> tuple[list[str], list[str]]:
        """The nodes that are silent since the last call, and those that are silent for so long that they count as lost."""
        if self._checked is not None and now - self._checked > _GAP_SECONDS:
            for node in self._nodes.values():
                node.heard += now - self._checked
                node.came += now - self._checked
            self._since = {attempt: since + now - self._checked for attempt, since in self._since.items()}
        self._checked = now
        silent, lost = [], []
        for node in self._nodes.values():
            if not node.lost and now - node.heard > LOST_SECONDS:
                lost.append(node.name)
            elif not node.lost and not node.silent and now - node.heard > SILENT_SECONDS:
                node.silent = True
                silent.append(node.name)
        return silent, lost

    def overdue(self, now: float) -> dict[str, int]:
        """The nodes that keep results which they offered: of how many nothing came for too long."""
        return {
            node.name: len(node.offered)
            for node in self._nodes.values()
            if node.offered and now - node.came > OFFERED_SECONDS
        }

    def held(self, before: float) -> dict[str, str]:
        """The nodes on which an attempt runs that was begun before this time, and one such attempt of each."""
        return {self._issued[attempt].node: attempt for attempt, since in self._since.items() if since < before}

    def incident(self, name: str, ended: bool) -> Incident:
        """A node is lost, or its agent has ended (`ended`): its attempts do not count any more, and its jobs go to others."""
        node = self._nodes.get(name)
        if node is None:
            return Incident((), (), False)
        attempts = [self._issued[attempt] for kind in _KINDS for attempt in sorted(node.running[kind])]
        again: list[Job] = []
        failed: list[Job] = []
        for assignment in attempts:
            job = assignment.job
            del self._live[job]
            self._since.pop(assignment.attempt, None)
            if ended:
                self._cut.add(assignment.attempt)
            lost_with = self._lost_with.setdefault(job, [])
            if assignment.attempt not in node.offered:
                # A cell that had ended before cannot have ended the node.
                lost_with.append(name)
            (failed if len(lost_with) >= _MOST_LOSSES else again).append(job)
        waiting = self._withdraw(node)
        node.running, node.load, node.offered = {kind: set() for kind in _KINDS}, {}, set()
        node.incidents += bool(attempts)
        node.joined, node.lost = False, True
        self._done.update(failed)
        self._share([*waiting, *again])
        return Incident(tuple(again), tuple(failed), node.incidents >= _MOST_INCIDENTS)

    def gpu_lost(self, name: str, board: str) -> None:
        """A GPU of a node is gone."""
        node = self._nodes[name]
        for boards in node.boards.values():
            boards.discard(board)
        if not node.dispatchers:
            # It has not joined yet.
            return
        node.dispatchers["cuda"].lost(board)
        gone = node.dispatchers["cuda"].without_devices()
        node.waiting["cuda"] -= set(gone)
        for job in gone:
            self._unshare(job, node)
        self._share(gone)

    # --- jobs

    def next(self, now: float) -> Assignment | None:
        """The next attempt to begin; None while nothing can start."""
        self._now = now
        self._settle()
        while self._look_at:
            name = next(iter(self._look_at))
            node = self._nodes[name]
            if node.joined and not node.silent and (started := self._begin(node, now)):
                return started
            del self._look_at[name]
        return None

    def _begin(self, node: _Node, now: float) -> Assignment | None:
        """Cells of GPUs first: those of the CPU run when none of a GPU runs on the node."""
        for kind, other in (_KINDS, _KINDS[::-1]):
            if not node.running[other] and (chosen := self._next_of(node, kind, now)):
                job, places = chosen
                node.waiting[kind].discard(job)
                del self._where[job]
                self._count += 1
                attempt = f"{job.cell.id}.r{job.repeat}.{self._nonce}-{self._count}"
                assignment = self._issued[attempt] = self._live[job] = Assignment(attempt, job, node.name, places)
                node.running[kind].add(attempt)
                self._since[attempt] = now
                self._tries[job] = self._tries.get(job, 0) + 1
                return assignment
            if node.running[kind] or node.waiting[kind]:
                return None
        return None

    def _next_of(self, node: _Node, kind: str, now: float) -> tuple[Job, tuple[Place, ...]] | None:
        """The next job of a node, and its devices. Where GPUs are compared, one at a time on a node, in blocks over its GPUs."""
        if not self._alone:
            return node.dispatchers[kind].next(now)
        if node.running[kind] or not node.waiting[kind]:
            return None
        job = min(node.waiting[kind], key=self._order.__getitem__)
        places = node.dispatchers[kind].start(job, now)
        return (job, places) if places else None

    def verdict(self, attempt: str) -> Verdict:
        """The worth of a result of this attempt. It changes nothing."""
        assignment = self._issued.get(attempt)
        if assignment is None:
            return Verdict.UNKNOWN
        if attempt in self._came:
            return Verdict.AGAIN
        return Verdict.ROW if self._live.get(assignment.job) is assignment else Verdict.LATE

    def came(self, attempt: str) -> None:
        """A result of an attempt came and is stored or kept aside: further ones do not count."""
        self._came.add(attempt)

    def assignment(self, attempt: str) -> Assignment | None:
        """The attempt of this number."""
        return self._issued.get(attempt)

    def ended(self, attempt: str) -> None:
        """The job of a live attempt has its row, or cannot get one."""
        assignment = self._free(attempt)
        self._done.add(assignment.job)

    def returned(self, attempt: str) -> bool:
        """A live attempt was not to blame for its end. Whether its job is tried again; otherwise it has failed."""
        job = self._free(attempt).job
        self._cut.add(attempt)
        if self._tries[job] >= MOST_TRIES:
            self._done.add(job)
            return False
        self._share([job])
        return True

    def leave(self, attempt: str) -> None:
        """An attempt was not begun after all: its job is left for another run."""
        self._free(attempt)
        self._cut.add(attempt)

    def _free(self, attempt: str) -> Assignment:
        """A live attempt is no more: its devices are free."""
        assignment = self._issued[attempt]
        node, job = self._nodes[assignment.node], assignment.job
        node.running[job.cell.device_kind].discard(attempt)
        if attempt in node.offered:
            node.offered.discard(attempt)
            node.came = node.heard
        del self._live[job]
        self._since.pop(attempt, None)
        if assignment.places:
            node.dispatchers[job.cell.device_kind].ended(job)
            self._unload(job.cell, node)
        self._look_at[node.name] = None
        return assignment

    def offered(self, name: str, attempts: Iterable[str], now: float) -> list[str]:
        """A node has these results from before, of a driver or an agent that has ended: those of jobs that still wait.

        They count as attempts that run, until they come. Those of attempts that were given up for silence do not count.
        """
        self.watch(name, now)
        node, taken = self._nodes[name], []
        for attempt in attempts:
            cell, repeat = attempt.split(".")[:2]
            job = self._by_key.get((cell, int(repeat[1:])))
            earlier = self._issued.get(attempt)
            given_up = earlier is not None and (
                attempt in self._came or attempt not in self._cut or earlier.node != name
            )
            if job is None or job in self._done or job in self._live or given_up:
                continue
            self._unqueue(job)
            self._issued[attempt] = self._live[job] = Assignment(attempt, job, name, ())
            node.running[job.cell.device_kind].add(attempt)
            taken.append(attempt)
        node.offered.update(taken)
        node.came = now
        return taken

    def lost_with(self, job: Job) -> Sequence[str]:
        """The nodes that were lost under a job."""
        return self._lost_with.get(job, ())

    def is_open(self) -> bool:
        """True if something runs, or waits on a node."""
        self._settle()
        return bool(self._live or self._where)

    def has_homeless(self) -> bool:
        """True if there is a job that no node can take now."""
        self._settle()
        return bool(self._homeless)

    def homeless(self) -> list[Job]:
        """The jobs that no node can take now, in their order."""
        self._settle()
        return sorted(self._homeless, key=self._order.__getitem__)

    def drop(self, job: Job) -> None:
        """A job that no node takes has failed."""
        del self._homeless[job]
        self._done.add(job)

    def running(self, name: str) -> list[str]:
        """The live attempts on a node."""
        node = self._nodes.get(name)
        return [attempt for kind in _KINDS for attempt in sorted(node.running[kind])] if node else []

    def given_up(self, name: str) -> list[str]:
        """The attempts on a node that do not count any more, and of which nothing came."""
        return [
            attempt
            for attempt, assignment in self._issued.items()
            if assignment.node == name
            and attempt not in self._came
            and attempt not in self._cut
            and self._live.get(assignment.job) is not assignment
        ]

    # --- the shares

    def _settle(self) -> None:
        """When nodes join, redistribute the waiting jobs, once for a group of new nodes. Jobs that no other node takes they get at once."""
        if not self._newcomers:
            return
        few = self._newcomers < _MANY_NEWCOMERS * sum(node.joined for node in self._nodes.values())
        if few and self._now - self._shared_at < _SHARE_SECONDS * len(self._where):
            if self._fresh:
                self._share(list(self._homeless))
        else:
            waiting = [job for each in self._nodes.values() for job in self._withdraw(each)]
            self._share([*waiting, *self._homeless])
            self._newcomers, self._shared_at = 0, self._now
        self._fresh = False

    def _unqueue(self, job: Job) -> None:
        """A waiting job waits no more."""
        self._homeless.pop(job, None)
        if (name := self._where.pop(job, None)) is not None:
            node = self._nodes[name]
            node.waiting[job.cell.device_kind].discard(job)
            node.dispatchers[job.cell.device_kind].remove(job)
            self._unshare(job, node)

    def _withdraw(self, node: _Node) -> list[Job]:
        """All that waits on a node."""
        jobs = [job for dispatcher in node.dispatchers.values() for job in dispatcher.withdraw()]
        node.waiting = {kind: set() for kind in _KINDS}
        for job in jobs:
            self._unshare(job, node)
        return jobs

    def _unshare(self, job: Job, node: _Node) -> None:
        """A job that has not begun is not this node's any more."""
        self._where.pop(job, None)
        self._repeats[job.cell][node.name] -= 1
        self._unload(job.cell, node)

    def _unload(self, cell: Cell, node: _Node) -> None:
        """A node has the work of a cell no more. A GPU that was lost meanwhile has changed the weights a little."""
        node.load[cell.device_model] = max(0.0, node.load.get(cell.device_model, 0.0) - self._weight(cell, node))

    def _weight(self, cell: Cell, node: _Node) -> float:
        return cell.takes * self._seconds(cell) / max(1, len(node.boards.get(cell.device_model, ())))

    def _share(self, jobs: Iterable[Job]) -> None:
        """Share jobs out over the nodes, in their order.

        Each goes to the node with the least work of those that have the fewest repeats of its cell.
        """
        heaps: dict[str, list[tuple[float, int, str]]] = {}
        for job in sorted(set(jobs), key=self._order.__getitem__):
            model = job.cell.device_model
            if model not in heaps:
                fit = [node for node in self._nodes.values() if node.joined and model in node.boards]
                heaps[model] = [(node.load.get(model, 0.0), node.number, node.name) for node in fit]
                heapq.heapify(heaps[model])
            self._homeless.pop(job, None)
            if (node := self._choose(job, heaps[model])) is None:
                self._homeless[job] = None
                continue
            repeats = self._repeats.setdefault(job.cell, {})
            repeats[node.name] = repeats.get(node.name, 0) + 1
            node.load[model] = node.load.get(model, 0.0) + self._weight(job.cell, node)
            heapq.heappush(heaps[model], (node.load[model], node.number, node.name))
            node.waiting[job.cell.device_kind].add(job)
            node.dispatchers[job.cell.device_kind].add(job)
            self._where[job] = node.name
            self._look_at[node.name] = None

    def _choose(self, job: Job, heap: list[tuple[float, int, str]]) -> _Node | None:
        """The node for a job. It is no longer in the heap, which has the nodes of its devices by their work."""
        repeats, lost_with = self._repeats.get(job.cell, {}), self._lost_with.get(job, ())
        passed: list[tuple[float, int, str]] = []
        best: tuple[int, tuple[float, int, str]] | None = None
        for entry in _popped(heap):
            passed.append(entry)
            name = entry[2]
            if name in lost_with or not self._nodes[name].room(job.cell):
                continue
            key = repeats.get(name, 0), entry
            best = min(best, key) if best else key
            if best[0] == 0:
                # None has fewer, and of those with as few this has the least work.
                break
        for entry in passed:
            if best is None or entry != best[1]:
                heapq.heappush(heap, entry)
        return self._nodes[best[1][2]] if best else None


def _popped(heap: list[tuple[float, int, str]]) -> Iterator[tuple[float, int, str]]:
    while heap:
        yield heapq.heappop(heap)
