"""A cell in a container that lies about what it measured fails, and the reason says which lie it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import Image
from runner.engines.docker.engine import DockerEngine
from tests.fixtures.lies import LIES, PLAY, Events, row_of
from tests.fixtures.weekly import drawn

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.mark.parametrize(
    ("lie", "kind", "words"), drawn("DLBENCH_FAULTS", 3, LIES), ids=lambda value: getattr(value, "__name__", None)
)
def test_a_cell_that_lies_fails_and_the_reason_says_which(
    engine: DockerEngine,
    client: Any,
    base_image: str,
    catalog: dict[str, Image],
    lie: Callable[[Events], Events],
    kind: str | None,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    row = row_of(engine, ("python3", "-c", PLAY), str(client.images.get(base_image).id), lie, tmp_path)
    assert (row["status"], row["error_kind"]) == ("failed" if kind else "ok", kind), row["reason"]
    assert words in (row["reason"] or "")
