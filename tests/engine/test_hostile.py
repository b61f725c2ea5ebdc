"""A container that attacks the run ends only itself: the cells beside it are measured."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from runner.engines import ownership
from runner.engines.docker.engine import OWNER_LABEL, DockerEngine
from runner.machine import telemetry
from runner.results.plausible import work
from tests.fixtures.hostile import OK, run_kinds

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("flood", ["million", "flood and stay"])
def test_a_container_that_floods_its_output_fails_and_the_cells_behind_it_are_measured(
    engine: DockerEngine, client: Any, base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flood: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    # A replay is faster than any CPU computes it.
    monkeypatch.setattr(work, "most_operations", lambda *_: None)
    digest = str(client.images.get(base_image).id)
    begin = time.monotonic()
    with telemetry.Monitor() as monitor:
        rows = run_kinds(engine, [OK, *3 * [flood, OK]], tmp_path, monitor, digest=digest, python="python3")
    assert [row["status"] for row in rows] == ["ok", *3 * ["failed", "ok"]], [row["reason"] for row in rows]
    assert {row["error_kind"] for row in rows} == {None, "protocol"}
    assert "events" in rows[1]["reason"]
    # A minute for a container that could not be killed would be over this.
    assert time.monotonic() - begin < 55
    here = ownership.owner_of(os.getpid())
    assert client.containers.list(all=True, filters={"label": f"{OWNER_LABEL}={here}"}, ignore_removed=True) == []
