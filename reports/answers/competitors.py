"""The cells of an answer. Each cell appears once, however many runs measured it: it does not compete with itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from reports.answers.contrast import Side, differences
from reports.answers.run_history import in_time, states
from reports.data.groups import blocks_of, group_of
from reports.data.model import Group, MeasuredCell, Tables
from reports.wording import listing
from runner.results import statistics, steadiness
from runner.results.rank.blocks import moderated_scatter
from runner.results.statistics import Estimate


def once(groups: Sequence[Group], tables: Tables) -> list[tuple[Group, tuple[str, ...]]]:
    """The groups, in which each measured cell is its newest state; each with the sentences that say so.

    States are those of reports.answers.run_history: runs between which nothing that was recorded changed.
    """
    order = in_time(tables)
    of_groups = [_copies(group, order) for group in groups]
    if all(len(same) == 1 for copies in of_groups for same in copies.values()):
        return [(group, ()) for group in groups]
    merged = [[_newest(name, same) for name, same in copies.items()] for copies in of_groups]
    blocks = blocks_of(cell for cells in merged for cell in cells)
    return [
        (group_of(group.anchor, group.key, [*cells, *group.others], blocks), _sentences(copies))
        for group, cells, copies in zip(groups, merged, of_groups, strict=True)
    ]


def _copies(group: Group, order: Mapping[str, int]) -> dict[str, list[MeasuredCell]]:
    """Each ranked cell of a group as the runs measured it, the oldest first."""
    copies: dict[str, list[MeasuredCell]] = {}
    for cell in sorted(group.cells, key=lambda cell: order[cell.run_id]):
        if not cell.unranked:
            copies.setdefault(without_run(cell), []).append(cell)
    return copies


def without_run(cell: MeasuredCell) -> str:
    """The cell's label without the run."""
    return cell.label.removesuffix(f" · {cell.run_id}")


def _newest(name: str, copies: Sequence[MeasuredCell]) -> MeasuredCell:
    """The cells of the last state as one cell with all their repeats."""
    state = states(copies)[-1]
    repeats = tuple(repeat for cell in state for repeat in cell.repeats)
    step = statistics.step_estimate([repeat.steady_step_seconds for repeat in repeats])
    if step is not None:
        step = steadiness.widened(step, [repeat.shift for repeat in repeats if repeat.shift is not None])
        step = _of_runs(step, state) if len(state) > 1 else step
    return replace(state[-1], label=name, repeats=repeats, planned=len(repeats), step=step, own_width=None)


def _of_runs(step: Estimate, state: Sequence[MeasuredCell]) -> Estimate:
    """The step time of several runs, of which each is one observation: repeats of one run share what differs between runs."""
    runs = [[repeat.log_median for repeat in cell.repeats if repeat.log_median is not None] for cell in state]
    means = np.array([np.mean(logs) for logs in runs if logs])
    kind, each = state[-1].key.device_kind, sum(map(len, runs)) / len(means)
    assumed = math.hypot(
        statistics.of_kind(statistics.SESSION_DEVIATION, kind),
        statistics.of_kind(statistics.REPEAT_DEVIATION, kind) / math.sqrt(each),
    )
    shown = moderated_scatter(assumed, float(np.var(means)) * len(means), len(means) - 1)
    return statistics.with_error(step, shown.deviation / math.sqrt(len(means)), min(1e6, shown.freedom))


def _sentences(copies: dict[str, list[MeasuredCell]]) -> tuple[str, ...]:
    sentences = []
    again = {name: states(same) for name, same in copies.items() if len(same) > 1}
    pooled = [name for name, measured in again.items() if len(measured) == 1]
    if pooled:
        who = "Each cell counts" if len(pooled) == len(copies) else f"{listing(pooled)} count{'s' * (len(pooled) == 1)}"
        sentences.append(f"{who} once, with the repeats of all its runs: nothing recorded changed between them.")
    for name, measured in again.items():
        if len(measured) > 1:
            changes = differences(Side(tuple(measured[-2])), Side(tuple(measured[-1])))
            runs = listing(cell.run_id for cell in measured[-1])
            sentences.append(
                f"{name} counts as run {runs} measured it, after {listing(str(change) for change in changes)}."
            )
    return tuple(sentences)
