"""Which part of the machine each cell gets, and what a cell is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from runner.machine.devices import Cpu, Gpu, Machine
from runner.run.attempt import arguments
from runner.run.dispatch import places
from runner.run.schedule import slot_of
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


def test_a_cells_arguments_are_those_that_the_bench_parses() -> None:
    from bench.__main__ import parser

    options = parser().parse_args(arguments(replace(CELL, device_kind="cuda", seed=7)))
    assert (options.command, options.workload, options.framework) == ("run", "gru-imdb", "torch")
    assert (options.precision, options.preset, options.mode) == ("fp32", "quick", "default")
    assert (options.device, options.devices, options.seed) == ("cuda", 1, 7)
