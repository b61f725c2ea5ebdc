"""What differs on Podman from Docker: its address, its GPUs, its words about itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.engines import podman
from runner.engines.docker import read_back
from runner.engines.podman import PodmanEngine
from runner.images.docker_client import Listing


@pytest.mark.parametrize(
    ("variables", "user", "address"),
    [
        ({}, 0, "unix:///run/podman/podman.sock"),
        ({}, 1000, "unix:///run/user/1000/podman/podman.sock"),
        ({"XDG_RUNTIME_DIR": "/run/me"}, 1000, "unix:///run/me/podman/podman.sock"),
        ({"CONTAINER_HOST": "unix:///somewhere"}, 0, "unix:///somewhere"),
    ],
)
def test_podman_is_looked_for_where_its_own_command_listens(
    variables: dict[str, str], user: int, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CONTAINER_HOST", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("os.getuid", lambda: user)
    assert podman.address() == address


@pytest.mark.parametrize(
    ("release", "cdi", "words"),
    [
        (
            "4.3.1",
            ["nvidia.com/gpu=all"],
            "Podman 4.3.1 starts containers without the GPUs that its API is asked for; 5.4.0",
        ),
        ("5.3.9", ["nvidia.com/gpu=all"], "5.4.0 gives them"),
        ("unknown", ["nvidia.com/gpu=all"], "5.4.0 gives them"),
        ("5.4.0", [], "finds no GPU by CDI"),
        ("5.10.0", ["nvidia.com/gpu=all"], None),
    ],
)
def test_a_podman_that_leaves_gpus_out_is_not_asked_for_them(
    release: str, cdi: list[str], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.engines.podman.cdi_devices", lambda info: frozenset(cdi))
    engine = PodmanEngine()
    engine.__dict__ |= {"version": {"Version": release}, "_info": {}}
    reason = engine.why_no_gpu()
    assert reason is None if words is None else words in str(reason)


def test_podmans_own_words_for_rootless_become_those_of_docker() -> None:
    engine = PodmanEngine()
    info: dict[str, Any] = {"Rootless": True, "SecurityOptions": ["name=seccomp,profile=default"], "CgroupVersion": "2"}
    engine.__dict__["_client"] = SimpleNamespace(info=lambda: info)
    assert engine.kind() == ("podman", True, "2")
    isolation = read_back.isolation(
        {"Components": [{"Name": "Podman Engine", "Version": "4.3.1"}]}, engine._info, {}, {}
    )
    assert (isolation["engine"], isolation["rootless"]) == ("Podman Engine 4.3.1", True)


def test_an_image_has_one_name_whether_docker_or_podman_lists_it() -> None:
    for prefix in ("", "localhost/", "docker.io/", "docker.io/library/"):
        assert Listing([{"Id": "sha256:1", "RepoTags": [f"{prefix}base:3.11"]}]).id_of("base:3.11") == "sha256:1"


def test_an_image_s_own_name_goes_before_that_of_one_that_was_loaded() -> None:
    entries = [
        {"Id": "sha256:1", "RepoTags": ["docker.io/library/python:3.11"]},
        {"Id": "sha256:2", "RepoTags": ["localhost/python:3.11"]},
    ]
    for listing in (Listing(entries), Listing(entries[::-1])):
        assert [listing.id_of("python:3.11"), listing.id_of("localhost/python:3.11")] == ["sha256:1", "sha256:2"]


def test_a_machine_without_podman_is_not_told_how_to_start_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert PodmanEngine().unavailable() == "it is not installed"
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    assert "`systemctl --user start podman.socket` starts Podman's" in str(PodmanEngine().unavailable())
