"""Doctor on Podman and Apptainer: nothing where they are not, and what is in the way of a container with the remedy of that very thing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.catalog.images import load_catalog
from runner.doctor import container_engine, diagnosis
from runner.doctor.scene import OK, WARN, Check, Scene
from runner.engines import choose, sif
from runner.engines.podman import PodmanEngine

SCENE = Scene((), "none", (), None, None, "no engine", {}, None, None)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but what a test writes there, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    return folder


def write(folder: Path, name: str, lines: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
    (folder / name).chmod(0o755)


def apptainer(folder: Path, refusal: str = "") -> None:
    """An Apptainer that says its version, and starts a container or refuses with these words."""
    end = f"echo 'FATAL: {refusal}' >&2; exit 255" if refusal else "exit 0"
    write(folder, "apptainer", f'[ "$1" != --version ] || {{ echo apptainer version 1.4.5; exit; }}\n{end}')


def test_nothing_is_said_of_an_engine_that_is_not_here(programs: Path) -> None:
    assert [*diagnosis.podman(SCENE), *diagnosis.apptainer(SCENE)] == []


def test_an_apptainer_that_starts_a_container_is_well_and_one_without_mksquashfs_makes_no_sif(programs: Path) -> None:
    apptainer(programs)
    said, lacks = diagnosis.apptainer(SCENE)
    assert (said.status, "none was started" in said.saw) == (OK, True)
    assert (lacks.status, lacks.fix) == (WARN, "install squashfs-tools")
    write(programs, "mksquashfs", "")
    (sif.own_folder() / f"x@1+{'a' * 64}.sif").touch()
    (started,) = diagnosis.apptainer(SCENE)
    assert (started.status, "a container of x@1+" in started.saw) == (OK, True)


@pytest.mark.parametrize(
    ("refusal", "fix"),
    [
        ("squashfuse_ll mount failed: fuse: failed to open /dev/fuse: Permission denied", "chmod 666 /dev/fuse"),
        ("Failed to create user namespace: user namespace disabled", "sysctl user.max_user_namespaces"),
        ("could not open loop device", "modprobe loop"),
        ("something that nobody has met", "`apptainer --debug exec` says more"),
    ],
)
def test_a_container_that_does_not_start_has_the_remedy_of_its_own_reason(
    programs: Path, refusal: str, fix: str
) -> None:
    apptainer(programs, refusal)
    (sif.own_folder() / f"x@1+{'a' * 64}.sif").touch()
    (said,) = diagnosis.apptainer(SCENE)
    assert (said.status, fix in said.fix, refusal in said.saw) == (WARN, True, True), said
    assert "`--engine apptainer` starts no cell here" in said.means


@pytest.mark.parametrize(
    ("unshare", "fuse", "words"),
    [
        ("echo 'unshare failed: Operation not permitted' >&2; exit 1", True, "kernel.unprivileged_userns_clone=1"),
        ("exit 0", False, "modprobe fuse"),
    ],
)
def test_a_user_who_may_make_no_namespace_or_open_no_fuse_is_told_before_a_cell_fails(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unshare: str, fuse: bool, words: str
) -> None:
    apptainer(programs)
    write(programs, "unshare", unshare)
    device = tmp_path / "fuse"
    if fuse:
        device.touch()
    monkeypatch.setattr(diagnosis, "_FUSE", device)
    assert all("starts no cell" not in one.means for one in diagnosis.apptainer(SCENE)), "root needs neither"
    folder = sif.own_folder()
    monkeypatch.setattr(sif, "own_folder", lambda: folder)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    (said,) = diagnosis.apptainer(SCENE)
    assert (said.status, words in said.fix) == (WARN, True), said


@pytest.mark.parametrize(
    ("runtime", "both", "words"), [("crun", True, "take runc"), ("crun", False, ""), ("runc", True, "")]
)
def test_podman_with_crun_on_a_machine_with_both_control_groups_is_told_to_take_runc(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, both: bool, words: str
) -> None:
    write(programs, "podman", "")
    monkeypatch.setattr(PodmanEngine, "unavailable", lambda self: None)
    monkeypatch.setattr(PodmanEngine, "info", {"DefaultRuntime": runtime})
    monkeypatch.setattr(PodmanEngine, "guarantees", lambda self: "held")
    monkeypatch.setattr(diagnosis, "_BOTH_HIERARCHIES", tmp_path if both else tmp_path / "none")
    (said,) = diagnosis.podman(SCENE)
    assert (said.status, words in said.fix) == (WARN if words else OK, True), said


def test_a_podman_whose_service_does_not_run_says_how_it_is_started(programs: Path) -> None:
    write(programs, "podman", "")
    (said,) = diagnosis.podman(SCENE)
    assert (said.status, "podman.socket" in said.saw) == (WARN, True), said


def test_the_engine_that_doctor_names_for_cells_is_the_one_that_a_matrix_takes(programs: Path) -> None:
    """It named an engine that answers, beside a line that no image can be built in it."""
    images = [image for image in load_catalog().values() if image.accelerator == "cpu" and image.untested is None]
    _, why = choose("auto", planned=lambda _: images)
    (said,) = container_engine.cells(SCENE)
    assert isinstance(said, Check)
    assert said.saw.startswith(why)
