"""The driver of a large run, with stand-in agents whose messages are real frames: a repeat costs as much among many as among few."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from runner.catalog.images import PROJECT


def driven(repeats: int, nodes: int, *words: str) -> dict[str, float]:
    """In a process of its own, whose memory is the driver's."""
    command = [sys.executable, "-m", "tests.unit.runner.nodes.driven", str(repeats), str(nodes), *words]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def test_a_repeat_costs_the_driver_as_much_among_many_as_among_few() -> None:
    few, many = driven(500, 8), driven(4000, 8)
    assert many["message_bytes"] > 30_000, "a message holds what a cell printed in half a minute"
    assert many["run_seconds"] / 4000 < 2.5 * few["run_seconds"] / 500
    assert many["memory_bytes"] < 1 << 29


def test_repeats_that_are_judged_and_stored_end_well() -> None:
    assert driven(20, 2, "store")["run_seconds"] > 0


@pytest.mark.slow
@pytest.mark.alone  # it measures time
@pytest.mark.skipif(os.environ.get("DLBENCH_SPEED") != "all", reason="a minute: DLBENCH_SPEED=all")
def test_a_hundred_thousand_repeats_on_128_nodes_take_a_minute_and_two_gigabytes() -> None:
    found = driven(100_000, 128)
    assert found["plan_seconds"] + found["run_seconds"] <= 60
    assert found["memory_bytes"] <= 2 << 30
