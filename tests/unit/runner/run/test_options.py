"""The options of a run: how run.json keeps them, and what it takes to read them back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from bench import rules
from runner.catalog.names import PresetName, ScalingName
from runner.catalog.workloads import load_workloads
from runner.run.options import Options, UsageError, stored_options

RUN = Path("results/a-run/run.json")

# The options of a run.json that the release before the model wrote.
OLDER: dict[str, Any] = {
    "base_image": None,
    "cool_down": False,
    "data": None,
    "devices": [1, 2],
    "each_gpu": False,
    "engine": "venv",
    "frameworks": ["torch"],
    "gpus": "none",
    "images": [],
    "modes": ["default"],
    "out": "results",
    "precisions": ["fp32"],
    "preset": "standard",
    "profile": False,
    "python": "/usr/bin/python3.8",
    "repeats": 3,
    "scaling": "strong",
    "seed": 7,
    "share": True,
    "timeout": 60.0,
    "wait": True,
    "workloads": ["gru-imdb"],
}


# The options that are newer: without them a run is as it was.
NEWER: dict[str, Any] = {
    "against": "none",
    "build": False,
    "catalog": None,
    "images_from": None,
    "least_gpus": 0,
    "lock_clocks": None,
    "nodes": None,
    "to_loss": None,
}


def test_a_run_of_the_release_before_can_be_resumed() -> None:
    options = stored_options(RUN, OLDER)
    assert (options.devices, options.preset, options.scaling, options.repeats) == ((1, 2), "standard", "strong", 3)
    assert (options.out, options.python, options.timeout) == (Path("results"), Path("/usr/bin/python3.8"), 60.0)
    assert options.model_dump(mode="json") == OLDER | NEWER


def test_folders_are_stored_whole_and_names_of_programs_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sets").mkdir()
    stored = json.loads(Options(data=Path("sets"), python=Path("python3.8")).model_dump_json())
    assert (stored["data"], stored["python"], stored["out"]) == (str(tmp_path / "sets"), "python3.8", "results")
    assert stored_options(RUN, stored).data == tmp_path / "sets"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"colour": "blue"}, "colour: there is no such field"),
        ({"repeats": "three"}, "repeats: input should be a valid integer.*'three'"),
        ({"scaling": "strange"}, "scaling: input should be 'weak' or 'strong', not 'strange'"),
    ],
)
def test_options_that_cannot_be_read_name_the_field(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=f"run.json: options: {problem}.*start a new run"):
        stored_options(RUN, OLDER | change)
    with pytest.raises(UsageError, match="start a new run"):
        stored_options(RUN, None)


def test_the_names_of_presets_and_of_scaling_are_those_of_the_bench_and_of_the_workloads() -> None:
    assert get_args(PresetName) == rules.PRESETS
    assert get_args(ScalingName) == rules.SCALINGS
    for workload in load_workloads().values():
        assert tuple(workload.presets) == get_args(PresetName)
