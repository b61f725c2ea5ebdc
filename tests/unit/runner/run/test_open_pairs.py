"""Which pairs of a run are open, and what further repeats of these do to a run's answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from reports.data import tables
from runner.plan.durations import Durations
from runner.plan.plan import Cell
from runner.results.rank.blocks import InBlock
from runner.results.rank.ranking import OTHER_TIME, bad_repeats
from runner.results.store import RunStore
from runner.run import execution
from runner.run.budget import Agenda, OpenPair, without
from runner.run.dispatch import Job, blocks
from runner.run.open_pairs import Logs, OpenPairs, open_pairs
from tests.fixtures import stored, synthetic
from tests.fixtures.plans import NO_GPU
from tests.unit.runner.run.test_budget import CELL_SECONDS, CELLS, WORKLOADS


def column(*cells: Sequence[float]) -> Logs[str]:
    """Cells a, b, … with these step times, a repeat a block."""
    return {
        chr(ord("a") + place): [InBlock((0, at), math.log(value), 0, 30.0 * at) for at, value in enumerate(values)]
        for place, values in enumerate(cells)
    }


def test_a_pair_is_open_until_one_is_slower_or_both_are_the_same_within_the_margin() -> None:
    far = column((100, 101, 99), (120, 119, 121), (150, 151, 148))
    assert open_pairs([far], 3) == []
    alike = column((100, 100.5, 99.7), (100.2, 100.1, 100.3), (99.9, 100.1, 100.2))
    assert open_pairs([alike], 3) == []
    noisy = column((100, 108, 94), (104, 97, 109), (150, 157, 141))
    ((fastest, rival, more),) = open_pairs([noisy], 3)
    assert (fastest, rival) == ("a", "b")
    assert more is None, "their difference is small, and their noise large"
    near = column((100, 104, 97, 100), (106, 108, 106, 102))
    assert open_pairs([near], 3) == [("a", "b", 1)]


def test_the_nearest_rival_of_every_workload_comes_first() -> None:
    first = column((100, 108, 94), (104, 97, 109), (112, 99, 103))
    second = {f"{name}2": logs for name, logs in first.items()}
    pairs = [(fastest, rival) for fastest, rival, _ in open_pairs([first, second], 3)]
    assert pairs == [("a", "b"), ("a2", "b2"), ("a", "c"), ("a2", "c2")]


def test_a_pair_that_has_had_further_repeats_must_be_surer_than_one_that_has_not() -> None:
    between = column((100, 102, 99, 101), (103.8, 104.8, 105.3, 103.3))
    assert open_pairs([between], 4) == []
    assert [pair[:2] for pair in open_pairs([between], 3)] == [("a", "b")]


def test_cells_that_no_block_joins_are_compared_beside_what_sessions_differ_by() -> None:
    joined = column((100, 101, 99), (104, 105, 103))
    apart = joined | {"b": [one._replace(block=(1, one.block), session=1) for one in joined["b"]]}
    assert open_pairs([apart], 3) == [("a", "b", 1)], "a block with both would tell"
    assert open_pairs([joined], 3) == []


def test_one_repeat_far_off_is_an_outlier_and_a_noisy_cell_is_none() -> None:
    cells = {**column((100, 101, 99), (100, 130, 99), (100, 102, 101)), "d": column((100, 130, 70))["a"]}
    assert bad_repeats(cells) == {"b": 1}
    assert bad_repeats({}) == bad_repeats(column((100, 130))) == {}


class Planned(NamedTuple):
    """A cell of a plan."""

    id: str


@pytest.mark.parametrize("resumed", [False, True])
def test_what_a_stored_run_leaves_open_is_what_its_report_leaves_open(tmp_path: Path, resumed: bool) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=3)
    noisy = synthetic.cell("jax-0.10.2-cpu", "gru-imdb")["id"]
    synthetic.with_windows(folder, noisy, lambda window: window | {"seconds": 1.15 * window["seconds"]})
    if resumed:
        manifest = RunStore(folder).manifest()
        ids = [entry["id"] for entry in manifest["plan"]]
        # The last block was measured after the run had been resumed.
        manifest["reused"] = [{"cell_id": cell, "repeat": repeat} for cell in ids for repeat in (1, 2)]
        RunStore(folder).write_manifest(manifest)
    entries: list[Any] = [Planned(entry["id"]) for entry in RunStore(folder).manifest()["plan"]]
    found = {(pair.first.id, pair.second.id) for pair in OpenPairs(RunStore(folder), entries, 3)()}
    of_report = set()
    for workload in tables.load([folder]).workloads:
        for group in workload.groups:
            best, *others = group.ranked
            for one in others:
                low, high = one.ratio.low or 0.0, one.ratio.high or math.inf
                if low <= 1 and (low < 1 / 1.05 or high > 1.05):
                    of_report.add((best.cell.cell_id, one.cell.cell_id))
    assert found == of_report
    assert found, "the run has a pair that is open"


def test_a_cell_that_was_measured_at_another_time_of_a_run_is_compared_as_one_of_another_session(
    tmp_path: Path,
) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=3)
    late = synthetic.cell("jax-0.10.2-cpu", "gru-imdb")
    stored.remove(folder, lambda row: row["cell_id"] == late["id"])
    for repeat in (1, 2, 3):
        # 4 % slower than PyTorch, which is told at once within blocks.
        stored.write_repeat(folder, late["id"], 3 + repeat, synthetic.ended(late, repeat, 40, 1.045, 0))
    (group,) = (
        group
        for workload in tables.load([folder]).workloads
        for group in workload.groups
        if workload.name == "gru-imdb"
    )
    (one,) = (one for one in group.ranked if one.cell.cell_id == late["id"])
    assert one.ratio.low is not None
    assert one.ratio.low < 1 < one.ratio.value
    assert OTHER_TIME in one.ratio.note
    entries: list[Any] = [Planned(entry["id"]) for entry in RunStore(folder).manifest()["plan"]]
    assert late["id"] in {pair.second.id for pair in OpenPairs(RunStore(folder), entries, 3)()}


def test_what_is_admitted_while_the_run_goes_on_counts_without_new_tables(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=3)
    noisy = synthetic.cell("jax-0.10.2-cpu", "gru-imdb")["id"]
    synthetic.with_windows(folder, noisy, lambda window: window | {"seconds": 1.15 * window["seconds"]})
    entries: list[Any] = [Planned(entry["id"]) for entry in RunStore(folder).manifest()["plan"]]
    expected = OpenPairs(RunStore(folder), entries, 3)()
    rows = {table: stored.rows_of(folder, table) for table in ("cells", "samples")}
    stored.remove(folder, lambda row: row["repeat"] > 1)
    run = RunStore(folder)
    pairs = OpenPairs(run, entries, 3)
    assert pairs() == []
    for row in rows["cells"]:
        if (repeat := row["repeat"]) > 1:
            windows = [one for one in rows["samples"] if (one["cell_id"], one["repeat"]) == (row["cell_id"], repeat)]
            run.add(b"a parcel", row["cell_id"], repeat, {"cells": [row], "samples": windows})
    assert pairs() == expected != []


@pytest.mark.parametrize(("limited", "given"), [(False, None), (True, 3)])
def test_only_a_run_of_some_minutes_adds_repeats_and_only_where_the_user_gave_no_number(
    tmp_path: Path, limited: bool, given: int | None
) -> None:
    agenda = Agenda(NO_GPU, Durations(WORKLOADS, {}), [CELLS], {}, 3)
    prospect: Any = SimpleNamespace(agenda=lambda: agenda, options=SimpleNamespace(repeats=given))
    assert execution._agenda(prospect, RunStore(tmp_path), limited).unsettled is None
    prospect.options.repeats = None
    assert execution._agenda(prospect, RunStore(tmp_path), limited=True).unsettled is not None


class Measured:
    """A machine whose repeats scatter; it says what is open by the rule of the runner."""

    def __init__(self, levels: dict[Cell, float], noise: float, seed: int) -> None:
        self.levels, self.noise, self.random = levels, noise, np.random.default_rng(seed)
        self.logs: dict[Cell, list[InBlock]] = {}

    def measure(self, job: Job, now: float) -> None:
        log = self.levels[job.cell] + self.random.normal(0, self.noise)
        self.logs.setdefault(job.cell, []).append(InBlock(job.repeat, log, None, now))

    def columns(self) -> list[Logs[Cell]]:
        workloads = dict.fromkeys(cell.workload for cell in CELLS)
        return [{cell: logs for cell, logs in self.logs.items() if cell.workload == name} for name in workloads]

    def __call__(self) -> Sequence[OpenPair]:
        return [OpenPair(*pair) for pair in open_pairs(self.columns(), 3)]

    def fastest(self) -> Sequence[Sequence[Cell]]:
        return [sorted(column, key=self.levels.__getitem__) for column in self.columns()]

    def outliers(self) -> Sequence[Cell]:
        return list(bad_repeats({cell: logs for column in self.columns() for cell, logs in column.items()}))


def ten_minutes(noise: float, seed: int) -> tuple[int, int, set[int]]:
    """Six cells of which PyTorch's are 8 % faster: how many pairs are open at minute 7 and at the end, and the repeats of a cell."""
    machine = Measured({cell: 0.0 if cell.framework == "torch" else 0.08 for cell in CELLS}, noise, seed)
    plan = Agenda(NO_GPU, Durations(WORKLOADS, {}), [CELLS], {cell.image: {} for cell in CELLS}, 3, machine)
    waiting, now, end, done = blocks(CELLS, 3, seed), 0.0, 18 * CELL_SECONDS + 180, dict[Cell, list[int]]()
    open_at_seven = -1
    while step := plan.next_step(waiting, frozenset(), end - now, done):
        if not waiting and open_at_seven < 0:
            open_at_seven = len(open_pairs(machine.columns(), 3))
        for job in step.jobs:
            machine.measure(job, now)
            now += CELL_SECONDS
            done.setdefault(job.cell, []).append(job.repeat)
        waiting = without(waiting, step.jobs)
    # By the same rule as at minute 7: as if all were planned.
    at_end = len(open_pairs(machine.columns(), 9))
    return at_end if open_at_seven < 0 else open_at_seven, at_end, {len(logs) for logs in machine.logs.values()}


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.06])
def test_ten_minutes_of_six_cells_end_no_less_sure_than_they_were_at_minute_seven(noise: float) -> None:
    runs = [ten_minutes(noise, seed) for seed in range(12)]
    at_seven, at_end = (sum(run[place] for run in runs) for place in (0, 1))
    assert at_end <= at_seven
    assert at_end < at_seven or not at_seven
    # Noise may open a pair again that had just been told. That is rare, and not the schedule's doing: it leaves no cell with fewer repeats.
    assert sum(run[1] > run[0] for run in runs) <= 1
    assert min(min(run[2]) for run in runs) == 3
