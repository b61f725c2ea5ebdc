"""A fact that changed between two runs is named, parts their repeats, and parts them in a reference: each fact of each table of roles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from reports.answers import run_history
from reports.answers.contrast import Side, differences
from reports.data import tables
from runner.results.on_disk import roles
from runner.verify.references.comparability import conditions, excuses
from runner.verify.references.measured import read_runs, reference_of
from runner.verify.references.saved import SavedError
from tests.fixtures import synthetic

Facts = Mapping[str, Mapping[str, Any]]
CELL = ("torch-2.13.0-cpu", "cnn-cifar10")
OF_HOST = roles.with_role("choice", "state", of=roles.HOST_ROLES)
OF_GPU = roles.with_role("choice", "state", of=roles.DEVICE_ROLES)


def run_of(folder: Path, day: int, facts: Facts) -> Path:
    """A run of one CPU cell and of one GPU that recorded these facts."""
    told = synthetic.environment(synthetic.cell(*CELL))
    told |= {where: {**told.get(where, {}), **values} for where, values in facts.items()}
    manifest = {
        "created": f"2026-11-2{day}T00:00:00+00:00",
        "host": {**synthetic.HOST, **facts.get("host", {})},
        "devices": [{"model": "Synthetic GPU", "uuid": "GPU-0", **facts.get("gpu", {})}],
    }
    changes = {"environment_json": json.dumps(told)}
    run = synthetic.make_run(folder / f"day{day}", windows=12, draw=day, changes=changes, manifest=manifest)
    return synthetic.add_scaling(synthetic.unrun(run, CELL), {1: 0.1}, windows=12)


def days(folder: Path, before: Facts, after: Facts) -> list[Path]:
    return [run_of(folder, 1, before), run_of(folder, 2, after)]


def told(runs: list[Path]) -> set[str]:
    """What changed between two runs, as compare names it. The report pools the runs of a cell where nothing did."""
    cells: dict[str, list[Any]] = {}
    for cell in sorted(tables.load(runs).cells, key=lambda cell: cell.run_id):
        if cell.status == "ok":
            cells.setdefault(cell.cell_id, []).append(cell)
    said = {name: differences(*(Side((cell,)) for cell in both)) for name, both in cells.items()}
    states = {name: len(run_history.states(both)) for name, both in cells.items()}
    assert states == {name: 2 if changes else 1 for name, changes in said.items()}
    return {str(change) for changes in said.values() for change in changes}


def refused(runs: list[Path]) -> set[str]:
    """The facts for which two runs are no sessions of one machine, which verify names too."""
    before, after = ([measured.facts for measured in read_runs([run]) if measured.repeats] for run in runs)
    pairs = list(zip(before, after, strict=True))
    names = {fact.name for pair in pairs for fact in (*excuses(*pair), *conditions(*pair))}
    with pytest.raises(SavedError, match="save these runs apart") if names else nullcontext():
        reference_of(runs, "lab", "0.1.0", noisy=True)
    return names


@pytest.mark.parametrize(
    ("where", "names", "others"),
    # The model of a CPU is the device, and the memory of a GPU is that which its framework sees.
    [("host", OF_HOST, {"cpu_model": None}), ("gpu", OF_GPU, {"memory_bytes": None, "driver": "driver_version"})],
)
def test_each_choice_or_state_that_changed_is_named_and_parts_the_runs(
    where: str, names: tuple[str, ...], others: Mapping[str, str | None], tmp_path: Path
) -> None:
    before, after = (
        {name: str(size) if name in ("cpu_model", "kernel") else size << 30 for name in names} for size in (64, 2)
    )
    runs = days(tmp_path, {where: before}, {where: after})
    assert len(told(runs)) == len(names)
    assert refused(runs) == {others.get(name, name) for name in names} - {None}


@pytest.mark.parametrize("nothing", [None, ""])
def test_nothing_is_a_value_and_a_key_that_is_absent_is_not_known(nothing: object, tmp_path: Path) -> None:
    after: Facts = {
        "host": {"cpu_quota": 0.6},
        "gpu": {"locked_sm_megahertz": 1410, "ecc": False},
        "settings": {"xla_flags": "--xla_cpu_enable_fast_math=true", "matmul_precision": "tensorfloat32"},
    }
    before = {where: dict.fromkeys(facts, nothing) for where, facts in after.items()}
    runs = days(tmp_path / "changed", before, after)
    values = {name: value for facts in after.values() for name, value in facts.items()}
    changes = told(runs)
    assert all(any(change.endswith(f" none → {value}") for change in changes) for value in values.values())
    assert refused(runs) == set(values)
    runs = days(tmp_path / "older", {}, after)
    assert told(runs) == refused(runs) == set()


def test_the_version_of_another_package_is_a_state(tmp_path: Path) -> None:
    runs = days(tmp_path, {"versions": {"numpy": "2.4.6"}}, {"versions": {"numpy": "1.26.4"}})
    assert told(runs) == {"numpy 2.4.6 → 1.26.4"}
    assert refused(runs) == {"numpy"}


def test_what_is_of_the_place_or_the_moment_parts_no_runs(tmp_path: Path) -> None:
    floating = set(roles.with_role("result", "provenance", of=roles.DEVICE_ROLES)) - {"uuid"}
    both: list[Facts] = [
        {"gpu": dict.fromkeys(floating, count), "host": {"name": f"host-{count}", "memory_bytes": count * 25_210_122}}
        for count in (1000, 1001)
    ]
    runs = days(tmp_path, *both)
    assert told(runs) == refused(runs) == set()


@pytest.mark.parametrize("changed", ["host", "node"])
def test_of_several_nodes_the_facts_are_those_of_the_node_that_measured(changed: str, tmp_path: Path) -> None:
    runs = []
    for day, kernel in ((1, "6.1"), (2, "6.8")):
        kernels = {"host": "6.0", "node": "6.0", changed: kernel}
        manifest = {
            "created": f"2026-11-2{day}T00:00:00+00:00",
            "host": {**synthetic.HOST, "kernel": kernels["host"]},
            "nodes": [{"node": "n0", "kernel": "5.10"}, {"node": "n1", "kernel": kernels["node"]}],
        }
        run = synthetic.make_run(
            tmp_path / f"day{day}", windows=12, draw=day, everywhere={"node": "n1"}, manifest=manifest
        )
        runs.append(synthetic.unrun(run, CELL))
    expected = {"kernel 6.1 → 6.8"} if changed == "node" else set()
    assert told(runs) == expected
    assert refused(runs) == ({"kernel"} if expected else set())
