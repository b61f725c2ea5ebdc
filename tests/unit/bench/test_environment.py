"""A program's own memory, and the settings that its framework tells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import environment
from bench.errors import BenchError

PROJECT = Path(__file__).resolve().parents[3]

# A process of 400 MB starts a small one, which tells its peak, and that of one that itself took 300 MB.
LAUNCHER = """
import subprocess, sys
held = bytearray(400_000_000)
held[::4096] = b"x" * len(held[::4096])
small = "from bench import environment; print(environment.host_peak_bytes())"
large = "held = bytearray(300_000_000); held[::4096] = b'x' * len(held[::4096]); " + small
for program in (small, large):
    print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
"""


def test_a_small_program_started_by_a_large_one_tells_its_own_peak() -> None:
    found = subprocess.run([sys.executable, "-c", LAUNCHER], cwd=PROJECT, capture_output=True, text=True, check=True)
    small, large = (int(line) for line in found.stdout.split())
    assert 5_000_000 < small < 200_000_000
    assert 300_000_000 < large < 390_000_000


def test_threads_that_are_others_after_the_measurement_than_before_the_build_are_refused() -> None:
    told = {"threads": 1, "threads_asked": 1, "layout": "NCHW"}
    environment.refuse_other_threads(told, {"threads": 1, "layout": "NHWC"})
    with pytest.raises(BenchError, match="'threads' was 1 before the network was built and is 2 after the measurement"):
        environment.refuse_other_threads(told, {"threads": 2, "layout": "NCHW"})
