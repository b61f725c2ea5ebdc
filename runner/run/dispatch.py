"""Which job starts next, and on which devices. Pure: it starts nothing, and only counts what is free.

Devices of one model share its jobs. Jobs that want several devices come before those that want fewer, whole or not at all, on the
nearest neighbours. Otherwise the order is the shuffled one that it is given, with one exception: a job so long that it would stick out at
the end is taken at once (longest processing time first, Graham 1969, where it matters and only there).
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.machine.devices import Machine
from runner.plan.plan import Cell

# A job at least this part of the time that is left for each device is taken before its turn. Graham's bound is reached with
# every job in order of length; half keeps the bound in the simulated fleets and most of the shuffle.
_CRITICAL = 0.5


@dataclass(frozen=True)
class Job:
    """One repeat of one cell."""

    cell: Cell
    repeat: int

    @property
    def key(self) -> tuple[str, int]:
        """The job's name in the store."""
        return self.cell.id, self.repeat


@dataclass(frozen=True)
class Place:
    """A device that runs one job at a time: a GPU, a MIG instance, or the CPU."""

    uuid: str  # "" for the CPU
    board: str  # what no two jobs may use at once: instances of one GPU share it
    kind: str  # cpu | cuda
    model: str
    near: tuple[tuple[str, int], ...] = ()


def places(machine: Machine, kind: str) -> list[Place]:
    """Where jobs of this kind can run."""
    if kind == "cpu":
        return [Place("", "cpu", "cpu", machine.cpu.model)]
    return [Place(gpu.uuid, gpu.board, "cuda", gpu.model, gpu.near) for gpu in machine.gpus]


def blocks(cells: Sequence[Cell], repeats: int, seed: int) -> list[Job]:
    """Every cell once a block, each block in an order of its own: so heat and drift are not read as a difference of cells."""
    generator = random.Random(seed)
    jobs = []
    for repeat in range(1, repeats + 1):
        order = list(cells)
        generator.shuffle(order)
        jobs += [Job(cell, repeat) for cell in order]
    return jobs


class _Waiting:
    """The waiting jobs of one pool that want one number of devices: in their order, and by length."""

    def __init__(self, jobs: Iterable[Job], seconds: Callable[[Cell], float]) -> None:
        self._seconds = seconds
        self._order = deque(jobs)
        self._numbers = itertools.count()
        self._longest = [(-seconds(job.cell), next(self._numbers), job) for job in self._order]
        heapq.heapify(self._longest)
        self._left = set(self._order)
        self.work = sum(seconds(job.cell) for job in self._order)

    def __len__(self) -> int:
        return len(self._left)

    def longest(self) -> float:
        """Seconds of the longest job that waits; 0 when none does."""
        while self._longest and self._longest[0][2] not in self._left:
            heapq.heappop(self._longest)
        return -self._longest[0][0] if self._longest else 0.0

    def take(self, critical: float) -> Job:
        """The next job; the longest one where that takes at least `critical` seconds."""
        if self.longest() >= critical:
            job = heapq.heappop(self._longest)[2]
        else:
            job = self._order.popleft()
            while job not in self._left:
                job = self._order.popleft()
        self._left.remove(job)
        self.work -= self._seconds(job.cell)
        return job

    def put_back(self, job: Job) -> None:
        self._order.appendleft(job)
        heapq.heappush(self._longest, (-self._seconds(job.cell), next(self._numbers), job))
        self._left.add(job)
        self.work += self._seconds(job.cell)


class _Pool:
    """The devices that may run the same jobs, and those jobs."""

    def __init__(self, there: list[Place], jobs: Sequence[Job], seconds: Callable[[Cell], float]) -> None:
        self.places = there
        by_size: dict[int, list[Job]] = {}
        for job in jobs:
            by_size.setdefault(job.cell.takes, []).append(job)
        self.waiting = {size: _Waiting(by_size[size], seconds) for size in sorted(by_size, reverse=True)}
        self.running: dict[Job, tuple[float, float]] = {}  # job -> (when it began, how long it is expected to take)

    def boards(self) -> int:
        return len({place.board for place in self.places})

    def horizon(self, now: float) -> float:
        """Seconds until all of this pool's work is done, were it spread evenly."""
        work = sum(size * waiting.work for size, waiting in self.waiting.items())
        rest = sum(job.cell.takes * max(0.0, at + length - now) for job, (at, length) in self.running.items())
        return (work + rest) / max(1, self.boards())

    def room(self, size: int) -> int:
        """How many devices jobs of this size may hold together: what larger ones that wait or run do not need."""
        left = self.boards()
        for larger, waiting in self.waiting.items():
            if larger <= size:
                break
            wanted = len(waiting) + sum(job.cell.takes == larger for job in self.running)
            left -= larger * min(left // larger, wanted)
        return left

    def held(self, size: int) -> int:
        return sum(job.cell.takes for job in self.running if job.cell.takes <= size)

    def turns(self, now: float) -> list[tuple[int, float]]:
        """Whose turn it is: numbers of devices, each with the length from which a job is taken before its turn.

        First those with a job that would stick out at the end, the longest first; then the larger before the smaller.
        """
        never = float("inf")
        critical = _CRITICAL * self.horizon(now)
        waiting = [(size, each.longest()) for size, each in self.waiting.items() if len(each)]
        urgent = [(size, longest) for size, longest in waiting if longest >= critical and size < self.boards()]
        urgent.sort(key=lambda pair: pair[1], reverse=True)
        regular = [size for size, _ in waiting if self.held(size) + size <= self.room(size)]
        return [(size, critical) for size, _ in urgent] + [(size, never) for size in regular]


class Dispatcher:
    """Hands out jobs to devices. `seconds` says about how long a cell takes. Not for several threads at once."""

    def __init__(self, jobs: Sequence[Job], there: Sequence[Place], seconds: Callable[[Cell], float]) -> None:
        self._seconds = seconds
        self._free = {place.board: None for place in there}  # in the order in which they became free
        self._near = {place.board: dict(place.near) for place in there}
        self._held: dict[Job, tuple[Place, ...]] = {}
        self._pools: dict[tuple[str, str], _Pool] = {}
        wanted: dict[tuple[str, str], list[Job]] = {}
        for job in jobs:
            wanted.setdefault((job.cell.device_model, job.cell.device_uuid), []).append(job)
        for (model, uuid), of_pool in wanted.items():
            fit = [place for place in there if place.model == model and uuid in ("", place.uuid)]
            self._pools[model, uuid] = _Pool(fit, of_pool, seconds)

    def next(self, now: float) -> tuple[Job, tuple[Place, ...]] | None:
        """The job that starts now and its devices, which are taken from here on; None while nothing can start."""
        if not self._free:
            return None
        for pool in self._pools.values():
            for size, critical in pool.turns(now):
                if chosen := self._choose(pool, size):
                    job = pool.waiting[size].take(critical)
                    pool.running[job] = (now, self._seconds(job.cell))
                    for place in chosen:
                        del self._free[place.board]
                    self._held[job] = chosen
                    return job, chosen
        return None

    def ended(self, job: Job) -> None:
        """A job has ended: its devices are free, unless they were lost."""
        self._pool_of(job).running.pop(job)
        alive = {place.board for pool in self._pools.values() for place in pool.places}
        self._free |= {place.board: None for place in self._held.pop(job) if place.board in alive}

    def put_back(self, job: Job) -> None:
        """A job that ended through no fault of its own waits again."""
        self._pool_of(job).waiting[job.cell.takes].put_back(job)

    def lost(self, board: str) -> None:
        """A GPU is gone: nothing is given to it any more."""
        self._free.pop(board, None)
        for pool in self._pools.values():
            pool.places = [place for place in pool.places if place.board != board]

    def without_devices(self) -> list[Job]:
        """The waiting jobs that no device is left for; they wait no more."""
        found: list[Job] = []
        for pool in self._pools.values():
            for size, waiting in pool.waiting.items():
                if size > pool.boards():
                    found += [waiting.take(float("inf")) for _ in range(len(waiting))]
        return found

    def _pool_of(self, job: Job) -> _Pool:
        return self._pools[job.cell.device_model, job.cell.device_uuid]

    def _choose(self, pool: _Pool, size: int) -> tuple[Place, ...] | None:
        """`size` free devices on as many boards, as near to each other as there are; None when there are too few.

        A single one is that which has been free the longest: it is the coolest.
        """
        rank = {board: at for at, board in enumerate(self._free)}
        free: dict[str, Place] = {}
        for place in sorted((place for place in pool.places if place.board in rank), key=lambda each: rank[each.board]):
            free.setdefault(place.board, place)
        if len(free) < size:
            return None
        if size == 1:
            return (next(iter(free.values())),)
        boards = max((neighbours(seed, list(free), size, self._near) for seed in free), key=self._closeness)
        return tuple(free[board] for board in boards)

    def _closeness(self, boards: Sequence[str]) -> int:
        return closeness(boards, self._near)


Nearness = Mapping[str, Mapping[str, int]]


def neighbours(seed: str, free: Sequence[str], size: int, near: Nearness) -> list[str]:
    """`size` boards around one, each time the one that is nearest to those chosen."""
    chosen = [seed]
    score = {board: near[seed].get(board, 0) for board in free if board != seed}
    while len(chosen) < size:
        nearest = max(score, key=score.__getitem__)
        del score[nearest]
        chosen.append(nearest)
        for board in score:
            score[board] += near[nearest].get(board, 0)
    return chosen


def closeness(boards: Sequence[str], near: Nearness) -> int:
    """How near some boards are to each other, all pairs together."""
    return sum(near[one].get(other, 0) for one in boards for other in boards if one != other)


@dataclass(frozen=True)
class Span:
    """A job on its devices in a simulated run, in seconds from its start."""

    job: Job
    places: tuple[Place, ...]
    begin: float
    end: float


def simulate(jobs: Sequence[Job], there: Sequence[Place], seconds: Callable[[Cell], float]) -> list[Span]:
    """What a run would look like if every job took exactly as long as expected."""
    dispatcher = Dispatcher(jobs, there, seconds)
    dispatcher.without_devices()
    now = 0.0
    spans: list[Span] = []
    ends: list[tuple[float, int, Job]] = []
    while True:
        while found := dispatcher.next(now):
            job, chosen = found
            end = now + seconds(job.cell)
            heapq.heappush(ends, (end, len(spans), job))
            spans.append(Span(job, chosen, now, end))
        if not ends:
            return spans
        now, _, job = heapq.heappop(ends)
        dispatcher.ended(job)
