"""Which node measures what in a run over several nodes, and which result counts. Pure: it starts nothing and reads no clock.

A node with free devices takes the first job that it may run and of whose cell no other node that may run it has fewer repeats: those of
several devices first, then in the order of the run. So the repeats of a cell are spread over the nodes, as far as there are enough of
them: how fast a node is lies in the scatter of most cells, and is not read as a framework's speed. On a node the dispatcher of a single
machine chooses the devices. Every attempt has a number of its own: what comes from an attempt that was given up does not count.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
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

# The last jobs of a run: so many for each device of their model. With 2 the simulated runs end no later than with fixed shares by length.
_LAST = 2

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
    # Model -> the boards that are left of it, and the models of each kind.
    boards: dict[str, set[str]] = field(default_factory=dict)
    models: dict[str, list[str]] = field(default_factory=dict)
    # GPU -> its board, of those that are left.
    gpus: dict[str, str] = field(default_factory=dict)
    running: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in _KINDS})
    joined: bool = False
    silent: bool = False
    lost: bool = False
    incidents: int = 0
    # Live attempts whose results it has from before and is to send, and when the last of them came or they were offered.
    offered: set[str] = field(default_factory=set)
    came: float = 0.0

    def free_kinds(self) -> list[str]:
        """The kinds of devices of which one is free, and none of the other kind runs."""
        pairs = (_KINDS, _KINDS[::-1]) if self.joined else ()
        return [kind for kind, other in pairs if not self.measures(other) and self.dispatchers[kind].has_room()]

    def measures(self, kind: str) -> bool:
        """True if a cell of this kind runs there. What a node offers from before holds no device."""
        return not self.running[kind] <= self.offered

    def may_run(self, cell: Cell) -> bool:
        """True if it takes part, has the devices of a cell and its image."""
        if not self.joined or cell not in self.cells or (cell.device_uuid and cell.device_uuid not in self.gpus):
            return False
        return cell.takes <= len(self.boards.get(cell.device_model, ()))


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
        # Model -> devices that a job takes, the most first -> the jobs that wait.
        self._waiting: dict[str, dict[int, OrderedDict[Job, None]]] = {}
        for job in sorted(jobs, key=lambda job: -job.cell.takes):
            self._queue(job)[job] = None
        # Model -> the devices of all nodes that have joined. The queues of which the last jobs are in order of length.
        self._boards: Counter[str] = Counter()
        self._last: set[tuple[str, int]] = set()
        # Cell -> whether a node that has joined may run it. Empty after a change of the nodes.
        self._homes: dict[Cell, bool] = {}
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
        # Cell -> the nodes that began a repeat of it, and how many.
        self._repeats: dict[Cell, dict[str, int]] = {}
        # Nodes that may have something to begin, and those with a free device that had nothing.
        self._look_at: dict[str, None] = {}
        self._idle: dict[str, None] = {}
        self._checked: float | None = None

    # --- nodes

    def watch(self, name: str, now: float) -> None:
        """A node is in the run from now on, and is to say something from time to time."""
        node = self._nodes.setdefault(name, _Node(name, len(self._nodes), now))
        node.heard, node.lost, node.silent = now, False, False

    def join(self, name: str, places: Sequence[Place], cells: Collection[Cell], now: float) -> None:
        """A node is ready for these cells: it takes of what waits."""
        self.watch(name, now)
        node = self._nodes[name]
        node.cells, node.joined = cells, True
        node.dispatchers = {
            kind: Dispatcher((), [place for place in places if place.kind == kind], self._seconds) for kind in _KINDS
        }
        node.models = {kind: sorted({place.model for place in places if place.kind == kind}) for kind in _KINDS}
        node.gpus = {place.uuid: place.board for place in places if place.uuid}
        node.boards = {}
        for place in places:
            node.boards.setdefault(place.model, set()).add(place.board)
        self._nodes_changed()

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
        node.running, node.offered = {kind: set() for kind in _KINDS}, set()
        node.incidents += bool(attempts)
        node.joined, node.lost = False, True
        self._done.update(failed)
        for job in again:
            self._queue(job)[job] = None
        self._nodes_changed()
        return Incident(tuple(again), tuple(failed), node.incidents >= _MOST_INCIDENTS)

    def gpu_lost(self, name: str, board: str) -> None:
        """A GPU of a node is gone."""
        node = self._nodes[name]
        for boards in node.boards.values():
            boards.discard(board)
        node.gpus = {uuid: of for uuid, of in node.gpus.items() if of != board}
        # It may not have joined yet.
        if node.dispatchers:
            node.dispatchers["cuda"].lost(board)
            self._nodes_changed()

    # --- jobs

    def next(self, now: float) -> Assignment | None:
        """The next attempt to begin; None while nothing can start."""
        while self._look_at:
            name = next(iter(self._look_at))
            node = self._nodes[name]
            if node.joined and not node.silent and (started := self._begin(node, now)):
                return started
            del self._look_at[name]
            if node.free_kinds():
                self._idle[name] = None
        return None

    def _begin(self, node: _Node, now: float) -> Assignment | None:
        """Cells of GPUs first: those of the CPU run when none of a GPU runs on the node."""
        for kind in node.free_kinds():
            if chosen := self._next_of(node, kind, now):
                job, places = chosen
                del self._queue(job)[job]
                self._count += 1
                attempt = f"{job.cell.id}.r{job.repeat}.{self._nonce}-{self._count}"
                assignment = self._issued[attempt] = self._live[job] = Assignment(attempt, job, node.name, places)
                node.running[kind].add(attempt)
                self._since[attempt] = now
                self._tries[job] = self._tries.get(job, 0) + 1
                self._note(job, node.name)
                return assignment
        return None

    def _next_of(self, node: _Node, kind: str, now: float) -> tuple[Job, tuple[Place, ...]] | None:
        """The next job of a node, and its devices. Where GPUs are compared, one at a time on a node, in blocks over its GPUs."""
        if self._alone and node.measures(kind):
            return None
        every = (job for model in node.models[kind] for job in self._offers(node, kind, model))
        started = ((job, node.dispatchers[kind].start(job, now)) for job in every)
        return next(((job, places) for job, places in started if places), None)

    def _offers(self, node: _Node, kind: str, model: str) -> Iterator[Job]:
        """The first job of each number of devices that a node may begin now, the larger before the smaller.

        A smaller one holds no devices that larger ones which wait or run could use together: otherwise these would never find enough.
        """
        left = len(node.boards[model])
        running = [self._issued[attempt] for attempt in node.running[kind]]
        sizes = [each.job.cell.takes for each in running if each.places and each.job.cell.device_model == model]
        for size, jobs in self._waiting.get(model, {}).items():
            self._end_together(model, size, jobs)
            mine = (job for job in jobs if self._is_turn_of(node, job))
            first = next(mine, None)
            if first and sum(takes for takes in sizes if takes <= size) + size <= left:
                yield first
            use = bool(first) + sum(1 for _ in itertools.islice(mine, left // size)) + sizes.count(size)
            left -= size * min(left // size, use)

    def _end_together(self, model: str, size: int, jobs: OrderedDict[Job, None]) -> None:
        """Of the last jobs the longest come first, so that none runs on alone (longest processing time first, Graham 1969)."""
        if (model, size) not in self._last and len(jobs) * size <= _LAST * self._boards[model]:
            self._last.add((model, size))
            for job in sorted(jobs, key=lambda job: -self._seconds(job.cell)):
                jobs.move_to_end(job)

    def _is_turn_of(self, node: _Node, job: Job) -> bool:
        """True if a node may run a job, and no other node that may has fewer repeats of its cell."""
        cell, lost_with = job.cell, self._lost_with.get(job, ())
        if node.name in lost_with or not node.may_run(cell):
            return False
        repeats = self._repeats.get(cell, {})
        mine = repeats.get(node.name, 0)
        return not mine or all(
            repeats.get(other.name, 0) >= mine or other.name in lost_with or not other.may_run(cell)
            for other in self._nodes.values()
        )

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
        if self._tries.get(job, 0) >= MOST_TRIES:
            self._done.add(job)
            return False
        self._queue(job)[job] = None
        self._look_at |= dict.fromkeys(self._nodes)
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
            self._queue(job).pop(job, None)
            self._note(job, name)
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
        """True if something runs, or waits for a node that has joined."""
        return bool(self._live) or any(self._has_home(job) for job in self._all_waiting())

    def has_homeless(self) -> bool:
        """True if there is a job that no node can take now."""
        return not all(self._has_home(job) for job in self._all_waiting())

    def homeless(self) -> list[Job]:
        """The jobs that no node can take now, in their order."""
        return sorted((job for job in self._all_waiting() if not self._has_home(job)), key=self._order.__getitem__)

    def drop(self, job: Job) -> None:
        """A job that no node takes has failed."""
        del self._queue(job)[job]
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

    # --- what waits

    def _queue(self, job: Job) -> OrderedDict[Job, None]:
        """The jobs that wait for as many devices of the same model."""
        return self._waiting.setdefault(job.cell.device_model, {}).setdefault(job.cell.takes, OrderedDict())

    def _all_waiting(self) -> Iterator[Job]:
        return (job for sizes in self._waiting.values() for jobs in sizes.values() for job in jobs)

    def _note(self, job: Job, name: str) -> None:
        """A node has a repeat of a cell. So it may be another one's turn at the next, and larger jobs may need less room."""
        repeats = self._repeats.setdefault(job.cell, {})
        repeats[name] = repeats.get(name, 0) + 1
        for other in [other for other in self._idle if self._nodes[other].may_run(job.cell)]:
            del self._idle[other]
            self._look_at[other] = None

    def _nodes_changed(self) -> None:
        """The nodes that may run a cell are looked up anew, and every node looks for work."""
        self._homes.clear()
        joined = [node for node in self._nodes.values() if node.joined]
        self._boards = Counter(model for node in joined for model, boards in node.boards.items() for _ in boards)
        self._look_at |= dict.fromkeys(self._nodes)

    def _has_home(self, job: Job) -> bool:
        """True if a node that has joined may run a job."""
        lost_with = self._lost_with.get(job, ())
        if lost_with:
            return any(node.may_run(job.cell) and node.name not in lost_with for node in self._nodes.values())
        if job.cell not in self._homes:
            self._homes[job.cell] = any(node.may_run(job.cell) for node in self._nodes.values())
        return self._homes[job.cell]
