"""What a run does next: which image it prepares, and which jobs it then measures, in the time that is left. Pure.

The first repeat of all cells comes before the second of any, with one exception: the first group's workloads, as many as the time holds
with all their repeats, have them before the next group begins, since one repeat ranks nothing. A run that goes on for some minutes first
completes the comparisons that it began before. First repeats are taken image by image: an
image is prepared, then measured, then the next is prepared, so that nothing is ever prepared beside a measurement. Further repeats are
shuffled over all images that are ready.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.catalog.images import Image
from runner.engines.base import Engine
from runner.machine.devices import Machine
from runner.plan.breadth import tiers
from runner.plan.durations import Durations
from runner.plan.plan import Cell
from runner.run.dispatch import Job, Span, places, simulate, turns

# What is kept of a run's time for the report at its end: so many seconds, but not more than this part.
_REPORT_SECONDS = 10.0
_REPORT_SHARE = 0.1


def measuring_seconds(minutes: float) -> float:
    """How long preparing and measuring may go on in a run of so many minutes."""
    return 60 * minutes - min(_REPORT_SECONDS, _REPORT_SHARE * 60 * minutes)


@dataclass(frozen=True)
class Step:
    """The image that is prepared first, if any, and the jobs that are measured then, in their shuffled order."""

    image: str | None
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Agenda:
    """What the steps of a run depend on, and what does not change while it goes on."""

    machine: Machine
    durations: Durations
    # The cells in groups, the most telling first. Without a limit of time there is one group: all are measured anyway.
    groups: Sequence[Sequence[Cell]]
    # Bytes that must be fetched or built for an image: 0 where it is ready.
    costs: Mapping[str, int]
    # Those that an earlier call began. A new run has none.
    begun: frozenset[Cell] = frozenset()

    def next_step(self, waiting: Sequence[Job], ready: frozenset[str], left: float) -> Step | None:
        """The next step of these jobs in the seconds that are left; None where nothing would end in time.

        `waiting` is in the shuffled order, `ready` the images that are prepared by now.
        """
        unready = {name for name, cost in self.costs.items() if cost and name not in ready}
        if math.isinf(left) and not any(job.cell.image in unready for job in waiting):
            return Step(None, tuple(waiting)) if waiting else None
        first = {job.cell: job for job in waiting if job.repeat == 1}
        later = [job for job in waiting if job.cell not in first and job.cell.image not in unready]
        if not math.isinf(left) and (step := self._completing(waiting, first, later, unready, left)):
            return step
        for at, group in enumerate(self.groups):
            if at == 1 and (again := self._whole_workloads(later, left)):
                repeat = min(job.repeat for job in again)
                return Step(None, tuple(job for job in again if job.repeat == repeat))
            jobs = [first[cell] for cell in group if cell in first]
            if step := self._first_repeats(waiting, jobs, unready, left):
                return step
        place = {cell: at for at, cell in enumerate(cell for group in self.groups for cell in group)}
        for _, block in sorted(_by_repeat(later).items()):
            block.sort(key=lambda job: place[job.cell])
            if fits := self._fitting(block, left):
                return Step(None, _in_order(waiting, fits))
        return None

    def _first_repeats(
        self, waiting: Sequence[Job], jobs: Sequence[Job], unready: Collection[str], left: float
    ) -> Step | None:
        """Those of the jobs that fit: first of images that are ready, then of one that must be prepared."""
        fits = self._fitting([job for job in jobs if job.cell.image not in unready], left)
        if fits:
            return Step(None, _in_order(waiting, fits))
        for image in dict.fromkeys(job.cell.image for job in jobs if job.cell.image in unready):
            rest = left - self.durations.preparing(image, self.costs[image])
            fits = self._fitting([job for job in jobs if job.cell.image == image], rest)
            if fits:
                return Step(image, _in_order(waiting, fits))
        return None

    def _completing(
        self,
        waiting: Sequence[Job],
        first: Mapping[Cell, Job],
        later: Sequence[Job],
        unready: Collection[str],
        left: float,
    ) -> Step | None:
        """What the comparisons lack that an earlier call began: a rival where there is one framework only, then repeats.

        The workloads of which the next repeats of all begun cells fit come before those of which only some do.
        """
        frameworks: dict[tuple[object, ...], set[str]] = {}
        for cell in self.begun:
            frameworks.setdefault(_compared(cell), set()).add(cell.framework)
        for group in self.groups:
            alone = {_compared(cell) for cell in group if cell in self.begun and len(frameworks[_compared(cell)]) == 1}
            rivals = [first[cell] for cell in group if cell in first and _compared(cell) in alone]
            if step := self._first_repeats(waiting, rivals, unready, left):
                return step
        place = {cell: at for at, cell in enumerate(cell for group in self.groups for cell in group)}
        again = sorted((job for job in later if job.cell in self.begun), key=lambda job: (job.repeat, place[job.cell]))
        for block in _by_repeat(again).values():
            chosen: frozenset[Job] = frozenset()
            for compared in dict.fromkeys(_compared(job.cell) for job in block):
                more = [job for job in block if job in chosen or _compared(job.cell) == compared]
                fits = self._fitting(more, left)
                chosen = fits if len(fits) == len(more) else chosen
            if fits := chosen or self._fitting(block, left):
                return Step(None, _in_order(waiting, fits))
        return None

    def _whole_workloads(self, later: Sequence[Job], left: float) -> list[Job]:
        """The further repeats of the first group's workloads, in their shuffled order: of as many workloads as all repeats fit of."""
        of_group = set(self.groups[0])
        of_workloads = [job for job in later if job.cell in of_group]
        whole: list[str] = []
        chosen: list[Job] = []
        for workload in dict.fromkeys(cell.workload for cell in self.groups[0]):
            more = [job for job in of_workloads if job.cell.workload in (*whole, workload)]
            if len(self._fitting(more, left)) == len(more):
                whole, chosen = [*whole, workload], more
        return chosen

    def _fitting(self, jobs: Sequence[Job], left: float) -> frozenset[Job]:
        """Those of the jobs, in this order, that end in the seconds that are left."""
        if math.isinf(left):
            return frozenset(jobs)
        seconds = functools.cache(self.durations.seconds)
        short = [job for job in jobs if seconds(job.cell) <= left]
        return frozenset(span.job for span in spans_of(short, self.machine, seconds, left) if span.end <= left)


def _by_repeat(jobs: Iterable[Job]) -> dict[int, list[Job]]:
    """The jobs of each repeat, in their order."""
    blocks: dict[int, list[Job]] = {}
    for job in jobs:
        blocks.setdefault(job.repeat, []).append(job)
    return blocks


def _compared(cell: Cell) -> tuple[object, ...]:
    """What the cells share that stand in one column of the report."""
    return cell.workload, cell.precision, cell.device_kind, cell.device_model, cell.devices, cell.scaling


def spans_of(
    jobs: Sequence[Job], machine: Machine, seconds: Callable[[Cell], float], until: float = math.inf
) -> list[Span]:
    """When each of these jobs would begin and end, in seconds from now: GPU cells side by side, then the CPU's one by one.

    What begins after `until` may be left out.
    """
    spans: list[Span] = []
    began = 0.0
    for kind in ("cuda", "cpu"):
        of_kind = [job for job in jobs if job.cell.device_kind == kind]
        devices = places(machine, kind)
        for turn in turns(of_kind):
            more = _later(simulate(turn, devices, seconds, until - began), began)
            began = max((span.end for span in more), default=began)
            spans += more
    return spans


def _later(spans: Sequence[Span], seconds: float) -> Sequence[Span]:
    return (
        spans
        if not seconds
        else [Span(span.job, span.places, seconds + span.begin, seconds + span.end) for span in spans]
    )


def agenda(
    cells: Sequence[Cell],
    images: Mapping[str, Image],
    engine: Engine,
    machine: Machine,
    durations: Durations,
    limited: bool,
    jobs: Sequence[Job] | None = None,
) -> Agenda:
    """The agenda of a run. `limited`: its time is. `jobs`: what an earlier call has left, if one has begun it."""
    groups = tiers(cells, images)
    names = dict.fromkeys(cell.image for cell in cells)
    costs = {name: engine.cost(images[name]) for name in names}
    groups = groups if limited else [[cell for group in groups for cell in group]]
    unbegun = {job.cell for job in jobs if job.repeat == 1} if jobs is not None else set(cells)
    return Agenda(machine, durations, groups, costs, frozenset(cells) - unbegun)


@dataclass(frozen=True)
class Forecast:
    """What a run's time holds by the estimates, and what it leaves."""

    # In the order in which they are done, each with the seconds from the start at which its jobs begin.
    steps: tuple[tuple[Step, float], ...]
    spans: tuple[Span, ...]
    left: tuple[Job, ...]


def forecast(agenda: Agenda, jobs: Sequence[Job], minutes: float) -> Forecast:
    """Go through the steps of a run of so many minutes with a clock that only counts the estimates."""
    now, waiting, ready = 0.0, list(jobs), frozenset[str]()
    steps: list[tuple[Step, float]] = []
    spans: list[Span] = []
    while step := agenda.next_step(waiting, ready, measuring_seconds(minutes) - now):
        if step.image is not None:
            now += agenda.durations.preparing(step.image, agenda.costs[step.image])
            ready |= {step.image}
        steps.append((step, now))
        begun = _later(spans_of(step.jobs, agenda.machine, agenda.durations.seconds), now)
        spans += begun
        now = max((span.end for span in begun), default=now)
        taken = set(step.jobs)
        waiting = [job for job in waiting if job not in taken]
    return Forecast(tuple(steps), tuple(spans), tuple(waiting))


def _in_order(waiting: Sequence[Job], chosen: frozenset[Job]) -> tuple[Job, ...]:
    return tuple(job for job in waiting if job in chosen)
