"""What each parcel of a run may be by itself, and not beside another one: copies, and two at one time on one device."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.admission import sets
from runner.admission.renew import renew
from runner.admission.sets import KnownWindows, forms
from runner.results import store
from runner.results.on_disk.schema import no_rows
from runner.results.parcel import Parcel, encode
from runner.results.store import RunStore
from tests.fixtures import stored, synthetic
from tests.fixtures.events import in_windows, rearrange
from tests.fixtures.nodes import parcel_of
from tests.fixtures.plans import make_cell

CELL = make_cell(image="torch-2.13.0-cpu")
OTHER = replace(CELL, mode="graph")

Change = Callable[[Parcel], Parcel]


@pytest.fixture(autouse=True)
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def as_is(parcel: Parcel) -> Parcel:
    return parcel


def later(parcel: Parcel) -> Parcel:
    """At another hour, by all of its clocks."""
    rows = tuple({**row, "unix": row["unix"] + 7200.0} for row in parcel.telemetry)
    return replace(parcel, started_unix=(parcel.started_unix or 0.0) + 7200.0, telemetry=rows)


def noisy(noise: float, factor: float = 1.0) -> Change:
    """Each window as long, but for so much noise, and all of them times a factor; at another hour."""

    def change(parcel: Parcel) -> Parcel:
        chance, events = random.Random(1), [json.loads(line) for _, line in parcel.tape]
        for event in events:
            if event["event"] == "sample":
                event["seconds"] *= factor * (1 - noise * chance.random())
        in_windows(events)
        tape = [(at, json.dumps(event).encode() + b"\n") for (at, _), event in zip(parcel.tape, events, strict=True)]
        return replace(later(parcel), tape=tuple(tape))

    return change


def rearranged(order: Callable[[list[float]], list[float]]) -> Change:
    """The steady windows in another order, or as long as `order` makes them; at another hour."""

    def change(parcel: Parcel) -> Parcel:
        events = [json.loads(line) for _, line in parcel.tape]
        rearrange(events, order)
        tape = [(at, json.dumps(event).encode() + b"\n") for (at, _), event in zip(parcel.tape, events, strict=True)]
        return replace(later(parcel), tape=tuple(tape))

    return change


def mixed(windows: list[float]) -> list[float]:
    return random.Random(3).sample(windows, len(windows))


def spread(factor: float) -> Callable[[list[float]], list[float]]:
    """How far each window is from the middle one, times a factor."""
    return lambda windows: [statistics.median(windows) + factor * (one - statistics.median(windows)) for one in windows]


def other_telemetry(change: Change) -> Change:
    def made(parcel: Parcel) -> Parcel:
        rows = tuple({**row, "machine_cpu_seconds": row["machine_cpu_seconds"] + 9.25} for row in parcel.telemetry)
        return replace(change(parcel), telemetry=rows)

    return made


FORGED: dict[str, tuple[Change, str]] = {
    "the same parcel": (as_is, "it ran on the same device at the same time as"),
    "at another hour": (later, "it has the windows of"),
    "with the noise of a clock's digits": (noisy(1e-6), "it has the windows of"),
    "times a factor": (noisy(0.0, 0.97), "it has the windows of"),
    "with half a percent of noise": (noisy(5e-3), "it has the telemetry of"),
    "with other telemetry": (other_telemetry(noisy(1e-6)), "it has the windows of"),
    "backwards": (other_telemetry(rearranged(lambda windows: windows[::-1])), "it has the windows of"),
    "begun five windows later": (
        other_telemetry(rearranged(lambda all_: all_[5:] + all_[:5])),
        "it has the windows of",
    ),
    "in another order": (other_telemetry(rearranged(mixed)), "it has the windows of"),
    "mirrored": (other_telemetry(rearranged(spread(-1.0))), "it has the windows of"),
    "with half of the noise": (other_telemetry(rearranged(spread(0.5))), "it has the windows of"),
}


def run_of(tmp_path: Path, *parcels: Parcel) -> RunStore:
    return stored.measured(tmp_path / "run", list(parcels), [CELL, OTHER], repeats=3)


@pytest.mark.parametrize("forgery", FORGED)
def test_a_parcel_that_is_brought_again_as_another_repeat_counts_once(tmp_path: Path, forgery: str) -> None:
    change, why = FORGED[forgery]
    run = run_of(tmp_path, parcel_of(CELL, 1), replace(change(parcel_of(CELL, 1)), repeat=2), parcel_of(CELL, 3))
    renew(run)
    assert store.statuses(run.folder) == {(CELL.id, 1): "ok", (CELL.id, 2): "failed", (CELL.id, 3): "ok"}
    (row,) = stored.rows_of(run.folder, "cells", CELL.id, 2)
    assert row["error_kind"] == "implausible"
    assert row["reason"] == f"{sets.BESIDE}{why} repeat 1 of the cell {CELL.id}"


@pytest.mark.parametrize("forgery", FORGED)
def test_of_two_cells_with_one_measurement_neither_is_believed(tmp_path: Path, forgery: str) -> None:
    change, _ = FORGED[forgery]
    run = run_of(
        tmp_path, parcel_of(CELL, 1), replace(change(parcel_of(CELL, 1)), cell_id=OTHER.id), parcel_of(CELL, 3)
    )
    renew(run)
    assert store.statuses(run.folder) == {(CELL.id, 1): "failed", (OTHER.id, 1): "failed", (CELL.id, 3): "ok"}


def test_a_repeat_is_believed_again_once_its_copy_is_gone(tmp_path: Path) -> None:
    copied = replace(parcel_of(CELL, 1), cell_id=OTHER.id)
    run = run_of(tmp_path, parcel_of(CELL, 1), copied)
    renew(run)
    assert set(store.statuses(run.folder).values()) == {"failed"}
    (run.folder / "repeats" / f"{OTHER.id}.r1.parcel").unlink()
    renew(run)
    assert store.statuses(run.folder) == {(CELL.id, 1): "ok"}
    (run.folder / "repeats" / f"{CELL.id}.r2.parcel").write_bytes(encode(replace(parcel_of(CELL, 1), repeat=2)))
    renew(run)
    assert store.statuses(run.folder) == {(CELL.id, 1): "ok", (CELL.id, 2): "failed"}


def test_repeats_on_two_nodes_may_be_at_one_time_and_on_one_may_not(tmp_path: Path) -> None:
    at_once = replace(parcel_of(CELL, 2), started_unix=parcel_of(CELL, 1).started_unix)
    run = run_of(tmp_path, parcel_of(CELL, 1), replace(at_once, node="n2"))
    renew(run)
    assert set(store.statuses(run.folder).values()) == {"ok"}
    (tmp_path / "other").mkdir()
    run = run_of(tmp_path / "other", parcel_of(CELL, 1), at_once)
    renew(run)
    assert store.statuses(run.folder)[CELL.id, 2] == "failed"


def test_an_engine_that_takes_long_to_begin_a_process_makes_no_two_repeats_at_one_time(tmp_path: Path) -> None:
    """The wall time counts from the call of the engine, and the start is that of the process."""
    first, second = parcel_of(CELL, 1), parcel_of(CELL, 2)
    wait = 30.0
    slow = replace(first, wall_seconds=(first.wall_seconds or 0.0) + wait)
    after = (first.started_unix or 0.0) + (first.wall_seconds or 0.0) + 0.1
    run = run_of(tmp_path, slow, replace(second, started_unix=after))
    renew(run)
    assert set(store.statuses(run.folder).values()) == {"ok"}


def test_a_clock_that_is_set_back_between_two_sessions_accuses_nobody(tmp_path: Path) -> None:
    first = parcel_of(CELL, 1)
    began = float(first.started_unix or 0.0)
    run = run_of(tmp_path, first, replace(parcel_of(CELL, 2), started_unix=began + 5.0))
    before = store.datetime.fromtimestamp(began + 4.0, store.UTC).isoformat()
    sessions = {"resumed": [before], "reused": [{"cell_id": CELL.id, "repeat": 1}]}
    run.write_manifest({**run.manifest(), "created": "2023-01-01T00:00:00+00:00", **sessions})
    renew(run)
    assert set(store.statuses(run.folder).values()) == {"ok"}


def test_honest_repeats_are_not_accused_in_many_drawn_runs(tmp_path: Path) -> None:
    for draw in range(5):
        folder = synthetic.make_run(tmp_path / f"run{draw}", repeats=3, draw=draw)
        run = RunStore(folder)
        # All of them begin at one time.
        tables = store.tables_of([folder], ("samples", "telemetry")) | {"cells": no_rows("cells")}
        assert sets.together(tables, run.manifest()) == {}


NOISES: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "noise": lambda chance, count: 1 + 0.005 * chance.standard_normal(count),
    "noise, by a clock of few steps": lambda chance, count: np.round(500 * (1 + 0.005 * chance.standard_normal(count))),
    "a pattern of the data": lambda chance, count: (
        np.random.default_rng(0).uniform(0.9, 1.1, count) * (1 + 0.002 * chance.standard_normal(count))
    ),
    "two kinds of batches": lambda chance, count: (
        (1 + 0.1 * (np.arange(count) % 2)) * (1 + 0.002 * chance.standard_normal(count))
    ),
    "a clock that falls": lambda chance, count: 1 + 0.01 * np.arange(count) + 0.0005 * chance.standard_normal(count),
}


@pytest.mark.parametrize("count", [12, 40])
@pytest.mark.parametrize("noise", NOISES)
def test_honest_windows_are_not_those_of_another_repeat_in_any_order(noise: str, count: int) -> None:
    chance, known = np.random.default_rng(count), KnownWindows[int]()
    repeats = [forms(NOISES[noise](chance, count)) for _ in range(200)]
    for number, repeat in enumerate(repeats):
        known.add(repeat, number)
    assert {(one, other) for one, repeat in enumerate(repeats) for other in known.like(repeat) if one != other} == set()
    with_pattern = [number for number, repeat in enumerate(repeats) if repeat]
    assert len(with_pattern) > 150
    assert all(number in known.like(repeats[number]) for number in with_pattern), "each is known again"
