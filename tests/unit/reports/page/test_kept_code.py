"""The highlighted code of a report is made once, and anew where anything that it follows from is another."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from reports.page import cache, rosetta_stone


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The frameworks whose listing was made, with an empty folder for what is kept."""
    made: list[str] = []
    source = rosetta_stone.source

    def counted(workload: str, framework: str) -> rosetta_stone.Source:
        made.append(framework)
        return source(workload, framework)

    monkeypatch.setattr(cache, "folder", lambda: tmp_path / "kept")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(rosetta_stone, "source", counted)
    return made


def test_a_listing_is_made_once_for_each_state_of_the_code(made: list[str]) -> None:
    first = cache.listing("cnn-cifar10", "torch", "a" * 64)
    assert cache.listing("cnn-cifar10", "torch", "a" * 64) == first
    assert made == ["torch"]
    shown = rosetta_stone.source("cnn-cifar10", "torch")
    assert (first.highlighted, first.lesson) == (shown.highlighted, shown.lesson)
    assert [helper.path for helper in first.helpers] == [helper.path for helper in shown.helpers]
    made.clear()
    cache.listing("cnn-cifar10", "torch", "b" * 64)
    cache.listing("cnn-cifar10", "jax", "b" * 64)
    assert made == ["torch", "jax"]


@pytest.mark.parametrize("damage", [b"", b"{torn", b"[]", b"null", b'{"key": 1}', b"\xff", "no fields"])
def test_what_is_kept_and_damaged_is_made_again(made: list[str], tmp_path: Path, damage: bytes | str) -> None:
    first = cache.listing("cnn-cifar10", "torch", "a" * 64)
    (path,) = (tmp_path / "kept").iterdir()
    key = json.loads(path.read_bytes())["key"]
    path.write_bytes(damage if isinstance(damage, bytes) else json.dumps({"key": key, "listing": {}}).encode())
    assert cache.listing("cnn-cifar10", "torch", "a" * 64) == first
    assert made == ["torch", "torch"]


def test_where_python_keeps_nothing_nothing_is_kept(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for _ in range(2):
        cache.listing("cnn-cifar10", "torch", "a" * 64)
    assert made == ["torch", "torch"]
    assert not (tmp_path / "kept").exists()
