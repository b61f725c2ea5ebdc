"""Which job starts next, and on which devices. Pure: it starts nothing, and only counts what is free.

Devices of one model share its jobs. Jobs of several devices come before those of fewer, and start only when all their devices are free,
on the nearest neighbours. Otherwise jobs start in the shuffled order, with one exception: a job so long that it would run on alone at
the end starts at once (longest processing time first, Graham 1969, only where it matters).
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.machine.devices import Machine
    from runner.plan.combination import Cell

# A job that takes at least this part of the time left for each device starts before its turn. Graham's bound holds when all jobs start
# in order of length. With one half the bound holds in the simulated fleets, and most of the shuffled order stays.
_CRITICAL = 0.5

# How often the order of a block is improved. Of one cell, and of some orders of three and of five, no order is apart.
_TRIES = 40

# The orders of a block that are made: the best is taken.
_SHUFFLES = 12


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

    # "" for the CPU
    uuid: str
    # Two jobs never use one board at once. The MIG instances of a GPU share their board.
    board: str
    # cpu | cuda
    kind: str
    model: str
    near: tuple[tuple[str, int], ...] = ()


def places(machine: Machine, kind: str) -> list[Place]:
    """The places for jobs of this kind."""
    if kind == "cpu":
        return [Place("", "cpu", "cpu", machine.cpu.model)]
    return [Place(gpu.uuid, gpu.board, "cuda", gpu.model, gpu.near) for gpu in machine.gpus]


def blocks(cells: Sequence[Cell], repeats: int, seed: int) -> list[Job]:
    """Every cell once a block, in the orders of `orders`."""
    found = orders(len(cells), repeats, random.Random(seed))
    return [Job(cells[place], repeat) for repeat, order in enumerate(found, start=1) for place in order]


def orders(count: int, repeats: int, generator: random.Random) -> list[list[int]]:
    """The order of so many cells in each block.

    Every block is shuffled: otherwise heat and drift look like a difference between cells. The second of three has the order of the first
    backwards, so that a drift along a straight line adds as much to each cell of the two. In the others no cell stands where the block
    before had it, and no period of two places or more meets one cell in three blocks. A job that comes back every two minutes met the same
    cell in each of three blocks before, and that cell was called slower in a fifth of simulated runs. From the third block on no cell
    stands where it stood two blocks before, either, and of such orders the nearest to that block's is taken: the terms of a warm-up
    (runner.results.rank.blocks) then cost the levels of the cells less.
    """
    found: list[list[int]] = []
    places: list[list[int]] = []
    for number in range(repeats):
        if number % 3 == 1:
            order = found[-1][::-1]
        else:
            tries = [
                _shuffled(count, number * count, places[-2:], generator) for _ in range(_SHUFFLES if number > 1 else 1)
            ]
            order = min(tries)[3]
        found.append(order)
        places.append(_places(order, number * count))
    return found


def _places(order: Sequence[int], begin: int) -> list[int]:
    """The place of each cell in the run, of a block that begins there."""
    places = [0] * len(order)
    for place, cell in enumerate(order, start=begin):
        places[cell] = place
    return places


def _shuffled(
    count: int, begin: int, before: Sequence[Sequence[int]], generator: random.Random
) -> tuple[int, int, int, list[int]]:
    """A new order of a block, after how many cells a period meets in it, how many stand where the block two before had them, and how far it
    is from that block (a sum of squares).

    `before`: the places in up to two blocks before it. Of four cells no order may be free of both.
    """
    order = list(range(count))
    generator.shuffle(order)
    bad, stay, far = _keep_apart(order, begin, before, generator), 0, 0
    if len(before) > 1:
        moved = [now - then - 2 * count for now, then in zip(_places(order, begin), before[0], strict=True)]
        stay, far = moved.count(0), sum(apart**2 for apart in moved)
    return bad, stay, far, order


def _keep_apart(order: list[int], begin: int, before: Sequence[Sequence[int]], generator: random.Random) -> int:
    """Exchange places of a block until a period meets as few cells as can be found; how many these are."""
    if not before:
        return 0

    def met(cell: int, place: int) -> bool:
        apart = begin + place - before[-1][cell]
        return apart == len(order) or (len(before) > 1 and math.gcd(apart, before[-1][cell] - before[-2][cell]) > 1)

    for _ in range(_TRIES):
        bad = [place for place, cell in enumerate(order) if met(cell, place)]
        if not bad:
            return 0
        for place in bad:
            other = generator.randrange(len(order))
            now = met(order[place], place) + met(order[other], other)
            if met(order[place], other) + met(order[other], place) <= now:
                order[place], order[other] = order[other], order[place]
    return sum(met(cell, place) for place, cell in enumerate(order))


def block(cells: Sequence[Cell], number: int) -> list[Job]:
    """One more repeat of each of these cells, beyond the planned ones, with the number of a new block.

    Of two blocks after one another the second is in the order of the first backwards, so that a straight drift cancels.
    """
    order = sorted(cells, key=lambda cell: cell.id)
    random.Random(f"{cells[0].seed} {number // 2}").shuffle(order)
    return [Job(cell, number) for cell in (reversed(order) if number % 2 else order)]


def run_alone(jobs: Iterable[Job]) -> bool:
    """True if each of these jobs runs alone: cells of one GPU each (--each-gpu) compare the GPUs, and side by side they share the
    host.
    """
    return any(job.cell.device_uuid for job in jobs)


def turns(jobs: Sequence[Job]) -> list[Sequence[Job]]:
    """The jobs in parts that run one after another. Those of one part may run side by side."""
    return [[job] for job in jobs] if run_alone(jobs) else [jobs]


class _Waiting:
    """The waiting jobs of one pool that take the same number of devices: in their order, and by length."""

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
        """Seconds of the longest waiting job; 0 when none waits."""
        while self._longest and self._longest[0][2] not in self._left:
            heapq.heappop(self._longest)
        return -self._longest[0][0] if self._longest else 0.0

    def take(self, critical: float) -> Job:
        """The next job, or the longest one if it takes at least `critical` seconds."""
        if self.longest() >= critical:
            job = heapq.heappop(self._longest)[2]
        else:
            job = self._order.popleft()
            while job not in self._left:
                job = self._order.popleft()
        self._left.remove(job)
        self.work -= self._seconds(job.cell)
        return job

    def add(self, job: Job) -> None:
        """A further job waits, behind the others."""
        self._order.append(job)
        self._note(job)

    def put_back(self, job: Job) -> None:
        """A job waits again, before the others."""
        self._order.appendleft(job)
        self._note(job)

    def _note(self, job: Job) -> None:
        heapq.heappush(self._longest, (-self._seconds(job.cell), next(self._numbers), job))
        self._left.add(job)
        self.work += self._seconds(job.cell)


class _Pool:
    """The devices that may run the same jobs, and those jobs."""

    def __init__(self, members: list[Place], jobs: Sequence[Job], seconds: Callable[[Cell], float]) -> None:
        self.places = members
        by_size: dict[int, list[Job]] = {}
        for job in jobs:
            by_size.setdefault(job.cell.takes, []).append(job)
        self.waiting = {size: _Waiting(by_size[size], seconds) for size in sorted(by_size, reverse=True)}
        # Job -> (when it began, how many seconds it is expected to take)
        self.running: dict[Job, tuple[float, float]] = {}

    def add(self, job: Job, seconds: Callable[[Cell], float]) -> None:
        """A further job of these devices waits."""
        if job.cell.takes not in self.waiting:
            waiting = self.waiting | {job.cell.takes: _Waiting((), seconds)}
            self.waiting = {size: waiting[size] for size in sorted(waiting, reverse=True)}
        self.waiting[job.cell.takes].add(job)

    def boards(self) -> int:
        return len({place.board for place in self.places})

    def horizon(self, now: float) -> float:
        """Seconds until all of this pool's work is done if it is spread evenly."""
        work = sum(size * waiting.work for size, waiting in self.waiting.items())
        rest = sum(job.cell.takes * max(0.0, at + length - now) for job, (at, length) in self.running.items())
        return (work + rest) / max(1, self.boards())

    def room(self, size: int) -> int:
        """How many devices jobs of this size may hold together: those that larger jobs, waiting or running, do not need."""
        left = self.boards()
        for larger, waiting in self.waiting.items():
            if larger <= size:
                break
            jobs = len(waiting) + sum(job.cell.takes == larger for job in self.running)
            left -= larger * min(left // larger, jobs)
        return left

    def held(self, size: int) -> int:
        return sum(job.cell.takes for job in self.running if job.cell.takes <= size)

    def turns(self, now: float) -> list[tuple[int, float]]:
        """Whose turn it is: numbers of devices, each with the length from which a job starts before its turn.

        First those with a job that would run on alone at the end, the longest first; then the larger before the smaller.
        """
        never = float("inf")
        critical = _CRITICAL * self.horizon(now)
        waiting = [(size, jobs.longest()) for size, jobs in self.waiting.items() if len(jobs)]
        urgent = [(size, longest) for size, longest in waiting if longest >= critical and size < self.boards()]
        urgent.sort(key=lambda pair: pair[1], reverse=True)
        regular = [size for size, _ in waiting if self.held(size) + size <= self.room(size)]
        return [(size, critical) for size, _ in urgent] + [(size, never) for size in regular]


class Dispatcher:
    """Hands out jobs to devices. `seconds` says about how long a cell takes. Not for several threads at once."""

    def __init__(self, jobs: Sequence[Job], devices: Sequence[Place], seconds: Callable[[Cell], float]) -> None:
        self._seconds = seconds
        # In the order in which they became free.
        self._free = {place.board: None for place in devices}
        self._near = {place.board: dict(place.near) for place in devices}
        self._held: dict[Job, tuple[Place, ...]] = {}
        self._places = list(devices)
        self._pools: dict[tuple[str, str], _Pool] = {}
        for job in jobs:
            self._pool_of(job).add(job, self._seconds)

    def has_room(self) -> bool:
        """True if a device is free."""
        return bool(self._free)

    def next(self, now: float) -> tuple[Job, tuple[Place, ...]] | None:
        """The job that starts now, and its devices, which are no longer free; None while nothing can start."""
        if not self._free:
            return None
        for pool in self._pools.values():
            for size, critical in pool.turns(now):
                if chosen := self._choose(pool, size):
                    job = pool.waiting[size].take(critical)
                    self._hold(pool, job, chosen, now)
                    return job, chosen
        return None

    def start(self, job: Job, now: float) -> tuple[Place, ...] | None:
        """Start a job that waits elsewhere: its devices, which are no longer free; None where too few are free."""
        pool = self._pool_of(job)
        chosen = self._choose(pool, job.cell.takes)
        if chosen:
            self._hold(pool, job, chosen, now)
        return chosen

    def _hold(self, pool: _Pool, job: Job, chosen: tuple[Place, ...], now: float) -> None:
        pool.running[job] = (now, self._seconds(job.cell))
        for place in chosen:
            del self._free[place.board]
        self._held[job] = chosen

    def ended(self, job: Job) -> None:
        """A job has ended: its devices are free, unless they were lost."""
        self._pool_of(job).running.pop(job)
        alive = {place.board for pool in self._pools.values() for place in pool.places}
        self._free |= {place.board: None for place in self._held.pop(job) if place.board in alive}

    def put_back(self, job: Job, last: bool = False) -> None:
        """A job that was not to blame for its end waits again, before the others or after them."""
        waiting = self._pool_of(job).waiting[job.cell.takes]
        (waiting.add if last else waiting.put_back)(job)

    def lost(self, board: str) -> None:
        """A GPU is gone: no job starts on it any more."""
        self._free.pop(board, None)
        self._places = [place for place in self._places if place.board != board]
        for pool in self._pools.values():
            pool.places = [place for place in pool.places if place.board != board]

    def without_devices(self) -> list[Job]:
        """The waiting jobs that no device is left for. They do not wait any more."""
        jobs: list[Job] = []
        for pool in self._pools.values():
            for size, waiting in pool.waiting.items():
                if size > pool.boards():
                    jobs += [waiting.take(float("inf")) for _ in range(len(waiting))]
        return jobs

    def _pool_of(self, job: Job) -> _Pool:
        key = job.cell.device_model, job.cell.device_uuid
        if key not in self._pools:
            self._pools[key] = _Pool([place for place in self._places if _is_for(job.cell, place)], (), self._seconds)
        return self._pools[key]

    def _choose(self, pool: _Pool, size: int) -> tuple[Place, ...] | None:
        """`size` free devices on as many boards, the nearest to each other; None when too few are free.

        A single device is the one that has been free the longest: it is the coolest.
        """
        rank = {board: at for at, board in enumerate(self._free)}
        free: dict[str, Place] = {}
        for place in sorted(
            (place for place in pool.places if place.board in rank), key=lambda place: rank[place.board]
        ):
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
    """`size` boards from `seed` on: the next is always the nearest to those chosen so far."""
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
    """How near some boards are to each other: the sum over all pairs."""
    return sum(near[first].get(second, 0) for first in boards for second in boards if first != second)


@dataclass(frozen=True)
class Span:
    """A job on its devices in a simulated run, in seconds from its start."""

    job: Job
    places: tuple[Place, ...]
    begin: float
    end: float


def simulate(
    jobs: Sequence[Job], devices: Sequence[Place], seconds: Callable[[Cell], float], until: float = math.inf
) -> list[Span]:
    """The schedule of a run if every job took exactly as long as expected. Jobs that begin after `until` may be left out."""
    # There may be thousands of repeats of a cell.
    seconds = functools.cache(seconds)
    if len(devices) == 1 and all(job.cell.takes == 1 and _is_for(job.cell, devices[0]) for job in jobs):
        return list(_in_line(jobs, devices[0], seconds, until))
    dispatcher = Dispatcher(jobs, devices, seconds)
    dispatcher.without_devices()
    now = 0.0
    spans: list[Span] = []
    ends: list[tuple[float, int, Job]] = []
    while now <= until:
        while started := dispatcher.next(now):
            job, chosen = started
            end = now + seconds(job.cell)
            heapq.heappush(ends, (end, len(spans), job))
            spans.append(Span(job, chosen, now, end))
        if not ends:
            return spans
        now, _, job = heapq.heappop(ends)
        dispatcher.ended(job)
    return spans


def _is_for(cell: Cell, place: Place) -> bool:
    """True if a cell may run on a device."""
    return place.model == cell.device_model and cell.device_uuid in ("", place.uuid)


def _in_line(jobs: Sequence[Job], place: Place, seconds: Callable[[Cell], float], until: float) -> Iterator[Span]:
    """The jobs of one device. It takes them in their order, since none can run on alone beside another."""
    now = 0.0
    for job in jobs:
        if now > until:
            return
        end = now + seconds(job.cell)
        yield Span(job, (place,), now, end)
        now = end
