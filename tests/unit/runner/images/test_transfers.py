"""How far a push or a pull is: a line from time to time, from the engine's own messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from runner.images import docker_client


def message(status: str, layer: str, done: object = None, size: object = None) -> dict[str, Any]:
    return {"status": status, "id": layer, "progressDetail": {"current": done, "total": size}}


MESSAGES: list[Mapping[str, Any]] = [
    {"status": "The push refers to repository [r/name]"},
    message("Preparing", "a"),
    message("Pushing", "a", 500_000_000, 2_000_000_000),
    # An engine reports more than the size, where it compresses: the layer's own bytes are what counts.
    message("Pushing", "b", 3_100_000_000, 3_000_000_000),
    message("Pushing", "c", "many", None),
    message("Pushed", "a"),
    {"aux": {"Digest": "sha256:1"}},
]


def test_a_push_says_how_much_of_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_client, "BYTES_SECONDS", 0.0)
    said: list[str] = []
    assert list(docker_client.say_bytes("pushing r/name", MESSAGES, said.append)) == MESSAGES
    assert said[0] == "pushing r/name: 0.50 of 2.00 GB"
    assert said[1] == "pushing r/name: 3.50 of 5.00 GB"
    assert said[-1] == "pushing r/name: 5.00 of 5.00 GB"


def test_a_short_push_says_nothing() -> None:
    said: list[str] = []
    assert list(docker_client.say_bytes("pushing r/name", MESSAGES, said.append)) == MESSAGES
    assert said == []
