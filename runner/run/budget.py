"""The next step of a run: which image it prepares, and which jobs it then measures, in the time that is left. Pure.

Without a limit of time, and where all fits into it, all is measured: the first repeat of every cell image by image, then the rest in its
shuffled order. An image is prepared, then measured, then the next is prepared, so that nothing is ever prepared beside a measurement.

Where not all fits, a run goes on as long as something does:

1. The first repeats of the first group, which are the frameworks that most people use with the workloads that nearly all of them have.
2. All repeats of that group, for as many of its workloads as all of them fit. One repeat ranks nothing. With several precisions the view is
   broad first: one workload at all of them, then the next column (a workload at a precision) if a second repeat of all fits as well.
3. Further repeats of the pairs whose order is open, if they can decide it in the time that is left.
4. Further cells, and of each of them all repeats: a cell that was measured once beside others that were measured three times answers
   nothing.
5. A further repeat of the pairs that stay open: it narrows their intervals.

Where the repeats of not even one workload of the first group fit, the two fastest of each workload get theirs, which can name a leader.
Where not even these fit, the view is broad instead: the first repeats of whatever fits.

`_Offers._ranked` is this list as code: the first offer that holds a job in the time that is left is the next step.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from runner.machine.devices import Machine
from runner.plan.durations import Durations
from runner.plan.plan import Cell
from runner.run.dispatch import Job, Span, block, places, run_alone, simulate, turns
from runner.text import length

# The part of a run's time for the report at its end: these seconds, but not more than this share.
_REPORT_SECONDS = 10.0
_REPORT_SHARE = 0.1

# No cell gets more repeats than this, as in the longest level of `runner verify`. Where repeats differ by 5 %, the interval of a pair with
# nine repeats each is about as wide as the margin of 5 %. A pair that is open after that needs a quieter machine.
MOST_REPEATS = 9


class OpenPair(NamedTuple):
    """Two cells whose order is not settled."""

    first: Cell
    second: Cell
    # How many further repeats of each would settle it; None: more than can be advised.
    more: int | None


class Unsettled(Protocol):
    """Says what the repeats that have ended leave open."""

    def __call__(self) -> Sequence[OpenPair]:
        """The pairs whose order is open, the most telling first."""
        ...

    def fastest(self) -> Sequence[Sequence[Cell]]:
        """The cells of each column that would be ranked, the fastest first."""
        ...

    def outliers(self) -> Sequence[Cell]:
        """The cells of which one repeat lies far from the others."""
        ...


@dataclass(frozen=True)
class NotYetKnown:
    """Stands in a forecast for what a run will find: nothing open, and the first mode of each framework its fastest.

    Whichever mode it will be, one of them is repeated. Without this a forecast would count the repeats of all.
    """

    cells: Sequence[Cell]

    def __call__(self) -> Sequence[OpenPair]:
        return ()

    def fastest(self) -> Sequence[Sequence[Cell]]:
        """The columns of all these cells, in their order."""
        return _columns(self.cells)

    def outliers(self) -> Sequence[Cell]:
        return ()


def measuring_seconds(minutes: float) -> float:
    """The time for preparing and measuring in a run of this many minutes."""
    return 60 * minutes - min(_REPORT_SECONDS, _REPORT_SHARE * 60 * minutes)


@dataclass(frozen=True)
class Step:
    """The image that is prepared first, if any, and the jobs that are measured then, in their shuffled order."""

    image: str | None
    jobs: tuple[Job, ...]
    # Why this image comes next, where others could.
    why: str = ""


# The frameworks that are compared first, and the repeats that each of them gets for it.
_FIRST_ANSWER = 2


@dataclass(frozen=True)
class Agenda:
    """The facts that the steps of a run depend on, and that stay while it goes on."""

    machine: Machine
    durations: Durations
    # The cells in groups, the most telling first.
    groups: Sequence[Sequence[Cell]]
    # Image -> the parts of it that must be fetched or built, in bytes: none where it is ready. Images share parts of one name.
    parts: Mapping[str, Mapping[str, int]]
    # How often each cell is planned to be measured.
    repeats: int
    # None: no cell gets a repeat beyond the planned ones.
    unsettled: Unsettled | None = None
    # The modes of a framework are planned to find its fastest: the others get no repeats before all else has its own.
    contending: bool = False

    def next_step(
        self,
        waiting: Sequence[Job],
        ready: frozenset[str],
        left: float,
        done: Mapping[Cell, Collection[int]] | None = None,
    ) -> Step | None:
        """The next step of these jobs in the seconds that are left; None where nothing would end in time.

        `waiting` is in the shuffled order, `ready` the images that are prepared by now, `done` the numbers of each cell's repeats so far.
        With these a step may give a waiting repeat another number (see `_Offers._later`); `without` says what waits then.
        """
        every = _Offers(self, waiting, self.unready(ready), left, done)
        # Cells that have all their repeats are of another time than what waits: it is in blocks of its own, beside one more of theirs.
        ended = (done or {}).keys() - every.jobs_of.keys()
        if math.isinf(left) or (not ended and every.all_fit()):
            return every.of_all()
        worth = replace(every, waiting=self._of_fastest_modes(waiting))
        agenda = worth.narrowed()
        worth, every = replace(worth, agenda=agenda), replace(every, agenda=agenda)
        step = worth.best() or (every.best() if len(worth.waiting) < len(waiting) else None)
        return step if step is None or every.lanes(step.jobs) == 1 else every.filled(step)

    def unready(self, ready: Collection[str]) -> set[str]:
        """The images that must still be prepared once these are ready."""
        return {name for name, parts in self.parts.items() if any(parts.values()) and name not in ready}

    def cost(self, image: str, unready: Collection[str]) -> int:
        """Bytes that must be fetched or built for an image: a part that another one shares is here once that is ready."""
        here = {part for name, parts in self.parts.items() if name not in unready for part in parts}
        return sum(size for part, size in self.parts[image].items() if part not in here)

    def preparing(self, images: Iterable[str], unready: Collection[str]) -> float:
        """Seconds until all of these images are ready, one after another."""
        seconds, missing = 0.0, set(unready)
        for image in dict.fromkeys(images):
            if image in missing:
                seconds += self.durations.preparing(image, self.cost(image, missing))
                missing.remove(image)
        return seconds

    @property
    def several_precisions(self) -> bool:
        """True if the first group compares precisions."""
        # The cells that were narrowed off the first group are the second one.
        return len({cell.precision for group in self.groups[:2] for cell in group}) > 1

    def _of_fastest_modes(self, waiting: Sequence[Job]) -> Sequence[Job]:
        """Without the repeats of a mode that is slower than another one of its framework, as far as is known."""
        if not self.contending or self.unsettled is None:
            return waiting
        new = {job.cell for job in waiting if job.repeat == 1}
        slower: set[Cell] = set()
        for column in self.unsettled.fastest():
            measured = [cell for cell in column if cell not in new]
            slower.update(set(measured).difference(_of_each_framework(measured)))
        return [job for job in waiting if job.repeat == 1 or job.cell not in slower]


@dataclass(frozen=True)
class _Offers:
    """The steps that a run may take at one moment."""

    agenda: Agenda
    # In the shuffled order.
    waiting: Sequence[Job]
    unready: Collection[str]
    # Seconds.
    left: float
    # The numbers of each cell's repeats so far. None: a repeat keeps its number.
    done: Mapping[Cell, Collection[int]] | None

    @functools.cached_property
    def jobs_of(self) -> Mapping[Cell, Sequence[Job]]:
        """The waiting jobs of each cell."""
        jobs: dict[Cell, list[Job]] = {}
        for job in self.waiting:
            jobs.setdefault(job.cell, []).append(job)
        return jobs

    def best(self) -> Step | None:
        """The first offer of the ranked list that holds a job."""
        return next(filter(None, self._ranked()), None)

    def _ranked(self) -> Iterator[Step | None]:
        """The offers, the most telling first; None for one that holds no job in the time that is left."""
        first, *others = self.agenda.groups
        step = self._first_repeats(first)
        yield step and self._first_pair(step)
        yield step
        columns = self._columns_begun(first)
        yield self._of_columns(columns)
        # No column can have all its repeats.
        if all(columns):
            yield self._of_the_fastest()
            for group in others:
                yield self._first_repeats(self._comparable(group))
            yield self._repeats()
            return
        yield self._further(decide=True)
        narrower = self._further(decide=False)
        yield self._all_repeats(narrower)
        yield self._repeats()
        yield narrower

    def all_fit(self) -> bool:
        """True if all that waits ends in time."""
        preparing = self.agenda.preparing((job.cell.image for job in self.waiting), self.unready)
        return bool(self.waiting) and self._fit(self.waiting, self.left - preparing)

    def of_all(self) -> Step | None:
        """The next step where all is measured."""
        left = {job.cell for job in self.waiting if job.cell.image in self.unready}
        if not left:
            return Step(None, tuple(self.waiting)) if self.waiting else None
        if first := [job for job in self.waiting if job.repeat == 1 and job.cell not in left]:
            return Step(None, tuple(first))
        image = next(cell.image for group in self.agenda.groups for cell in group if cell in left)
        return Step(image, tuple(next(_by_repeat(job for job in self.waiting if job.cell.image == image))))

    def narrowed(self) -> Agenda:
        """The agenda whose first group has no more columns than two repeats fit of; the others are a group of their own.

        Only where the group has several precisions: who buys a GPU for one of them compares it. Of the first workload each has a column,
        if two frameworks get a repeat in it.
        """
        first, *others = self.agenda.groups
        if not self.agenda.several_precisions:
            return self.agenda
        images = (cell.image for cell in first if cell in self.jobs_of)
        measuring = self.left - self.agenda.preparing(images, self.unready)
        jobs: list[Job] = []
        chosen: list[Cell] = []
        for column in _columns(first):
            more = self._two_repeats(column)
            begun, new = self._begun(column)
            if len({cell.framework for cell in begun}) > 1 or self._fit([*jobs, *more], measuring):
                jobs += more
                chosen += column
            elif begun or column[0].workload == first[0].workload:
                chosen += [*begun, *self._fitting_cells(new, begun, chosen)]
        # Of one framework alone the precisions can be compared.
        chosen = chosen or [cell for cell in first if cell.workload == first[0].workload]
        held = set(chosen)
        later = [cell for cell in first if cell not in held]
        groups = [[cell for cell in first if cell in held], *([later] if later else []), *others]
        return replace(self.agenda, groups=groups)

    def _fitting_cells(self, new: Sequence[Cell], begun: Sequence[Cell], before: Sequence[Cell]) -> Sequence[Cell]:
        """Those of the new cells of a column that get a first repeat after those before them, so that it holds two frameworks.

        All, or if these do not fit, one mode of each framework that it lacks. None where not even that fits.
        """
        frameworks = {cell.framework for cell in begun}
        lacking: dict[str, Cell] = {}
        for cell in new:
            if cell.framework not in frameworks:
                lacking.setdefault(cell.framework, cell)
        few = list(lacking.values())[: max(0, 2 - len(frameworks))]
        images = {cell.image for cell in (*few, *begun)}
        for cells in (new, few):
            counted = [cell for cell in (*before, *cells) if cell.image in images and cell in self.jobs_of]
            first = [self.jobs_of[cell][0] for cell in counted if self._is_new(cell)]
            # The seconds that an image takes to be made ready are known least: there is room for another repeat.
            spare = [job for cell in counted if cell.image in self.unready for job in self.jobs_of[cell][1:2]]
            if self._fit([*first, *spare], self.left - self.agenda.preparing(images, self.unready)):
                return cells
        return ()

    def _comparable(self, group: Sequence[Cell]) -> Sequence[Cell]:
        """The cells of a group whose columns hold two frameworks then: elsewhere a repeat more tells more than a column of one."""
        kept: set[Cell] = set()
        pairs: list[Cell] = []
        members = set(group)
        for column in _columns(cell for every in self.agenda.groups for cell in every):
            begun, new = self._begun(column)
            new = [cell for cell in new if cell in members]
            if len({cell.framework for cell in begun}) > 1 or len({cell.framework for cell in column}) == 1:
                kept.update(new)
            else:
                pairs += self._fitting_cells(new, begun, pairs)
        kept.update(pairs)
        return [cell for cell in group if cell in kept]

    def _first_pair(self, step: Step) -> Step | None:
        """The next repeat of two frameworks at the first network, until both have two: a person sees a first answer within minutes.

        Only of images that are ready, and where this `step` of first repeats fits after it. Many devices measure them at once anyway.
        """
        first = self.agenda.groups[0]
        column = [cell for cell in first if cell.image not in self.unready and _compared(cell) == _compared(first[0])]
        pair: dict[str, Cell] = {}
        for cell in sorted(column, key=self._is_new):
            pair.setdefault(cell.framework, cell)
        cells = list(pair.values())[:_FIRST_ANSWER]
        jobs = [job for cell in cells for job in self.jobs_of.get(cell, ()) if job.repeat <= _FIRST_ANSWER]
        if len(cells) < _FIRST_ANSWER or not jobs or self.lanes(self.waiting) > 1:
            return None
        preparing = self.agenda.preparing([step.image] if step.image else [], self.unready)
        both = list(dict.fromkeys([*jobs, *step.jobs]))
        return self._step(next(_by_repeat(jobs))) if self._fit(both, self.left - preparing) else None

    def _first_repeats(self, group: Sequence[Cell]) -> Step | None:
        """The first repeats of a group that fit: those of images that are ready, then of one that must be prepared.

        An image that is gone since its cells began is prepared again for their next repeat.
        """
        jobs = [self.jobs_of[cell][0] for cell in group if cell in self.jobs_of]
        jobs = [job for job in jobs if job.repeat == 1 or job.cell.image in self.unready]
        ready = [job for job in jobs if job.cell.image not in self.unready]
        # A cell with one repeat gets its second before further cells that leave no time for it.
        if self._has_one_repeat() and not self._fit(self._twice(group, self.unready), self.left):
            ready = [job for job in ready if job.repeat > 1]
        if step := self._step(self._fitting(ready, self.left)):
            return step
        further = list(self._to_prepare(job.cell.image for job in jobs))
        # The most usual framework comes first. Of the others, the one that leaves the most time to measure.
        soonest = any(cell.image not in self.unready for cell in group)
        if soonest:
            further.sort(key=lambda made: -made[1])
        for image, rest in further:
            # Images that are ready answer what their precisions do. So a further image waits unless two repeats of all fit with it.
            waits = soonest and self._has_one_repeat()
            if waits and not self._fit(self._twice(group, {*self.unready} - {image}), rest):
                continue
            if fits := self._fitting([job for job in jobs if job.cell.image == image], rest):
                others = ", ".join(f"{name} in {length(self.left - after)}" for name, after in further if name != image)
                why = f"of the further images it is ready soonest, in about {length(self.left - rest)} ({others})"
                return self._step(fits, image, why if soonest and others else "")
        return None

    def _has_one_repeat(self) -> bool:
        """True if a cell has had one repeat, and a second one compares it with the same framework's other precision at least."""
        return self.agenda.several_precisions and any(jobs[0].repeat == 2 for jobs in self.jobs_of.values())

    def _twice(self, group: Sequence[Cell], unready: Collection[str]) -> list[Job]:
        """The jobs until each cell of the group whose image is ready has a repeat, and in each column one mode of each framework has two.

        So with all cells that have had one repeat, in the group or not.
        """
        once = [cell for cell, jobs in self.jobs_of.items() if jobs[0].repeat == 2]
        cells = [cell for cell in dict.fromkeys([*group, *once]) if cell.image not in unready]
        return [job for column in _columns(cells) for job in self._two_repeats(column)]

    def _columns_begun(self, group: Sequence[Cell]) -> list[list[Job]]:
        """The waiting jobs of each column, of cells that have begun and can be measured; none of a column that has all its repeats."""
        begun, _ = self._begun(group)
        can = [cell for cell in begun if cell not in self.jobs_of or cell.image not in self.unready]
        return [[job for cell in column for job in self.jobs_of.get(cell, ())] for column in _columns(can)]

    def _of_columns(self, columns: Sequence[Sequence[Job]]) -> Step | None:
        """The next repeats of as many columns as all repeats fit of. Beside a column that has all of its own, the others get one repeat.

        With several precisions all columns get a second repeat before one gets a third.
        """
        chosen = self._as_many(columns, self.left)
        broad = self.agenda.several_precisions and len(chosen) < sum(map(len, columns))
        if broad or (not chosen and not all(columns)):
            lowest = [next(_by_repeat(jobs)) for jobs in columns if jobs]
            chosen = self._as_many(sorted(lowest, key=lambda jobs: jobs[0].repeat), self.left)
        jobs: list[Job] = []
        for same in _by_repeat(chosen):
            # On many GPUs one repeat of each cell would leave some without work.
            if len(jobs) < self.lanes(chosen):
                jobs += same
        return self._step(jobs)

    def _of_the_fastest(self) -> Step | None:
        """The next repeat of the two fastest of each column, of as many columns as it fits of. One repeat of each names no leader."""
        pairs: list[list[Job]] = []
        for column in self.agenda.unsettled.fastest() if self.agenda.unsettled else ():
            fastest = _of_each_framework(column)[:2] if self.agenda.contending else column[:2]
            waiting = [cell for cell in fastest if cell in self.jobs_of and cell.image not in self.unready]
            pair = [self.jobs_of[cell][0] for cell in waiting]
            if len(pair) == 2 and pair[0].repeat == pair[1].repeat:
                pairs.append(pair)
        return self._step(self._as_many(pairs, self.left))

    def _further(self, decide: bool) -> Step | None:
        """One more repeat of open pairs whose images are ready, interleaved; on many GPUs several.

        With `decide`, only of the pairs that further repeats can settle in the time that is left.
        """
        done = self.done or {}
        more: dict[Cell, int] = {}
        for pair in self._pairs(done, decide):
            count = pair.more if decide else 1
            cells = pair.first, pair.second
            free = not any(cell in self.jobs_of or cell.image in self.unready for cell in cells)
            if count and free and all(len(done.get(cell, ())) + count <= MOST_REPEATS for cell in cells):
                wanted = more | {cell: max(count, more.get(cell, 0)) for cell in cells}
                jobs = [Job(cell, repeat) for cell, repeats in wanted.items() for repeat in range(repeats)]
                more = wanted if self._fit(jobs, self.left) else more
        jobs, number = [], self._last_number()
        # All cells of a step are in one block: a repeat alone in its block shows no difference.
        for at in range(max(more.values(), default=0)):
            if len(jobs) < self.lanes(jobs):
                jobs += block([cell for cell, count in more.items() if count > at], number + 1 + at)
        return Step(None, tuple(jobs)) if jobs else None

    def _pairs(self, done: Mapping[Cell, Collection[int]], decide: bool) -> Iterator[OpenPair]:
        """The open pairs, and before them each cell with an outlier beside a cell of its column: it is measured once more."""
        if self.agenda.unsettled is None:
            return
        pairs = self.agenda.unsettled()
        if decide:
            for cell in self.agenda.unsettled.outliers():
                others = [other for pair in pairs if cell in pair[:2] for other in pair[:2] if other != cell]
                others += [other for other in done if other != cell and _compared(other) == _compared(cell)]
                if others and len(done.get(cell, ())) <= self.agenda.repeats:
                    yield OpenPair(cell, others[0], 1)
        yield from pairs

    def _all_repeats(self, narrower: Step | None) -> Step | None:
        """All repeats of the cells of a further image that fit with all of them; on many GPUs, of several images that are ready.

        The last seconds go to what is open (`narrower`), and not to a cell that is compared with none.
        """
        for group in self.agenda.groups[1:]:
            parts_of: dict[str, list[Sequence[Job]]] = {}
            for cell in group:
                if cell in self.jobs_of:
                    parts_of.setdefault(cell.image, []).append(self.jobs_of[cell])
            chosen: list[Job] = []
            for image, parts in parts_of.items():
                if image not in self.unready and len(chosen) < self.lanes(chosen):
                    chosen = self._as_many(parts, self.left, chosen)
            if chosen:
                step = self._with_once_more(None, chosen, self.left)
                if narrower is None or not self._is_alone(step.jobs):
                    return step
                return step if self._fit([*step.jobs, *narrower.jobs], self.left) else None
            for image, seconds in self._to_prepare(parts_of):
                if chosen := self._as_many(parts_of[image], seconds):
                    return self._with_once_more(image, chosen, seconds)
        return None

    def _is_alone(self, jobs: Sequence[Job]) -> bool:
        """True if no cell of these jobs has another one beside it in its column."""
        cells = {*(self.done or {}), *(job.cell for job in jobs)}
        columns = Counter(map(_compared, cells))
        return all(columns[_compared(job.cell)] == 1 for job in jobs)

    def _with_once_more(self, image: str | None, chosen: Sequence[Job], left: float) -> Step:
        """These jobs, and in their last block one more repeat of a cell in each of their columns that was measured before.

        So two images have repeats on both sides in time, and a block that holds both: a drift between them is taken out. The same framework
        comes first: its other image is what a new one of it is compared with.
        """
        jobs = self._later(self._in_order(chosen))
        more: dict[Job, None] = {}
        last = max(job.repeat for job in jobs)
        columns = dict.fromkeys((_compared(job.cell), job.cell.framework) for job in jobs)
        for key, framework in columns if self.agenda.unsettled else ():
            before = [
                cell
                for cell, numbers in (self.done or {}).items()
                if _compared(cell) == key and 1 < len(numbers) < MOST_REPEATS and cell not in self.jobs_of
            ]
            ready = [cell for cell in before if cell.image not in self.unready]
            for cell in sorted(ready, key=lambda cell: cell.framework != framework)[:1]:
                more[Job(cell, last)] = None
        return Step(image, tuple(self._as_many(([job] for job in more), left, jobs)))

    def _later(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """These repeats with numbers after all others so far.

        A block is the repeats of one number, and is taken to be of one time. A cell that is measured minutes after the first group is in
        blocks of its own: otherwise what the machine does meanwhile would be called a difference between cells.
        """
        if self.done is None:
            return jobs
        numbers: dict[Cell, Iterator[int]] = {}
        first = self._last_number() + 1
        return [Job(job.cell, next(numbers.setdefault(job.cell, itertools.count(first)))) for job in jobs]

    def _last_number(self) -> int:
        return max(self.agenda.repeats, *(max(numbers, default=0) for numbers in (self.done or {}).values()), 0)

    def filled(self, step: Step) -> Step:
        """The step with further cells, while it takes no longer: otherwise some GPUs would be without work."""
        end = max(span.end for span in spans_of(step.jobs, self.agenda.machine, self.agenda.durations.seconds))
        later = {cell: place for place, group in enumerate(self.agenda.groups) for cell in group if place}
        taken, away = {job.cell for job in step.jobs}, {*self.unready} - {step.image}
        cells = [cell for cell in self.jobs_of if cell in later and cell.image not in away and cell not in taken]
        parts = [self.jobs_of[cell] for cell in sorted(cells, key=later.__getitem__)]
        jobs = self._as_many(parts, end, step.jobs)
        return Step(step.image, (*step.jobs, *self._later(jobs[len(step.jobs) :])))

    def _repeats(self) -> Step | None:
        """Repeats of cells that have begun, as many of the same number as fit."""
        place = {cell: at for at, cell in enumerate(cell for group in self.agenda.groups for cell in group)}
        # A cell that takes longer fits at no repeat, of which there may be thousands.
        seconds = self.agenda.durations.seconds
        ready = [cell for cell in self.jobs_of if cell.image not in self.unready and seconds(cell) <= self.left]
        begun = {cell for cell in ready if all(job.repeat > 1 for job in self.jobs_of[cell])}
        for same in _by_repeat(job for job in self.waiting if job.cell in begun):
            if fits := self._fitting(sorted(same, key=lambda job: place[job.cell]), self.left):
                return self._step(fits)
        return None

    def _to_prepare(self, images: Iterable[str]) -> Iterator[tuple[str, float]]:
        """Those of these images that must be prepared, each with the seconds that are left after that."""
        for image in dict.fromkeys(images):
            if image in self.unready:
                yield image, self.left - self.agenda.preparing([image], self.unready)

    def lanes(self, jobs: Sequence[Job]) -> int:
        """How many of these jobs run at a time."""
        return lanes(jobs, self.agenda.machine)

    def _is_new(self, cell: Cell) -> bool:
        """True if the cell waits for its first repeat."""
        return cell in self.jobs_of and self.jobs_of[cell][0].repeat == 1

    def _begun(self, column: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
        """The cells of a column that have had a repeat, and those that have not."""
        return [cell for cell in column if not self._is_new(cell)], list(filter(self._is_new, column))

    def _two_repeats(self, column: Sequence[Cell]) -> list[Job]:
        """The jobs until each cell of a column has a repeat, and one mode of each framework has two."""
        waiting = [cell for cell in column if cell in self.jobs_of]
        first = [self.jobs_of[cell][0] for cell in waiting if self._is_new(cell)]
        second = [job for cell in _of_each_framework(waiting) for job in self.jobs_of[cell] if job.repeat == 2]
        return first + second

    def _step(self, jobs: Iterable[Job], image: str | None = None, why: str = "") -> Step | None:
        """The step of these jobs in the shuffled order; None of no job."""
        ordered = self._in_order(jobs)
        return Step(image, ordered, why) if ordered else None

    def _in_order(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        """These waiting jobs in the shuffled order."""
        chosen = frozenset(jobs)
        return tuple(job for job in self.waiting if job in chosen)

    def _as_many(self, parts: Iterable[Sequence[Job]], left: float, chosen: Sequence[Job] = ()) -> list[Job]:
        """The greedy fill: `chosen`, and the jobs of those parts that fit whole beside it and the parts before them."""
        jobs = list(chosen)
        for part in parts:
            if part and self._fit([*jobs, *part], left):
                jobs += part
        return jobs

    def _fit(self, jobs: Sequence[Job], left: float) -> bool:
        return len(self._fitting(jobs, left)) == len(jobs)

    def _fitting(self, jobs: Sequence[Job], left: float) -> frozenset[Job]:
        """Those of the jobs, in this order, that end in the seconds that are left."""
        seconds = functools.cache(self.agenda.durations.seconds)
        short = [job for job in jobs if seconds(job.cell) <= left]
        spans = spans_of(short, self.agenda.machine, seconds, left)
        return frozenset(span.job for span in spans if span.end <= left)


def without(waiting: Sequence[Job], taken: Collection[Job]) -> list[Job]:
    """The waiting jobs that are left after these. A taken job with another number stands for the first one of its cell."""
    every = set(waiting)
    others = Counter(job.cell for job in taken if job not in every)
    left = []
    for job in waiting:
        if job in taken:
            continue
        if others[job.cell] > 0:
            others[job.cell] -= 1
        else:
            left.append(job)
    return left


def _of_each_framework(column: Iterable[Cell]) -> list[Cell]:
    """Of each framework of an image its first cell: the fastest mode where the fastest cell stands first."""
    first: dict[tuple[str, str], Cell] = {}
    for cell in column:
        first.setdefault((cell.image, cell.framework), cell)
    return list(first.values())


def _by_repeat(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    """The jobs of each repeat, in their order; the lowest repeat first."""
    same: dict[int, list[Job]] = {}
    for job in jobs:
        same.setdefault(job.repeat, []).append(job)
    return (same[repeat] for repeat in sorted(same))


def _compared(cell: Cell) -> tuple[object, ...]:
    """The key of the cells that stand in one column of the report."""
    return cell.workload, cell.precision, cell.device_kind, cell.device_model, cell.devices, cell.scaling


def _columns(cells: Iterable[Cell]) -> list[list[Cell]]:
    """The cells of each column of the report, in their order."""
    columns: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        columns.setdefault(_compared(cell), []).append(cell)
    return list(columns.values())


def lanes(jobs: Sequence[Job], machine: Machine) -> int:
    """How many of these jobs run at a time."""
    on_gpus = any(job.cell.device_kind == "cuda" for job in jobs) and not run_alone(jobs)
    return max(1, len({gpu.board for gpu in machine.gpus})) if on_gpus else 1


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


@dataclass(frozen=True)
class Forecast:
    """The steps that a run's time holds by the estimates, and the rest."""

    # In the order in which they are done, each with the seconds from the start at which its jobs begin.
    steps: tuple[tuple[Step, float], ...]
    spans: tuple[Span, ...]
    left: tuple[Job, ...]


def forecast(agenda: Agenda, jobs: Sequence[Job], minutes: float) -> Forecast:
    """Go through the steps of a run of `minutes` with a clock that only counts the estimates."""
    now, waiting, ready = 0.0, list(jobs), frozenset[str]()
    steps: list[tuple[Step, float]] = []
    spans: list[Span] = []
    while step := agenda.next_step(waiting, ready, measuring_seconds(minutes) - now):
        if step.image is not None:
            now += agenda.preparing([step.image], agenda.unready(ready))
            ready |= {step.image}
        steps.append((step, now))
        begun = _later(spans_of(step.jobs, agenda.machine, agenda.durations.seconds), now)
        spans += begun
        now = max((span.end for span in begun), default=now)
        waiting = without(waiting, set(step.jobs))
    return Forecast(tuple(steps), tuple(spans), tuple(waiting))
