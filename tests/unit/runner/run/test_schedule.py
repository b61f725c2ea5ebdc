"""Which part of the machine each cell gets, and what a cell is told."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.machine.detect import cores_of
from runner.machine.devices import Cpu, Gpu, Machine
from runner.machine.telemetry import Monitor
from runner.results.store import RunStore
from runner.run.attempt import Attempt, AttemptContext, Limits, arguments, proved_at
from runner.run.dispatch import Job, blocks, places
from runner.run.schedule import CellRunner, Outcome, slot_of
from tests.fixtures.plans import make_cell

CELL = make_cell()
CPU = Cpu("CPU", tuple(range(16)), 8 << 30, (0, 1))
GPU = Gpu(0, "GPU-0", "NVIDIA L4", "8.9", 24 << 30, "570.1", tuple(range(8)))


@given(near=st.lists(st.sampled_from([tuple(range(8)), tuple(range(8, 16)), (3,)]), min_size=1, max_size=6))
def test_gpus_get_cpus_that_are_near_them_and_share_none_while_there_are_enough(near: list[tuple[int, ...]]) -> None:
    gpus = tuple(replace(GPU, index=at, uuid=f"GPU-{at}", board=f"GPU-{at}", cpus=cpus) for at, cpus in enumerate(near))
    machine = Machine(CPU, gpus, None)
    found = {place.uuid: slot_of(machine, [place]) for place in places(machine, "cuda")}
    assert set(found) == {gpu.uuid for gpu in gpus}
    for gpu in gpus:
        assert found[gpu.uuid].cpus
        assert set(found[gpu.uuid].cpus) <= set(gpu.cpus)
    for cpus, sharing in Counter(near).items():
        if sharing <= len(cpus):
            given_out = [cpu for gpu in gpus if gpu.cpus == cpus for cpu in found[gpu.uuid].cpus]
            assert len(given_out) == len(set(given_out))
    assert sum(slot.memory_bytes or 0 for slot in found.values()) <= 0.9 * CPU.memory_bytes


def _numbered(folder: Path, cores: Sequence[Sequence[int]], form: str = ",") -> Path:
    """A /sys/devices/system/cpu in which these CPUs are the threads of one core each."""
    for core in cores:
        for cpu in core:
            topology = folder / f"cpu{cpu}" / "topology"
            topology.mkdir(parents=True)
            (topology / "thread_siblings_list").write_text(form.join(map(str, core)) + "\n")
    return folder


# Linux numbers the second threads of all cores after the first ones, or beside them. Some machines have one thread a core,
# and in some CPUs are switched off.
NUMBERINGS = {
    "second threads after all first ones": ([(cpu, cpu + 96) for cpu in range(48)], ","),
    "threads side by side": ([(2 * core, 2 * core + 1) for core in range(48)], "-"),
    "one thread a core": ([(cpu,) for cpu in range(48)], ","),
    "four threads a core": ([(cpu, cpu + 16, cpu + 32, cpu + 48) for cpu in range(16)], ","),
    "with holes": ([(cpu, cpu + 96) for cpu in range(48) if cpu % 5], ","),
}


@pytest.mark.parametrize("numbering", NUMBERINGS)
@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
def test_no_two_gpus_have_threads_of_one_core(tmp_path: Path, numbering: str, gpus: int) -> None:
    listed, form = NUMBERINGS[numbering]
    allowed = tuple(sorted(cpu for core in listed for cpu in core))
    _check_shares(cores_of(allowed, _numbered(tmp_path, listed, form)), allowed, gpus)


@pytest.mark.parametrize("gpus", [2, 4])
def test_no_two_gpus_have_threads_of_one_core_in_a_cpuset(tmp_path: Path, gpus: int) -> None:
    folder = _numbered(tmp_path, [(cpu, cpu + 8) for cpu in range(8)])
    allowed = (1, 2, 3, 4, 9, 10, 13)  # both threads of two cores, and one of three
    cores = cores_of(allowed, folder)
    assert cores == ((1, 9), (2, 10), (3,), (4,), (13,))
    _check_shares(cores, allowed, gpus)


def _check_shares(cores: tuple[tuple[int, ...], ...], allowed: tuple[int, ...], count: int) -> None:
    gpus = tuple(replace(GPU, uuid=f"GPU-{at}", board=f"GPU-{at}", cpus=allowed) for at in range(count))
    machine = Machine(replace(CPU, cpus=allowed, cores=cores), gpus, None)
    given_out = [slot_of(machine, [place]).cpus for place in places(machine, "cuda")]
    holders = Counter(core for cpus in given_out for core in {core for core in cores if set(core) & set(cpus)})
    assert max(holders.values()) == 1
    assert all(cpus for cpus in given_out)
    assert sum(holders.values()) >= len(cores) - count


def test_gpus_with_fewer_cores_than_they_are_divide_the_threads(tmp_path: Path) -> None:
    cores = cores_of((0, 1, 2, 3), _numbered(tmp_path, [(0, 2), (1, 3)]))
    gpus = tuple(replace(GPU, uuid=f"GPU-{at}", board=f"GPU-{at}", cpus=(0, 1, 2, 3)) for at in range(3))
    machine = Machine(replace(CPU, cores=cores), gpus, None)
    assert [slot_of(machine, [place]).cpus for place in places(machine, "cuda")] == [(0,), (1,), (2,)]


def test_a_kernel_that_tells_no_cores_leaves_each_cpu_by_itself(tmp_path: Path) -> None:
    assert cores_of((3, 5), tmp_path) == ((3,), (5,))
    broken = _numbered(tmp_path, [(3, 5)], "and")
    assert cores_of((3, 5), broken) == ((3,), (5,))


def test_a_cell_of_several_gpus_gets_what_belongs_to_all_of_them() -> None:
    one, other = (
        replace(GPU, numa_node=0),
        replace(GPU, uuid="GPU-1", board="GPU-1", cpus=tuple(range(8, 16)), numa_node=1),
    )
    machine = Machine(CPU, (one, other), None)
    slot = slot_of(machine, places(machine, "cuda"))
    assert slot.device_uuids == ("GPU-0", "GPU-1")
    assert slot.cpus == tuple(range(16))
    assert slot.memory_nodes == (0, 1)
    assert slot_of(machine, places(machine, "cuda")[1:]).memory_nodes == (1,)


def test_a_node_that_this_machine_does_not_tell_of_binds_no_memory() -> None:
    machine = Machine(replace(CPU, memory_nodes=(0,)), (replace(GPU, numa_node=1),), None)
    assert slot_of(machine, places(machine, "cuda")).memory_nodes == ()


def test_instances_of_one_gpu_have_its_cpus_in_turn() -> None:
    halves = tuple(replace(GPU, uuid=f"MIG-{at}", board="GPU-0", instance=at) for at in range(2))
    machine = Machine(CPU, halves, None)
    first, second = (slot_of(machine, [place]) for place in places(machine, "cuda"))
    assert first.cpus == second.cpus == GPU.cpus
    assert first.memory_bytes == second.memory_bytes == int(0.9 * CPU.memory_bytes)


def test_a_cpu_cell_has_the_machine_for_itself() -> None:
    slot = slot_of(Machine(CPU, (GPU,), None), places(Machine(CPU, (GPU,), None), "cpu"))
    assert (slot.device_kind, slot.device_uuids, slot.cpus) == ("cpu", (), CPU.cpus)


def test_one_of_two_repeats_holds_its_last_steps_and_the_other_a_moment_that_is_drawn() -> None:
    from bench.__main__ import parser

    cells = [replace(CELL, seed=seed) for seed in range(200)]
    moments = [
        [parser().parse_args(arguments(cell, repeat=repeat)).proved_at for repeat in (1, 2, 3, 4)] for cell in cells
    ]
    assert all(sum(moment is None for moment in pair) == 1 for of in moments for pair in (of[:2], of[2:]))
    # Which of the two it is, and when, is drawn for each pair of each cell, and the same whoever measures it.
    drawn = sorted(moment for of in moments for moment in of if moment is not None)
    assert len(set(drawn)) == 400
    assert all(abs(moment - place / 400) < 0.1 for place, moment in enumerate(drawn))
    assert 60 < sum(of[0] is None for of in moments) < 140
    assert moments == [
        [proved_at(cell, repeat) and round(proved_at(cell, repeat) or 0, 6) for repeat in (1, 2, 3, 4)]
        for cell in cells
    ]
    assert proved_at(replace(CELL, workload="ops"), 1) is proved_at(replace(CELL, workload="ops"), 2) is None


def test_a_cells_arguments_are_those_that_the_bench_parses() -> None:
    from bench.__main__ import parser

    options = parser().parse_args(arguments(replace(CELL, device_kind="cuda", seed=7)))
    assert (options.command, options.workload, options.framework) == ("run", "gru-imdb", "torch")
    assert (options.precision, options.preset, options.mode) == ("fp32", "quick", "default")
    assert (options.device, options.devices, options.seed) == ("cuda", 1, 7)


# --- one cell at a time -------------------------------------------------------------------------------------------------------

FOUR = Machine(CPU, tuple(replace(GPU, uuid=f"GPU-{at}", board=f"GPU-{at}") for at in range(4)), None)
ON_EACH = [replace(CELL, device_kind="cuda", device_model=GPU.model, device_uuid=gpu.uuid) for gpu in FOUR.gpus]


class Recorder(CellRunner):
    """Cells that only take their time. It keeps their order, and how many ran at once."""

    def __init__(self, folder: Path, loses: str = "no GPU") -> None:
        engine: Any = SimpleNamespace(name_of=lambda image: "toy")
        site = AttemptContext(engine, RunStore(folder), Limits(60, 60), None, Monitor())
        observer: Any = SimpleNamespace(started=lambda job: None, printed=print, ended=lambda outcome: None)
        super().__init__(site, FOUR, observer, lambda cell: 1.0)
        self.order: list[Job] = []
        self.at_once = self.most = 0
        self.loses = loses
        self.count = threading.Lock()

    def _attempt(self, attempt: Attempt, prepared: Any) -> bool:
        with self.count:
            self.order.append(attempt.job)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        time.sleep(0.05)
        with self.count:
            self.at_once -= 1
        if attempt.job.cell.device_uuid == self.loses:
            attempt.lost = self.loses
            return True
        self._report(Outcome(attempt.job, "ok", None, 0.05))
        return False


READY: Any = {CELL.image: SimpleNamespace(source=SimpleNamespace(ptx_only={}))}


def test_gpus_that_are_compared_run_one_cell_at_a_time_in_the_shuffled_order(tmp_path: Path) -> None:
    jobs = blocks(ON_EACH, 3, seed=4)
    alone = Recorder(tmp_path / "alone")
    alone.run_jobs(jobs, READY)
    assert alone.order == jobs
    assert alone.most == 1
    together = Recorder(tmp_path / "together")
    together.run_jobs([Job(replace(ON_EACH[0], device_uuid="", seed=at), 1) for at in range(12)], READY)
    assert together.most > 1


def test_a_gpu_that_is_lost_while_gpus_are_compared_fails_its_other_cells_and_no_more(tmp_path: Path) -> None:
    running = Recorder(tmp_path / "run", loses="GPU-2")
    running.run_jobs(blocks(ON_EACH, 2, seed=4), READY)
    assert len([job for job in running.order if job.cell.device_uuid == "GPU-2"]) == 1
    ended = Counter((outcome.job.cell.device_uuid, outcome.status) for outcome in running.outcomes)
    assert ended == {("GPU-2", "failed"): 2} | {(f"GPU-{at}", "ok"): 2 for at in (0, 1, 3)}
