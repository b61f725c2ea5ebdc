"""A cell that lies about what it measured fails, and the reason says which lie it is. tests/engine/test_lies.py: in containers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.engines.base import Engine, Launch
from runner.engines.process.process import LocalRunning, start_process
from tests.fixtures.lies import LIES, PLAY, Events, row_of


class ProcessEngine(Engine):
    """Cells as processes, as in the engines venv and host."""

    name = "venv"

    def start(self, launch: Launch) -> LocalRunning:
        return start_process(launch)


@pytest.mark.slow
@pytest.mark.parametrize(("lie", "kind", "words"), LIES, ids=lambda value: getattr(value, "__name__", None))
def test_a_cell_that_lies_fails_and_the_reason_says_which(
    lie: Callable[[Events], Events], kind: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    row = row_of(ProcessEngine(), (sys.executable, "-c", PLAY), "sha256:0", lie, tmp_path)
    assert (row["status"], row["error_kind"]) == ("failed" if kind else "ok", kind), row["reason"]
    assert words in (row["reason"] or "")
