"""Somebody sets the clock of the machine while a run goes on, as the first answer of a time server does: by hours, back and forth."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.results import store
from tests.fixtures.toys import toy_variables
from tests.fixtures.waiting import wait_for
from tests.stand_ins.fleet import HERE, compiler

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

Say = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """The seconds in this file are added to the wall clock of what `say` starts. The monotonic clock stays."""
    clock = tmp_path / "clock"
    clock.write_text("0")
    return clock


@pytest.fixture
def say(tmp_path: Path, clock: Path) -> Say:
    """Start a command of the runner over toy cells. libfaketime would do, but its clock_nanosleep refuses some of Python's sleeps."""
    if (program := compiler()) is None:
        pytest.skip("left out, because no C compiler was found for the clock that can be set")
    library = tmp_path / "clock.so"
    subprocess.run([program, "-shared", "-fPIC", "-O2", "-o", library, HERE / "clock.c"], check=True)

    def say(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.unit.toy_runner", *words, "--out", str(tmp_path / "results")]
        variables = os.environ | toy_variables(tmp_path, seconds=0.3)
        variables |= {"LD_PRELOAD": str(library), "CLOCK_FILE": str(clock)}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=PROJECT, env=variables, stdout=pipe, stderr=subprocess.STDOUT, text=True)

    return say


def ended(process: subprocess.Popen[str]) -> str:
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, printed
    return printed


@pytest.mark.parametrize("nodes", [(), ("--nodes", "local:2")], ids=["here", "nodes"])
def test_a_clock_that_is_set_in_mid_run_costs_no_repeat_and_moves_none_before_another(
    say: Say, clock: Path, tmp_path: Path, nodes: tuple[str, ...]
) -> None:
    process = say("matrix", "--gpus", "none", "--workloads", "cnn-cifar10", "--repeats", "2", *nodes)
    for number, hours in enumerate((-3, 7, -5), 1):
        wait_for(lambda: len(list(tmp_path.glob("results/*/repeats/*.parcel"))) >= number)  # noqa: B023
        clock.write_text(str(3600 * hours))
    assert "6 repeats of 3 cells ok, 0 failed" in ended(process)
    (folder,) = (tmp_path / "results").iterdir()
    rows = store.read([folder], "cells").to_pylist()
    assert set(Counter((row["cell_id"], row["repeat"]) for row in rows).values()) == {1}
    # The kernel's own clock, which is not set, says which ended first.
    rows.sort(key=lambda row: (folder / "repeats" / f"{row['cell_id']}.r{row['repeat']}.parcel").stat().st_mtime_ns)
    for node in {row["node"] for row in rows}:
        begun = [row["started_unix"] for row in rows if row["node"] == node]
        assert begun == sorted(begun)
        assert begun[-1] < begun[0] + 120
