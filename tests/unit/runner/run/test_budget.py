"""What a run does next in the time that is left, over made-up cells on a machine without a GPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.catalog.workloads import load_workloads
from runner.machine.devices import Machine
from runner.plan.durations import Durations, Preparation
from runner.plan.plan import Cell
from runner.run.budget import MOST_REPEATS, Agenda, NotYetKnown, OpenPair, forecast, measuring_seconds, without
from runner.run.dispatch import Job, blocks
from tests.fixtures.plans import CPU, H200, NO_GPU, make_cell
from tests.fixtures.waiting import within

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
    split = [CELLS[at : at + size] for at in range(0, len(CELLS), size)]
    parts = {cell.image: {cell.image: cost} for cell in CELLS}
    return Agenda(NO_GPU, Durations(WORKLOADS, {}, took), split, parts, repeats=3)


JOBS = blocks(CELLS, 3, seed=1)


@dataclass
class Done:
    """How a run went by the estimates."""

    order: list[Job]
    prepared: list[str]
    seconds: float


def carried_out(plan: Agenda, seconds: float, unsettled: Open | None = None) -> Done:
    waiting, ready, now = list(JOBS), frozenset[str](), 0.0
    numbers: dict[Cell, list[int]] | None = None if unsettled is None else {}
    done = Done([], [], 0.0)
    while step := plan.next_step(waiting, ready, seconds - now, numbers):
        if step.image:
            done.prepared.append(step.image)
            now += plan.preparing([step.image], plan.unready(ready))
            ready |= {step.image}
        assert not {job.cell.image for job in step.jobs} & plan.unready(ready)
        done.order += step.jobs
        now += sum(plan.durations.seconds(job.cell) for job in step.jobs)
        waiting = without(waiting, step.jobs)
        if unsettled is not None and numbers is not None:
            unsettled.order = done.order
            for job in step.jobs:
                numbers.setdefault(job.cell, []).append(job.repeat)
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
    plan = agenda(cost, groups)
    done = carried_out(plan, seconds)
    assert done.seconds <= seconds or not done.order
    assert len(set(done.order)) == len(done.order)
    begun: set[Cell] = set()
    for job in done.order:
        assert (job.repeat == 1) == (job.cell not in begun)
        begun.add(job.cell)
    # What is left does not fit.
    left = seconds - done.seconds
    if len(done.order) < len(JOBS):
        unready = plan.unready(done.prepared)
        assert left < CELL_SECONDS or not any(job.cell in begun for job in JOBS if job not in done.order)
        assert left < 3 * CELL_SECONDS + (PREPARE_SECONDS if unready else 0)


@given(seconds=st.floats(0, 2000), groups=st.sampled_from([2, 3]), cost=st.sampled_from([0, 10**9]))
def test_no_cell_is_measured_once_beside_a_workload_that_has_all_its_repeats(
    seconds: float, groups: int, cost: int
) -> None:
    plan = agenda(cost, groups)
    repeats = Counter(job.cell for job in carried_out(plan, seconds).order)
    first = plan.groups[0]
    workloads = {cell.workload for cell in first}
    if any(all(repeats[cell] == 3 for cell in first if cell.workload == workload) for workload in workloads):
        assert {repeats[cell] for group in plan.groups[1:] for cell in group} <= {0, 3}


@pytest.mark.parametrize("cost", [0, 10**9], ids=["ready", "not ready"])
@pytest.mark.parametrize(
    "modes", [(), ("torch",), ("torch", "tensorflow")], ids=["one mode", "two of one", "two of two"]
)
def test_with_two_precisions_a_column_of_one_framework_is_compared_with_its_other_precision(
    cost: int, modes: Sequence[str]
) -> None:
    every = [
        replace(cell, mode=mode)
        for cell in CELLS
        for mode in ("default", "graph")
        if mode == "default" or cell.framework in modes
    ]
    cells = [replace(cell, precision=precision) for cell in every for precision in ("fp32", "amp-bf16")]
    plan = replace(agenda(cost), groups=[cells], parts={cell.image: {cell.image: cost} for cell in cells})
    # As the modes that a plan has by itself are: one of each framework is repeated.
    plan = replace(plan, contending=bool(modes), unsettled=NotYetKnown(cells))
    for quarters in range(4, 60):
        spans = forecast(plan, blocks(cells, 3, seed=1), quarters / 4).spans
        columns: dict[tuple[str, str], set[str]] = {}
        for cell in (span.job.cell for span in spans):
            columns.setdefault((cell.workload, cell.precision), set()).add(cell.framework)
        most = Counter(span.job.cell for span in spans)
        repeated = {(cell.workload, cell.precision, cell.framework) for cell, count in most.items() if count > 1}
        for (workload, precision), names in columns.items():
            both = {(workload, at, name) for at in ("fp32", "amp-bf16") for name in names}
            told = len(names) > 1 or both <= repeated
            assert told or len(set().union(*columns.values())) < 2, (quarters, workload, precision)


def test_an_image_that_takes_too_long_is_passed_over_for_one_that_does_not() -> None:
    done = carried_out(agenda(torch=500.0), 200)
    assert done.prepared[0] == "tensorflow-1-cpu"
    assert "torch-1-cpu" not in done.prepared


def test_a_part_that_images_share_is_fetched_once() -> None:
    names = [cell.image for cell in CELLS[::2]]
    parts = {name: {"shared": 2 * 10**9, name: 10**9} for name in names}
    plan = replace(agenda(), parts=parts, durations=Durations(WORKLOADS, {}))
    assert [plan.cost(names[1], unready) for unready in (names, names[1:])] == [3 * 10**9, 10**9]
    seconds = plan.durations.preparing
    assert plan.preparing(names, names) == seconds("", 3 * 10**9) + 2 * seconds("", 10**9)
    steps = [(step.image, at) for step, at in forecast(plan, JOBS, 60).steps if step.image]
    assert steps[1] == (names[1], seconds("", 3 * 10**9) + 2 * CELL_SECONDS + seconds("", 10**9))


def test_after_the_first_image_the_one_that_is_ready_soonest_comes_next() -> None:
    assert carried_out(agenda(tensorflow=90.0), 300).prepared == [f"{name}-1-cpu" for name in ("torch", "jax")]
    assert carried_out(agenda(tensorflow=90.0), math.inf).prepared == [f"{name}-1-cpu" for name in IMAGES]


def test_of_what_is_ready_the_first_group_comes_first() -> None:
    # No workload's further repeats fit.
    done = carried_out(agenda(cost=0, groups=3), 3.5 * CELL_SECONDS)
    assert [job.cell.framework for job in done.order] == ["torch", "torch", "tensorflow"]


def test_the_first_group_has_all_its_repeats_before_a_further_cell_has_all_of_its_own() -> None:
    # Two cells of PyTorch with three repeats. Of the next image all repeats of one cell fit, and a repeat of nothing else.
    order = [
        (job.cell.framework, job.repeat) for job in carried_out(agenda(cost=0, groups=3), 9.5 * CELL_SECONDS).order
    ]
    assert order == [*(("torch", at) for at in (1, 1, 2, 2, 3, 3)), *(("tensorflow", at) for at in (1, 2, 3))]
    # One repeat less fits: the time stays unused, since one repeat beside three answers nothing.
    assert len(carried_out(agenda(cost=0, groups=3), 8.5 * CELL_SECONDS).order) == 6
    # All repeats of one workload fit, and one more of the other.
    short = carried_out(agenda(cost=0, groups=3), 5.5 * CELL_SECONDS).order
    assert [(job.cell.workload, job.repeat) for job in short[2:]] == [
        ("cnn-cifar10", 2),
        ("cnn-cifar10", 3),
        ("gru-imdb", 2),
    ]
    # Not even one workload's repeats fit: the view is broad.
    shorter = carried_out(agenda(cost=0, groups=3), 3.5 * CELL_SECONDS).order
    assert [job.repeat for job in shorter] == [1] * 3


def test_the_next_step_of_thousands_of_repeats_is_found_in_a_second() -> None:
    jobs = [job for job in blocks(CELLS, 1000, seed=1) if job.repeat > 1]
    step = within(0.5, lambda: agenda(cost=0, groups=3).next_step(jobs, frozenset(), 2000 * CELL_SECONDS))
    assert step is not None
    assert {(job.cell.framework, job.repeat) for job in step.jobs} == {("torch", 2)}
    # Nothing of any repeat fits.
    assert within(0.5, lambda: agenda(cost=0, groups=3).next_step(jobs, frozenset(), 1.0)) is None


def test_a_run_that_goes_on_completes_its_first_group_and_then_whole_cells_of_what_it_has_begun() -> None:
    plan = agenda(cost=0, groups=3)
    # The first repeat of every cell has ended.
    waiting = [job for job in JOBS if job.repeat > 1]
    spans = forecast(plan, waiting, minutes=(6.5 * CELL_SECONDS + 11) / 60).spans
    repeats = [(span.job.cell.framework, span.job.repeat) for span in spans]
    assert repeats == [*(("torch", at) for at in (2, 2, 3, 3)), ("tensorflow", 2), ("tensorflow", 3)]
    assert len({span.job.cell for span in spans[4:]}) == 1


@pytest.mark.parametrize("seconds", [math.inf, 1000.0])
def test_an_image_that_is_gone_since_its_cells_began_is_prepared_again(seconds: float) -> None:
    waiting = [job for job in JOBS if job.repeat > 1]
    step = agenda(groups=3).next_step(waiting, frozenset(), seconds)
    assert step is not None
    assert step.image == "torch-1-cpu"
    assert {(job.cell.image, job.repeat) for job in step.jobs} == {("torch-1-cpu", 2)}


@dataclass
class Open:
    """What is open by a test's word; `pairs` maps the repeats of a run so far to the open pairs."""

    pairs: Callable[[Sequence[Job]], Sequence[OpenPair]]
    far: Sequence[Cell] = ()
    order: Sequence[Job] = ()
    columns: Sequence[Sequence[Cell]] = ()

    def __call__(self) -> Sequence[OpenPair]:
        return self.pairs(self.order)

    def fastest(self) -> Sequence[Sequence[Cell]]:
        return self.columns

    def outliers(self) -> Sequence[Cell]:
        return self.far


TORCH, TENSORFLOW = (
    next(cell for cell in CELLS if (cell.framework, cell.workload) == (name, "gru-imdb")) for name in IMAGES[:2]
)
# Two frameworks come first, and the third one's two cells are left.
FIRST = 12


def told(until: int, more: int | None = None) -> Open:
    """PyTorch and TensorFlow at the GRU are open until so many repeats of each."""

    def pairs(order: Sequence[Job]) -> Sequence[OpenPair]:
        count = sum(job.cell == TORCH for job in order)
        return [OpenPair(TORCH, TENSORFLOW, more or until - count)] if count < until else []

    return Open(pairs)


def in_two_groups(unsettled: Open) -> Agenda:
    plan = replace(agenda(cost=0, groups=3), unsettled=unsettled)
    return replace(plan, groups=[[*plan.groups[0], *plan.groups[1]], plan.groups[2]])


def measured(unsettled: Open, jobs: float) -> list[Job]:
    """What a run measures in the time of so many jobs."""
    return carried_out(in_two_groups(unsettled), jobs * CELL_SECONDS, unsettled).order


def test_the_pair_whose_order_is_open_gets_further_repeats_before_a_further_framework() -> None:
    order = measured(told(until=5), FIRST + 4 + 1.5)
    assert {job.repeat for job in order[:FIRST]} == {1, 2, 3}
    # Both sides once a block, and the second block backwards.
    pair = order[FIRST : FIRST + 4]
    assert {job.cell for job in pair} == {TORCH, TENSORFLOW}
    assert [job.repeat for job in pair] == [4, 4, 5, 5]
    assert [job.cell for job in pair[2:]] == [job.cell for job in reversed(pair[:2])]
    # It is settled: now a further framework, with all its repeats. They are of another time, so they are in other blocks.
    order = measured(told(until=4), FIRST + 2 + 3.5)
    assert [(job.cell.framework, job.repeat) for job in order[FIRST + 2 :]] == [("jax", at) for at in (5, 6, 7)]


def test_two_frameworks_have_two_repeats_at_the_first_network_before_anything_else_is_begun() -> None:
    first = [("torch", 1), ("tensorflow", 1), ("tensorflow", 2), ("torch", 2)]
    order = measured(told(until=3), FIRST + 4.5)
    assert sorted((job.cell.framework, job.repeat) for job in order[:4]) == sorted(first)
    assert {job.cell.workload for job in order[:4]} == {"cnn-cifar10"}
    # Where images must be made, the second one's cells come first; no third image is made before.
    done = carried_out(agenda(), 6 * CELL_SECONDS + 3 * PREPARE_SECONDS + 4.5 * CELL_SECONDS)
    twice = next(at for at in range(len(done.order)) if {job.repeat for job in done.order[: at + 1]} == {1, 2})
    assert {job.cell.framework for job in done.order[:twice]} == {"torch", "tensorflow"}
    # Where there is no time for it beside the first repeats of the others, these come first.
    order = measured(told(until=3), 5.5)
    assert [job.repeat for job in order[:4]] == [1, 1, 1, 1]


def test_where_nothing_is_open_a_further_framework_comes_at_once() -> None:
    order = measured(told(until=3), FIRST + 3.5)
    assert {job.cell.framework for job in order[FIRST:]} == {"jax"}


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("cost", [0, 10**9])
def test_what_was_measured_before_a_further_image_is_measured_once_more_in_its_last_block(
    framework: str, cost: int
) -> None:
    """Otherwise a machine that drifts meanwhile would make two equal images differ. The same framework comes first."""
    new = [replace(cell, image="new-1-cpu", framework=framework) for cell in CELLS if cell.framework == "jax"]
    # Not all fits, so cells get all their repeats image by image.
    later = [replace(cell, image="later-1-cpu") for cell in new]
    plan = replace(agenda(cost=0), unsettled=Open(lambda _: ()), groups=[CELLS[:4], new, later])
    plan = replace(plan, parts={**plan.parts, "new-1-cpu": {"new": cost} if cost else {}, "later-1-cpu": {}})
    done = {cell: [1, 2, 3] for cell in CELLS[:4]}
    step = plan.next_step(blocks([*new, *later], 3, seed=1), frozenset(), 9 * CELL_SECONDS + (200 if cost else 0), done)
    assert step is not None
    assert [(job.cell.framework, job.cell.workload, job.repeat) for job in step.jobs[6:]] == [
        (framework, job.cell.workload, 6) for job in dict.fromkeys(Job(one.cell, 0) for one in step.jobs[:6])
    ]
    assert len(step.jobs) == 8


def test_where_all_fits_all_cells_are_measured_in_shuffled_blocks() -> None:
    order = measured(told(until=3), len(JOBS) + 0.5)
    assert order == JOBS


def test_a_repeat_with_another_number_stands_for_the_first_one_of_its_cell() -> None:
    waiting = [Job(TORCH, 1), Job(TENSORFLOW, 1), Job(TORCH, 2), Job(TENSORFLOW, 2)]
    assert without(waiting, [Job(TORCH, 5), Job(TENSORFLOW, 2)]) == [Job(TENSORFLOW, 1), Job(TORCH, 2)]
    assert without([], [Job(TORCH, 5)]) == []


def test_where_the_repeats_of_no_workload_fit_the_two_fastest_get_theirs() -> None:
    cnn = [next(cell for cell in CELLS if (cell.framework, cell.workload) == (name, "cnn-cifar10")) for name in IMAGES]
    columns = [[TENSORFLOW, TORCH], [cnn[1], cnn[0], cnn[2]]]
    # Four cells were measured once. Of the eight further repeats of each workload no three fit.
    begun = CELLS[:4]
    later, done = without(JOBS, [Job(cell, 1) for cell in begun]), {cell: [1] for cell in begun}
    plan = in_two_groups(Open(lambda order: [], columns=columns))
    step = plan.next_step(later, frozenset(), 2.5 * CELL_SECONDS, done)
    assert step is not None
    assert Counter(step.jobs) == Counter([Job(TENSORFLOW, 2), Job(TORCH, 2)])
    order = measured(Open(lambda order: [], columns=columns[1:]), 4 + 3.5)
    assert Counter(job for job in order[:6] if job.repeat > 1) == Counter([Job(cnn[0], 2), Job(cnn[1], 2)])
    # What is left is for the first repeat of another framework.
    assert [job.repeat for job in order[6:]] == [1]


def test_of_the_modes_of_a_framework_the_faster_one_is_repeated_and_the_other_when_all_else_is_done() -> None:
    graphs = [replace(cell, mode="graph") for cell in CELLS if cell.framework == "torch"]
    defaults = [cell for cell in CELLS if cell.framework == "torch"]
    cells = [*defaults, *graphs, *(cell for cell in CELLS if cell.framework == "tensorflow")]
    jobs = blocks(cells, 3, seed=1)
    fastest_first = sorted(cells, key=lambda cell: (cell.workload, cell not in graphs))
    columns = [[cell for cell in fastest_first if cell.workload == name] for name in ("cnn-cifar10", "gru-imdb")]
    plan = replace(agenda(cost=0), groups=[cells], unsettled=Open(lambda order: [], columns=columns))

    def repeated(contending: bool, jobs_left: float = 10.5) -> set[Cell]:
        """The cells of the next step after the first repeats, in the time of so many more."""
        later = [job for job in jobs if job.repeat > 1]
        done = {cell: {1} for cell in cells}
        step = replace(plan, contending=contending).next_step(later, frozenset(), jobs_left * CELL_SECONDS, done)
        assert step is not None
        return {job.cell for job in step.jobs}

    assert repeated(contending=True) == set(cells) - set(defaults)
    assert repeated(contending=False) & set(defaults), "a user who names modes compares them"
    # Where the repeats of no workload fit, the two fastest frameworks get theirs, and not two modes of one.
    assert {cell.framework for cell in repeated(contending=True, jobs_left=2.5)} == {"torch", "tensorflow"}
    # Nothing else is left to measure.
    left = [Job(defaults[0], 2), Job(defaults[0], 3)]
    done = {cell: {1, 2, 3} for cell in cells} | {defaults[0]: {1}}
    step = replace(plan, contending=True).next_step(left, frozenset(), 1.5 * CELL_SECONDS, done)
    assert step is not None
    assert {job.cell for job in step.jobs} == {defaults[0]}


def test_a_pair_that_the_time_cannot_settle_waits_for_the_cells_that_fit_whole() -> None:
    order = measured(told(until=9), FIRST + 4.5)
    assert [job.cell.framework for job in order[FIRST:-1]] == ["jax"] * 3
    assert (order[-1].repeat, order[-1].cell.workload) == (6, order[-2].cell.workload), (
        "the last block of the new cells holds what was measured before"
    )
    # What is left narrows the interval, on both sides alike: nothing else fits.
    plan, waiting = in_two_groups(told(until=9)), [job for job in JOBS if job.cell.framework == "jax"]
    step = plan.next_step(waiting, frozenset(), 2.5 * CELL_SECONDS, {cell: [1, 2, 3] for cell in CELLS[:4]})
    assert step is not None
    assert {job.key for job in step.jobs} == {(TORCH.id, 4), (TENSORFLOW.id, 4)}
    never = measured(Open(lambda order: [OpenPair(TORCH, TENSORFLOW, None)]), FIRST + 3.5)
    assert {job.cell.framework for job in never[FIRST:]} == {"jax"}


def test_no_cell_gets_more_than_nine_repeats() -> None:
    order = measured(Open(lambda order: [OpenPair(TORCH, TENSORFLOW, None)]), 100)
    assert Counter(job.cell for job in order) == dict.fromkeys(CELLS, 3) | {
        TORCH: MOST_REPEATS,
        TENSORFLOW: MOST_REPEATS,
    }
    assert len(set(order)) == len(order)


def test_a_cell_with_one_repeat_far_off_is_measured_once_more_beside_another_of_its_workload() -> None:
    # A repeat alone in its block would show no difference to the others.
    order = measured(Open(lambda order: [], far=[TENSORFLOW]), FIRST + 2.5)
    assert [job.repeat for job in order[FIRST:]] == [4, 4]
    assert TENSORFLOW in {job.cell for job in order[FIRST:]}
    assert len({job.cell.workload for job in order[FIRST:]}) == 1
    assert len(measured(Open(lambda order: [], far=[TENSORFLOW]), 100)) == len(JOBS) + 2, "once, and no more"


def on_eight_gpus(unsettled: Open | None = None) -> Agenda:
    """As the agenda of three groups whose images are ready; two frameworks come first."""
    gpus = tuple(replace(H200, index=at, uuid=f"GPU-{at}", board=f"GPU-{at}") for at in range(8))
    groups = [
        [replace(cell, device_kind="cuda", device_model=H200.model) for cell in CELLS][at : at + 4] for at in (0, 4)
    ]
    parts: dict[str, dict[str, int]] = {cell.image: {} for cell in CELLS}
    return Agenda(Machine(CPU, gpus, None), Durations(WORKLOADS, {}), groups, parts, 3, unsettled)


def test_eight_gpus_repeat_one_open_pair_side_by_side() -> None:
    first, second = on_eight_gpus().groups[0][::2]
    plan = on_eight_gpus(Open(lambda order: [OpenPair(first, second, 5)]))
    step = plan.next_step([], frozenset(), 2 * CELL_SECONDS, dict.fromkeys(plan.groups[0], (1, 2, 3)))
    assert step is not None
    assert sorted(job.key for job in step.jobs) == sorted(
        (cell.id, at) for cell in (first, second) for at in (4, 5, 6, 7)
    )


def test_eight_gpus_are_filled_with_whole_cells_that_take_no_longer() -> None:
    plan = on_eight_gpus()
    jobs = blocks([cell for group in plan.groups for cell in group], 3, seed=1)
    held = forecast(plan, jobs, minutes=(2.5 * CELL_SECONDS + 11) / 60)
    repeats = Counter(span.job.cell for span in held.spans)
    assert sorted(repeats.values()) == [3] * 5
    assert set(plan.groups[0]) < set(repeats)
    # The first repeats and one cell of the next group, then the others.
    assert max(span.end for span in held.spans) == 2 * CELL_SECONDS
    first = next(step for step, _ in held.steps)
    assert len(first.jobs) == 4 + 3


def test_without_a_word_on_what_is_open_no_cell_gets_more_than_the_planned_repeats() -> None:
    assert sorted(job.key for job in carried_out(agenda(groups=3), 5000).order) == sorted(job.key for job in JOBS)


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
