"""Which GPUs an engine knows by name: as it tells itself, or by the files that it reads; tests/engine/test_cdi.py asks real engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.engines.docker import container

# As `nvidia-ctk cdi generate` writes it: keys in order of the alphabet, and names in places that are no device's.
SPECIFICATION = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args: [nvidia-cdi-hook, create-symlinks, --link, name::libcuda.so]
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-a
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia-caps/nvidia-cap30
  name: MIG-b
kind: nvidia.com/gpu
"""


def told(*names: str) -> dict[str, object]:
    """The info of a Docker Engine of 28.2 or newer."""
    return {"CDISpecDirs": ["/nowhere"], "DiscoveredDevices": [{"Source": "cdi", "ID": name} for name in names]}


def test_gpus_are_asked_for_by_name_where_the_engine_knows_all_of_them() -> None:
    known = container.cdi_devices(
        told("nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b", "nvidia.com/gpu=0", "nvidia.com/gpu=all")
    )
    request = container.device_request(("GPU-a", "GPU-b"), known)
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"])
    assert not request["Capabilities"]
    partly = container.device_request(("GPU-a", "GPU-c"), known)
    assert (partly["Driver"], partly["DeviceIDs"]) == ("", ["GPU-a", "GPU-c"])
    assert partly["Capabilities"] == [["gpu"]]


@pytest.mark.parametrize(
    ("version", "driver"),
    [
        ("20.10.24+dfsg1", ""),
        ("28.5.2", ""),
        ("29.0.0", "nvidia.runtime-hook"),
        ("30.1", "nvidia.runtime-hook"),
        ("", ""),
    ],
)
def test_the_hook_is_asked_for_by_name_from_docker_29_on(version: str, driver: str) -> None:
    hook = container.hook_driver({"ServerVersion": version})
    request = container.device_request(("GPU-a",), frozenset(), hook)
    assert (hook, request["Driver"], request["Capabilities"]) == (driver, driver, [["gpu"]])
    assert container.device_request(("GPU-a",), {"nvidia.com/gpu=GPU-a"}, hook)["Driver"] == "cdi"


def test_an_engine_that_tells_no_names_is_taken_at_its_files(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(SPECIFICATION)
    (tmp_path / "other.json").write_text(json.dumps({"kind": "vendor.com/net", "devices": [{"name": "nic0"}]}))
    (tmp_path / "notes.txt").write_text(SPECIFICATION.replace("GPU-a", "GPU-z"))
    names = ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-a", "nvidia.com/gpu=MIG-b", "vendor.com/net=nic0"]
    assert sorted(container.cdi_devices({"CDISpecDirs": [str(tmp_path)]})) == names


@pytest.mark.parametrize(
    "text",
    ["", "devices: [", "[1, 2]", "kind: nvidia.com/gpu", "kind: k\ndevices: [{}]", "\x00", "!!python/name:os.system"],
)
def test_a_file_that_is_no_specification_names_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "nvidia.yaml").write_text(text)
    (tmp_path / "nvidia.json").write_text(text)
    assert container.cdi_devices({"CDISpecDirs": [str(tmp_path), str(tmp_path / "absent")]}) == frozenset()


def test_a_file_too_large_to_be_one_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia.yaml").write_text(SPECIFICATION)
    monkeypatch.setattr(container, "_MAX_BYTES", 10)
    assert container.cdi_devices({"CDISpecDirs": [str(tmp_path)]}) == frozenset()


@pytest.mark.parametrize("info", [{}, {"CDISpecDirs": None}, {"CDISpecDirs": [], "DiscoveredDevices": None}])
def test_an_engine_without_cdi_knows_no_names(info: dict[str, object]) -> None:
    assert container.cdi_devices(info) == frozenset()
    assert container.device_request(("GPU-a",), container.cdi_devices(info))["Capabilities"] == [["gpu"]]
