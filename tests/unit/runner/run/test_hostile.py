"""A cell without walls that attacks the run ends only itself: the cells beside it are measured, and so is the next run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import trees
from runner.engines.process.process import sweep_scratch
from runner.machine import telemetry
from runner.run.attempt import Limits
from tests.fixtures.attempts import Engine
from tests.fixtures.hostile import ANYWHERE, DISK, OK, WITHOUT_WALLS, cache_below, run_kinds, unexpected


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with some MB and some thousand files."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=6000", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"left out, because no file system can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def engine() -> Any:
    """Processes of this machine; what dead runners left is swept as the real engines do."""
    engine: Any = Engine("", Path())
    engine.sweep = sweep_scratch
    return engine


@pytest.mark.parametrize("kind", DISK)
def test_a_cell_that_fills_the_disk_fails_for_it_and_the_next_ones_are_measured(
    small_disk: Path, monitor: telemetry.Monitor, engine: Any, kind: str
) -> None:
    """Results and cache on one disk."""
    with cache_below(small_disk):
        rows = run_kinds(engine, [OK, kind, OK, OK], small_disk, monitor)
        assert [row["status"] for row in rows] == ["ok", "failed", "ok", "ok"], [row["reason"] for row in rows]
        assert rows[1]["error_kind"] == "disk", rows[1]["reason"]
        assert str(small_disk) in rows[1]["reason"]
        assert run_kinds(engine, [OK], small_disk, monitor, name="again")[0]["status"] == "ok"


@pytest.mark.slow
def test_every_hostile_cell_ends_only_itself(tmp_path: Path, monitor: telemetry.Monitor, engine: Any) -> None:
    """An innocent cell follows each, and a run of innocent ones alone."""
    attacks = ANYWHERE | WITHOUT_WALLS
    kinds = [OK, *(kind for attack in attacks for kind in (attack, OK))]
    with cache_below(tmp_path) as cache:
        rows = run_kinds(engine, kinds, tmp_path, monitor, Limits(60, 10))
        assert unexpected(kinds, rows) == []
        sweep_scratch()
        again = run_kinds(engine, [OK, OK], tmp_path, monitor, name="again")
        assert [row["status"] for row in again] == ["ok", "ok"]
        assert [status.st_mode for _, status in trees.below(cache) if status.st_mode & 0o6000] == []
