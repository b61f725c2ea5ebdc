"""What a run does next in the time that is left, over made-up cells on a machine without a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.catalog.workloads import load_workloads
from runner.plan.durations import Durations, Preparation
from runner.plan.plan import Cell
from runner.run.budget import Agenda, forecast, measuring_seconds
from runner.run.dispatch import Job, blocks
from tests.fixtures.plans import NO_GPU, make_cell

WORKLOADS = load_workloads()
IMAGES = ("torch", "tensorflow", "jax")
CELLS = [
    make_cell(image=f"{name}-1-cpu", framework=name, workload=workload, device_model=NO_GPU.cpu.model)
    for name in IMAGES
    for workload in ("cnn-cifar10", "gru-imdb")
]
# A guess of preset quick.
CELL_SECONDS = Durations(WORKLOADS, {}).seconds(CELLS[0])
PREPARE_SECONDS = 50.0


def agenda(cost: int = 10**9, groups: int = 1, **prepared: float) -> Agenda:
    """Three images that are not ready, of which each takes 50 s; the cells in so many groups."""
    took = [Preparation(cell.image, cost, prepared.get(cell.framework, PREPARE_SECONDS)) for cell in CELLS]
    size = len(CELLS) // groups
    parts = [CELLS[at : at + size] for at in range(0, len(CELLS), size)]
    costs = {cell.image: cost for cell in CELLS}
    return Agenda(NO_GPU, Durations(WORKLOADS, {}, took), parts, costs)


JOBS = blocks(CELLS, 3, seed=1)


@dataclass
class Done:
    """How a run went by the estimates."""

    order: list[Job]
    prepared: list[str]
    seconds: float


def carried_out(plan: Agenda, seconds: float) -> Done:
    waiting, ready, now = list(JOBS), frozenset[str](), 0.0
    done = Done([], [], 0.0)
    while step := plan.next_step(waiting, ready, seconds - now):
        if step.image:
            done.prepared.append(step.image)
            ready |= {step.image}
            now += plan.durations.preparing(step.image, plan.costs[step.image])
        assert {job.cell.image for job in step.jobs} <= ready | {name for name, cost in plan.costs.items() if not cost}
        done.order += step.jobs
        now += sum(plan.durations.seconds(job.cell) for job in step.jobs)
        waiting = [job for job in waiting if job not in step.jobs]
    done.seconds = now
    return done


def test_an_image_is_measured_before_the_next_is_prepared_and_repeats_come_last() -> None:
    done = carried_out(agenda(), math.inf)
    assert sorted(job.key for job in done.order) == sorted(job.key for job in JOBS)
    assert done.prepared == [f"{name}-1-cpu" for name in IMAGES]
    first = done.order[: len(CELLS)]
    assert [job.repeat for job in first] == [1] * len(CELLS)
    assert [job.cell.image for job in first] == [name for name in done.prepared for _ in range(2)]
    assert done.order[len(CELLS) :] == [job for job in JOBS if job.repeat > 1], "the shuffled blocks stay as they are"


def test_where_all_is_ready_and_time_has_no_limit_the_shuffled_order_stays() -> None:
    assert carried_out(agenda(cost=0), math.inf).order == JOBS


@given(seconds=st.floats(0, 2000), groups=st.sampled_from([1, 2, 3]), cost=st.sampled_from([0, 10**9]))
def test_nothing_is_begun_that_would_not_end_and_no_second_repeat_before_a_first(
    seconds: float, groups: int, cost: int
) -> None:
    done = carried_out(agenda(cost, groups), seconds)
    assert done.seconds <= seconds or not done.order
    assert len(set(done.order)) == len(done.order)
    begun: set[Cell] = set()
    for job in done.order:
        assert (job.repeat == 1) == (job.cell not in begun)
        begun.add(job.cell)
    # What is left does not fit.
    left = seconds - done.seconds
    if len(done.order) < len(JOBS):
        ready = {name for name, bytes_ in agenda(cost).costs.items() if not bytes_} | set(done.prepared)
        of_ready = [job for job in JOBS if job.cell.image in ready and job not in done.order]
        assert left < CELL_SECONDS or not of_ready
        assert left < PREPARE_SECONDS + CELL_SECONDS or ready >= {cell.image for cell in CELLS}


def test_an_image_that_takes_too_long_is_passed_over_for_one_that_does_not() -> None:
    done = carried_out(agenda(torch=500.0), 200)
    assert done.prepared[0] == "tensorflow-1-cpu"
    assert "torch-1-cpu" not in done.prepared


def test_of_what_is_ready_the_first_group_comes_first() -> None:
    # No workload's further repeats fit.
    done = carried_out(agenda(cost=0, groups=3), 3.5 * CELL_SECONDS)
    assert [job.cell.framework for job in done.order] == ["torch", "torch", "tensorflow"]


def test_the_first_group_has_all_its_repeats_before_the_next_begins_where_the_time_holds_them() -> None:
    # Two cells of PyTorch with three repeats, then the others' first repeats.
    order = carried_out(agenda(cost=0, groups=3), 8.5 * CELL_SECONDS).order
    assert [(job.cell.framework, job.repeat) for job in order[:6]] == [("torch", at) for at in (1, 1, 2, 2, 3, 3)]
    assert [(job.cell.framework, job.repeat) for job in order[6:]] == [("tensorflow", 1)] * 2
    # One repeat less fits: then the first workload has all of its own, and the view is broad.
    short = carried_out(agenda(cost=0, groups=3), 5.5 * CELL_SECONDS).order
    assert [(job.cell.workload, job.repeat) for job in short[2:]] == [
        ("cnn-cifar10", 2),
        ("cnn-cifar10", 3),
        ("cnn-cifar10", 1),
    ]
    # Not even one workload's repeats fit.
    shorter = carried_out(agenda(cost=0, groups=3), 3.5 * CELL_SECONDS).order
    assert [job.repeat for job in shorter] == [1] * 3


def test_the_next_step_of_thousands_of_repeats_is_found_in_a_second() -> None:
    jobs = [job for job in blocks(CELLS, 1000, seed=1) if job.repeat > 1]
    begin = time.process_time()
    step = agenda(cost=0, groups=3).next_step(jobs, frozenset(), 2000 * CELL_SECONDS)
    assert time.process_time() - begin < 0.5
    assert step is not None
    assert {(job.cell.framework, job.repeat) for job in step.jobs} == {("torch", 2)}
    # Nothing of any repeat fits.
    begin = time.process_time()
    assert agenda(cost=0, groups=3).next_step(jobs, frozenset(), 1.0) is None
    assert time.process_time() - begin < 0.5


def resumed(begun: dict[tuple[str, str], int], held: float) -> list[tuple[str, str, int]]:
    """What a run measures in the time of so many cells where (framework, workload) has had so many repeats before."""
    plan = replace(agenda(cost=0, groups=3), begun=frozenset(cell for cell in CELLS if place_of(cell) in begun))
    waiting = [job for job in JOBS if job.repeat > begun.get(place_of(job.cell), 0)]
    spans = forecast(plan, waiting, minutes=(held * CELL_SECONDS + 11) / 60).spans
    return [(*place_of(span.job.cell), span.job.repeat) for span in sorted(spans, key=lambda span: span.begin)]


def place_of(cell: Cell) -> tuple[str, str]:
    return cell.framework, cell.workload


def test_a_run_that_goes_on_completes_the_comparisons_that_it_began() -> None:
    cnn, gru = "cnn-cifar10", "gru-imdb"
    # Two frameworks at one workload, a third one and the other workload not yet: their repeats come first.
    begun = {("torch", cnn): 1, ("tensorflow", cnn): 1}
    order = resumed(begun, 4.5)
    assert {(framework, workload) for framework, workload, _ in order} == set(begun)
    assert [repeat for *_, repeat in order] == [2, 2, 3, 3]
    # Of two workloads with time for one more repeat of either, one workload has it whole.
    begun = {(framework, workload): 1 for framework in ("torch", "tensorflow") for workload in (cnn, gru)}
    assert len({workload for _, workload, _ in resumed(begun, 2.5)}) == 1
    # One framework alone is compared with nothing: a rival of its group comes first, and where there is none, its repeats.
    assert resumed({("torch", cnn): 1}, 1.5) == [("torch", cnn, 2)]
    # With more time the run goes on with what is new, in its usual order.
    assert {framework for framework, *_ in resumed({("torch", cnn): 3, ("tensorflow", cnn): 3}, 12.5)} == set(IMAGES)


def test_a_forecast_says_what_the_minutes_hold_and_what_they_leave() -> None:
    held = forecast(agenda(), JOBS, minutes=5)
    ends = [span.end for span in held.spans]
    assert max(ends) <= measuring_seconds(5) < 300
    assert min(span.begin for span in held.spans) == PREPARE_SECONDS
    assert len(held.spans) + len(held.left) == len(JOBS)
    assert forecast(agenda(), JOBS, minutes=0.5).spans == ()
    assert forecast(agenda(), JOBS, minutes=100).left == ()


def test_what_a_run_took_is_what_it_expects() -> None:
    durations, guesses = Durations(WORKLOADS, {}), Durations(WORKLOADS, {})
    first, second, other = (CELLS[at] for at in (0, 1, 2))
    durations.learn(first, 60.0)
    assert durations.seconds(first) == 60
    assert durations.seconds(second) == guesses.seconds(second), "one cell says nothing of the machine"
    pace = 60 / guesses.seconds(first)
    for framework in ("chainer", "paddle"):
        durations.learn(replace(first, framework=framework), 60.0)
    assert durations.seconds(second) == pace * guesses.seconds(second)
    durations.learn(other, 90.0)
    assert durations.seconds(other) == 90
    assert durations.seconds(first) == 60


def test_an_image_takes_as_long_as_it_took_and_another_by_its_bytes_at_that_pace() -> None:
    prepared: Mapping[str, float] = {"a": 110.0, "b": 60.0}
    durations = Durations(WORKLOADS, {}, [Preparation(name, 10**9, took) for name, took in prepared.items()])
    assert durations.preparing("a", 10**9) == 110
    assert durations.preparing("a", 0) == 0
    guesses = Durations(WORKLOADS, {})
    assert 10 < guesses.preparing("c", 10**8) < guesses.preparing("c", 10**9)
    pace = (110 + 60) / 2 / guesses.preparing("c", 10**9)
    assert durations.preparing("c", 2 * 10**9) == pytest.approx(pace * guesses.preparing("c", 2 * 10**9))
