"""What a person reads uses the words of the field: skipped, tied, interrupted, fix, changed, reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fixtures.words import INSTEAD, messages, unwanted

PROJECT = Path(__file__).resolve().parents[2]

# What a reader does not see: comments of templates, and what others wrote.
UNSEEN = re.compile(r"\{#.*?#\}", re.DOTALL)
FOREIGN = {"vendor", ".venv", "__pycache__"}


def files(*patterns: str) -> list[Path]:
    found = (path for pattern in patterns for path in PROJECT.glob(pattern))
    return sorted(path for path in found if not FOREIGN & set(path.relative_to(PROJECT).parts))


def named(path: Path) -> str:
    return str(path.relative_to(PROJECT))


CODE = files("runner/**/*.py", "reports/**/*.py")
READ = files(
    "*.md",
    "docs/**/*.md",
    "Makefile",
    "images/*/image.toml",
    "bench/frameworks/*/framework.json",
    "bench/workloads/*.json",
)
PAGE = files("reports/page/templates/*")


@pytest.mark.parametrize("path", CODE, ids=named)
def test_no_message_has_an_unwanted_word(path: Path) -> None:
    # The docstrings of a command's file are its help.
    help_ = named(path).startswith("runner/cli/")
    found = set().union(*map(unwanted, messages(path.read_text("utf-8"), documentation=help_)))
    assert not found, {word: INSTEAD.get(word) for word in found}


@pytest.mark.parametrize("path", PAGE, ids=named)
def test_no_template_style_or_script_of_the_page_has_one(path: Path) -> None:
    assert not unwanted(UNSEEN.sub("", path.read_text("utf-8")))


@pytest.mark.parametrize("path", READ, ids=named)
def test_no_document_and_no_declaration_of_the_catalog_has_one(path: Path) -> None:
    assert not unwanted(path.read_text("utf-8"))


def test_every_kind_of_file_is_looked_at() -> None:
    assert len(CODE) > 150
    assert len(READ) > 60
    assert {path.suffix for path in PAGE} >= {".j2", ".js", ".css"}


def test_a_docstring_is_no_message_but_the_help_of_a_command_is() -> None:
    source = '"""told"""\ndef f(x):\n    """mend"""\n    return "left" " out", f"cannot be\\n {x}told apart"\n'
    plain = [word for text in messages(source) for word in unwanted(text)]
    assert sorted(set(plain)) == ["left out", "told"]
    assert "mend" in {word for text in messages(source, documentation=True) for word in unwanted(text)}
    assert unwanted("It was left\n  out, and Told.") == {"left out", "told"}
