"""A container that attacks the run ends only itself: the cells beside it are measured, and so is the next run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from runner import trees
from runner.engines import ownership
from runner.engines.docker.engine import OWNER_LABEL, DockerEngine
from runner.machine import telemetry
from runner.run.attempt import Limits
from tests.fixtures.hostile import ANYWHERE, OK, cache_below, run_kinds, unexpected

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.keyed, pytest.mark.timeout(900)]


def test_every_hostile_container_ends_only_itself(
    engine: DockerEngine, client: Any, base_image: str, tmp_path: Path
) -> None:
    """An innocent cell follows each, and a run of innocent ones alone."""
    more: dict[str, Any] = {"digest": str(client.images.get(base_image).id), "python": "python3"}
    # A flood froze the engine in two of three runs.
    attacks = ["million", "million", *ANYWHERE]
    kinds = [OK, *(kind for attack in attacks for kind in (attack, OK))]
    with telemetry.Monitor() as monitor, cache_below(tmp_path) as cache:
        rows = run_kinds(engine, kinds, tmp_path, monitor, Limits(60, 10), **more)
        assert unexpected(kinds, rows) == []
        again = run_kinds(engine, [OK, OK], tmp_path, monitor, name="again", **more)
        assert [row["status"] for row in again] == ["ok", "ok"]
        assert [status.st_mode for _, status in trees.below(cache) if status.st_mode & 0o6000] == []
    here = ownership.owner_of(os.getpid())
    assert client.containers.list(all=True, filters={"label": f"{OWNER_LABEL}={here}"}, ignore_removed=True) == []
