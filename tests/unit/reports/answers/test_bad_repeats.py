"""A repeat far from its others is said with the GPU that measured it, and a chance of error is printed only where simulation holds it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reports.answers import plain
from reports.answers.findings import _of_a_bad_repeat
from reports.data.groups import workloads
from tests.fixtures import measured


def windows(random: np.random.Generator, level: float) -> np.ndarray:
    return level * np.exp(random.normal(0, 0.005, 30))


def said_of(gpus: list[list[str]], slow: str, factor: float = 1.3) -> list[str]:
    """What is said of three frameworks whose repeats ran on these GPUs, of which one takes longer."""
    random, cells = np.random.default_rng(3), []
    for at, of_repeats in enumerate(gpus):
        levels = [0.1 * (1 + at) * (factor if gpu == slow else 1.0) for gpu in of_repeats]
        cell = measured.cell(
            "run", f"f{at}", "w", [windows(random, level) for level in levels], f"c{at}", device="cuda"
        )
        repeats = tuple(
            replace(repeat, row={**repeat.row, "device_uuids": [gpu]})
            for repeat, gpu in zip(cell.repeats, of_repeats, strict=True)
        )
        cells.append(replace(cell, repeats=repeats))
    ((group,),) = (workload.groups for workload in workloads(cells))
    return _of_a_bad_repeat([entry.cell for entry in group.ranked], group)


def test_where_it_is_the_gpu_the_gpu_is_named() -> None:
    bad, *good = "GPU-bad0", "GPU-aaa1", "GPU-aaa2", "GPU-aaa3"
    said = said_of([[*good, bad, good[1]], [bad, *good, good[0]], [good[1], good[2], bad, good[0], good[2]]], bad)
    assert said[0].startswith("GPU …bad0 was the slow one of ")
    assert all("on GPU …bad0 takes " in line for line in said[1:])


def test_a_gpu_that_measured_every_second_repeat_is_named_where_each_cell_took_longer_on_it() -> None:
    """No repeat is then far from the others of its cell, and what scatters is not the machine."""
    gpus = [["GPU-aaa1", "GPU-bad0"] * 2, ["GPU-bad0", "GPU-aaa1"] * 2, ["GPU-aaa1", "GPU-bad0"] * 2]
    assert "GPU …bad0 was the slow one of 3 cells: `runner verify --each-gpu` compares the GPUs." in said_of(
        gpus, "GPU-bad0", 1.25
    )
    assert not any("GPU" in line for line in said_of(gpus, "GPU-none"))


def test_on_one_gpu_none_is_named() -> None:
    said = said_of([["GPU-aaa1"] * 3] * 3, "GPU-none")
    assert not any("GPU" in line for line in said)


@pytest.mark.parametrize(("noise", "words"), [(0.005, "a chance of at most 5 %"), (0.06, "one run in ten may show")])
def test_at_most_5_percent_is_said_only_of_machines_of_which_simulation_holds_it(noise: float, words: str) -> None:
    random = np.random.default_rng(4)
    series = {
        (framework, "w"): [windows(random, level * float(np.exp(random.normal(0, noise)))) for _ in range(5)]
        for framework, level in (("torch", 0.1), ("jax", 0.5), ("tensorflow", 0.4))
    }
    lines = [line for section in plain.sections(measured.tables({"run": series})) for line in section.below]
    (confirmed,) = (line for line in lines if line.startswith("confirmed"))
    assert words in confirmed
