"""Where an attempt at a cell happens: a folder of results, telemetry, and an engine that runs one script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import trees
from runner.machine import telemetry
from runner.results.plausible import counts
from runner.run.attempt import AttemptContext, Limits
from tests.fixtures.attempts import (
    PATIENT,
    RECORDED,
    Engine,
    run_in,
)


@pytest.fixture
def monitor() -> Iterator[telemetry.Monitor]:
    with telemetry.Monitor() as monitor:
        yield monitor


@pytest.fixture
def site(
    tmp_path: Path, monitor: telemetry.Monitor, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., AttemptContext]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    # A replay is faster than any CPU computes it.
    monkeypatch.setattr(counts, "most_operations", lambda *_: None)

    def site(script: str, limits: Limits = PATIENT) -> AttemptContext:
        recorded = tmp_path / "recorded"
        recorded.write_text(RECORDED)
        engine: Any = Engine(script, recorded)
        return AttemptContext(engine, run_in(tmp_path), limits, None, monitor)

    yield site
    # pytest cannot remove a deep tree.
    trees.remove(tmp_path / "xdg")
