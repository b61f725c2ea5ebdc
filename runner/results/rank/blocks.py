"""Cells that were measured in the same blocks: how far their levels lie apart, and how sure that is. Pure functions of numbers.

The runner measures every cell once a block, in a shuffled order (runner.run.dispatch.blocks). What the machine does meanwhile, as
warming up, moves all cells of a block. So a repeat's log level is modelled as the level of its cell, plus the effect of its block,
plus noise (two-way analysis of variance by least squares; a cell may lack blocks). On several devices of one model a block's cells
run on any of them, at about the same time: the block then holds what time does, and the noise holds how the devices differ.

A machine that warms up does so within a block too, and in the first block most. So the fit has two terms more for each session, which is
all that one run measured: exp(-t / 0.1) and exp(-t / 0.5), with t the part of the session's time that has passed. Together they follow
a warm-up of any speed, and nearly a straight line. Whether they are in the fit depends on the design alone (the numbers of cells and
blocks, and when each repeat began), never on the times of the steps. With a wrong clock
the terms do not help; the error rate stays the same.

With fewer than five cells in three blocks the terms would cost more without a warm-up than they bring with one, and are left out.
docs/statistics.md has the simulated figures.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runner.results.statistics import Array, Difference, Windowed, log_levels, log_typical, timings
from runner.results.student import variance_tail

# Two cells in three blocks leave two degrees of freedom: of true differences of 5 % at a noise of 1 %, 85 of 100 are then told. Beside
# one another, without their blocks, 99 are, unless the machine drifts. The choice depends on the design alone, never on the times.
FEWEST_FREEDOM = 3

# The time constants of the two terms of a warm-up, as parts of the session's time.
WARMING = (0.1, 0.5)
# With two blocks, or with less freedom left, the two terms cost more than they bring (simulated).
FEWEST_WARMING_BLOCKS = 3
FEWEST_WARMING_FREEDOM = 6

# How much of the expected scatter of equal variances is accepted: CAUTION from CAUTION_CELLS on, less of fewer, whose
# scatter is known worse. With more, some more false claims are made where the noise of the cells is unlike; with less, true differences
# are missed (docs/statistics.md has the simulated figures).
CAUTION = 0.5
CAUTION_CELLS = 12

# Up to this number of cells, correct for the leakage of one noisy cell into the others' residuals. With more it costs more than it brings.
FEW_CELLS = 5

# A cell is loud where its variance is beyond that of the others by an F test at this chance, over all cells. Fewer others than three say
# too little of what is usual.
LOUD = 0.01
FEWEST_BESIDE_A_LOUD_CELL = 3
MOST_LOUD = 10  # that are looked for: each takes a fit

# A smaller deviation is the rounding of floating-point numbers: every repeat took the same time by a coarse clock.
ROUNDING = 1e-9

# As so many observations counts what is assumed of how repeats differ.
PRIOR_FREEDOM = 4.0

Places = npt.NDArray[np.int64]


class InBlock(NamedTuple):
    """One repeat: the logarithm of its level, where and when it was measured."""

    block: Hashable
    log: float
    session: Hashable = None  # which holds the block
    began: float = math.nan  # seconds on the session's clock; not trusted
    program: Hashable = None  # the image and framework: its cells of other workloads scatter much as this one does


@dataclass(frozen=True)
class Blocks:
    """The repeats of some cells, by cell. Each cell has two or more."""

    logs: Mapping[Hashable, Sequence[InBlock]]

    def difference(self, above: Hashable, below: Hashable) -> Difference | None:
        """The log level of one cell less that of another, within blocks; None where no blocks join them, or too few show the noise."""
        joined = self._joined.get(above)
        if joined is None or above == below or below not in joined.logs:
            return None
        return joined.difference(above, below)

    def level(self, cell: Hashable) -> float | None:
        """The log step time of a cell without what its blocks did to it: differences of levels are those of `difference`.

        The mean over all repeats that blocks join stays what it was. So where each cell has a repeat in each block, and no warm-up is
        fitted, this is the mean of the cell's own log levels. None where there is no difference to another cell.
        """
        joined = self._joined.get(cell)
        return joined.level(cell) if joined is not None else None

    @cached_property
    def loud(self) -> Mapping[Hashable, int]:
        """The cells that scatter far more than the others of their blocks, each with the place of its repeat that is farthest off."""
        return {
            cell: place
            for joined in {id(one): one for one in self._joined.values()}.values()
            for cell, place in joined.loud.items()
        }

    def scatter(self, assumed: float) -> Scatter:
        """How far another repeat of a cell would lie from its one repeat, as the cells with more show it: blocks are not taken out.

        It is moderated by what is `assumed`, which alone is left where no cell has two repeats. A loud cell says nothing of the others.
        """
        quiet = [
            [one.log for one in logs] for cell, logs in self.logs.items() if cell not in self.loud and len(logs) > 1
        ]
        if not quiet:
            return Scatter(assumed, math.inf, 0)
        squares = sum(float(np.var(logs)) * len(logs) for logs in quiet)
        return moderated_scatter(assumed, squares, sum(len(logs) - 1 for logs in quiet))

    @cached_property
    def _joined(self) -> Mapping[Hashable, Joined]:
        """Cell -> the cells that blocks join it with, as mostly all cells of one run on one model of device."""
        sets: list[tuple[set[Hashable], set[Hashable]]] = []  # cells and blocks
        for cell, logs in self.logs.items():
            cells, blocks = {cell}, {one.block for one in logs}
            for one in [one for one in sets if one[1] & blocks]:
                sets.remove(one)
                cells, blocks = cells | one[0], blocks | one[1]
            sets.append((cells, blocks))
        fits = [Joined({cell: logs for cell, logs in self.logs.items() if cell in cells}) for cells, _ in sets]
        return {cell: fit for fit in fits for cell in fit.logs}


@dataclass(frozen=True)
class Scatter:
    """A standard deviation of log step times, and how well it is known."""

    deviation: float
    freedom: float  # degrees of freedom, with those of what is assumed; infinite where nothing was observed
    observed: float  # of these, those that were measured


def moderated_scatter(assumed: float, squares: float, observed: float, freedom: float = PRIOR_FREEDOM) -> Scatter:
    """A deviation from a sum of squares of so many degrees of freedom, and one that is assumed (Smyth, as in `moderated`).

    The assumed one counts as `freedom` observations. Where the measured variance is k times the assumed one it is wrong, and counts as
    `freedom` / k.
    """
    weight = freedom * (min(1.0, assumed**2 * observed / squares) if squares > 0 else 1.0)
    return Scatter(math.sqrt((weight * assumed**2 + squares) / (weight + observed)), weight + observed, observed)


@dataclass(frozen=True)
class Joined:
    """Cells that blocks join, also through other cells.

    A cell whose variance is far beyond that of the others is loud: it is left out of the fit, so that its bad repeat widens the
    interval of no other cell, and is judged by its own scatter beside the blocks that the others show.
    """

    logs: Mapping[Hashable, Sequence[InBlock]]

    def difference(self, above: Hashable, below: Hashable) -> Difference | None:
        """As that of Blocks. A quiet cell of a program that has a loud one may be loud too: three of its repeats may be near one another by
        chance. Then its variance is known as well as its own repeats show one, and no better."""
        known = self._difference(above, below)
        doubted = [cell for cell in (above, below) if cell in self._fit.logs and self._loud_kin(cell)]
        if known is None or not doubted:
            return known
        most = min(len(self.logs[cell]) - 1 for cell in doubted)
        return replace(known, freedom=min(known.freedom, most), doubted=True)

    def _difference(self, above: Hashable, below: Hashable) -> Difference | None:
        fit = self._fit
        if fit.freedom < FEWEST_FREEDOM:
            return None
        if above in fit.logs and below in fit.logs:
            return fit.difference(above, below) if fit.joins(above, below) else None
        value = self._value(above) - self._value(below)
        sides = [fit.own(cell) if cell in fit.logs else self._of_loud(cell) for cell in (above, below)]
        error = math.hypot(*(side.deviation for side in sides))
        spread = sum(side.deviation**4 / side.freedom for side in sides)
        return Difference(value, error, error**4 / spread if spread else sides[0].freedom)

    def level(self, cell: Hashable) -> float | None:
        """As that of Blocks."""
        return self._value(cell) if self._fit.freedom >= FEWEST_FREEDOM and len(self.logs) > 1 else None

    @property
    def loud(self) -> Mapping[Hashable, int]:
        """The loud cells, each with the place of its repeat that lies farthest from the median of its repeats."""
        return {cell: int(np.argmax(np.abs(logs - np.median(logs)))) for cell, logs in self._beside.items()}

    def _loud_kin(self, cell: Hashable) -> Sequence[Hashable]:
        """The loud cells of the same program, itself included."""
        program = self.logs[cell][0].program
        alike = [other for other in self._beside if program is not None and self.logs[other][0].program == program]
        return alike or [cell] * (cell in self._beside)

    def _of_loud(self, cell: Hashable) -> Scatter:
        """The error of a loud cell's level. All loud cells of its program show how far its repeats scatter."""
        kin = [self._beside[other] for other in self._loud_kin(cell)]
        freedom = sum(len(logs) - 1 for logs in kin)
        variance = sum(float(np.var(logs)) * len(logs) for logs in kin) / freedom
        return Scatter(math.sqrt(variance / len(self._beside[cell])), freedom, freedom)

    def _value(self, cell: Hashable) -> float:
        return self._fit.level(cell) if cell in self._fit.logs else float(np.mean(self._beside[cell]))

    @cached_property
    def _beside(self) -> Mapping[Hashable, Array]:
        """The log levels of each loud cell without what its blocks did."""
        return {cell: self._fit.without_blocks(logs) for cell, logs in self.logs.items() if cell not in self._fit.logs}

    @cached_property
    def _fit(self) -> Fit:
        """Of the cells that are not loud. At most a third may be: more would be the rule and no exception.

        Several loud cells mask one another. So the loudest are taken out one by one, and those are loud up to the last one that is
        beyond what is left (Rosner, Technometrics 25, 1983). Of two repeats one cell may be: they do not show a slow one that both
        are, and several loud cells are how the machine is.
        """
        quiet = fit = Fit(self.logs)
        most = min(MOST_LOUD, len(self.logs) // 3) if max(map(len, self.logs.values()), default=0) > 2 else 1
        for _ in range(most if len(self.logs) > FEWEST_BESIDE_A_LOUD_CELL else 0):
            if (taken := fit.without_the_loudest()) is None:
                break
            fit, chance = taken
            quiet = fit if chance < LOUD / len(self.logs) else quiet
        return quiet


@dataclass(frozen=True)
class Fit:
    """The levels of cells that blocks join, and the noise, by least squares."""

    logs: Mapping[Hashable, Sequence[InBlock]]

    def difference(self, above: Hashable, below: Hashable) -> Difference:
        """The log level of one cell less that of another."""
        first, second = self._place[above], self._place[below]
        apart = self._shares[first] - self._shares[second]
        of_terms = max(0.0, float(apart @ self._inverse @ apart))
        error, freedom = self._noise.error({first: 1 / self._counts[first], second: 1 / self._counts[second]}, of_terms)
        return Difference(float(self._levels[first] - self._levels[second]), error, freedom)

    def level(self, cell: Hashable) -> float:
        """The level of one cell. The terms are centred: in blocks of several cells the mean of the repeats is that of the logs."""
        return float(self._levels[self._place[cell]]) + self._centre

    def joins(self, above: Hashable, below: Hashable) -> bool:
        """True if blocks join two cells. A loud cell that was taken out may have been the only link."""
        reached, new = set[Hashable](), {one.block for one in self.logs[above]}
        while new:
            reached |= new
            cells = [logs for logs in self.logs.values() if any(one.block in new for one in logs)]
            new = {one.block for logs in cells for one in logs} - reached
        return any(one.block in reached for one in self.logs[below])

    def own(self, cell: Hashable) -> Scatter:
        """The error of one cell's level, from its own repeats."""
        place = self._place[cell]
        return Scatter(*self._noise.error({place: 1 / self._counts[place]}), 0)

    def without_blocks(self, repeats: Sequence[InBlock]) -> Array:
        """The logs of a cell that is not in the fit, less what their blocks did to the cells that are."""
        did = self._terms_of(repeats) @ self._effects - self._centre
        return np.array(
            [one.log - (by if one.block in self._blocks else 0.0) for one, by in zip(repeats, did, strict=True)]
        )

    def without_the_loudest(self) -> tuple[Fit, float] | None:
        """The fit without the cell that scatters most, and the chance that one of those that are left scatters as far; None where too
        few would be left."""
        own = np.divide(self._squares, self._freedoms, out=np.zeros_like(self._squares), where=self._freedoms > 0)
        loudest = list(self.logs)[int(np.argmax(own))]
        rest = Fit({cell: logs for cell, logs in self.logs.items() if cell != loudest})
        if len(rest.logs) < FEWEST_BESIDE_A_LOUD_CELL or rest.freedom < FEWEST_FREEDOM:
            return None
        logs, common = rest.without_blocks(self.logs[loudest]), float(rest._squares.sum()) / rest.freedom
        variance = float(np.var(logs, ddof=1))
        # No scatter at all is that of a clock's step: nothing is loud beside it.
        return rest, variance_tail(variance / common, len(logs) - 1, rest.freedom) if common > ROUNDING**2 else 1.0

    @cached_property
    def _centre(self) -> float:
        """The mean of what moved the repeats. A block of one cell says nothing of the others: its cell alone would move all levels."""
        cells: dict[Hashable, set[Hashable]] = {}
        for cell, repeats in self.logs.items():
            for repeat in repeats:
                cells.setdefault(repeat.block, set()).add(cell)
        shared = [len(cells[repeat.block]) > 1 for repeat in self._repeats]
        terms = self._terms[shared] if any(shared) else self._terms
        return float(terms.mean(axis=0) @ self._effects)

    @cached_property
    def _place(self) -> Mapping[Hashable, int]:
        return {cell: at for at, cell in enumerate(self.logs)}

    @cached_property
    def _repeats(self) -> Sequence[InBlock]:
        return [repeat for repeats in self.logs.values() for repeat in repeats]

    @cached_property
    def _cells(self) -> Places:
        """The place of every repeat's cell."""
        return np.repeat(np.arange(len(self.logs)), [len(repeats) for repeats in self.logs.values()])

    @cached_property
    def _logs(self) -> Array:
        return np.array([repeat.log for repeat in self._repeats])

    @cached_property
    def _counts(self) -> Array:
        return np.bincount(self._cells).astype(float)

    @cached_property
    def _terms(self) -> Array:
        """repeats × terms: what moves a repeat beside its cell. A term for each block, and those of the warm-ups."""
        return self._terms_of(self._repeats)

    def _terms_of(self, repeats: Sequence[InBlock]) -> Array:
        """The terms of some repeats, which need not be in the fit: a block that is not in it has no term."""
        terms = np.zeros((len(repeats), len(self._blocks) + len(WARMING) * len(self._clocks)))
        for at, repeat in enumerate(repeats):
            if (block := self._blocks.get(repeat.block)) is not None:
                terms[at, block] = 1.0
        for place, session in enumerate(self._clocks):
            passed = np.array([self._passed(repeat, session) for repeat in repeats])
            first = len(self._blocks) + len(WARMING) * place
            terms[:, first : first + len(WARMING)] = np.exp(-passed[:, None] / np.array(WARMING))
        return terms

    def _passed(self, repeat: InBlock, session: Hashable) -> float:
        """The part of a session's time that had passed when a repeat of it began. Infinite for one of another session: no term is left.

        A clock that was set meanwhile may say that a repeat began before its session. Its warm-up is then that of the start.
        """
        start, span = self._clocks[session]
        own = repeat.session == session and math.isfinite(repeat.began)
        return max(0.0, (repeat.began - start) / span) if own else math.inf

    @cached_property
    def _blocks(self) -> Mapping[Hashable, int]:
        """Each block with its place among the terms."""
        return {block: at for at, block in enumerate(dict.fromkeys(repeat.block for repeat in self._repeats))}

    @cached_property
    def _clocks(self) -> Mapping[Hashable, tuple[float, float]]:
        """Each session whose warm-up is in the fit, with its start and its span on its clock: it has enough blocks."""
        clocks = {}
        for session in dict.fromkeys(one.session for one in self._repeats):
            own = [repeat for repeat in self._repeats if repeat.session == session]
            began = [repeat.began for repeat in own]
            span = max(began) - min(began) if all(map(math.isfinite, began)) else 0.0
            if len({repeat.block for repeat in own}) >= FEWEST_WARMING_BLOCKS and 0 < span < math.inf:
                clocks[session] = (min(began), span)
        freedom = len(self._repeats) - len(self.logs) - len(self._blocks) + 1 - len(WARMING) * len(clocks)
        return clocks if freedom >= FEWEST_WARMING_FREEDOM else {}

    @cached_property
    def _shares(self) -> Array:
        """cells × terms: the mean of each term over a cell's repeats."""
        shares = np.zeros((len(self.logs), self._terms.shape[1]))
        np.add.at(shares, self._cells, self._terms)
        return np.asarray(shares / self._counts[:, None])

    @cached_property
    def _distances(self) -> Array:
        """repeats × terms: the terms once the cells' levels are taken out."""
        return np.asarray(self._terms - self._shares[self._cells])

    @cached_property
    def _inverse(self) -> Array:
        """terms × terms: of the normal equations."""
        return np.asarray(np.linalg.pinv(self._distances.T @ self._distances, rcond=1e-9, hermitian=True))

    @cached_property
    def _effects(self) -> Array:
        """Of the terms."""
        return np.asarray(self._inverse @ (self._distances.T @ (self._logs - self._means[self._cells])))

    @cached_property
    def _means(self) -> Array:
        return np.bincount(self._cells, self._logs) / self._counts

    @cached_property
    def _levels(self) -> Array:
        return np.asarray(self._means - self._shares @ self._effects)

    @cached_property
    def _freedoms(self) -> Array:
        """Degrees of freedom that each cell's residuals carry: the sum of 1 - leverage over its repeats."""
        leverage = 1 / self._counts[self._cells] + np.sum(self._distances @ self._inverse * self._distances, axis=1)
        return np.asarray(np.bincount(self._cells, np.maximum(0.0, 1 - leverage)))

    @property
    def freedom(self) -> float:
        """Degrees of freedom that the residuals of all cells have."""
        return round(float(self._freedoms.sum()), 6)

    @cached_property
    def _squares(self) -> Array:
        """The sum of each cell's squared residuals."""
        left = self._logs - self._means[self._cells] - self._distances @ self._effects
        return np.asarray(np.bincount(self._cells, left**2))

    @cached_property
    def _noise(self) -> Noise:
        return moderated(self._squares, self._freedoms, _unmixed(len(self.logs)))


@dataclass(frozen=True)
class Noise:
    """The variances of some cells' repeats, each drawn towards that of all cells."""

    own: Array  # variances, with the degrees of freedom of each
    freedoms: Array
    common: float  # the variance of all cells
    weights: Array  # of the common one in that of each cell, 0 to 1

    @property
    def variances(self) -> Array:
        return np.asarray(self.weights * self.common + (1 - self.weights) * self.own)

    def error(self, counts: Mapping[int, float], of_common: float = 0.0) -> tuple[float, float]:
        """Standard error of what holds each cell's variance so many times, and the common one, and its degrees of freedom.

        The degrees of freedom are those of Satterthwaite (Biometrics Bulletin 2, 1946).
        """
        parts = [
            (self.common * (of_common + sum(self.weights[at] * count for at, count in counts.items())), self._total)
        ]
        parts += [((1 - self.weights[at]) * self.own[at] * count, self.freedoms[at]) for at, count in counts.items()]
        variance = sum(float(part) for part, _ in parts)
        spread = sum(float(part) ** 2 / freedom for part, freedom in parts if part > 0)
        return math.sqrt(variance), min(self._total, variance**2 / spread) if spread > 0 else self._total

    @property
    def _total(self) -> float:
        return float(self.freedoms.sum())


def _unmixed(cells: int) -> float:
    """The correction of a cell's variance: residuals of few cells are correlated, so it lies farther from the common one than they show."""
    return (cells - 1) / (cells - 2) if 2 < cells <= FEW_CELLS else 1.0


def moderated(squares: Array, freedoms: Array, farther: float = 1.0) -> Noise:
    """The variance of each cell, from the sum of its squared residuals and their degrees of freedom.

    After Smyth (Stat. Appl. Genet. Mol. Biol. 3, 2004) a variance is (prior × common + squares) / (prior + its own freedom). The part
    of the prior is at most CAUTION times how much the variances of alike cells would scatter, divided by how much these do: for alike
    cells the shares of the squares have Dirichlet's distribution. No variance is below the common one: a cell that looks quieter than
    the others in three repeats mostly is not. `farther`: by how much a variance lies farther from the common one than the squares show.
    """
    total = float(freedoms.sum())
    common = float(squares.sum()) / total
    own = np.divide(squares, freedoms, out=np.full_like(squares, common), where=freedoms > 0)
    scatter = float(freedoms @ (own - common) ** 2) / total
    caution = CAUTION * min(1.0, len(squares) / CAUTION_CELLS)
    alike = caution * common**2 * (len(squares) - 1) / (total / 2 + 1)
    part = 1.0 if scatter <= alike else alike / scatter
    prior = part * total / len(squares)
    own = common + farther * (own - common)
    noisy = (own > common) & (part < 1)
    weights = np.where(noisy, prior / (prior + (1 - part) * freedoms), 1.0)
    return Noise(own, freedoms, common, weights)


# Stalls of one cell beside those of another measurement of it: the mean step beside the median of the windows. Pure functions of numbers.
#
# Neither sessions nor processes move it. So stalls are found on machines whose repeats differ by more than a margin.

Session = Sequence[Windowed]  # the windows of each repeat


def more_stalled(measured: Sequence[Session], before: Sequence[Session]) -> Difference:
    """The logarithm of mean step over typical step of a cell, less the same of another measurement of it. Each has some sessions."""
    (now, of_now), (then, of_then) = _stalled(measured), _stalled(before)
    error = math.hypot(of_now.deviation, of_then.deviation)
    spread = sum(of.deviation**4 / of.freedom for of in (of_now, of_then))
    return Difference(now - then, error, error**4 / spread if spread else 1.0)


def _stalled(sessions: Sequence[Session]) -> tuple[float, Scatter]:
    """The mean over all repeats, and its error: as far as the repeats differ, drawn towards what their windows show."""
    logs = np.concatenate([log_levels(session) - log_typical(session) for session in sessions])
    of_windows = float(np.mean([timings(repeat).error ** 2 for session in sessions for repeat in session]))
    shown = moderated_scatter(math.sqrt(of_windows), float(np.var(logs)) * len(logs), len(logs) - 1)
    deviation = max(shown.deviation, math.sqrt(of_windows)) / math.sqrt(len(logs))
    return float(logs.mean()), Scatter(deviation, shown.freedom, shown.observed)
