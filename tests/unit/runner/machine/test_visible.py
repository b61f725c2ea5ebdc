"""CUDA_VISIBLE_DEVICES as CUDA reads it: --gpus all means the GPUs that it leaves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import PROJECT
from runner.machine.detect import VisibleError, detect, limits
from tests.stand_ins.fleet import FakeGpu, Fleet, environment, uuid_of

Show = Callable[[Fleet], Path]

FOUR = Fleet((FakeGpu(),) * 4)
CUT = replace(FakeGpu(), mig=1, instances=(FakeGpu("NVIDIA L4 MIG 1g"), FakeGpu("NVIDIA L4 MIG 1g")))


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("3", ["3"]),
        ("2,0", ["0", "2"]),
        (" 1 , 2 ", ["1", "2"]),
        (uuid_of(1), ["1"]),
        (uuid_of(2)[:12], ["2"]),
        # what follows a name that CUDA does not know is hidden
        ("1,9,2", ["1"]),
        ("0,-1,2", ["0"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        # a digit that is no number for Python's `int`, and more digits than it takes
        ("0,²", ["0"]),
        ("²", []),
        ("1" + 150 * "0", []),
        ("1" * 5000, []),
        # a beginning of several UUIDs
        ("GPU-0000", []),
    ],
)
def test_all_gpus_are_those_that_the_variable_leaves(
    fleet: Show, monkeypatch: pytest.MonkeyPatch, value: str, names: list[str]
) -> None:
    fleet(FOUR)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    machine = detect("all")
    assert [gpu.name for gpu in machine.gpus] == names
    sentence = machine.notes[0] if names else machine.why_no_gpu
    shown = value[:200] or '""'
    left = f"GPU {', '.join(names)} of 4" if names else "no GPU"
    assert str(sentence).startswith(f"CUDA_VISIBLE_DEVICES={shown} leaves {left}: --gpus all means these")


def test_a_gpu_that_is_named_wins_over_the_variable(fleet: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet(FOUR)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    machine = detect("3")
    assert [gpu.name for gpu in machine.gpus] == ["3"]
    assert machine.notes == ()


@pytest.mark.parametrize("value", [None, "0,1,2,3"])
def test_nothing_is_said_where_no_gpu_is_left_out(
    fleet: Show, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    fleet(FOUR)
    if value is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    machine = detect("all")
    assert len(machine.gpus) == 4
    assert machine.notes == ()


def test_nothing_is_said_of_the_variable_where_there_is_no_gpu() -> None:
    for value in ("0", "MIG-GPU-1/2/3"):
        assert limits((), (), {"CUDA_VISIBLE_DEVICES": value}) == ()


@pytest.mark.parametrize(
    ("first", "value", "name"),
    [
        # An index counts only the GPUs that the user may use,
        ({"handle": "!4"}, "0", "1"),
        # and a broken one keeps its place.
        ({"lost": 1}, "0,2", "2"),
    ],
)
def test_an_index_counts_the_gpus_that_this_user_has(
    fleet: Show, monkeypatch: pytest.MonkeyPatch, first: dict[str, Any], value: str, name: str
) -> None:
    fleet(FOUR.with_gpu(0, **first))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert [gpu.name for gpu in detect("all").gpus] == [name]


def test_a_cut_gpu_is_its_first_instance_and_an_instance_is_named_by_its_uuid(
    fleet: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(Fleet((FakeGpu(), CUT)))
    for value, names in (("1", ["1:0"]), (uuid_of(1), ["1:0"]), (uuid_of(3, "MIG"), ["1:1"]), ("0,1", ["0", "1:0"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert [gpu.name for gpu in detect("all").gpus] == names
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"MIG-{uuid_of(1)}/1/0")
    with pytest.raises(VisibleError, match="nvidia-smi -L"):
        detect("all")


def test_an_index_among_several_models_needs_the_order_that_the_driver_has(
    fleet: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(Fleet((FakeGpu(), FakeGpu("NVIDIA H100"))))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(VisibleError, match="set CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        detect("all")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert [gpu.name for gpu in detect("all").gpus] == ["1"]
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid_of(1))
    assert [gpu.name for gpu in detect("all").gpus] == ["1"]


def test_what_only_shows_gpus_shows_all_of_them_and_says_what_the_variable_does(
    nvml_library: Path, tmp_path: Path
) -> None:
    mixed = Fleet((FakeGpu(), FakeGpu("NVIDIA H100"))).write(tmp_path / "fleet")
    for order, words in (
        ({}, "set CUDA_DEVICE_ORDER=PCI_BUS_ID"),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "leaves GPU 1 of 2:"),
    ):
        variables = environment(nvml_library, mixed) | {"CUDA_VISIBLE_DEVICES": "1"} | order
        for command in ("gpus", "doctor"):
            ended = subprocess.run(
                [sys.executable, "-m", "runner", command], cwd=PROJECT, env=variables, capture_output=True, text=True
            )
            assert words in ended.stdout, ended.stderr
            assert "H100" in ended.stdout
