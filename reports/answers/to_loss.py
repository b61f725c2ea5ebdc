"""The training time until the held-out loss stays below the level that the user stated, and which cell of a group is faster to it.

Without a stated level there is no answer. Cells are compared by the rule for step times (runner.results.rank.ranking) in the seeds that
got there, each beside the same seed of the other cells. How many got there is a second fact, in the same sentence. A repeat that failed is
no seed: nobody knows whether it would have got there. Nobody looks between two evaluations, so an interval holds the way back to the one
before, in the seeds that two cells reached at different evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Literal

from reports.answers import standing_words
from reports.answers.export import Column
from reports.answers.standing import Standing, standing
from reports.data.groups import left_open
from reports.data.model import Curve, Group, MeasuredCell, MeasuredWorkload, Ranked, Repeat
from reports.wording import duration, framework_name, listing, number, plural
from runner.results.rank.blocks import Blocks, InBlock
from runner.results.rank.ranking import Contender, Field
from runner.results.rank.time_to_loss import FEWEST_SEEDS, MedianTime, SeedTime, median_time, time_of
from runner.results.statistics import ALPHA, Estimate

CLOCK = "Seconds of training until the loss stays below the level. The first step and the warm-up count, evaluations do not."

# End of a seed that did not get there -> what happened, in a table.
_OTHERWISE = {"below": "below at once", "touched": "rose again", "above": "never below", "failed": "failed"}


@dataclass(frozen=True)
class LossTimes:
    """A cell with the time of each seed. `why`: why it is not compared with others; empty where it is."""

    cell: MeasuredCell
    seeds: tuple[SeedTime, ...]
    median: MedianTime
    why: str
    entry: Ranked | None = None

    @property
    def reached(self) -> int:
        """The number of seeds whose loss stayed below the level."""
        return sum(time.reached for time in self.seeds)

    @property
    def tried(self) -> int:
        """The number of seeds of which it is known whether they got there."""
        return sum(time.end != "failed" for time in self.seeds)

    @property
    def counted(self) -> str:
        return f"{self.reached} of {plural(self.tried, 'seed')}"

    @property
    def resolution(self) -> float | None:
        """Seconds of training between the evaluation that counts and the one before it: the median over the seeds that got there."""
        since = [time.since for time in self.seeds if time.since is not None]
        return median(since) if since else None

    @property
    def note(self) -> str:
        """How the cell is beside the first, or why it is not compared, and what a reader must know of its seeds."""
        ends = [_OTHERWISE[time.end] for time in self.seeds if not time.reached]
        last = sum(time.reached and time.last for time in self.seeds)
        parts = [standing_words.note(self.entry) if self.entry else self.why]
        parts += [f"{ends.count(words)} {words}" for words in dict.fromkeys(ends)]
        parts += [f"{last} at the last evaluation only"] if last else []
        few = self.tried < FEWEST_SEEDS and self.median.value is not None
        return "; ".join(filter(None, [*parts, f"an interval needs {FEWEST_SEEDS} seeds" if few else ""]))

    @property
    def interval(self) -> str:
        """The 95 % interval of the median; an end that is not known is left open. Every time is more than 0: that is no interval."""
        low, high = self.median.low, self.median.high
        if not low:
            return ""
        return f"more than {duration(low)}" if high is None else f"{duration(low)} to {duration(high)}"

    @property
    def each(self) -> str:
        """The time of each seed."""
        times = [
            f"{time.seed}: {duration(time.seconds) if time.reached else _OTHERWISE[time.end]}" for time in self.seeds
        ]
        return "; ".join(times)


@dataclass(frozen=True)
class LossAnswer:
    """The answer for one group: the level in the metric's unit, who is faster to it, and a row a cell, the fastest first."""

    level: float
    metric: str
    headline: str
    detail: str
    rows: tuple[LossTimes, ...]
    standing: Standing | None = None

    @property
    def title(self) -> str:
        """The question, without the answer."""
        return f"To a held-out loss below {self.level:g} {self.metric}"


def loss_answers(workload: MeasuredWorkload, group: Group, levels: Sequence[float]) -> tuple[LossAnswer, ...]:
    """An answer for each level that was stated. There is none where no held-out loss was recorded."""
    answers = (_answer(workload, group, level) for level in levels if workload.has_loss)
    return tuple(answer for answer in answers if answer)


def _answer(workload: MeasuredWorkload, group: Group, level: float) -> LossAnswer | None:
    rows = [_times(cell, workload.metric, level) for cell in group.cells if cell.repeats]
    if not any(time.end != "failed" for row in rows for time in row.seeds):
        return None
    able = [row for row in rows if not row.why]
    if len({steps for row in able for steps in _steps(row.cell, workload.metric)}) > 1:
        why = "not all repeats were evaluated at the same steps"
        rows = [replace(row, why=row.why or why) for row in rows]
        able = []
    field = _field(able, group.key.device_kind)
    entries = _entries(able, field) if able else {}
    rows = [replace(row, entry=entries.get(row.cell.anchor)) for row in rows]
    place = {anchor: at for at, anchor in enumerate(entries)}
    rows.sort(key=lambda row: (place.get(row.cell.anchor, len(place)), row.median.value or math.inf))
    of = standing(replace(group, ranked=tuple(entries.values()), others=(), field=field)) if able else None
    return LossAnswer(level, workload.metric, _headline(rows, of), _detail(rows, of), tuple(rows), of)


def _times(cell: MeasuredCell, metric: str, level: float) -> LossTimes:
    """Of several repeats with one seed the newest counts: they say nothing on how seeds differ."""
    seeds = {time.seed: time for repeat in cell.repeats for time in [_time(repeat, metric, level)]}
    times = tuple(seeds[seed] for seed in sorted(seeds))
    known = [time for time in times if time.end != "failed"]
    return LossTimes(cell, times, median_time(known, ALPHA), _why(cell, known, metric))


def _time(repeat: Repeat, metric: str, level: float) -> SeedTime:
    seed, curve = int(repeat.row.get("seed") or 0), _curve(repeat, metric)
    time = curve and time_of(seed, curve.seconds.tolist(), curve.values.tolist(), level)
    return time if time and repeat.status == "ok" else SeedTime(seed, "failed", 0.0)


def _curve(repeat: Repeat, metric: str) -> Curve | None:
    return next((curve for curve in repeat.curves if (curve.name, curve.split) == (metric, "test")), None)


def _why(cell: MeasuredCell, times: Sequence[SeedTime], metric: str) -> str:
    """Why a cell is not compared. How sure its step time is does not matter here. `times`: without those of repeats that failed."""
    if not times or cell.parity_passed is not True or cell.unproved:
        return cell.unranked or cell.reason or "no repeat ended well"
    if any(len(steps) == 1 for steps in _steps(cell, metric)):
        return "evaluated only after its training: a time needs two evaluations"
    if any(time.end == "below" for time in times):
        return "the first evaluation was below the level: state a lower one"
    reached = sum(time.reached for time in times)
    if reached < 2:
        return "one seed" if len(times) < 2 else "one seed reached it" if reached else "no seed reached it"
    return ""


def _steps(cell: MeasuredCell, metric: str) -> Iterator[tuple[float, ...]]:
    """The steps after which each repeat was evaluated."""
    for repeat in cell.repeats:
        curve = _curve(repeat, metric)
        yield tuple(curve.steps.tolist()) if curve else ()


def _field(rows: Sequence[LossTimes], device_kind: str) -> Field:
    """The cells as the rule of the ranking has them. A block is one seed in one session."""
    blocks = Blocks({row.cell.anchor: _in_blocks(row) for row in rows})
    cells: dict[Hashable, Contender] = {}
    for row in rows:
        logs: dict[Hashable, list[float]] = {}
        for one in blocks.logs[row.cell.anchor]:
            logs.setdefault(one.session, []).append(one.log)
        every = [log for of_one in logs.values() for log in of_one]
        level = blocks.level(row.cell.anchor)
        mean = fmean(every) if level is None else level
        means = {session: fmean(of_one) for session, of_one in logs.items()}
        cells[row.cell.anchor] = Contender(mean, every, 0.0, frozenset(means), means)
    return Field(cells, blocks, device_kind, _looked_at({row.cell.anchor: row for row in rows}))


def _looked_at(rows: Mapping[Hashable, LossTimes]) -> Callable[[Hashable, Hashable], tuple[float, float]]:
    """By how much the ratio of two cells may be less and more, for all that evaluations show (Field.unseen)."""

    def back(of: LossTimes, beside: LossTimes) -> float:
        """The way back to the evaluation before, in the mean of the seeds: none where both cells got there at the same one."""
        others = {time.seed: time.evaluation for time in beside.seeds if time.reached}
        ways = [
            -math.log1p(-(time.since or 0.0) / time.seconds) if others.get(time.seed) != time.evaluation else 0.0
            for time in of.seeds
            if time.reached and (time.since or 0.0) < time.seconds
        ]
        return fmean(ways) if ways else 0.0

    return lambda above, below: (back(rows[above], rows[below]), back(rows[below], rows[above]))


def _in_blocks(row: LossTimes) -> list[InBlock]:
    newest = {int(repeat.row.get("seed") or 0): repeat for repeat in row.cell.repeats}
    found = []
    for time in (time for time in row.seeds if time.reached):
        repeat = newest[time.seed]
        session = (repeat.row.get("run_id"), row.cell.key.device_model, repeat.reused)
        found.append(InBlock((session, time.seed), math.log(time.seconds), session, repeat.began))
    return found


def _entries(rows: Sequence[LossTimes], field: Field) -> Mapping[str, Ranked]:
    """Each cell beside the first, by its anchor, in their order."""
    cells = {row.cell.anchor: row.cell for row in rows}
    first, found = cells[str(field.first)], {}
    for anchor in map(str, field.order):
        cell = cells[anchor]
        if cell is first:
            found[anchor] = Ranked(cell, Estimate(1.0, 1.0, 1.0, 0, len(cell.measured), "itself"))
            continue
        pair = field.between(anchor, first.anchor)
        open_by = left_open([first], [cell], pair.ratio.value)
        found[anchor] = Ranked(cell, pair.ratio, pair.p, pair.verdict, pair.once, open_by)
    return found


# -- In sentences ------------------------------------------------------------------------------------------------------------------


def _headline(rows: Sequence[LossTimes], of: Standing | None) -> str:
    """The faster framework in the seeds that got there, and how many got there."""
    able, never = _timed(rows), _never(rows)
    counts = listing([f"{row.cell.label} {row.counted}" for row in (*able, *never)])
    if of is None:
        return f"No seed got there: {counts}" if never and not able else "The order is unknown"
    if len(able) == 1:
        time = f" in {duration(able[0].median.value)}" if able[0].median.value else ""
        only = f"{able[0].cell.label} is the only one that "
        return f"{only}got there{time}: {counts}" if never else f"{only}can be timed"
    others = f", of the {len(able)} that can be timed" if len(rows) > len(able) + len(never) else ""
    partly = any(row.reached < row.tried for row in able) or never
    return standing_words.headline(of) + (f" in the seeds that got there: {counts}" if partly else "") + others


def _timed(rows: Sequence[LossTimes]) -> list[LossTimes]:
    return [row for row in rows if row.entry]


def _never(rows: Sequence[LossTimes]) -> list[LossTimes]:
    """Those whose seeds were all seen not to get there."""
    ends = {"above", "touched", "failed"}
    proved = (row for row in rows if row.tried > 1 and row.cell.parity_passed and not row.cell.unproved)
    return [row for row in proved if {time.end for time in row.seeds} <= ends]


def _by_chance(first: LossTimes, never: Sequence[LossTimes]) -> float:
    """The chance that so many seeds of the first got there and none of some other, were they alike: Fisher's exact test, for all others."""
    chances = [
        math.comb(first.tried, first.reached) / math.comb(row.tried + first.tried, first.reached) for row in never
    ]
    return min(1.0, 2 * len(never) * max(chances))


def in_short(answer: LossAnswer) -> tuple[str, Literal["confirmed", "open"]] | None:
    """(A few words, how sure) where not every seed of every cell got there; None where all did."""
    able, never = _timed(answer.rows), _never(answer.rows)
    if len(able) == 1 and never:
        words = f"Only {framework_name(able[0].cell.framework)} got there, {able[0].reached} of {able[0].tried}"
        return words, "confirmed" if _by_chance(able[0], never) < ALPHA else "open"
    if not able and never:
        return "No framework got there", "open"
    first = able[0] if able else None
    if first is not None and first.reached < first.tried:
        return f"{framework_name(first.cell.framework)}, but {first.reached} of {first.tried} seeds", "open"
    return None


def _detail(rows: Sequence[LossTimes], of: Standing | None) -> str:
    """The seeds that got there, the ratios, and how finely the times are known."""
    counts = [f"{row.cell.label} with {row.counted}" for row in rows]
    since = [row.resolution for row in rows if row.resolution is not None]
    ends = " to ".join(dict.fromkeys(duration(end) for end in (min(since), max(since)))) if since else ""
    looked = f"Evaluations lie {ends} of training apart: a time is too long by less than that." if since else ""
    ratios = standing_words.detail(of) if of and len(rows) > 1 else ""
    return " ".join(filter(None, [f"Reached by {listing(counts)}.", ratios, looked]))


COLUMNS = (
    Column("framework", lambda row: row.cell.label),
    Column("seeds", lambda row: f"{row.reached} of {row.tried}"),
    Column("median", lambda row: duration(row.median.value)),
    Column("95 %", lambda row: row.interval),
    Column("evaluated every", lambda row: duration(row.resolution)),
    Column("vs best", lambda row: number(row.entry.ratio.value) if row.entry else "–"),
    Column("note", lambda row: row.note),
)
