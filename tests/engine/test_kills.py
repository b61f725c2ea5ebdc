"""Whatever signal hits a runner, an agent or a cell at whatever moment: no repeat is lost, none is measured twice, nothing is left.

The long form (DLBENCH_FAULTS=all) sends 200 signals.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import trees
from runner.results import store
from tests.engine.gpu_runs import Run, ended, nothing_is_left, rows, wait_for
from tests.engine.hostile_runs import Site
from tests.fixtures import hostile
from tests.stand_ins.engine import OwnEngine
from tests.stand_ins.fleet import FakeGpu, Fleet

# A signal meets another moment each time, so no result is kept.
pytestmark = [pytest.mark.slow, pytest.mark.keyed(False), pytest.mark.timeout(7200)]

# How many signals: in every run of the tests, and with the variable.
WAYS = {"venv": (4, 70), "docker": (4, 65), "nodes": (4, 65)}
LONG = os.environ.get("DLBENCH_FAULTS") == "all"
SEED = 35
REPEATS, IMAGES = 2, ("a", "b", "c", "d")
WORDS = ("--repeats", str(REPEATS), "--workloads", f"{hostile.ATTACK},{hostile.INNOCENT}")
# 32 and 33 are the C library's own.
SIGNALS = [number for number in range(1, 65) if number not in (32, 33)]
# After these a process stands, until it is told to go on.
STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


# Only containers are the machine's engine's.
OWN = pytest.mark.xdist_group("own engine")


@pytest.fixture(params=["docker", pytest.param("venv", marks=OWN), pytest.param("nodes", marks=OWN)])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    # The runs are read here too: both processes are one installation.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    client = request.getfixturevalue("client") if request.param == "docker" else None
    base = request.getfixturevalue("base_image") if client else ""
    site = Site(request.param, tmp_path, IMAGES, client, base)
    yield site
    for pid in [pid for pids in site.alive().values() for pid in pids]:
        os.kill(pid, signal.SIGKILL)
    trees.remove(tmp_path / "xdg")


def hit(site: Site, chance: random.Random) -> str:
    """Send a signal to a process, in a third of the cases a runner; says which to what. Empty: it had ended meanwhile."""
    victims: list[tuple[str, Any]] = [(role, chance.choice(pids)) for role, pids in sorted(site.alive().items())]
    victims += [("container", container) for container in site.containers()[:1]]
    runners = [each for each in victims if each[0] == "runner"]
    others = [each for each in victims if each[0] != "runner"]
    if not runners:
        return ""
    role, victim = chance.choice(others if others and chance.random() < 0.67 else runners)
    number = chance.choice(SIGNALS)
    if role == "container":
        return f"{role} {number}" if site.signal(victim, number) else ""
    try:
        os.kill(victim, number)
        if number in STOPS:
            time.sleep(chance.uniform(0, 2))
            os.kill(victim, signal.SIGCONT)
    except ProcessLookupError:
        return ""
    return f"{role} {number}"


def waited(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def wrong_with(folder: Path, hits: int) -> str:
    """What a run that has ended lacks, in words. `hits`: the signals that something else than a runner got."""
    planned = {(cell["id"], repeat) for cell in store.RunStore(folder).manifest()["plan"] for repeat in (1, 2)}
    rows = [row for row in store.read([folder], "cells").to_pylist() if row["status"] != "skipped"]
    stored = Counter((row["cell_id"], row["repeat"]) for row in rows)
    if stored != Counter(planned) or len(planned) != 2 * REPEATS * len(IMAGES):
        return f"of {len(planned)} repeats these are stored: {stored}"
    failed = [row["reason"] for row in rows if row["status"] == "failed"]
    return f"{failed} after {hits} signals to cells" if len(failed) > hits else ""


def test_no_signal_loses_or_doubles_a_repeat_or_leaves_anything(site: Site) -> None:
    """A run is gone on with until all is there; then the next one begins."""
    chance = random.Random(f"{SEED} {site.way}")
    left = WAYS[site.way][LONG]
    hits: list[str] = []
    while left:
        run: Path | None = None
        kept: dict[Path, bytes] = {}
        others = 0
        while True:
            process = site.start(*WORDS, *(("--resume", run.name) if run else ()))
            # Before that it is only an interpreter that starts.
            while not site.said() and not waited(process, 0.02):
                pass
            # Some runners are hit before a cell has begun.
            early = chance.random() < 0.1
            while not early and "\nrun  " not in site.said() and not waited(process, 0.2):
                pass
            while left and not waited(process, chance.uniform(0, 3)):
                if sent := hit(site, chance):
                    hits.append(sent)
                    left, others = left - 1, others + (not sent.startswith("runner"))
            assert waited(process, 300), (hits, site.said(), "the run stands")
            said = site.said()
            assert "Traceback" not in said, (hits, said[-5000:])
            assert all(path.read_bytes() == data for path, data in kept.items()), (hits, "a repeat was measured again")
            if not (runs := site.runs()):
                continue
            (run,) = runs
            kept = {path: path.read_bytes() for path in run.glob("repeats/*.parcel")}
            if process.returncode in (0, 1) and "go on with" not in said.lower():
                break
        assert wrong_with(run, others) == "", (hits, said)
        assert site.left() == [], hits
        trees.remove(site.folder / "results")
    print(site.way, len(hits), hits)


@OWN
@pytest.mark.engine
def test_an_engine_that_is_killed_in_mid_run_costs_no_cell(
    run: Run, own: OwnEngine, fleet_file: Path, tmp_path: Path
) -> None:
    Fleet((FakeGpu(), FakeGpu())).write(fleet_file)
    process = run("--frameworks", "torch", "--repeats", "3")
    wait_for(lambda: len(list((tmp_path / "results").glob("*/repeats/*.parcel"))) >= 4, process, 200)
    own.stop(signal.SIGKILL)
    own.start()
    printed = ended(process)
    assert process.returncode == 0, printed
    cells = rows(tmp_path).query("status != 'skipped'")
    assert len(cells) == len(set(zip(cells.cell_id, cells.repeat, strict=True))) == 3 * 2 * 3
    nothing_is_left(own, tmp_path)
