"""A plan that times the training to a loss: which workloads have one, and a seed for each repeat."""

from __future__ import annotations

from pathlib import Path

from bench.__main__ import parser
from runner.admission.admit import admit
from runner.admission.judges import HostFacts
from runner.catalog.workloads import load_workloads
from runner.results.parcel import Parcel
from runner.run.attempt import arguments
from tests.fixtures.plans import image, make_cell, planned, reasons

EVERY = load_workloads()
TIMED = "gpt-bytes-to-loss"


def test_a_workload_on_request_is_planned_where_it_is_named_or_a_loss_is_asked_for(folder: Path) -> None:
    def workloads(**options: object) -> set[str]:
        return {cell.workload for cell in planned([image(folder)], specified=EVERY, **options).cells}

    assert TIMED not in workloads()
    assert workloads(workloads=(TIMED,)) == workloads(to_loss=2.0) == {TIMED}


def test_a_workload_without_a_loss_or_without_evaluations_says_why_it_is_not_timed(folder: Path) -> None:
    found = reasons(planned([image(folder)], specified=EVERY, to_loss=2.0))
    assert {
        "cnn-cifar10 has no held-out loss to time: its metric is accuracy",
        "ops has no held-out loss to time: it has no metric",
        "gpt-bytes is evaluated only after its training at preset quick",
    } <= found


def test_each_repeat_has_the_seed_that_its_row_records(folder: Path) -> None:
    (cell,) = planned([image(folder)], specified=EVERY, to_loss=2.0, seed=5).cells
    seeds = [parser().parse_args(arguments(cell, repeat=repeat)).seed for repeat in (1, 2, 6)]
    assert seeds == [5, 6, 10]
    never_ran = Parcel(cell.id, 2, "docker", ended_by=("engine", "no such image"))
    (row,) = admit(never_ran, cell, HostFacts()).tables["cells"]
    assert row["seed"] == 6
    assert make_cell(seed=5).seed_of(6) == 5
