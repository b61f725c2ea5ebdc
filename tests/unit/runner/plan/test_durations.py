"""How long a cell is expected to take: as long as its like took before."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from runner.catalog.workloads import load_workloads
from runner.plan.durations import Durations, Preparation, earlier_preparations, earlier_seconds
from runner.plan.plan import Cell
from runner.results.store import SCHEMA_VERSION, RunStore
from tests.fixtures.plans import make_cell

CELL = make_cell(image="torch-1-cu128", device_kind="cuda", device_model="NVIDIA L4")
WORKLOADS = load_workloads()


def ran(results: Path, run: str, *told: tuple[Cell, float]) -> None:
    """A run whose cells took so many seconds, as its run.json says."""
    took = [asdict(cell) | {"seconds": seconds} for cell, seconds in told]
    RunStore(results / run).write_manifest({"schema_version": SCHEMA_VERSION, "took": took})


def test_a_cell_takes_as_long_as_it_took_in_the_median_on_that_gpu(tmp_path: Path) -> None:
    other = replace(CELL, device_model="NVIDIA H100")
    ran(tmp_path, "a", (CELL, 30.0), (CELL, 50.0), (CELL, 40.0))
    ran(tmp_path, "b", (other, 10.0))
    durations = Durations(WORKLOADS, earlier_seconds(tmp_path))
    assert durations.seconds(CELL) == 40
    assert durations.seconds(replace(CELL, image="another", seed=9)) == 40, "an image of the same framework"
    assert durations.seconds(other) == 10
    assert durations.seconds(replace(CELL, device_model="NVIDIA A100")) == 35, "on a GPU never seen: of all"
    assert not durations.guessed(replace(CELL, device_model="NVIDIA A100"))
    never = replace(CELL, framework="jax")
    assert durations.guessed(never)
    durations.learn(never, 60.0)
    assert not durations.guessed(never)


def test_what_a_run_wrote_into_its_run_json_is_taken(tmp_path: Path) -> None:
    durations = Durations(WORKLOADS, {})
    for seconds in (30.0, 50.0, 40.0):
        durations.learn(CELL, seconds)
    RunStore(tmp_path / "a").write_manifest({"schema_version": SCHEMA_VERSION, "took": durations.took()})
    later = Durations(WORKLOADS, earlier_seconds(tmp_path))
    assert later.seconds(CELL) == 40
    assert later.seconds(replace(CELL, image="another")) == 40
    assert later.guessed(replace(CELL, framework="jax"))
    ran(tmp_path, "b", (CELL, 60.0))
    assert Durations(WORKLOADS, earlier_seconds(tmp_path)).seconds(CELL) == 50


def test_a_run_that_goes_on_keeps_what_its_cells_took_before(tmp_path: Path) -> None:
    before, after = Durations(WORKLOADS, {}), Durations(WORKLOADS, {})
    other = replace(CELL, framework="jax")
    before.learn(CELL, 30.0)
    before.learn(other, 20.0)
    after.ended = before.took()
    after.learn(other, 25.0)
    RunStore(tmp_path / "a").write_manifest({"schema_version": SCHEMA_VERSION, "took": after.took()})
    durations = Durations(WORKLOADS, earlier_seconds(tmp_path))
    assert [durations.seconds(cell) for cell in (CELL, other)] == [30, 25]


@pytest.mark.parametrize("took", [7, [], [3], [{}], [{"seconds": "1"}], [{"seconds": -1}], [{"seconds": 10**400}]])
def test_a_run_json_that_no_run_wrote_takes_no_plan_with_it(tmp_path: Path, took: object) -> None:
    RunStore(tmp_path / "a").write_manifest({"took": took})
    assert earlier_seconds(tmp_path) == {}


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -5.0, 0.0, 1e300])
def test_a_length_that_no_cell_can_have_had_is_no_estimate(tmp_path: Path, seconds: float) -> None:
    ran(tmp_path, "a", (CELL, seconds))
    assert earlier_seconds(tmp_path) == {}
    ran(tmp_path, "b", (CELL, 30.0))
    assert Durations(WORKLOADS, earlier_seconds(tmp_path)).seconds(CELL) == 30


def test_what_never_ran_is_guessed_from_its_preset(tmp_path: Path) -> None:
    durations = Durations(WORKLOADS, earlier_seconds(tmp_path))
    quick, standard = (durations.seconds(replace(CELL, preset=name)) for name in ("quick", "standard"))
    assert 10 < quick < standard
    assert durations.seconds(replace(CELL, preset="full")) > standard


def test_a_run_that_goes_on_takes_what_its_run_json_says_until_its_cells_say_otherwise(tmp_path: Path) -> None:
    ran(tmp_path, "a", (CELL, 40.0))
    known, never = CELL, replace(CELL, framework="jax")
    durations = Durations(WORKLOADS, earlier_seconds(tmp_path))
    durations.stored |= {known.id: (30.0, False), never.id: (100.0, True)}
    assert [durations.seconds(cell) for cell in (known, never)] == [30, 100]
    assert [durations.guessed(cell) for cell in (known, never)] == [False, True]
    other = replace(CELL, framework="tensorflow")
    durations.stored[other.id] = (50.0, True)
    durations.learn(other, 100.0)
    assert [durations.seconds(cell) for cell in (known, never, other)] == [30, 100, 100]
    for framework in ("chainer", "paddle"):
        durations.learn(replace(CELL, framework=framework), 2 * Durations(WORKLOADS, {}).seconds(CELL))
    assert [durations.seconds(cell) for cell in (known, never, other)] == [30, 200, 100], "guesses at the run's pace"
    durations.learn(known, 60.0)
    assert durations.seconds(known) == 60


def test_one_slow_cell_stretches_nothing_else_and_a_slow_machine_does() -> None:
    cells = [replace(CELL, framework=f"framework_{number}") for number in range(20)]
    guess = Durations(WORKLOADS, {}).seconds(CELL)
    for slow in range(5):
        durations = Durations(WORKLOADS, {})
        for at, cell in enumerate(cells[:10]):
            # Its repeats are of one kind.
            for _ in range(3):
                durations.learn(cell, guess * (20.0 if at == slow else 1.0))
            assert durations.seconds(cells[-1]) == guess
        assert durations.seconds(cells[slow]) == 20 * guess
    durations = Durations(WORKLOADS, {})
    for cell in cells[:3]:
        durations.learn(cell, 5 * guess)
    assert durations.seconds(cells[-1]) == 5 * guess


def test_preparations_of_earlier_runs_are_read_and_damaged_ones_are_not(tmp_path: Path) -> None:
    entry = {"image": "torch-1-cpu", "bytes": 10**8, "seconds": 42.5}
    damaged = [
        None,
        {},
        entry | {"bytes": 0},
        entry | {"seconds": -1},
        entry | {"seconds": "1"},
        entry | {"bytes": 10**30},
    ]
    manifests = {
        "a": {"engine": "venv", "prepared": [entry, *damaged]},
        "b": {"engine": "docker", "prepared": [entry | {"seconds": 400.0}]},
        "c": {"engine": "venv", "prepared": 7},
        "d": [1],
    }
    for name, manifest in manifests.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(manifest))
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "run.json").write_bytes(b"{torn")
    assert earlier_preparations(tmp_path, "venv") == [Preparation("torch-1-cpu", 10**8, 42.5)]
    assert [each.seconds for each in earlier_preparations(tmp_path, "docker")] == [400.0]
    assert earlier_preparations(tmp_path / "nowhere", "venv") == []


def test_a_cell_that_ends_while_another_thread_asks_disturbs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen once in a run of eight GPUs: the dictionary changed size during iteration, and the run ended."""
    durations, median = Durations(WORKLOADS, {}), statistics.median
    durations.learn(CELL, 30.0)
    frameworks = iter(("jax", "tensorflow", "chainer", "mxnet"))

    def learns_meanwhile(values: Iterable[float]) -> float:
        if (framework := next(frameworks, None)) is not None:
            durations.learn(replace(CELL, framework=framework), 20.0)
        return median(values)

    monkeypatch.setattr("runner.plan.durations.statistics.median", learns_meanwhile)
    assert durations.seconds(replace(CELL, framework="cntk")) > 0
    assert len(durations.took()) >= 2
