"""The templates are compiled once for all processes, and anew where anything changed that they are compiled from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from reports.page import cache


class Counted(Environment):
    """It counts the templates that it compiles."""

    compiled = 0

    def _compile(self, source: str, filename: str) -> object:  # type: ignore[override]
        Counted.compiled += 1
        return super()._compile(source, filename)


def written(source: Path, template: str = "{{ 6 * 7 }}") -> str:
    """The template as a new process writes it."""
    compiled = cache.Compiled([str(source)])
    return Counted(loader=DictLoader({"page": template}), bytecode_cache=compiled).get_template("page").render()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that says how templates are compiled. Python keeps its compiled modules in a folder of the test's own."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "compiled"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(Counted, "compiled", 0)
    path = tmp_path / "source.py"
    path.write_text("first")
    return path


def test_a_template_is_compiled_once(source: Path) -> None:
    assert [written(source), written(source), Counted.compiled] == ["42", "42", 1]


def test_a_template_or_a_source_that_changed_is_compiled_again(source: Path) -> None:
    written(source)
    assert written(source, "{{ 6 * 8 }}") == "48"
    written(source)
    assert Counted.compiled == 3
    source.write_text("second")
    written(source)
    assert Counted.compiled == 4


def test_a_damaged_file_is_compiled_again(source: Path, tmp_path: Path) -> None:
    written(source)
    (path,) = (tmp_path / "compiled").rglob("template-*")
    path.write_bytes(path.read_bytes()[:-9])
    assert written(source) == "42"
    path.write_bytes(b"")
    assert [written(source), written(source), Counted.compiled] == ["42", "42", 3]


def test_nothing_is_kept_where_python_keeps_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    written(source)
    assert not (tmp_path / "compiled").exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    # Nobody can write there.
    (tmp_path / "compiled").write_text("a file")
    assert [written(source), written(source), Counted.compiled] == ["42", "42", 3]
