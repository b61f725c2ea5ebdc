"""Which job starts next, and where: what must never happen, and how near to the best possible length a run is."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.plan.plan import Cell
from runner.run.dispatch import Dispatcher, Job, Place, Span, blocks, closeness, orders, simulate
from tests.fixtures.plans import make_cell
from tests.fixtures.waiting import within

CELL = make_cell(image="torch-1-cu128", device_kind="cuda", device_model="NVIDIA L4")

# Wall seconds of the cells of real quick runs on two CPU cores, in containers and environments, rounded: 18 frameworks, both workloads.
REAL_SECONDS = (
    25, 16, 22, 25, 39, 54, 12, 16, 21, 22, 32, 87, 52, 26, 20, 17, 23, 34, 557, 115, 26, 27, 15, 17, 20, 22, 15, 20, 21, 27, 22,
    24, 18, 20, 8, 15, 26, 32, 15, 37, 75, 84, 37, 16,
)  # fmt: skip


def gpu(number: int, model: str = "NVIDIA L4", island: int = 8) -> Place:
    """A GPU of a machine where each `island` of them are joined by NVLink."""
    near = tuple((f"GPU-{other}", 6 if other // island == number // island else 1) for other in range(64))
    return Place(f"GPU-{number}", f"GPU-{number}", "cuda", model, near)


def fleet(count: int) -> list[Place]:
    return [gpu(number) for number in range(count)]


def cells(count: int, **changes: object) -> list[Cell]:
    return [replace(CELL, seed=number, **changes) for number in range(count)]  # type: ignore[arg-type]


def lengths(seed: int) -> Callable[[Cell], float]:
    """A length for each cell, drawn from the real ones."""
    return lambda cell: float(random.Random(f"{seed}/{cell.seed}/{cell.devices}").choice(REAL_SECONDS))


def lower_bound(jobs: Sequence[Job], boards: int, seconds: Callable[[Cell], float]) -> float:
    """No schedule is shorter: all work spread evenly; the longest job; and of the k*m+1 longest jobs some k+1 are on one device."""
    work = sum(seconds(job.cell) * job.cell.devices for job in jobs)
    alone = sorted((seconds(job.cell) for job in jobs if job.cell.devices == 1), reverse=True)
    packed = [sum(alone[k * boards - k : k * boards + 1]) for k in range(1, (len(alone) - 1) // boards + 1)]
    return max([work / boards, *(seconds(job.cell) for job in jobs), *packed])


def assert_sound(spans: Sequence[Span], jobs: Sequence[Job]) -> None:
    """Every job once, no board twice at a time, every job whole and on its own model or GPU."""
    assert Counter(span.job for span in spans) == Counter(jobs)
    on: dict[str, list[tuple[float, float]]] = {}
    for span in spans:
        assert len({place.board for place in span.places}) == span.job.cell.devices
        for place in span.places:
            assert place.model == span.job.cell.device_model
            assert span.job.cell.device_uuid in ("", place.uuid)
            on.setdefault(place.board, []).append((span.begin, span.end))
    for used in on.values():
        for first, second in itertools.pairwise(sorted(used)):
            assert first[1] <= second[0]


def test_a_cpu_cell_of_several_devices_takes_the_one_cpu_and_runs_alone() -> None:
    cpu = Place("", "cpu", "cpu", "AMD EPYC")
    on_cpu = {"device_kind": "cpu", "device_model": "AMD EPYC"}
    jobs = [Job(cell, 1) for cell in (*cells(2, **on_cpu), *cells(2, **on_cpu, devices=2, scaling="weak"))]
    spans = simulate(jobs, [cpu], lambda cell: 10.0)
    assert sorted(span.begin for span in spans) == [0, 10, 20, 30]
    assert {span.job for span in spans} == set(jobs)


@given(
    models=st.lists(st.sampled_from(["A", "B"]), min_size=1, max_size=9),
    wanted=st.lists(st.tuples(st.sampled_from(["A", "B"]), st.integers(1, 4)), max_size=30),
    repeats=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_every_job_runs_once_on_devices_of_its_own(
    models: list[str], wanted: list[tuple[str, int]], repeats: int, seed: int
) -> None:
    there = [gpu(number, model) for number, model in enumerate(models)]
    count = Counter(models)
    planned = [
        replace(CELL, seed=number, device_model=model, devices=devices)
        for number, (model, devices) in enumerate(wanted)
        if devices <= count[model]
    ]
    jobs = blocks(planned, repeats, seed)
    assert_sound(simulate(jobs, there, lengths(seed)), jobs)


@given(count=st.integers(1, 30), repeats=st.integers(1, 9), seed=st.integers(0, 99))
def test_the_second_of_three_blocks_has_the_order_of_the_first_backwards(count: int, repeats: int, seed: int) -> None:
    planned = cells(count)
    jobs = blocks(planned, repeats, seed)
    found = [[job.cell.id for job in jobs if job.repeat == repeat] for repeat in range(1, repeats + 1)]
    assert all(sorted(order) == sorted(cell.id for cell in planned) for order in found)
    assert all(after == before[::-1] for before, after in zip(found[::3], found[1::3], strict=False))
    assert count < 10 or repeats < 3 or found[0] != found[2], "the third block is in another order"


@given(count=st.sampled_from([4, 6, 8, 10, 24]), seed=st.integers(0, 999))
def test_no_period_meets_one_cell_in_three_blocks(count: int, seed: int) -> None:
    found = orders(count, 6, random.Random(seed))
    places = [[order.index(cell) + at * count for cell in range(count)] for at, order in enumerate(found)]
    for first, second, third in (places[0:3], places[1:4], places[3:6]):
        distances = [(b - a, c - b) for a, b, c in zip(first, second, third, strict=True)]
        assert all(math.gcd(*pair) == 1 and pair[1] != count for pair in distances)


@given(instances=st.integers(1, 4), seed=st.integers(0, 99))
def test_instances_of_one_gpu_are_never_used_at_once(instances: int, seed: int) -> None:
    there = [Place(f"MIG-{at}", "GPU-0", "cuda", f"slice {at % 2}") for at in range(instances)]
    jobs = [Job(cell, 1) for place in there for cell in cells(3, device_model=place.model, device_uuid=place.uuid)]
    assert_sound(simulate(jobs, there, lengths(seed)), jobs)


@pytest.mark.parametrize("count", [1, 4, 8, 64])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_a_run_is_within_five_percent_of_what_no_schedule_can_beat(count: int, seed: int) -> None:
    jobs = blocks(cells(200), 2, seed)
    seconds = lengths(seed)
    spans = simulate(jobs, fleet(count), seconds)
    assert_sound(spans, jobs)
    assert max(span.end for span in spans) <= 1.05 * lower_bound(jobs, count, seconds)


@pytest.mark.parametrize("count", [4, 8, 64])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_so_is_a_run_with_cells_that_take_several_gpus(count: int, seed: int) -> None:
    planned = [cell for size, many in ((1, 120), (2, 60), (4, 40)) for cell in cells(many, devices=size)]
    jobs = blocks(planned, 2, seed)
    seconds = lengths(seed)
    spans = simulate(jobs, fleet(count), seconds)
    assert_sound(spans, jobs)
    assert max(span.end for span in spans) <= 1.05 * lower_bound(jobs, count, seconds)


@given(seed=st.integers(0, 2**32))
def test_a_slow_cell_never_waits_for_the_end(seed: int) -> None:
    jobs = blocks(cells(24), 1, seed)
    spans = simulate(jobs, fleet(8), lambda cell: 300.0 if cell.seed == 0 else 20.0)
    (slow,) = (span for span in spans if span.job.cell.seed == 0)
    assert slow.begin == 0
    assert max(span.end for span in spans) == 300


def test_the_order_is_the_shuffled_one_while_nothing_would_stick_out() -> None:
    jobs = blocks(cells(40), 1, seed=3)
    seconds = lengths(3)
    spans = simulate(jobs, fleet(1), seconds)
    assert [span.job for span in spans] == jobs


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12), seed=st.integers(0, 2**16))
def test_a_cell_of_several_gpus_gets_those_that_are_joined(sizes: list[int], seed: int) -> None:
    there = [gpu(number, island=4) for number in random.Random(seed).sample(range(8), 8)]
    jobs = [Job(replace(CELL, seed=number, devices=4), 1) for number in range(len(sizes))]
    for span in simulate(jobs, there, lambda cell: 1.0):
        boards = [place.board for place in span.places]
        near = {place.board: dict(place.near) for place in span.places}
        assert closeness(boards, near) == 4 * 3 * 6, "all four of one island"


def test_larger_cells_leave_to_smaller_ones_what_they_cannot_use_themselves() -> None:
    jobs = [Job(cell, 1) for cell in cells(4, devices=3)] + [Job(cell, 1) for cell in cells(8)]
    spans = simulate(jobs, fleet(8), lambda cell: 10.0)
    assert max(span.end for span in spans) == 30
    assert {span.begin for span in spans if span.job.cell.devices == 3} == {0, 10}


def test_the_gpu_that_has_rested_longest_comes_next() -> None:
    dispatcher = Dispatcher([Job(cell, 1) for cell in cells(6)], fleet(3), lambda cell: 1.0)
    started = [dispatcher.next(0.0) for _ in range(3)]
    for found in (started[1], started[0]):
        assert found is not None
        dispatcher.ended(found[0])
    after = dispatcher.next(1.0)
    assert after is not None
    assert started[1] is not None
    assert after[1] == started[1][1]


def test_a_lost_gpus_job_goes_to_its_twin_and_none_goes_to_the_lost_one() -> None:
    jobs = [Job(cell, 1) for cell in cells(5)]
    dispatcher = Dispatcher(jobs, fleet(2), lambda cell: 1.0)
    first, second = dispatcher.next(0.0), dispatcher.next(0.0)
    assert first is not None
    assert second is not None
    dispatcher.lost(first[1][0].board)
    dispatcher.ended(first[0])
    dispatcher.put_back(first[0])
    assert dispatcher.without_devices() == []
    assert dispatcher.next(0.0) is None
    dispatcher.ended(second[0])
    again = dispatcher.next(1.0)
    assert again == (first[0], second[1])


def test_jobs_that_no_device_is_left_for_are_told() -> None:
    jobs = [Job(cell, 1) for cell in (*cells(2), *cells(2, devices=2), *cells(1, device_uuid="GPU-1"))]
    dispatcher = Dispatcher(jobs, fleet(2), lambda cell: 1.0)
    dispatcher.lost("GPU-1")
    assert {(job.cell.devices, job.cell.device_uuid) for job in dispatcher.without_devices()} == {(2, ""), (1, "GPU-1")}
    dispatcher.lost("GPU-0")
    assert len(dispatcher.without_devices()) == 2
    assert dispatcher.without_devices() == []
    assert dispatcher.next(0.0) is None


def test_a_thousand_cells_are_scheduled_in_a_second() -> None:
    jobs = blocks(cells(1000), 1, seed=1)
    within(0.5, lambda: simulate(jobs, fleet(8), lengths(1)))


def test_many_repeats_are_scheduled_in_a_second_and_a_length_is_asked_once_of_a_cell() -> None:
    jobs = blocks(cells(100), 300, seed=1)
    asked: Counter[Cell] = Counter()

    def seconds(cell: Cell) -> float:
        asked[cell] += 1
        return 10.0

    def simulated() -> list[Span]:
        asked.clear()
        return simulate(jobs, fleet(1), seconds)

    spans = within(0.5, simulated)
    assert [span.job for span in spans] == jobs
    assert [span.begin for span in spans] == [10.0 * at for at in range(len(jobs))]
    assert set(asked.values()) == {1}


@given(count=st.integers(1, 12), boards=st.integers(1, 3), until=st.floats(0, 500), seed=st.integers(0, 2**16))
def test_a_run_that_is_simulated_to_a_time_is_whole_until_then(
    count: int, boards: int, until: float, seed: int
) -> None:
    jobs, seconds = blocks(cells(count), 3, seed), lengths(seed)
    whole, begun = simulate(jobs, fleet(boards), seconds), simulate(jobs, fleet(boards), seconds, until)
    assert begun == whole[: len(begun)]
    assert all(span.begin > until for span in whole[len(begun) :])


@given(count=st.integers(0, 12), repeats=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_every_cell_is_run_once_in_every_block(count: int, repeats: int, seed: int) -> None:
    jobs = blocks(cells(count), repeats, seed)
    assert Counter((job.cell, job.repeat) for job in jobs) == Counter(
        (cell, repeat) for cell in cells(count) for repeat in range(1, repeats + 1)
    )
    assert [job.repeat for job in jobs] == sorted(job.repeat for job in jobs), (
        "a block begins before the last has ended"
    )


@given(seed=st.integers(0, 2**32))
def test_the_order_is_the_seeds_and_differs_from_block_to_block(seed: int) -> None:
    jobs = blocks(cells(12), 4, seed)
    assert jobs == blocks(cells(12), 4, seed)
    orders = {tuple(job.cell.seed for job in jobs[start : start + 12]) for start in range(0, 48, 12)}
    assert len(orders) > 1
