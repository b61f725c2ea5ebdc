"""What a cell plants where frameworks keep compiled code reaches no cell of another image, and none of another engine.

tests/engine/test_planted.py has the same with containers.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from pathlib import Path

import pytest

from runner.catalog.images import load_catalog
from runner.engines import cell_cache
from runner.engines.base import Launch, ReadyImage, Slot
from runner.engines.process import installed
from runner.engines.process.process import CACHE_VARIABLES, cell_environment, start_process
from tests.fixtures.planted import KEPT, LOOK, PLACES, PLANT

SLOT = Slot("cpu", (), (), None)
IMAGES = ("theano-1.0.5-cpu", "torch-2.13.0-cpu")
ENGINES = ("venv", "host")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    # The engine `host` gives a cell the user's own.
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()


def cell(script: str, engine: str, image: str) -> set[str]:
    """What a cell of this engine and image prints."""
    prepared = ReadyImage(load_catalog()[image], "sha256:0", (sys.executable, "-c", script))
    keep = installed.KEPT if engine == "host" else ()
    cache = cell_cache.folder_of(engine, image, prepared.digest)
    running = start_process(Launch(prepared, [], SLOT, "test", cache), keep=keep)
    printed = b"".join(running.events())
    ended = running.wait()
    assert ended.code == 0, ended.log_tail
    return set(json.loads(printed))


@pytest.mark.parametrize(("engine", "image"), [*itertools.product(ENGINES, IMAGES)])
def test_what_a_cell_plants_is_found_by_its_own_image_and_engine_only(engine: str, image: str) -> None:
    assert cell(PLANT, engine, image) == set(PLACES) - {"shared memory"}
    found = {(e, i): cell(LOOK, e, i) for e, i in itertools.product(ENGINES, IMAGES)}
    # So the test would see it elsewhere.
    assert found.pop((engine, image)) == KEPT
    assert [where for where, what in found.items() if what] == []


def test_every_folder_that_a_cell_is_told_of_is_its_own_or_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that is added later, and names a folder that all cells share, fails here."""
    for name in CACHE_VARIABLES:
        monkeypatch.setenv(name, "/elsewhere")
    cache, scratch = tmp_path / "cells" / "torch", tmp_path / "scratch"
    environment = cell_environment(SLOT, cache, scratch, installed.KEPT)
    folders = {
        name: value for name, value in environment.items() if re.search("CACHE|TMP|TEMP|_DIR$", name) and "/" in value
    }
    assert set(CACHE_VARIABLES) | {"DLBENCH_CACHE", "CUDA_CACHE_PATH", "TMPDIR"} <= set(folders)
    own = (os.fspath(cache), os.fspath(scratch))
    assert {name: value for name, value in folders.items() if not value.startswith(own)} == {}
