"""A cell without walls that attacks the run ends only itself: the cells beside it are measured, and so is the next run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.machine import telemetry
from runner.results.plausible import work
from tests.fixtures.attempts import Engine
from tests.fixtures.hostile import DISK, OK, run_kinds


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


@pytest.mark.parametrize("kind", DISK)
def test_a_cell_that_fills_the_disk_fails_for_it_and_the_next_ones_are_measured(
    small_disk: Path, monitor: telemetry.Monitor, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Results and cache on one disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk / "xdg"))
    monkeypatch.setattr(work, "most_operations", lambda *_: None)
    engine: Any = Engine("", Path())
    rows = run_kinds(engine, [OK, kind, OK, OK], small_disk, monitor)
    assert [row["status"] for row in rows] == ["ok", "failed", "ok", "ok"], [row["reason"] for row in rows]
    assert rows[1]["error_kind"] == "disk", rows[1]["reason"]
    assert str(small_disk) in rows[1]["reason"]
    again = run_kinds(engine, [OK], small_disk, monitor, name="again")
    assert again[0]["status"] == "ok"
