"""The order of the cells, and which part of the machine each gets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from runner.hardware import Cpu, Gpu, Machine
from runner.plan import Cell
from runner.schedule import arguments, blocks, slots

CELL = Cell("torch-1-cpu", "torch", "gru-imdb", "fp32", "quick", "default", "cpu", "CPU", 1, 64, 1, "0" * 64)
CPU = Cpu("CPU", tuple(range(16)), 8 << 30)
GPU = Gpu(0, "GPU-0", "NVIDIA L4", "8.9", 24 << 30, "570.1", tuple(range(8)))


@given(count=st.integers(0, 12), repeats=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_every_cell_is_run_once_in_every_block(count: int, repeats: int, seed: int) -> None:
    cells = [replace(CELL, seed=number) for number in range(count)]
    jobs = blocks(cells, repeats, seed)
    assert Counter((job.cell, job.repeat) for job in jobs) == Counter(
        (cell, repeat) for cell in cells for repeat in range(1, repeats + 1)
    )
    assert [job.repeat for job in jobs] == sorted(job.repeat for job in jobs), (
        "a block begins before the last has ended"
    )


@given(seed=st.integers(0, 2**32))
def test_the_order_is_the_seeds_and_differs_from_block_to_block(seed: int) -> None:
    cells = [replace(CELL, seed=number) for number in range(12)]
    jobs = blocks(cells, 4, seed)
    assert jobs == blocks(cells, 4, seed)
    orders = {tuple(job.cell.seed for job in jobs[start : start + 12]) for start in range(0, 48, 12)}
    assert len(orders) > 1


@given(
    near=st.lists(st.sampled_from([tuple(range(8)), tuple(range(8, 16)), (3,)]), max_size=6),
    cpu_cells=st.booleans(),
)
def test_gpus_get_cpus_that_are_near_them_and_share_none_while_there_are_enough(
    near: list[tuple[int, ...]], cpu_cells: bool
) -> None:
    gpus = tuple(replace(GPU, index=at, uuid=f"GPU-{at}", cpus=cpus) for at, cpus in enumerate(near))
    found = slots(Machine(CPU, gpus, None), cpu_cells)
    by_uuid = {slot.device_uuids[0]: slot for slot in found if slot.device_kind == "cuda"}
    assert set(by_uuid) == {gpu.uuid for gpu in gpus}
    for gpu in gpus:
        assert by_uuid[gpu.uuid].cpus
        assert set(by_uuid[gpu.uuid].cpus) <= set(gpu.cpus)
    for cpus, sharing in Counter(near).items():
        if sharing <= len(cpus):
            given_out = [cpu for gpu in gpus if gpu.cpus == cpus for cpu in by_uuid[gpu.uuid].cpus]
            assert len(given_out) == len(set(given_out))
    alone = [slot for slot in found if slot.device_kind == "cpu"]
    assert [slot.cpus for slot in alone] == ([CPU.cpus] if cpu_cells else [])


def test_a_cells_arguments_are_those_that_the_bench_parses() -> None:
    from bench.__main__ import parser

    options = parser().parse_args(arguments(replace(CELL, device_kind="cuda", seed=7)))
    assert (options.command, options.workload, options.framework) == ("run", "gru-imdb", "torch")
    assert (options.precision, options.preset, options.mode) == ("fp32", "quick", "default")
    assert (options.device, options.devices, options.seed) == ("cuda", 1, 7)
