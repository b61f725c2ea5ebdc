"""What was seen of the machine explains a change in every answer: each column with the role of a cause, one at a time, changed by half."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench import speed
from reports.answers import comparison, findings, run_history
from reports.answers.contrast import Side, observed_changes
from reports.data import tables
from runner.results.on_disk import roles
from runner.results.on_disk.observed import changes
from runner.results.store import RunStore
from runner.verify.references.measured import reference_of
from runner.verify.verification import assess
from tests.fixtures import stored, synthetic

CPU = ("torch-2.13.0-cpu", "cnn-cifar10")
SLOWER = 1.5
# (table, column) -> the value before and after. Those of a CPU's cell first.
OF_CPU: Mapping[tuple[str, str], tuple[Any, Any]] = {
    ("telemetry", "cpu_megahertz"): (3500.0, 1750.0),
    ("cells", "other_cpus"): (0.0, 1.0),
}
OF_GPU: Mapping[tuple[str, str], tuple[Any, Any]] = {
    ("telemetry", "throttle_reasons"): (0, 0x40),
    ("telemetry", "sm_megahertz"): (1980.0, 990.0),
    ("telemetry", "memory_megahertz"): (2600.0, 1300.0),
    ("telemetry", "temperature_celsius"): (45.0, 90.0),
    ("telemetry", "memory_temperature_celsius"): (48.0, 96.0),
    ("telemetry", "power_watts"): (600.0, 300.0),
    ("telemetry", "foreign_process_count"): (0, 2),
    ("cells", "throttled"): (False, True),
    ("cells", "throttled_by"): ([], ["hardware thermal slowdown"]),
    ("cells", "max_temperature_celsius"): (45.0, 90.0),
    ("cells", "mean_power_watts"): (600.0, 300.0),
    ("cells", "foreign_processes"): ([], ["python (pid 7, of somebody)"]),
}
# What verify says instead, in sentences that it had before. None: a summary of what verify reads itself in the other table.
BY_VERIFY: Mapping[str, str | None] = {
    "other_cpus": "other work kept 1 CPUs busy beside it",
    "throttle_reasons": "hardware thermal slowdown held its clock back",
    "sm_megahertz": "its median clock was 990 MHz, and 1980 MHz in the reference",
    "foreign_processes": "1 other process computed on the GPU",
    **dict.fromkeys(
        ("throttled", "throttled_by", "max_temperature_celsius", "mean_power_watts", "foreign_process_count"), None
    ),
}
EVERY = [*(("cpu", *place) for place in OF_CPU), *(("cuda", *place) for place in OF_GPU)]


def test_each_cause_is_tried() -> None:
    tried = {column for _, _, column in EVERY}
    assert tried == {*roles.with_role("cause"), *roles.with_role("cause", of=roles.TELEMETRY_ROLES)}


def told(row: dict[str, Any], of: str, kind: str, changed: str = "") -> dict[str, Any]:
    """A row of the table `of` with each cause at its first value, and the `changed` one at its second."""
    causes = OF_CPU if kind == "cpu" else OF_GPU
    mine = of == "cells" or (row["device"] == "cpu") == (kind == "cpu")
    return (
        {**row, **{name: both[name == changed] for (where, name), both in causes.items() if where == of}}
        if mine
        else row
    )


def run_of(folder: Path, day: int, kind: str) -> Path:
    """A run of one cell, slower from the fifth day on, that recorded every cause at its first value."""
    level = SLOWER if day > 4 else 1.0
    manifest = {"created": f"2026-11-{day:02}T00:00:00+00:00", "devices": [{"model": "Synthetic GPU", "uuid": "GPU-0"}]}
    run = synthetic.make_run(
        folder / f"day{day:02}", windows=12, draw=day, repeats=2, slower={CPU: level}, manifest=manifest
    )
    if kind == "cuda":
        synthetic.add_scaling(run, {1: 0.1 * level * (1 + day % 3 / 2000)}, windows=12, repeats=2, telemetry=True)
    stored.remove(
        run, lambda row: row["device_kind"] != kind or (kind == "cpu" and (row["image"], row["workload"]) != CPU)
    )
    stored.plan_only_measured(run)
    for of in ("cells", "telemetry"):
        stored.change(run, of, partial(told, of=of, kind=kind))
    return run


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[Path]]:
    """Kind of device -> runs of eight days."""
    folder = tmp_path_factory.mktemp("days")
    return {kind: [run_of(folder / kind, day, kind) for day in range(1, 9)] for kind in ("cpu", "cuda")}


@pytest.mark.parametrize(("kind", "table", "column"), EVERY)
def test_a_cause_that_changed_by_half_is_named_by_history_compare_the_report_of_all_runs_and_verify(
    kind: str, table: str, column: str, days: Mapping[str, Sequence[Path]], tmp_path: Path
) -> None:
    runs = [*days[kind][:4], *(Path(shutil.copytree(run, tmp_path / run.name)) for run in days[kind][4:])]
    for run in runs[4:]:
        stored.change(run, table, partial(told, of=table, kind=kind, changed=column))
    word = roles.WORDS[column]

    moves = run_history.history(tables.load(runs, tables.STEPS))
    assert [word in line for line in moves.lines] == [True], moves.lines
    assert all("nothing recorded changed" not in line for line in moves.lines)
    assert word in run_history.records(moves)[0]["machine_changes"]

    two = comparison.comparison(tables.load([runs[3], runs[4]], tables.ANSWER), runs[3].name, runs[4].name)
    assert word in comparison.markdown(two)
    assert word in str(comparison.document(two))

    pooled = findings.findings(tables.load([runs[3], runs[4]], tables.ANSWER))
    assert any(word in line for one in pooled for line in (*one.changed, *one.caveats)), pooled

    if (by_verify := BY_VERIFY.get(column, word)) is None:
        return
    reference = reference_of(runs[:4], "lab", "0.1.0", noisy=True).reference
    (found,) = assess([runs[4]], [reference]).findings
    said = " ".join(f"{cause.name} {cause.evidence}" for cause in found.causes)
    assert by_verify in said, (found.kind, found.reason, said)


@pytest.mark.parametrize(("kind", "table", "column"), EVERY)
def test_a_cause_that_changed_though_no_step_time_did_is_named_by_the_report_of_all_runs(
    kind: str, table: str, column: str, days: Mapping[str, Sequence[Path]], tmp_path: Path
) -> None:
    runs = [days[kind][0], Path(shutil.copytree(days[kind][1], tmp_path / "other"))]
    stored.change(runs[1], table, partial(told, of=table, kind=kind, changed=column))
    pooled = findings.findings(tables.load(runs, tables.ANSWER))
    said = [line for one in pooled for line in (*one.changed, *one.caveats)]
    assert any(f"and the machine did: {roles.WORDS[column]} " in line for line in said), said
    assert all("nothing recorded changed" not in line for line in said)


def test_what_a_sensor_or_an_idle_machine_makes_is_no_change(tmp_path: Path) -> None:
    before = [
        {"sm_megahertz": 1980.0 - at, "temperature_celsius": 60.0 + at, "other_cpus": 0.01 * at} for at in range(5)
    ]
    after = [{name: value * 1.02 for name, value in repeat.items()} for repeat in before]
    assert changes(before, after, 2) == ()
    # Repeats that scatter as widely as both sides lie apart show nothing.
    wide = [{"sm_megahertz": clock} for clock in (1980.0, 1200.0, 1700.0)]
    assert changes(wide, [{"sm_megahertz": clock} for clock in (1900.0, 1100.0, 1400.0)], 2) == ()


def test_a_side_without_a_cell_has_seen_nothing() -> None:
    assert observed_changes(Side(()), Side(())) == ()


# --- What a run sets or finds, and does not measure ------------------------------------------------------------------------------

# Where a fact is stored -> its name -> its value before and after.
SETTINGS: Mapping[str, Mapping[str, tuple[Any, Any]]] = {
    "settings": {
        "threads": (2, 1),
        "deterministic": (False, True),
        "anomaly_detection": (False, True),
        "default_dtype": ("torch.float32", "torch.float64"),
        "mkldnn": (True, False),
        "cpu_capability": ("AVX2", "DEFAULT"),
        "allocator": (None, "libjemalloc.so.2 in /usr/lib"),
        "blas": ("libopenblas.so in numpy.libs", "libblas.so.3 in /usr/lib"),
        "numpy_blas": ("scipy-openblas 0.3.29", "blas 3.11"),
        "xla": (True, False),
        "installed_by": ("pip", "the distribution"),
        "variable OMP_NUM_THREADS": (None, "1"),
        "variable ONEDNN_MAX_CPU_ISA": (None, "SSE41"),
        **dict.fromkeys(speed.KINDS, ("libone.so in /usr/lib", "libother.so in /usr/lib")),
        "a switch that is in no list": (2.0, 1.0),
    },
    "versions": {"numpy": ("2.2.1", "1.26.4")},
    "cells": {
        "framework_version": ("2.13.0", "2.6.0"),
        "data_sha256": ("a" * 64, "b" * 64),
        "seed": (1, 2),
        "engine": ("venv", "docker"),
        "image_digest": ("sha256:" + "a" * 64, "sha256:" + "b" * 64),
        "lock_sha256": ("a" * 64, "b" * 64),
        "code_sha256": ("a" * 64, "b" * 64),
        "python_version": ("3.11.7", "3.12.1"),
    },
    "host": {
        "architecture": ("x86_64", "aarch64"),
        "cpu_count": (8, 4),
        "cpu_quota": (8.0, 4.0),
        "kernel": ("6.1.0", "3.10.0"),
        "memory_bytes": (64 << 30, 32 << 30),
        "cpu_governor": ("performance", "powersave"),
        "cpu_energy_preference": ("performance", "power"),
        "cpu_turbo": (True, False),
    },
    # Of a GPU's cell.
    "gpu cells": {"cuda_version": ("12.8", "6.4"), "cudnn_version": ("9.10.2", "4.5.1"), "driver_version": ("580.82", "290.41")},
    "gpu": {
        "driver": ("580.82", "290.41"),
        "ecc": (True, False),
        "mig": (True, False),
        "memory_bytes": (80 << 30, 40 << 30),
        "power_limit_watts": (700.0, 350.0),
        "default_power_limit_watts": (700.0, 350.0),
        "persistence": (True, False),
        "compute_mode": ("default", "exclusive process"),
        "vbios": ("96.00.5E.00.01", "48.00.2F.00.01"),
        **dict.fromkeys(
            ("locked_sm_megahertz", "application_sm_megahertz", "application_memory_megahertz", "max_sm_megahertz",
             "max_memory_megahertz"),
            (1980, 990),
        ),
        "pcie_generation": (4, 2),
        "pcie_width": (16, 8),
    },
}  # fmt: skip
# Of these no step time is compared with another one's.
NOT_COMPARED = {"cpu_model", "machine_cpus", "data_source"}
# verify knows the lock, the engine and the interpreter, of which the digest is made; no seed, which draws other data of one size; and of
# a GPU's memory what the framework sees of it.
NOT_OF_VERIFY = {"seed", "image_digest", "memory_bytes of the gpu"}
# A cell of another engine is another cell: both stand in the report, each with its engine.
NOT_OF_POOLED = {"engine"}


def test_each_recorded_setting_is_tried() -> None:
    of_cells = {name for name in roles.with_role("choice", "state") if not name.endswith("_json")}
    assert {*SETTINGS["cells"], *SETTINGS["gpu cells"]} >= of_cells - NOT_COMPARED
    assert set(SETTINGS["gpu"]) >= set(roles.with_role("choice", "state", of=roles.DEVICE_ROLES))
    assert set(SETTINGS["settings"]) >= set(speed.KINDS)
    assert set(SETTINGS["host"]) >= set(roles.with_role("choice", "state", of=roles.HOST_ROLES)) - NOT_COMPARED


def set_to(run: Path, where: str, name: str, at: int) -> None:
    """Write the facts of a run at their first values, and of that name the one at `at`."""
    values = {
        place: {fact: both[at if (place, fact) == (where, name) else 0] for fact, both in facts.items()}
        for place, facts in SETTINGS.items()
    }
    manifest = RunStore(run).manifest()
    if where == "host":
        RunStore(run).write_manifest({**manifest, "host": {**manifest["host"], **values["host"]}})
    if where == "gpu":
        RunStore(run).write_manifest(
            {**manifest, "devices": [{**device, name: values["gpu"][name]} for device in manifest["devices"]]}
        )

    def changed(row: dict[str, Any]) -> dict[str, Any]:
        said = json.loads(row["environment_json"])
        said["settings"]["installed_by"] = "pip"
        if name == "cpu_count":
            said["host"]["cpu_count"] = values["host"]["cpu_count"]
        for place in ("settings", "versions"):
            mine = {fact: value for fact, value in values[place].items() if fact == name or fact in said[place]}
            said[place] = {fact: value for fact, value in {**said[place], **mine}.items() if value is not None}
        of_cell = {name: values[where][name]} if where.endswith("cells") else {}
        return {**row, **of_cell, "environment_json": json.dumps(said)}

    stored.change(run, "cells", changed)


@pytest.mark.parametrize(("where", "name"), [(where, name) for where, facts in SETTINGS.items() for name in facts])
def test_a_setting_that_changed_is_named_by_history_compare_the_report_of_all_runs_and_verify(
    where: str, name: str, days: Mapping[str, Sequence[Path]], tmp_path: Path
) -> None:
    kind = "cuda" if where.startswith("gpu") else "cpu"
    runs = [Path(shutil.copytree(run, tmp_path / run.name)) for run in days[kind]]
    for at, run in enumerate(runs):
        set_to(run, where, name, int(at >= 4))
    word = roles.WORDS.get(name, name)

    moves = run_history.history(tables.load(runs, tables.STEPS))
    assert any(word in line for line in moves.lines), moves.lines
    assert all("nothing recorded changed" not in line for line in moves.lines)

    two = comparison.comparison(tables.load([runs[3], runs[4]], tables.ANSWER), runs[3].name, runs[4].name)
    assert word in comparison.markdown(two).replace("\\", "")

    pooled = findings.findings(tables.load([runs[3], runs[4]], tables.ANSWER))
    assert name in NOT_OF_POOLED or any(word in line for one in pooled for line in (*one.changed, *one.caveats))

    if {name, f"{name} of the {where}"} & NOT_OF_VERIFY:
        return
    reference = reference_of(runs[:4], "lab", "0.1.0", noisy=True).reference
    (found,) = assess([runs[4]], [reference]).findings
    said = [f"{cause.name} {cause.evidence}" for cause in found.causes]
    said += [found.reason, *(fact.name for fact in found.differences)]
    assert any(name in each or word in each for each in said), (found.kind, said)
