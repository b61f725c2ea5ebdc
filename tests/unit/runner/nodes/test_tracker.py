"""Whatever nodes do, each job gets one row, on a node that may run it; and how fast a node is stays out of the comparison."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.nodes.tracker import LOST_SECONDS, SILENT_SECONDS, Assignment, Tracker, Verdict
from runner.plan.plan import Cell
from runner.run.dispatch import Job, Place, blocks
from tests.fixtures.plans import make_cell
from tests.unit.runner.nodes.tracked import tracked

CPU = (Place("", "cpu", "cpu", "CPU"),)
CELLS = [make_cell(image=f"image-{number}") for number in range(6)]


def gpus(node: str, count: int, model: str = "H200") -> tuple[Place, ...]:
    return tuple(Place(f"GPU-{node}-{at}", f"GPU-{node}-{at}", "cuda", model) for at in range(count))


def gpu_cells(count: int, **fields: int) -> list[Cell]:
    return [make_cell(image=f"image-{at}", device_kind="cuda", device_model="H200", **fields) for at in range(count)]


def tracker_of(jobs: list[Job], seconds: float = 1.0) -> Tracker:
    return Tracker(jobs, lambda _: seconds, "0123abcd")


def started(tracker: Tracker, now: float = 0.0) -> list[Assignment]:
    found = []
    while assignment := tracker.next(now):
        found.append(assignment)
    return found


def run_out(tracker: Tracker, now: float = 0.0) -> list[Assignment]:
    """Run everything to its end, in the order in which it began."""
    return run_out_of(tracker, [], now)


def run_out_of(tracker: Tracker, running: list[Assignment], now: float = 0.0) -> list[Assignment]:
    """The same where some of it runs already."""
    whole: list[Assignment] = []
    running = [*running, *started(tracker, now)]
    while running:
        assignment = running.pop(0)
        assert tracker.verdict(assignment.attempt) is Verdict.ROW
        tracker.came(assignment.attempt)
        tracker.ended(assignment.attempt)
        whole.append(assignment)
        running += started(tracker, now)
    return whole


@pytest.mark.parametrize(("nodes", "most"), [(3, 1), (5, 1), (2, 2)])
def test_the_repeats_of_a_cell_go_to_different_nodes(nodes: int, most: int) -> None:
    tracker = tracker_of(blocks(CELLS, 3, 1))
    for number in range(nodes):
        tracker.join(f"n{number}", CPU, CELLS, 0.0)
    whole = run_out(tracker)
    assert len(whole) == 18
    assert not tracker.is_open()
    assert max(Counter((each.job.cell, each.node) for each in whole).values()) == most
    shares = Counter(each.node for each in whole)
    assert max(shares.values()) - min(shares.values()) <= 1


def test_a_slow_node_is_not_read_as_a_slow_framework() -> None:
    """One of three nodes takes twice as long: every cell has one repeat there, so none looks slower than another."""
    tracker = tracker_of(blocks(CELLS, 3, 7))
    for name in ("a", "b", "slow"):
        tracker.join(name, CPU, CELLS, 0.0)
    by_cell: dict[Cell, set[str]] = {}
    for each in run_out(tracker):
        by_cell.setdefault(each.job.cell, set()).add(each.node)
    assert set(map(frozenset, by_cell.values())) == {frozenset({"a", "b", "slow"})}


def test_a_node_with_more_gpus_gets_more_work_and_a_cell_of_several_gpus_stays_on_one_node() -> None:
    cells = [*gpu_cells(40), *gpu_cells(3, devices=4)]
    tracker = tracker_of([Job(cell, 1) for cell in cells])
    tracker.join("big", gpus("big", 8), cells, 0.0)
    tracker.join("small", gpus("small", 2), cells, 0.0)
    whole = run_out(tracker)
    assert {each.node for each in whole if each.job.cell.devices == 4} == {"big"}
    for each in whole:
        assert len(each.places) == each.job.cell.devices
        assert all(place.uuid.startswith(f"GPU-{each.node}-") for place in each.places)
    shares = Counter(each.node for each in whole)
    assert 2.0 < shares["big"] / shares["small"] < 8.0


def test_cells_of_gpus_and_of_the_cpu_never_run_at_once_on_a_node() -> None:
    cells = [*gpu_cells(4), *CELLS]
    tracker = tracker_of([Job(cell, 1) for cell in cells])
    for name in ("a", "b"):
        tracker.join(name, (*gpus(name, 2), *CPU), cells, 0.0)
    running: list[Assignment] = started(tracker)
    seen = 0
    while running:
        for name in ("a", "b"):
            assert len({each.job.cell.device_kind for each in running if each.node == name}) <= 1
        tracker.ended(running.pop(0).attempt)
        seen += 1
        running += started(tracker)
    assert seen == 10


def test_gpus_that_are_compared_run_one_at_a_time_on_their_node_in_blocks_over_its_gpus() -> None:
    places = {node: gpus(node, 4) for node in ("a", "b")}
    cells = {
        node: [
            make_cell(workload=workload, device_kind="cuda", device_model="H200", device_uuid=place.uuid)
            for place in of_node
            for workload in ("cnn-cifar10", "gru-imdb")
        ]
        for node, of_node in places.items()
    }
    jobs = blocks([*cells["a"], *cells["b"]], 3, 1)
    tracker = tracker_of(jobs)
    for node, of_node in places.items():
        tracker.join(node, of_node, cells[node], 0.0)
    first = started(tracker)
    assert [assignment.node for assignment in first] == ["a", "b"], "one on each node"
    whole = run_out_of(tracker, first)
    for node in places:
        mine = [assignment for assignment in whole if assignment.node == node]
        assert [assignment.job for assignment in mine] == [job for job in jobs if job.cell in cells[node]]
        assert all(assignment.places[0].uuid == assignment.job.cell.device_uuid for assignment in mine)


def test_a_compared_gpu_that_is_lost_takes_its_own_cells_along_and_holds_up_no_other() -> None:
    places = gpus("a", 3)
    cells = [
        make_cell(workload=workload, device_kind="cuda", device_model="H200", device_uuid=place.uuid)
        for place in places
        for workload in ("cnn-cifar10", "gru-imdb")
    ]
    tracker = tracker_of(blocks(cells, 2, 1))
    tracker.join("a", places, cells, 0.0)
    (first,) = started(tracker)
    lost = first.places[0].uuid
    tracker.gpu_lost("a", lost)
    assert tracker.returned(first.attempt)
    whole = run_out(tracker)
    assert {each.job for each in whole} == {
        Job(cell, repeat) for cell in cells if cell.device_uuid != lost for repeat in (1, 2)
    }
    assert not tracker.is_open()
    assert {job.cell.device_uuid for job in tracker.homeless()} == {lost}


def test_a_result_that_a_node_still_has_to_send_holds_none_of_its_devices_and_may_be_given_back() -> None:
    cells = [*gpu_cells(1), *CELLS]
    tracker = tracker_of([Job(cell, 1) for cell in cells])
    earlier = f"{cells[0].id}.r1.ffffffff-1"
    assert tracker.offered("a", [earlier], 0.0) == [earlier]
    tracker.join("a", (*gpus("a", 1), *CPU), cells, 0.0)
    assert [each.job.cell.device_kind for each in started(tracker)] == ["cpu"]
    assert tracker.returned(earlier)


def test_a_late_node_takes_its_share_and_a_lost_one_hands_its_own_back() -> None:
    tracker = tracker_of(blocks(CELLS, 3, 1))
    tracker.join("a", CPU, CELLS, 0.0)
    (first,) = started(tracker)
    tracker.join("late", CPU, CELLS, 1.0)
    (second,) = started(tracker)
    assert second.node == "late"
    incident = tracker.incident("late", ended=False)
    assert (incident.again, incident.failed, incident.drained) == ((second.job,), (), False)
    tracker.ended(first.attempt)
    left = run_out(tracker)
    assert len(left) == 17
    assert tracker.homeless() == [], "a has not lost it"
    assert tracker.verdict(second.attempt) is Verdict.LATE


def test_a_job_that_is_lost_goes_to_another_node_and_after_two_it_fails() -> None:
    tracker = tracker_of([Job(CELLS[0], 1)])
    for name in ("a", "b", "c"):
        tracker.join(name, CPU, CELLS, 0.0)
    (first,) = started(tracker)
    assert tracker.incident(first.node, ended=True).again == (first.job,)
    (second,) = started(tracker)
    assert second.node != first.node
    assert second.attempt != first.attempt
    incident = tracker.incident(second.node, ended=False)
    assert (incident.again, incident.failed) == ((), (first.job,))
    assert tracker.lost_with(first.job) == [first.node, second.node]
    assert started(tracker) == []
    assert not tracker.is_open()
    assert tracker.homeless() == []


def test_a_job_does_not_go_back_to_the_node_that_was_lost_under_it() -> None:
    tracker = tracker_of([Job(cell, 1) for cell in CELLS])
    tracker.join("a", CPU, CELLS, 0.0)
    (first,) = started(tracker)
    tracker.incident("a", ended=True)
    tracker.join("a", CPU, CELLS, 1.0)
    assert {each.job for each in run_out(tracker)} == {Job(cell, 1) for cell in CELLS} - {first.job}
    assert tracker.homeless() == [first.job]
    tracker.join("b", CPU, CELLS, 2.0)
    assert [each.job for each in run_out(tracker)] == [first.job]


def test_a_gpu_cell_that_comes_to_a_node_waits_for_its_cpu_cell_and_goes_before_the_others() -> None:
    cells = [*gpu_cells(1), *CELLS]
    tracker = tracker_of([Job(cell, 1) for cell in cells])
    for name in ("a", "b"):
        tracker.join(name, (*gpus(name, 1), *CPU), cells, 0.0)
    on = {each.job.cell.device_kind: each for each in started(tracker)}
    assert set(on) == {"cuda", "cpu"}
    tracker.incident(on["cuda"].node, ended=False)
    assert started(tracker) == []
    tracker.ended(on["cpu"].attempt)
    (next_one,) = started(tracker)
    assert next_one.job == on["cuda"].job


def test_what_a_node_has_done_already_does_not_count_when_a_late_one_takes_its_share() -> None:
    cells = [make_cell(image=f"image-{at}") for at in range(18)]
    tracker = tracker_of([Job(cell, 1) for cell in cells])
    for name in ("a", "b"):
        tracker.join(name, CPU, cells, 0.0)
    running = started(tracker)
    for _ in range(12):
        tracker.ended(running.pop(0).attempt)
        running += started(tracker)
    tracker.join("late", CPU, cells, 1.0)
    left = Counter(each.node for each in run_out_of(tracker, running))
    assert left["late"] == 2


def test_a_newcomer_among_many_nodes_begins_at_once_and_what_only_it_can_run_comes_in_its_turn() -> None:
    cells = [make_cell(image=f"image-{at}") for at in range(30)]
    own = make_cell(image="of-the-newcomer")
    tracker = tracker_of([Job(cell, 1) for cell in [*cells, own]])
    for at in range(8):
        tracker.join(f"n{at}", CPU, cells, 100.0)
    running = started(tracker, 100.0)
    assert len(running) == 8
    assert tracker.homeless() == [Job(own, 1)]
    tracker.join("late", CPU, [*cells, own], 100.1)
    assert tracker.homeless() == []
    (first,) = started(tracker, 100.1)
    assert (first.node, first.job.cell) == ("late", cells[8])
    whole = run_out_of(tracker, [*running, first], 100.2)
    assert [each.node for each in whole if each.job.cell == own] == ["late"]


def test_a_fast_node_takes_more_repeats_and_no_node_two_of_a_cell_that_another_has_none_of() -> None:
    cells = [make_cell(image=f"image-{at}") for at in range(60)]
    tracker = tracker_of(blocks(cells, 3, 5))
    nodes = {"a": 1.0, "b": 1.0, "c": 1.0, "slow": 3.0}
    for name in nodes:
        tracker.join(name, CPU, cells, 0.0)
    ends: list[tuple[float, str, Assignment]] = []
    taken: dict[Cell, Counter[str]] = {cell: Counter() for cell in cells}
    now = 0.0
    while new := started(tracker, now) or ends:
        for each in new if new is not ends else ():
            had = taken[each.job.cell]
            assert had[each.node] == min(had[name] for name in nodes)
            had[each.node] += 1
            ends.append((now + nodes[each.node], each.node, each))
        ends.sort(key=lambda end: end[:2])
        now, _, done = ends.pop(0)
        tracker.ended(done.attempt)
    shares = Counter(name for had in taken.values() for name in had.elements())
    assert sum(shares.values()) == 180
    assert shares["a"] / shares["slow"] == pytest.approx(3.0, abs=0.3)


def test_a_node_under_which_cells_were_lost_twice_is_drained() -> None:
    tracker = tracker_of(blocks(CELLS, 1, 1))
    tracker.join("a", CPU, CELLS, 0.0)
    tracker.join("b", CPU, CELLS, 0.0)
    assert len(started(tracker)) == 2
    assert not tracker.incident("b", ended=False).drained
    assert tracker.heard("b", 100.0), "it may join again"
    tracker.join("b", CPU, CELLS, 100.0)
    assert [each.node for each in started(tracker)] == ["b"]
    assert tracker.incident("b", ended=False).drained
    assert not tracker.heard("b", 200.0)


def test_silence_is_noticed_in_two_steps_and_a_driver_that_stood_still_blames_nobody() -> None:
    tracker = tracker_of(blocks(CELLS, 1, 1))
    tracker.join("a", CPU, CELLS, 0.0)
    tracker.join("b", CPU, CELLS, 0.0)
    events = []
    for now in range(0, 200, 2):
        tracker.heard("a", float(now))
        silent, lost = tracker.check(float(now))
        events += [(now, "silent", name) for name in silent] + [(now, "lost", name) for name in lost]
        for name in lost:
            tracker.incident(name, ended=False)
    assert events == [(SILENT_SECONDS + 2, "silent", "b"), (LOST_SECONDS + 2, "lost", "b")]
    tracker.heard("a", 200.0)
    tracker.check(200.0)
    assert tracker.check(2000.0) == ([], [])


def test_a_silent_node_gets_no_more_work_until_it_is_heard() -> None:
    tracker = tracker_of(blocks(CELLS, 1, 1))
    tracker.join("a", CPU, CELLS, 0.0)
    (first,) = started(tracker)
    for now in range(0, 40, 2):
        tracker.check(float(now))
    tracker.ended(first.attempt)
    assert started(tracker) == []
    tracker.heard("a", 41.0)
    assert len(started(tracker)) == 1


def test_results_from_before_count_where_their_job_still_waits() -> None:
    jobs = blocks(CELLS, 1, 1)
    tracker = tracker_of(jobs)
    earlier = [f"{job.cell.id}.r1.ffffffff-{at}" for at, job in enumerate(jobs)]
    assert tracker.offered("a", [*earlier[:2], f"{'0' * 16}.r1.ffffffff-9"], 0.0) == earlier[:2]
    assert tracker.verdict(earlier[0]) is Verdict.ROW
    tracker.join("a", CPU, CELLS, 0.0)
    tracker.ended(earlier[0])
    whole = run_out(tracker)
    assert {each.job for each in whole} == set(jobs[2:])
    assert tracker.is_open(), "the second one has not come"
    assert tracker.offered("a", earlier, 1.0) == [], "all others have rows"
    assert tracker.incident("a", ended=True).again == (jobs[1],)


def test_what_a_killed_agent_had_finished_counts_and_what_a_hung_one_sends_late_does_not() -> None:
    tracker = tracker_of([Job(CELLS[0], 1), Job(CELLS[1], 1)])
    for name in ("a", "b"):
        tracker.join(name, CPU, CELLS, 0.0)
    first, second = started(tracker)
    tracker.incident(first.node, ended=True)
    assert tracker.offered(first.node, [first.attempt], 1.0) == [first.attempt]
    assert tracker.verdict(first.attempt) is Verdict.ROW
    tracker.incident(second.node, ended=False)
    assert tracker.given_up(second.node) == [second.attempt]
    assert tracker.offered(second.node, [second.attempt], 1.0) == []
    assert tracker.verdict(second.attempt) is Verdict.LATE
    tracker.came(second.attempt)
    assert tracker.verdict(second.attempt) is Verdict.AGAIN
    assert tracker.verdict(f"{'0' * 16}.r1.ffffffff-9") is Verdict.UNKNOWN


def test_results_that_are_offered_and_do_not_come_are_overdue_and_blame_no_cell() -> None:
    jobs = blocks(CELLS, 1, 1)
    earlier = [f"{job.cell.id}.r1.ffffffff-{at}" for at, job in enumerate(jobs[:2])]
    tracker = tracker_of(jobs)
    tracker.check(0.0)
    tracker.offered("a", earlier, 0.0)
    for now in range(5, 65, 5):
        tracker.heard("a", float(now))
        tracker.check(float(now))
    tracker.ended(earlier[0])
    for now in range(65, 150, 5):
        tracker.heard("a", float(now))
        tracker.check(float(now))
    assert tracker.overdue(150.0) == {}, "one of them came after a minute"
    # The driver stands still for 20 s.
    tracker.check(170.0)
    assert tracker.overdue(170.0) == {}
    assert tracker.overdue(176.0) == {"a": 1}
    incident = tracker.incident("a", ended=False)
    assert incident.again == (jobs[1],)
    assert tracker.overdue(500.0) == {}
    tracker.join("a", CPU, CELLS, 500.0)
    assert jobs[1] in {each.job for each in run_out(tracker)}, "it had ended before: it did not end the node"
    assert tracker.verdict(earlier[1]) is Verdict.LATE


def test_a_gpu_that_is_lost_takes_no_more_jobs_and_what_no_longer_fits_goes_elsewhere() -> None:
    cells = [*gpu_cells(3, devices=2), *gpu_cells(3)]
    tracker = tracker_of([Job(cell, 1) for cell in cells])
    tracker.join("a", gpus("a", 2), cells, 0.0)
    (pair,) = started(tracker)
    tracker.gpu_lost("a", "GPU-a-0")
    assert tracker.returned(pair.attempt)
    assert {job.cell.devices for job in tracker.homeless()} == {2}
    tracker.join("b", gpus("b", 2), cells, 0.0)
    whole = run_out(tracker)
    assert len(whole) == 6
    assert all(place.board != "GPU-a-0" for each in whole for place in each.places)


def test_a_job_that_comes_back_three_times_has_failed() -> None:
    tracker = tracker_of([Job(CELLS[0], 1)])
    tracker.join("a", CPU, CELLS, 0.0)
    again = [tracker.returned(started(tracker)[0].attempt) for _ in range(3)]
    assert again == [True, True, False]
    assert not tracker.is_open()


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["end", "kill", "hang", "late", "twice", "return", "partition", "time"]), st.integers(0, 9)
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(ACTIONS, st.integers(1, 4), st.integers(1, 3))
def test_whatever_happens_each_job_has_one_row_or_is_known_to_have_none(
    actions: list[tuple[str, int]], nodes: int, repeats: int
) -> None:
    """Kill, hang, late, duplicate, partition, in any order: the rows, what failed and what is left are all jobs, each once."""
    jobs = blocks(CELLS, repeats, 3)
    tracker = tracker_of(jobs)
    now = 0.0
    rows: list[Job] = []
    failed: list[Job] = []
    pending: list[Assignment] = []
    up = {f"n{number}" for number in range(nodes)}
    cut: set[str] = set()
    for name in sorted(up):
        tracker.join(name, CPU, CELLS, now)

    def take(assignment: Assignment) -> None:
        verdict = tracker.verdict(assignment.attempt)
        if verdict is Verdict.ROW:
            tracker.came(assignment.attempt)
            tracker.ended(assignment.attempt)
            rows.append(assignment.job)
        elif verdict is Verdict.LATE:
            tracker.came(assignment.attempt)

    def lose(name: str, ended: bool) -> None:
        incident = tracker.incident(name, ended)
        failed.extend(incident.failed)
        up.discard(name)

    for action, which in [*actions, *[("end", 0)] * 200]:
        pending += started(tracker, now)
        busy = {(each.node, place.board) for each in pending for place in each.places}
        assert len(busy) <= nodes + len(pending)
        name = f"n{which % nodes}"
        if action == "end" and pending:
            take(pending.pop(which % len(pending)))
        elif action == "twice" and pending:
            assignment = pending.pop(which % len(pending))
            take(assignment)
            take(assignment)
        elif action == "return" and pending:
            assignment = pending.pop(which % len(pending))
            if tracker.verdict(assignment.attempt) is Verdict.ROW and not tracker.returned(assignment.attempt):
                failed.append(assignment.job)
        elif action == "kill" and name in up:
            pending = [each for each in pending if each.node != name]
            lose(name, True)
        elif action == "hang" and name in up:
            lose(name, False)
        elif action == "partition" and name in up:
            cut.add(name)
        elif action == "late" and name not in up:
            if tracker.heard(name, now):
                tracker.join(name, CPU, CELLS, now)
                up.add(name)
        elif action == "time":
            for _ in range(20):
                now += 4.9
                for each in sorted(up - cut):
                    tracker.heard(each, now)
                for lost in tracker.check(now)[1]:
                    lose(lost, False)
            cut.clear()
    while pending or (pending := started(tracker, now)):
        take(pending.pop())
        pending += started(tracker, now)
    assert sorted((*rows, *failed, *tracker.homeless()), key=jobs.index) == jobs
    assert not tracker.is_open() or cut
    if up:
        assert all(set(tracker.lost_with(job)) >= up for job in tracker.homeless())


def test_ten_thousand_cells_take_a_tenth_of_a_minute_and_little_memory() -> None:
    """A tenth of the bar: 100 000 cells in a minute and 2 GiB. `python -m tests.unit.runner.nodes.tracked 100000 1250` takes it whole."""
    seconds, more_bytes = tracked(10_000, 128)
    assert seconds < 6
    assert more_bytes < (2 << 30) / 10
