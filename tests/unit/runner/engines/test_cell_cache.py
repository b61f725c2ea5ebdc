"""What a cell leaves for later cells reaches cells of its own image and engine only, and no other user."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.engines import cell_cache
from runner.errors import EngineError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_no_two_images_builds_or_engines_share_a_folder() -> None:
    folders = [
        cell_cache.folder_of(engine, image, digest)
        for engine in ("docker", "venv", "host")
        for image in ("theano-1.0.5-cpu", "torch-2.13.0-cpu")
        for digest in ("sha256:0", "sha256:1")
    ]
    assert len(set(folders)) == len(folders)
    # No one lies in another, which would be the same hole.
    assert not any(one in other.parents for one in folders for other in folders)
    assert cell_cache.folder_of("docker", "theano-1.0.5-cpu", "sha256:0") == folders[0]


def test_what_a_cell_plants_is_not_there_for_another_image_or_engine() -> None:
    planted = cell_cache.folder_of("docker", "theano-1.0.5-cpu", "sha256:0")
    (planted / "theano-1.0").mkdir()
    (planted / "theano-1.0" / "key.pkl").write_bytes(b"cos")
    for engine, image in (("venv", "theano-1.0.5-cpu"), ("docker", "torch-2.13.0-cpu")):
        assert list(cell_cache.folder_of(engine, image, "sha256:0").rglob("*")) == []


def test_another_user_cannot_enter(home: Path) -> None:
    folder = cell_cache.folder_of("docker", "torch-2.13.0-cpu", "sha256:0")
    assert cell_cache.caches_folder() in folder.parents
    assert cell_cache.caches_folder().stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("place", ["cells", "cells/venv", "scratch"])
@pytest.mark.parametrize("what", ["file", "link", "dangling"])
def test_what_a_cell_put_in_the_place_of_a_folder_goes_and_what_a_link_names_stays(
    home: Path, place: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "elsewhere" / "mine").mkdir(parents=True)
    path = home / "dlbench" / place
    path.parent.mkdir(parents=True)
    path.touch() if what == "file" else path.symlink_to(home / ("elsewhere" if what == "link" else "nowhere"))
    folder = cell_cache.private_folder(*place.split("/"))
    assert (folder, folder.is_symlink(), folder.is_dir()) == (path, False, True)
    assert (home / "elsewhere" / "mine").exists()
    assert f"{path} was " in capsys.readouterr().err


@pytest.mark.parametrize("what", ["file", "link", "folder"])
def test_what_is_another_user_s_in_its_place_is_refused(home: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / "dlbench" / "cells"
    path.parent.mkdir(parents=True)
    {"file": path.touch, "link": lambda: path.symlink_to(home), "folder": path.mkdir}[what]()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(EngineError, match="not a folder of yours"):
        cell_cache.folder_of("docker", "torch-2.13.0-cpu", "sha256:0")
    assert path.exists()


def test_a_folder_that_no_cell_used_for_a_week_goes_when_the_image_is_built_anew() -> None:
    old = cell_cache.folder_of("docker", "torch-2.13.0-cpu", "sha256:0")
    other = cell_cache.folder_of("docker", "torch-2.13.0-cpu-more", "sha256:0")
    recent = cell_cache.folder_of("docker", "torch-2.13.0-cpu", "sha256:1")
    for folder in (old, other):
        os.utime(folder, (time.time() - 8 * 24 * 3600,) * 2)
    cell_cache.folder_of("docker", "torch-2.13.0-cpu", "sha256:2")
    assert (old.exists(), other.exists(), recent.exists()) == (False, True, True)


def test_the_right_to_run_as_the_owner_is_taken_from_files_and_never_from_what_a_link_names(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    kept = tmp_path / "kept"
    (kept / "deep").mkdir(parents=True)
    files = [outside / "passwd", kept / "program", kept / "deep" / "program"]
    for path in files:
        path.write_text("")
        path.chmod(0o6711)
    (kept / "link").symlink_to(outside / "passwd")
    (kept / "folder").symlink_to(outside)
    cell_cache.disarm(kept)
    assert [oct(path.stat().st_mode & 0o7777) for path in files] == ["0o6711", "0o711", "0o711"]


def test_a_file_that_its_owner_may_not_read_loses_the_right_too(tmp_path: Path) -> None:
    (tmp_path / "program").touch()
    (tmp_path / "program").chmod(0o4111)
    cell_cache.disarm(tmp_path)
    assert (tmp_path / "program").stat().st_mode & 0o7777 == 0o111


def test_cells_of_an_image_that_start_at_one_moment_share_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None removes what another has just made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(200):
        begin = threading.Barrier(4)

        def folder(image: str = f"image-{number}", begin: threading.Barrier = begin) -> Path:
            begin.wait()
            return cell_cache.folder_of("venv", image, "digest")

        with ThreadPoolExecutor(4) as pool:
            assert len({each.result() for each in [pool.submit(folder) for _ in range(4)]}) == 1
