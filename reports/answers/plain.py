"""The answer of some runs in plain text: for each group of comparable cells a table, and how sure it is.

The order, the intervals and the verdicts are those of the page: `reports.answers.findings` makes both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reports.answers import findings, overview, run_history, standing_words
from reports.answers import left as of_runs
from reports.answers.standing import Standing, few_words
from reports.answers.to_loss import CLOCK, COLUMNS, LossAnswer
from reports.data.costs import Cost
from reports.data.model import MeasuredCell, Ranked, Tables
from reports.wording import device_name, listing, number, percent, plural, says_nothing
from runner.results.on_disk.image_names import NO_LOCK, is_address
from runner.results.rank.own_agreement import in_eval, worst_apart
from runner.text import visible

# Enough for the data to show how far repeats differ.
_REPEATS = 3

# Networks of which a run says between its cells what they have shown. The page has all.
_MOST_SO_FAR = 6

# Standard deviation of the logarithms of repeats. Up to it some equal cell was called slower in at most 5 % of simulated ten minutes.
_QUIET = 0.025

# A condition beside figures -> its remedy, which stands once above all answers.
_REMEDIES = {
    "unsteady": "was the machine busy, hot or short of power? End what else runs on it, then measure again",
    "throttled": "look at the cooling and the power limit of the device: `runner gpus` shows both",
    "few CPUs": "end what else runs on the machine, then measure again",
    "beside other work": "end what else runs on the machine, then measure again",
    "disturbed": "end the other processes on the GPU, then measure again: `runner gpus` names them",
    "no telemetry": "measure again where `runner gpus` shows the GPU, with what NVML says of it",
}

# The answer on a person's own network begins so, below its table.
_SO = "so: "

# In short, so many cells that are not ranked are named below a table, each in a line of this many characters.
_MOST_UNRANKED, _LINE = 2, 79

# The meaning of each condition whose word does not say it.
_MEANS = {
    "unsteady": " changed speed while measured",
    "few CPUs": " got less than half of their CPUs",
    "no telemetry": " of GPUs may have been throttled or idle",
}


@dataclass(frozen=True)
class Section:
    """The lines above a table, its heads and rows, which of its columns hold numbers, and the lines below it. It may have no table."""

    above: tuple[str, ...] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    numbers: Sequence[str] = ()
    below: tuple[str, ...] = ()

    def remark(self) -> str:
        """The longest line below the table that is no answer; empty where there is none."""
        return max((line for line in self.below if not line.startswith(_SO)), key=len, default="")

    def shorter(self) -> Section:
        """The same without that line, or where there is none without its table."""
        if remark := self.remark():
            return replace(self, below=tuple(line for line in self.below if line != remark))
        return replace(self, rows=())


def sections(tables: Tables, *, short: bool = False, names: bool = False) -> Iterator[Section]:
    """The nodes that must be looked at, the answers of these runs, and at the end what else a reader must know.

    What is not yet run is counted beside these, with the command that goes on. `names`: its cells are named at the end, as on the page.
    `short`: the end of a run, which says itself what is not yet run; what stands above for all cells is not said of each.
    """
    if lost := overview.drained_nodes(tables.runs):
        yield Section(above=(*lost, ""))
    left = {entry.run_id: entry for entry in of_runs.left(tables.cells, tables.runs)}
    found = findings.findings(tables)
    bare = findings.without_answer(found)
    if beside := list(_in_one(found) if short else _conditions(found)):
        yield Section(above=(*beside, ""))
    said = _of_all(found) if short else frozenset()
    for finding in found:
        if finding in bare:
            continue
        heads, rows = _table(finding, said, short)
        if short and finding.group.ranked:
            rows = rows[: len(finding.group.ranked)]
        numbers = ("ms/step", "vs best", f"{finding.workload.items}/s", *map(_head_of, finding.group.token_costs))
        yield Section(tuple(_head(finding)), heads, rows, numbers, (*_under(finding, {} if short else left, short), ""))
        yield from map(_to_loss, finding.losses)
    if bare:
        yield _without_answer(bare)
    # A figure that is too noisy for an order of step times may stand for a whole training.
    for finding in bare:
        if finding.losses:
            yield Section((_place(finding),))
            yield from map(_to_loss, finding.losses)
    for line in run_history.history(tables).notes if len(tables.runs) > 1 else ():
        yield Section(below=(visible(line, 300),))
    question = overview.doubt_by_other_work(tables.cells)
    if question and not (short and beside):
        yield Section(below=(visible(question),))
    for workload in tables.workloads:
        if workload.task == "operators":
            count = sum(len(group.cells) for group in workload.groups)
            yield Section(below=(f"{workload.title}: {plural(count, 'cell')}; the report has the rates",))
    if names and tables.waiting:
        yield Section(below=("", "not yet run:", *of_runs.named(tables.waiting)))


def so_far(tables: Tables) -> list[str]:
    """The answers of a run that goes on: a line for each of the first networks of which two cells can be compared.

    Where only one of them was measured more than once there is none to say.
    """
    found = [
        finding
        for finding in findings.findings(tables)
        if len(finding.group.ranked) > 1
        and (of := finding.standing)
        and (not of.repeated or len(of.level) + len(of.slower) > 1)
    ]
    return [visible(f"so far: {_place(finding)}: {finding.headline}.", 400) for finding in found[:_MOST_SO_FAR]]


def _to_loss(answer: LossAnswer) -> Section:
    """The time to a stated loss, in the cells of the group above."""
    heads = [column.head for column in COLUMNS]
    rows = [[column.of(row) for column in COLUMNS] for row in answer.rows]
    above = visible(f"{answer.title}: {answer.headline}.")
    return Section((above,), heads, rows, ("median", "vs best"), (visible(answer.detail, 1000), CLOCK, ""))


def _without_answer(bare: Sequence[findings.Finding]) -> Section:
    """The groups of which no cell may be ranked, in one table."""
    rows = [(_place(one), cell.label, few_words(cell.unranked)) for one in bare for cell in one.group.others]
    workloads = len({one.workload.name for one in bare})
    groups = f" in {len(bare)} groups of cells" if workloads < len(bare) else ""
    above = f"No answer for {plural(workloads, 'workload')}{groups}: no cell has a measurement that may be ranked."
    return Section((above,), ("workload", "framework", "note"), rows, (), (*_remedies(bare), ""))


def _place(finding: findings.Finding) -> str:
    """The network and the device."""
    key = finding.group.key
    device = device_name(key.device_model) + (f" × {key.devices}, {key.scaling}" if key.devices > 1 else "")
    return visible(
        " · ".join(filter(None, (finding.workload.title, device, key.precision, key.preset, finding.beside)))
    )


def _head(finding: findings.Finding) -> Iterator[str]:
    """The network, the device, and the answer."""
    yield _place(finding)
    yield visible(f"{finding.headline}.")


def _table(
    finding: findings.Finding, said: Collection[str], short: bool
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """The heads and the rows: the ranked cells from the fastest on, then the others with the reason. `said`: conditions of all cells.

    `short`: stalls and failed repeats stand below the table only.
    """
    heads = ("framework", "ms/step", "95 %", f"{finding.workload.items}/s", "vs best", "note")
    rows = [_ranked(entry, said, short) for entry in finding.group.ranked]
    rows += [(cell.label, "–", "", "–", "–", few_words(cell.unranked)) for cell in finding.group.others]
    costs, at = finding.group.token_costs, heads.index("vs best")
    times = [[cost.written(cell.costs.get(cost.name)) for cost in costs] for cell in finding.group.cells]
    rows = [(*row[:at], *more, *row[at:]) for row, more in zip(rows, times, strict=True)]
    return (*heads[:at], *map(_head_of, costs), *heads[at:]), rows


def _head_of(cost: Cost) -> str:
    return f"{cost.head}, {cost.unit}".lower()


def _ranked(entry: Ranked, said: Collection[str], short: bool) -> tuple[str, ...]:
    cell, step = entry.cell, entry.cell.step
    ends = "" if step is None or step.low is None or step.high is None else f"{_ms(step.low)}–{_ms(step.high)}"
    ends = ("too few" if short else "too few to tell") if step is not None and says_nothing(step) else ends
    rate = cell.items_per_second.value if cell.items_per_second else None
    beside = [word for word in _beside(cell) if word not in said]
    beside += [NO_LOCK] if is_address(cell.image) else []
    beside += ["proved by agreement"] if cell.proof == "agreement" else []
    own = standing_words.note(entry) if short else standing_words.notes(entry)
    notes = "; ".join(filter(None, [own, *beside]))
    return cell.label, _ms(step.value if step else None), ends, number(rate), number(entry.ratio.value), notes


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None or not math.isfinite(seconds) else number(1e3 * seconds)


def _beside(cell: MeasuredCell) -> list[str]:
    """The conditions beside a cell's figure, in words of _REMEDIES."""
    facts = {
        "unsteady": cell.shifts,
        "throttled": cell.throttled,
        "few CPUs": cell.cpu_share is not None,
        "beside other work": cell.other_work,
        "disturbed": cell.foreign_processes,
        "no telemetry": cell.unwatched,
    }
    return [word for word, fact in facts.items() if fact]


def _conditions(found: Sequence[findings.Finding]) -> Iterator[str]:
    """Each condition that stands beside a figure, with how many have it; those of one remedy in one line."""
    ranked = [entry.cell for finding in found for entry in finding.group.ranked]
    counts = Counter(word for cell in ranked for word in _beside(cell))
    alike: dict[str, list[str]] = {}
    for word in filter(counts.__getitem__, _REMEDIES):
        said = f"{word}: {counts[word]} of {plural(len(ranked), 'ranked cell')}{_MEANS.get(word, '')}"
        alike.setdefault(_REMEDIES[word], []).append(said)
    for remedy, said_of in alike.items():
        yield f"{'; '.join(said_of)}; {remedy}"


def _in_one(found: Sequence[findings.Finding]) -> Iterator[str]:
    """All conditions in one sentence, with the remedy of the first."""
    ranked = [entry.cell for finding in found for entry in finding.group.ranked]
    counts = Counter(word for cell in ranked for word in _beside(cell))
    words = list(filter(counts.__getitem__, _REMEDIES))
    if words:
        said = ", ".join(f"{counts[word]} {word}" for word in words)
        yield f"of {plural(len(ranked), 'ranked cell')} {said}: {_REMEDIES[words[-1]]}"


def _of_all(found: Sequence[findings.Finding]) -> frozenset[str]:
    """The conditions of all ranked cells: the line above says so."""
    ranked = [entry.cell for finding in found for entry in finding.group.ranked]
    return frozenset.intersection(*(frozenset(_beside(cell)) for cell in ranked)) if ranked else frozenset()


def _under(finding: findings.Finding, left: Mapping[str, of_runs.Left], short: bool) -> Iterator[str]:
    """How sure the answer is, and what to do about each failure."""
    ranked, others = [entry.cell for entry in finding.group.ranked], finding.group.others
    if short and ranked:
        for cell in others[:_MOST_UNRANKED]:
            yield few_words(f"not ranked: {cell.label}: {cell.unranked}", _LINE)
        if more := len(others[_MOST_UNRANKED:]):
            yield f"not ranked: {plural(more, 'more cell')}; the report says why"
    if len(ranked) > 1:
        yield from _confidence(finding, left, short)
    yield from _remedies([finding])
    eval_of = {cell.label: words for cell in (*ranked, *others) if (words := in_eval(cell))}
    yield from (visible(f"note: {label}: {words}", 600) for label, words in eval_of.items())
    if apart := worst_apart(ranked):
        yield _in_one_sentence(finding, *apart)
    elif apart := worst_apart([*ranked, *(cell for cell in others if not cell.unsound)]):
        yield f"{_SO}which is faster is open; {_the_same(*apart)}"


def _in_one_sentence(finding: findings.Finding, apart: float, in_float64: bool) -> str:
    """The answer on a person's own network: the order, the ratios, and that the images compute the same."""
    of = finding.standing
    decided = of is not None and not (of.open or of.starved)
    ratios = standing_words.detail(replace(of, rivals=())).rstrip(".") if of and decided else ""
    return visible(f"{_SO}{'; '.join(filter(None, [finding.headline, ratios, _the_same(apart, in_float64)]))}", 1000)


def _the_same(apart: float, in_float64: bool) -> str:
    return f"they compute the same (worst loss off by {number(apart, 2)}{' in float64' if in_float64 else ', by agreement'})"


def _remedies(found: Sequence[findings.Finding]) -> Iterator[str]:
    """The remedy of each failure, and about cells that may not be ranked."""
    others, key = [cell for finding in found for cell in finding.group.others], found[0].group.key
    for hint in dict.fromkeys(str(cell.row["hint"]) for cell in others if cell.row.get("hint")):
        yield visible(f"fix: {hint}", 400)
    if unfit := [cell for cell in others if cell.unfit]:
        remedy = "or measure for longer with --preset standard" if key.preset == "quick" else "then measure again"
        # A new run would lose what these repeats have measured.
        remedy = "then go on: the repeats that are left may rank it" if any(map(of_runs.lacks, unfit)) else remedy
        yield f"not ranked: end what else runs on the machine, {remedy}"


def _confidence(finding: findings.Finding, left: Mapping[str, of_runs.Left], short: bool) -> Iterator[str]:
    """Sentences on each cell beside the first, on how sure they are, and on what would settle the rest."""
    of, ranked = finding.standing, [entry.cell for entry in finding.group.ranked]
    if of is None:
        return
    # The headline names those that are as fast or open.
    own = worst_apart(ranked) is not None
    briefly = replace(of, same=(), open=(), unrun=(), rivals=()) if short else of
    if said := "" if own else standing_words.detail(briefly):
        yield visible(said, 1000)
    yield from (visible(words, 300) for words in finding.changed)
    if of.starved:
        yield "open: with all of their CPUs the cells may have another order"
        return
    if of.slower:
        repeats = findings.repeats_of(entry.cell for entry in (of.first, *of.slower))
        where = findings.in_runs(entry.cell for entry in (of.first, *of.slower))
        among = f", of the {of.ranked} that are ranked" if of.rivals or of.failed else ""
        yield f"confirmed {'' if short else where}{among}: {repeats}; {_chance(finding, of)}".replace(
            "confirmed :", "confirmed:"
        )
    if of.open:
        who, repeats = (
            standing_words.some(entry.cell for entry in of.level),
            findings.repeats_of(entry.cell for entry in of.level),
        )
        tell = _to_tell(finding, of, short)
        yield f"open: {tell}" if short else f"open: which of {who} is faster, after {repeats}. {tell}"
    once = findings.measured_once(ranked)
    # Their line above says it, and the end of the run how to go on.
    if once and not (short and any(map(of_runs.lacks, once))):
        yield f"measured once: {plural(len(once), 'cell')}. {_go_on(ranked, left)}"


def _chance(finding: findings.Finding, of: Standing) -> str:
    """The chance of a false difference, where simulation holds it: of noisier repeats it was 7 % at 5 %, and 15 % at 10 %."""
    cells = [finding.group.field.cells[entry.cell.anchor].logs for entry in (of.first, *of.slower)]
    variances = [float(np.var(logs, ddof=1)) for logs in cells if len(logs) > 1]
    deviation = math.sqrt(sum(variances) / len(variances)) if variances else math.inf
    if deviation <= _QUIET:
        return "a chance of at most 5 % that a difference is only noise"
    return f"repeats differ by {percent(deviation, 2)}: on so noisy a machine one run in ten may show a difference that is only noise"


def _to_tell(finding: findings.Finding, of: Standing, short: bool) -> str:
    """With how many repeats the cells of which the order is open would be told apart, or known to be the same."""
    names = {entry.cell.anchor: entry.cell.label for entry in of.open}
    counts = {anchor: finding.group.field.repeats_to_tell(anchor, of.first.cell.anchor) for anchor in names}
    told = [count for count in counts.values() if count is not None]
    level = [entry.cell for entry in of.level]
    parts = []
    if told:
        most = max(told)
        command = "" if short else f": `{of_runs.alone(level, most)}`"
        parts.append(f"{most} repeats would tell{command}{of_runs.time_of(level, most)}")
    coarse = [entry.cell.anchor for entry in of.open if standing_words.is_coarse(entry)]
    if coarse:
        parts.append(f"for {listing(names[anchor] for anchor in coarse)} only a finer clock tells, or longer windows")
    if never := [names[anchor] for anchor, count in counts.items() if count is None and anchor not in coarse]:
        parts.append(f"for {listing(never)} a quieter machine tells sooner than more repeats")
    said = "; ".join(parts)
    return said[:1].upper() + said[1:] if never or coarse else said


def _go_on(ranked: Sequence[MeasuredCell], left: Mapping[str, of_runs.Left]) -> str:
    """The command that brings further repeats."""
    planned = dict.fromkeys(cell.run_id for cell in ranked if of_runs.lacks(cell))
    if going_on := [left[run] for run in planned if run in left]:
        return "Go on with " + "; ".join(f"`{entry.command}`: {entry.count}{entry.time}" for entry in going_on)
    return f"Repeat with --repeats {_REPEATS}{of_runs.time_of(ranked, _REPEATS)}"
