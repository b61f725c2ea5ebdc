"""The step time of a cell as everything prints it: without what moved all cells of its run at the time."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from runner.results import statistics
from runner.results.cells import StoredCell
from runner.results.rank.blocks import Blocks, InBlock
from runner.results.rank.ranking import usual_scatter
from runner.results.student import student_quantile

Cell = TypeVar("Cell", bound=StoredCell)


def in_blocks(cells: Iterable[StoredCell]) -> Sequence[InBlock]:
    """Each repeat of the cells in its block. Empty for one repeat, which shows no noise.

    A block is the repeats of one number in one run on one model of device. What was measured before the run was resumed is in
    another block, and another session, than the rest: time has passed between them.
    """
    repeats = [
        InBlock((session, repeat.number), repeat.log_median, session, repeat.began)
        for cell in cells
        for repeat in cell.repeats
        if repeat.log_median is not None
        and (session := (repeat.row.get("run_id"), cell.key.device_model, repeat.reused))
    ]
    return repeats if len(repeats) > 1 else ()


def levelled_run(cells: Sequence[StoredCell]) -> list[StoredCell]:
    """The cells of one run, each with the step time that the run's report prints."""
    blocks = Blocks({cell.cell_id: logs for cell in cells if cell.ranked and (logs := in_blocks([cell]))})
    return [levelled(cell, blocks, cell.cell_id) if cell.ranked else cell for cell in cells]


def levelled(cell: Cell, blocks: Blocks, name: Hashable) -> Cell:
    """The ranked cell with its step time beside the other cells of its run. `name` is its own in the blocks.

    With repeats that blocks join it is without what its blocks did. The interval of one repeat has room for how much another would
    differ, as the other cells of the run show it.
    """
    step, level = cell.step, blocks.level(name)
    if step is None:
        return cell
    if level is not None:
        return replace(cell, step=statistics.moved(step, math.exp(level)))
    if len(cell.measured) > 1 or step.low is None or cell.own_width is not None:
        return cell
    usual = usual_scatter(blocks, cell.key.device_kind)
    reach = student_quantile((1 + statistics.LEVEL) / 2, min(usual.freedom, 1e6)) * usual.deviation
    ends = [math.exp(math.hypot(reach, math.log(end / step.value))) for end in (step.low, step.high or step.value)]
    wider = replace(step, low=step.value / ends[0], high=step.value * ends[1])
    return replace(cell, step=wider, own_width=step.half_width)
