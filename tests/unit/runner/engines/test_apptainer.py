"""The engine `apptainer` where no container can be started: which Apptainer it takes, its SIFs, and the helpers that it ends."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.catalog.images import load_catalog
from runner.engines import choose, sif
from runner.engines.apptainer import ApptainerEngine, end_helpers
from runner.engines.base import Settings
from runner.errors import EngineError
from runner.images.recipe import recipe as make_recipe

ID = "a" * 64
IMAGE = load_catalog()["jax-0.10.2-cpu"]


@pytest.fixture
def recipe() -> Any:
    return make_recipe(IMAGE, "here:{python}")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `apptainer` on PATH that says a version, and makes a SIF: the words that it was started with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "apptainer").write_text(
        '#!/bin/sh\n[ "$1" != --version ] || { echo apptainer version 1.4.5-2.el9; exit; }\n'
        'for word; do made=$archive; archive=$word; done\necho "$@" > "$made"\n'
    )
    (folder / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return folder / "apptainer"


def named(recipe: Any, image_id: str) -> str:
    return f"{IMAGE.name}@{recipe.input_tag}+{image_id}.sif"


def archive_of(path: Path, config: str) -> Path:
    """A file as `docker save` writes it, of which only the list of its images counts here."""
    manifest = json.dumps([{"Config": config}]).encode()
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(manifest)
        tar.addfile(entry, io.BytesIO(manifest))
    return path


def test_where_there_is_no_apptainer_the_reason_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"no apptainer on PATH; install the package apptainer, 1\.4\.0 or later"):
        choose("apptainer")


@pytest.mark.parametrize(
    ("said", "words"), [("apptainer version 1.3.6", "is Apptainer 1.3.6; cells need 1.4.0"), ("", "does not say")]
)
def test_an_apptainer_that_is_too_old_is_refused(program: Path, said: str, words: str) -> None:
    program.write_text(f"#!/bin/sh\necho {said}\n")
    assert words in str(ApptainerEngine().unavailable())


def test_an_apptainer_that_is_new_enough_is_taken(program: Path) -> None:
    assert ApptainerEngine().unavailable() is None
    assert ApptainerEngine().version == "1.4.5-2.el9"


@pytest.mark.parametrize("config", [f"{ID}.json", f"blobs/sha256/{ID}"])
def test_a_sif_is_made_of_an_exported_image_and_named_for_it(
    program: Path, recipe: Any, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_of(tmp_path / "0.tar", config)
    monkeypatch.setattr("runner.images.transfer.folder.find", lambda folder, recipe: SimpleNamespace(sha256="0"))
    made = sif.unpack(tmp_path, recipe, sif.own_folder(), lambda line: None)
    assert made is not None
    assert made.name == named(recipe, ID)
    assert sif.image_of(made) == f"sha256:{ID}"
    assert f"docker-archive:{tmp_path / '0.tar'}" in made.read_text()
    program.unlink()
    # It is not made again.
    assert sif.unpack(tmp_path, recipe, sif.own_folder(), lambda line: None) == made


def test_a_sif_that_apptainer_does_not_make_is_told_in_its_words_and_nothing_is_left(
    program: Path, recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write_text("#!/bin/sh\necho 'FATAL: no space left on device' >&2; exit 255\n")
    archive_of(tmp_path / "0.tar", f"{ID}.json")
    monkeypatch.setattr("runner.images.transfer.folder.find", lambda folder, recipe: SimpleNamespace(sha256="0"))
    folder = sif.own_folder()
    # A runner that was killed while it made one.
    (folder / f".{IMAGE.name}@{recipe.input_tag}-killed" / "build").mkdir(parents=True)
    with pytest.raises(EngineError, match=r"(?s)made no SIF in .*no space left"):
        sif.unpack(tmp_path, recipe, folder, lambda line: None)
    assert [path.suffix for path in folder.iterdir()] == [".lock"]


def test_a_file_that_is_no_saved_image_is_named(program: Path, recipe: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "0.tar").write_bytes(b"damaged")
    monkeypatch.setattr("runner.images.transfer.folder.find", lambda folder, recipe: SimpleNamespace(sha256="0"))
    with pytest.raises(EngineError, match=r"0\.tar is no file of `docker save`; remove it"):
        sif.unpack(tmp_path, recipe, sif.own_folder(), lambda line: None)


def test_the_sif_of_just_these_inputs_is_found_and_the_newest_of_them(recipe: Any, tmp_path: Path) -> None:
    assert sif.find(tmp_path, recipe) is None
    for age, name in enumerate([named(recipe, "b" * 64), named(recipe, ID), f"{IMAGE.name}@other+{ID}.sif"]):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    (tmp_path / f"{IMAGE.name}@{recipe.input_tag}+unfinished.sif").touch()
    assert sif.find(tmp_path, recipe) == tmp_path / named(recipe, ID)
    assert sif.find(tmp_path, recipe, f"sha256:{'b' * 64}") == tmp_path / named(recipe, "b" * 64)
    assert sif.find(tmp_path, recipe, f"sha256:{'c' * 64}") is None


def test_a_machine_without_docker_runs_the_sif_of_a_folder(program: Path, recipe: Any, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    engine = ApptainerEngine(Settings(base_image="here:{python}", images_from=folder))
    engine.__dict__["_builder"] = None
    assert "`runner images export jax-0.10.2-cpu --as sif --to FOLDER`" in str(engine.unfit(IMAGE))
    with pytest.raises(EngineError, match="there is no SIF of it"):
        engine.prepare(IMAGE, lambda line: None)
    other = folder / f"{IMAGE.name}@other+{ID}.sif"
    other.touch()
    assert str(engine.unfit(IMAGE)).startswith(
        f"{other} is of other inputs than this release and this --base-image have (here:"
    )
    (folder / named(recipe, ID)).touch()
    assert engine.unfit(IMAGE) is None
    assert sum(engine.parts(IMAGE).values()) == 0
    ready = engine.prepare(IMAGE, lambda line: None)
    assert ready.digest == f"sha256:{ID}"
    assert ready.command == (str(folder / named(recipe, ID)), "python", "-m", "bench")


# A process as the one that mounts a SIF for Apptainer: a name, the SIF that it has open, and the session of its keeper, which waits
# for it or is gone.
HELPER = """
import os, sys, time
os.setsid()
if os.fork():
    if sys.argv[2] == "with its keeper": os.wait()
    os._exit(0)
file = open(sys.argv[1])
open("/proc/self/comm", "w").write("squashfuse_ll")
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("name", "session", "is_ended"),
    [
        (f"x@0-0+{ID}.sif", "orphan", True),
        (f"x@0-0+{ID}.sif", "with its keeper", False),
        ("anybody's.sif", "orphan", False),
    ],
)
def test_only_helpers_of_our_cells_that_are_gone_are_ended(
    name: str, session: str, is_ended: bool, tmp_path: Path
) -> None:
    (tmp_path / name).touch()
    command = [sys.executable, "-c", HELPER, str(tmp_path / name), session]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        if session == "orphan":
            started.wait()
        try:
            end_helpers()
            end = time.monotonic() + 5
            while is_ended and runs(pid) and time.monotonic() < end:
                time.sleep(0.01)
            assert runs(pid) is not is_ended
        finally:
            if runs(pid):
                os.kill(pid, 9)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
