"""A cell that attacks the run ends only itself: the cells beside it are measured, and so are those of --resume and of the next run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import trees
from runner.results import store
from tests.engine.hostile_runs import Site
from tests.fixtures.hostile import ATTACK, DISK, INNOCENT, KINDS
from tests.fixtures.weekly import only_with

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1800)]

# All kinds take twenty minutes: usually every fifth is run, and each of them with the variable.
EACH = 1 if os.environ.get("DLBENCH_FAULTS") == "all" else 5

ONE_ENGINE = only_with("DLBENCH_FAULTS", "of each kind one engine is tested with each change")
# The limit of cells that hang, beside innocent ones, and that of the others, of which a busy machine makes none hang.
HANG_SECONDS, SECONDS = 8, 90


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


def ended(site: Site, *words: str) -> int:
    process = site.start("--repeats", "1", *words)
    code = process.wait(1500)
    assert "Traceback" not in site.said(), site.said()[-5000:]
    assert not {"\x1b", "\x07", "\u202e"} & set(site.said())
    return code


def rows_of(run: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(kind, workload) -> its row."""
    rows = store.read([run], "cells").to_pylist()
    return {(row["image"], row["workload"]): row for row in rows if row["status"] != "skipped"}


@pytest.fixture(autouse=True)
def xdg(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs are read here too: both processes are one installation."""
    disk = request.getfixturevalue("small_disk") if "small_disk" in request.fixturenames else tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(disk / "xdg"))


def wrong(rows: dict[tuple[str, str], dict[str, Any]], due: dict[tuple[str, str], str]) -> dict[tuple[str, str], Any]:
    """The cells that ended otherwise than they had to: how they had to, how they did, and why."""
    got = {key: row["error_kind"] or row["status"] for key, row in rows.items()}
    assert got.keys() == due.keys()
    return {key: (ends, got[key], rows[key]["reason"]) for key, ends in due.items() if got[key] not in ends.split("|")}


def hold_against(request: pytest.FixtureRequest, where: str, kinds: dict[str, str], folder: Path, seconds: int) -> None:
    """Run the kinds, each beside an innocent cell that shares its cache; then --resume, then a fresh run. `kinds`: how each ends."""
    client = request.getfixturevalue("client") if where == "docker" else None
    base = request.getfixturevalue("base_image") if client else ""
    site, limit = Site(where, folder, list(kinds), client, base), ("--timeout", str(seconds))
    code = ended(site, "--workloads", f"{ATTACK},{INNOCENT}", *limit)
    (run,) = site.runs()
    due = {(kind, ATTACK): ends for kind, ends in kinds.items()} | {(kind, INNOCENT): "ok" for kind in kinds}
    rows = rows_of(run)
    assert wrong(rows, due) == {}
    assert code == (1 if any(ends != "ok" for ends in due.values()) else 0)
    said = site.said()
    unnamed = [key for key, ends in due.items() if ends != "ok" and f"FAIL {key[0]} torch {key[1]}" not in said]
    assert unnamed == [], said
    assert all(row["reason"] for row in rows.values() if row["status"] == "failed")

    for kind, workload in list(due)[::3]:
        (run / "repeats" / f"{rows[kind, workload]['cell_id']}.r1.parcel").unlink()
    assert ended(site, "--resume", run.name) == code
    assert wrong(rows_of(run), due) == {}
    assert ended(site, "--workloads", INNOCENT, *limit) == 0
    (fresh,) = set(site.runs()) - {run}
    assert {key: row["status"] for key, row in rows_of(fresh).items()} == {(kind, INNOCENT): "ok" for kind in kinds}
    assert site.left() == []


@pytest.mark.parametrize(
    ("where", "hangs"),
    [
        pytest.param("venv", False, marks=ONE_ENGINE, id="venv-ends"),
        pytest.param("docker", False, id="docker-ends"),
        pytest.param("venv", True, id="venv-hangs"),
        pytest.param("docker", True, marks=ONE_ENGINE, id="docker-hangs"),
    ],
)
def test_every_hostile_cell_ends_only_itself(
    request: pytest.FixtureRequest, where: str, hangs: bool, tmp_path: Path
) -> None:
    kinds = {name: ends for name, kind in KINDS.items() if (ends := getattr(kind, where))}
    chosen = dict([(name, ends) for name, ends in kinds.items() if ("time-limit" in ends) is hangs][::EACH])
    try:
        hold_against(request, where, chosen, tmp_path, HANG_SECONDS if hangs else SECONDS)
    finally:
        # pytest cannot remove a deep tree.
        trees.remove(tmp_path / "xdg")


@pytest.mark.parametrize("where", [pytest.param("venv", marks=ONE_ENGINE), "docker"])
def test_a_cell_that_fills_the_disk_fails_for_it_and_the_next_ones_are_measured(
    request: pytest.FixtureRequest, where: str, small_disk: Path
) -> None:
    """Results and cache on one disk."""
    kinds = {name: ends for name, kind in DISK.items() if (ends := getattr(kind, where))}
    hold_against(request, where, kinds, small_disk, SECONDS)
