"""What a walled-in cell plants where frameworks keep compiled code is loaded by no container of another image, and by no process here."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import Image
from runner.engines import cell_cache
from runner.engines.base import Launch, ReadyImage, Running
from runner.engines.docker.engine import DockerEngine
from runner.engines.process.process import start_process
from tests.fixtures.planted import KEPT, LOOK, PLACES, PLANT

from .conftest import CPU_SLOT

pytestmark = [pytest.mark.engine, pytest.mark.slow]

IMAGES = ("theano-1.0.5-cpu", "torch-2.13.0-cpu")
ENGINES = ("docker", "venv")

Cell = Callable[[str, str, str], set[str]]


@pytest.fixture
def cell(
    engine: DockerEngine,
    client: Any,
    base_image: str,
    catalog: dict[str, Image],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Cell:
    """Run a script as a cell of an engine and an image: what it prints."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    digest = str(client.images.get(base_image).id)

    def cell(script: str, where: str, image: str) -> set[str]:
        cache = cell_cache.folder_of(where, image, digest)
        running: Running
        if where == "docker":
            prepared = ReadyImage(catalog[image], digest, ("python3", "-c", script))
            running = engine.start(Launch(prepared, (), CPU_SLOT, "test-planted", cache))
        else:
            prepared = ReadyImage(catalog[image], digest, (sys.executable, "-c", script))
            running = start_process(Launch(prepared, (), CPU_SLOT, "test-planted", cache))
        printed = b"".join(running.events())
        ended = running.wait()
        assert ended.code == 0, ended.log_tail
        return set(json.loads(printed))

    return cell


@pytest.mark.parametrize(("where", "name"), [*itertools.product(ENGINES, IMAGES)])
def test_what_a_cell_plants_is_found_by_its_own_image_and_engine_only(cell: Cell, where: str, name: str) -> None:
    # A container cannot write the folder that its program starts in.
    unwritable = {"CNTK", "MindSpore", "modules beside the program"} if where == "docker" else {"shared memory"}
    assert cell(PLANT, where, name) == set(PLACES) - unwritable
    found = {(e, i): cell(LOOK, e, i) for e, i in itertools.product(ENGINES, IMAGES)}
    # So the test would see it elsewhere.
    assert found.pop((where, name)) == KEPT
    assert [elsewhere for elsewhere, what in found.items() if what] == []
