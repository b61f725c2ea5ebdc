"""The answer for each group of comparable cells, in sentences that the intervals support.

A cell appears once in it, however many runs measured it: it does not compete with itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import rules
from reports.answers import run_history, sessions, standing_words
from reports.answers.contrast import Contrast, Side, differences, observed_changes
from reports.answers.left import lacks, left
from reports.answers.standing import Standing, standing
from reports.answers.to_loss import LossAnswer, loss_answers
from reports.data.groups import Comparable, blocks_of, groups_of
from reports.data.model import NO_TELEMETRY, Group, MeasuredCell, MeasuredWorkload, Tables
from reports.wording import apart, duration, listing, number, percent, plural
from runner.results import statistics
from runner.results.cells import MISSING, StoredRepeat, step_of
from runner.results.on_disk.parcel_origin import UNPROVED
from runner.results.rank.blocks import moderated_scatter
from runner.results.rank.ranking import MARGIN, OTHER_RUNS, bad_repeats

# Do the frameworks of a group train alike? At equal steps their losses must agree within what right runs differ by.
#
# Cells of one run begin with the same parameters and take the same batches, on real data and with any seed too, where no loss is stored.
# What right runs differ by grows from step to step. It is stored: of each of several seeds, the losses of runs that differ by rounding
# only, or by the masks of dropout (bench.learning_reference).

# Two runs differ by a normal error of this many deviations in one of 10^9 cases.
DEVIATIONS = 6.0
# Of the difference of two runs.
OF_TWO = 2.0**0.5
# The least spread, relative to the loss: that of other orders of summation (bench.learning).
ROUNDING = 2.0**-16
# The steps on each side of one from which its spread is estimated, too.
NEIGHBOURS = 3


def disagreements(cells: Sequence[MeasuredCell]) -> list[str]:
    """A sentence for the two cells of a group and run that are furthest apart, where they are too far; cells: at one precision."""
    key = cells[0].key if cells else None
    if key is None or key.precision != "fp32" or key.devices > 1:
        return []
    spread = growth(key.workload, key.batch)
    worst = max((pair for run in _runs(cells) for pair in _pairs(run, spread)), default=None)
    if worst is None or worst[0] <= 1.0:
        return []
    _, step, (one, first), (other, second) = worst
    losses = f"{one} {number(first)}, {other} {number(second)}"
    return [f"The losses part at step {step}, further than those of right runs do: {losses}. One may train otherwise."]


@functools.cache
def growth(workload: str, batch: int) -> statistics.Array:
    """Of each of the first steps, the largest relative deviation of runs of one seed; empty where nothing is stored."""
    # A name in a results file may be any text, and here it would be a pattern.
    if workload not in rules.workload_names():
        return np.zeros(0)
    paths = sorted(Path(rules.WORKLOADS).glob(f"{rules.losses_of(workload)}.{batch}-of-*.seed*.learning.txt"))
    spreads = [_spread(np.loadtxt(path, ndmin=2)) for path in paths]
    if not spreads:
        return np.zeros(0)
    steps = min(len(spread) for spread in spreads)
    largest: statistics.Array = np.stack([spread[:steps] for spread in spreads]).max(axis=0)
    return largest


def _spread(runs: statistics.Array) -> statistics.Array:
    squares = np.maximum(runs.var(axis=0, ddof=1) / runs.mean(axis=0) ** 2, ROUNDING**2)
    around = [squares[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1].mean() for at in range(len(squares))]
    return np.sqrt(around)


def _runs(cells: Sequence[MeasuredCell]) -> list[list[MeasuredCell]]:
    names = dict.fromkeys(cell.run_id for cell in cells)
    return [[cell for cell in cells if cell.run_id == name] for name in names]


Loss = tuple[str, float]


def _pairs(cells: Sequence[MeasuredCell], spread: statistics.Array) -> list[tuple[float, int, Loss, Loss]]:
    """(their distance in what is allowed, the step, the two losses) of each cell and the one whose loss is the middle there."""
    by_step: dict[int, list[Loss]] = {}
    for cell in cells:
        for step, value in _losses(cell, len(spread)).items():
            by_step.setdefault(step, []).append((cell.label, value))
    pairs = []
    for step, losses in by_step.items():
        middle = sorted(losses, key=lambda loss: loss[1])[len(losses) // 2]
        allowed = DEVIATIONS * OF_TWO * float(spread[step - 1]) * abs(middle[1])
        pairs += [(abs(loss[1] - middle[1]) / allowed, step, loss, middle) for loss in losses if loss is not middle]
    return pairs


def _losses(cell: MeasuredCell, steps: int) -> dict[int, float]:
    """step -> the loss of the first repeat, of the steps that have a spread."""
    curves = [curve for repeat in cell.repeats[:1] for curve in repeat.curves]
    of_training = [curve for curve in curves if (curve.name, curve.split) == ("loss", "train")]
    both = [pair for curve in of_training for pair in zip(curve.steps, curve.values, strict=True)]
    return {int(step): float(value) for step, value in both if 1 <= step <= steps and np.isfinite(value)}


_ENDS = {"failed": "failed", "missing": "not yet run"}


_NO_ANSWER = "No answer"


@dataclass(frozen=True)
class Finding:
    """The answer for one group of comparable cells: a headline, the numbers with their intervals, and the caveats."""

    workload: MeasuredWorkload
    group: Group
    headline: str
    detail: str
    caveats: tuple[str, ...]
    standing: Standing | None = None  # None where no cell is ranked
    losses: tuple[LossAnswer, ...] = ()  # one for each level that the user stated
    changed: tuple[str, ...] = ()  # of the caveats, those on cells that count as their newest runs measured them

    @property
    def beside(self) -> str:
        """The batch and the data, where another group of the workload differs in these alone: its cells are not compared."""
        key = self.group.key
        keys = [replace(one.key, batch=key.batch, data_source=key.data_source) for one in self.workload.groups]
        return f"batch {key.batch}, {key.data_source or 'unknown'} data" if keys.count(key) > 1 else ""


def findings(tables: Tables) -> tuple[Finding, ...]:
    """One answer for each group of comparable cells."""
    owners = [workload for workload in tables.ranked for _ in workload.groups]
    found = [_finding(workload, *one, tables.waiting) for workload, one in zip(owners, _each_once(tables), strict=True)]
    return tuple(replace(one, losses=loss_answers(one.workload, one.group, tables.to_loss)) for one in found)


# -- Each cell once ----------------------------------------------------------------------------------------------------------------


class _OfRuns(NamedTuple):
    """The sentences on the cells of a group that several runs measured."""

    pooled: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  # on those that count as their newest runs measured them


def _each_once(tables: Tables) -> list[tuple[Group, _OfRuns]]:
    """The ranked groups, in which each measured cell is its newest state; each with the sentences that say so.

    States are those of reports.answers.run_history: runs between which nothing that was recorded changed.
    """
    groups = tables.groups
    of_groups = [_copies(group, tables.order) for group in groups]
    if all(len(same) == 1 for copies in of_groups for same in copies.values()):
        return [(group, _OfRuns()) for group in groups]
    changed = _changed(of_groups, tables)
    merged = [[_newest(name, same, changed) for name, same in copies.items()] for copies in of_groups]
    blocks = blocks_of(cell for cells in merged for cell in cells)
    comparable = [
        Comparable(group.anchor, group.key, [*cells, *group.others])
        for group, cells in zip(groups, merged, strict=True)
    ]
    said = [_sentences(copies, changed) for copies in of_groups]
    return list(zip(groups_of(comparable, blocks), said, strict=True))


def _copies(group: Group, order: Mapping[str, int]) -> dict[str, list[MeasuredCell]]:
    """Each ranked cell of a group as the runs measured it, the oldest first."""
    copies: dict[str, list[MeasuredCell]] = {}
    for cell in sorted(group.cells, key=lambda cell: order[cell.run_id]):
        if not cell.unranked:
            name = without_run(cell)
            # Two cells of one run are no copies, though they have one label.
            if any(one.run_id == cell.run_id for one in copies.get(name, ())):
                name = f"{name} ({cell.cell_id})"
            copies.setdefault(name, []).append(cell)
    return copies


def without_run(cell: MeasuredCell) -> str:
    """The cell's label without the run."""
    return cell.label.removesuffix(f" · {cell.run_id}")


def _changed(of_groups: Iterable[Mapping[str, Sequence[MeasuredCell]]], tables: Tables) -> dict[str, Contrast]:
    """The anchors of the cells that take another time than in the run before, as `runner compare` of the two runs has it, though nothing
    that was recorded changed."""
    of_runs: dict[tuple[str, str], list[tuple[Side, Side]]] = {}
    for copies in of_groups:
        for state in (state for same in copies.values() for state in run_history.states(same)):
            for before, after in pairwise(state):
                # One run may have a cell twice, on two devices of a model: between these nothing changed.
                if before.run_id == after.run_id:
                    continue
                of_runs.setdefault((before.run_id, after.run_id), []).append((Side((before,)), Side((after,))))
    rows = (row for pairs in of_runs.values() for row in sessions.two_runs(pairs, around=tables)[0])
    return {row.after.cells[0].anchor: row for row in rows if row.real}


def _since_change(state: Sequence[MeasuredCell], changed: Mapping[str, Contrast]) -> Sequence[MeasuredCell]:
    """The cells of a state from the last change on."""
    last = max((at for at, cell in enumerate(state) if cell.anchor in changed), default=0)
    return state[last:]


def _newest(name: str, copies: Sequence[MeasuredCell], changed: Mapping[str, Contrast]) -> MeasuredCell:
    """The cells of the last state, since they last changed, as one cell with all their repeats."""
    state = _since_change(run_history.states(copies)[-1], changed)
    repeats = tuple(repeat for cell in state for repeat in cell.repeats)
    step = step_of([repeat for cell in state for repeat in cell.measured])
    step = _of_runs(step, state) if step is not None and len(state) > 1 else step
    return replace(state[-1], label=name, repeats=repeats, planned=len(repeats), step=step, own_width=None)


def _of_runs(step: statistics.Estimate, state: Sequence[MeasuredCell]) -> statistics.Estimate:
    """The step time of several runs, of which each is one observation: repeats of one run share what differs between runs."""
    means = np.array([np.mean(cell.log_levels) for cell in state if cell.measured])
    kind, each = state[-1].key.device_kind, sum(len(cell.measured) for cell in state) / len(means)
    assumed = math.hypot(
        statistics.of_kind(statistics.SESSION_DEVIATION, kind),
        statistics.of_kind(statistics.REPEAT_DEVIATION, kind) / math.sqrt(each),
    )
    shown = moderated_scatter(assumed, float(np.var(means)) * len(means), len(means) - 1)
    return statistics.with_error(step, shown.deviation / math.sqrt(len(means)), min(1e6, shown.freedom))


def _sentences(copies: dict[str, list[MeasuredCell]], changed: Mapping[str, Contrast]) -> _OfRuns:
    sentences = []
    again = {name: run_history.states(same) for name, same in copies.items() if len(same) > 1}
    newest = {name: _since_change(measured[-1], changed) for name, measured in again.items()}
    moved = {name: changed[state[0].anchor] for name, state in newest.items() if state[0].anchor in changed}
    pooled = [name for name, measured in again.items() if len(measured) == 1 and name not in moved]
    once: tuple[str, ...] = ()
    seen = {name: _seen_between(again[name][-1]) for name in pooled}
    if alike := [name for name in pooled if not seen[name]]:
        who = "Each cell counts" if len(alike) == len(copies) else f"{listing(alike)} count{'s' * (len(alike) == 1)}"
        once = (f"{who} once, with the repeats of all runs: nothing recorded changed between them.",)
    sentences += [
        f"{name} counts once, with the repeats of all runs: no setting changed between them, and the machine did: {listing(words)}."
        for name, words in seen.items()
        if words
    ]
    for name, row in moved.items():
        runs = listing(cell.run_id for cell in newest[name])
        sentences.append(
            f"{name} counts as run {runs} measured it: {row.words} than in run {row.before.cells[0].run_id}; {row.changed}."
        )
    for name, measured in again.items():
        if len(measured) > 1 and name not in moved:
            changes = differences(Side(tuple(measured[-2])), Side(tuple(measured[-1])))
            runs = listing(cell.run_id for cell in measured[-1])
            sentences.append(
                f"{name} counts as run {runs} measured it, after {listing(str(change) for change in changes)}."
            )
    return _OfRuns(once, tuple(sentences))


def _seen_between(cells: Sequence[MeasuredCell]) -> list[str]:
    """The changes of the machine from one of a cell's runs to the next, as it was seen meanwhile."""
    neighbours = pairwise([Side((cell,)) for cell in cells])
    return list(dict.fromkeys(str(change) for pair in neighbours for change in observed_changes(*pair)))


# -- In sentences ------------------------------------------------------------------------------------------------------------------


def _finding(workload: MeasuredWorkload, group: Group, of_runs: _OfRuns, waiting: Sequence[MeasuredCell]) -> Finding:
    caveats = (*of_runs.pooled, *of_runs.changed, *_caveats(workload, group))
    if not group.ranked:
        many = plural(len(group.others), "cell")
        if all(cell.status == MISSING for cell in group.others):
            return Finding(
                workload, group, "Not measured yet", f"{many}, none with a repeat that has been run.", caveats
            )
        return Finding(workload, group, _NO_ANSWER, f"{many}, none with a measurement that may be ranked.", caveats)
    # A cell that has not been run has recorded no data.
    key = replace(group.key, data_source="")
    of = standing(group, [cell for cell in waiting if replace(cell.key, data_source="") == key])
    step = of.first.cell.step
    speed = f"{duration(step.value if step else None)} a step"
    if len(group.ranked) == 1:
        name = of.first.cell.label
        alone = standing_words.detail(of) or "No other comparable cell has a measurement that may be ranked."
        headline = "; ".join((f"{name}: {speed}", *standing_words.outside(of)))
        return Finding(workload, group, headline, alone, caveats, of)
    about = f"{speed} for {of.first.cell.label}. {standing_words.detail(of)}".strip()
    return Finding(workload, group, standing_words.headline(of), about, caveats, of, changed=of_runs.changed)


def without_answer(of: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those in which every cell failed or is unfit, where there are several: one list is enough for an image that fails everywhere."""
    bare = tuple(one for one in of if one.headline == _NO_ANSWER)
    return bare if len(bare) > 1 else ()


def measured_once(cells: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    """The cells with one repeat: how much another run of them would differ is not known."""
    return [cell for cell in cells if len(cell.measured) == 1]


def repeats_of(cells: Iterable[MeasuredCell]) -> str:
    """How many repeats cells have: "measured once", "3 repeats", or "1 to 2 repeats"."""
    counts = [len(cell.measured) for cell in cells]
    fewest, most = min(counts), max(counts)
    if most == 1:
        return "measured once"
    return plural(most, "repeat") if fewest == most else f"{fewest} to {plural(most, 'repeat')}"


def in_runs(cells: Iterable[MeasuredCell]) -> str:
    """`in this run`, or `in these 2 runs`."""
    runs = len({repeat.row.get("run_id") for cell in cells for repeat in cell.measured})
    return "in this run" if runs < 2 else f"in these {runs} runs"


def _of_the_machine(cells: Sequence[MeasuredCell]) -> list[str]:
    """Effects of the machine on the figures of some cells."""
    caveats = []
    unsteady = [cell.label for cell in cells if cell.shifts]
    if unsteady:
        once = any(cell.shifts and len(cell.repeats) == 1 for cell in cells)
        spans = "; with one repeat the interval spans both levels" if once else ""
        caveats.append(f"Unsteady: the level of {listing(unsteady)} changed midway{spans}.")
    hot = [cell.label for cell in cells if cell.throttled]
    if hot:
        caveats.append(f"Throttled: the device slowed itself down while it ran {listing(hot)}.")
    disturbed = [cell.label for cell in cells if cell.foreign_processes]
    if disturbed:
        caveats.append(f"Disturbed: other processes computed on the GPU of {listing(disturbed)} meanwhile.")
    caveats += [f"Disturbed: {cell.label}: {taken}." for cell in cells if (taken := cell.other_work)]
    if host_bound := [cell for cell in cells if cell.host_bound]:
        which = f"kernels ran in less than half of a step's time in {listing([cell.label for cell in host_bound])}"
        caveats.append(f"Host-bound: {which}: it is more the host's than the GPU's.{_replays(host_bound, cells)}")
    unproved = [cell.label for cell in cells if any(words.startswith(UNPROVED) for words in cell.caveats)]
    if unproved:
        caveats.append(
            f"Origin not proved: the parcels of {listing(unproved)} were changed since they were stored, or are not of this installation."
        )
    if blind := [cell.label for cell in cells if cell.unwatched]:
        caveats.append(
            f"{NO_TELEMETRY} of the GPU of {listing(blind)}: nothing shows whether it was throttled or idle."
        )
    few = [f"{cell.label} ({percent(cell.cpu_share)})" for cell in cells if cell.cpu_share is not None]
    if few:
        caveats.append(f"Less than half of the CPUs: {listing(few)}: on a quiet machine its step may be shorter.")
    return caveats


def _replays(host_bound: Sequence[MeasuredCell], cells: Sequence[MeasuredCell]) -> str:
    """The mode that starts a step's kernels at once, of the frameworks that have it and were not measured in it."""
    graphs = {(cell.image, cell.framework) for cell in cells if cell.mode == "graph"}
    usual = [cell for cell in host_bound if cell.mode == "default" and (cell.image, cell.framework) not in graphs]
    names = sorted(cell.label for cell in usual if _takes_a_graph(cell))
    return f" `--modes default,graph` also measures {listing(names)} as a CUDA graph." if names else ""


def _takes_a_graph(cell: MeasuredCell) -> bool:
    # An older run may have a framework that is here no more.
    if cell.framework not in rules.framework_names():
        return False
    declared, key = rules.framework_declaration(cell.framework), cell.key
    where = key.device_kind, key.precision, key.workload
    modes = declared["modes"], declared.get("modes_except", {})
    return rules.mode_reason(cell.framework, "graph", *modes, where, key.devices) is None


def _of_a_bad_repeat(cells: Sequence[MeasuredCell], group: Group) -> list[str]:
    """The repeat of each cell that lies far from its others, and of each cell that scatters far more than the others of its run.

    Where several GPUs measured the cells it is named: the GPU may be the reason, and to measure again on another one would hide it.
    """
    said, blocks = [], group.field.blocks
    bad = {**bad_repeats(blocks.logs), **blocks.loud}
    several = len({_gpu_of(repeat) for cell in cells for repeat in cell.measured}) > 1
    by_gpu: dict[str, int] = {}
    for cell in cells:
        place = bad.get(cell.anchor)
        if place is not None:
            logs = cell.log_levels.tolist()
            ratio = math.exp(logs[place] - float(np.median(logs[:place] + logs[place + 1 :])))
            gpu = _gpu_of(cell.measured[place]) if several else ""
            by_gpu[gpu] = by_gpu.get(gpu, 0) + (ratio > 1)
            where = f" on {gpu}" if gpu else ""
            said.append(
                f"{cell.label}, repeat {cell.measured[place].number}{where} {apart(ratio)} as its others: measure it again."
            )
    slow = {gpu: count for gpu, count in by_gpu.items() if gpu and count > 1}
    slow |= dict.fromkeys(_slow_in_each(cells), len(cells))
    return [
        *(
            f"{gpu} was the slow one of {count} cells: `runner verify --each-gpu` compares the GPUs."
            for gpu, count in slow.items()
        ),
        *said,
    ]


def _slow_in_each(cells: Sequence[MeasuredCell]) -> list[str]:
    """The GPUs on which every repeat of each of several cells took longer, beyond the margin, than every repeat on the other GPUs."""
    of = [
        [(_gpu_of(repeat), log) for repeat, log in zip(cell.measured, cell.log_levels, strict=True)] for cell in cells
    ]
    gpus = dict.fromkeys(gpu for every in of for gpu, _ in every if gpu)
    far = math.log1p(MARGIN)

    def is_slow(gpu: str, every: Sequence[tuple[str, float]]) -> bool:
        own, others = ([log for name, log in every if (name == gpu) == mine] for mine in (True, False))
        return bool(own and others) and min(own) > max(others) + far

    return [gpu for gpu in gpus if len(of) > 1 and all(is_slow(gpu, every) for every in of)]


def _gpu_of(repeat: StoredRepeat) -> str:
    """The GPU of a repeat by the last characters of its UUID, as the tables have it; empty of a CPU, and of several GPUs."""
    uuids = repeat.row.get("device_uuids")
    return f"GPU …{str(uuids[0])[-4:]}" if uuids is not None and len(uuids) == 1 else ""


def _caveats(workload: MeasuredWorkload, group: Group) -> tuple[str, ...]:
    cells = [entry.cell for entry in group.ranked]
    caveats = _of_the_machine(cells)
    caveats += _of_a_bad_repeat(cells, group) + disagreements(cells)
    single = [cell.label for cell in measured_once(cells)]
    if single:
        of = "" if len(single) == len(cells) else f" ({listing(single)})"
        lacking = [cell for cell in measured_once(cells) if lacks(cell)]
        how = "; ".join(entry.command for entry in left(lacking)) or "use --repeats 3"
        caveats.append(f"Measured once{of}: a second run may differ by more than these intervals; {how}.")
    if any(OTHER_RUNS in entry.ratio.note for entry in group.ranked):
        caveats.append(
            "Some cells have no run in common with the first, or one was measured before a run was resumed and the other after it: "
            "their ratios also hold what two runs are assumed to differ by."
        )
    if len({cell.row.get("core_sha256") for cell in cells}) > 1:
        caveats.append(
            "Not all cells were measured by the same version of the bench: the digests are under Provenance."
        )
    own = rules.is_own(group.key.workload)
    if not own and any(cell.short for cell in cells):
        caveats.append(
            f"Shorter than the specification's run: compare speed, not total time{' or accuracy' if workload.learns else ''}."
        )
    if not own and group.key.data_source == "generated":
        caveats.append(f"{'Trained' if workload.learns else 'Run'} on generated stand-in data.")
    if group.others:
        why = [_ENDS.get(cell.status, cell.unranked) for cell in group.others]
        parts = [f"{cell.label} ({words})" for cell, words in zip(group.others, why, strict=True)]
        caveats.append(f"Not ranked: {listing(parts)}.")
    beside = [
        f"{cell.label} ({number(cell.score.value)})" for cell in cells if cell.score and workload.outside_band(cell)
    ]
    if beside and workload.band:
        low, high = workload.band
        caveats.append(
            f"Outside what a correct full run reaches ({workload.metric} {low} to {high}): {listing(beside)}."
        )
    below = [cell.label for cell in cells if _at_chance(workload, cell)]
    if below:
        caveats.append(f"{listing(below)} learned nothing: the accuracy is that of chance.")
    return tuple(caveats)


def _at_chance(workload: MeasuredWorkload, cell: MeasuredCell) -> bool:
    return workload.chance is not None and cell.score is not None and cell.score.value <= workload.chance
