"""What README.md, CONTRIBUTING.md and CHANGELOG.md name is there: files, commands and their options, the wings in their order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from runner.cli.main import app
from tests.unit.test_import_graph import WINGS

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
# A file's path in code marks: `bench/contract.py`. With a "<" or a "*" it is a pattern.
PATH = re.compile(r"`((?:bench|runner|reports|images|tests|docs)/[\w./-]+|\.ci/[\w-]+)`")
LINK = re.compile(r"(?:\]\(|src=\")(?!http)([^)\"#]+)")


def text_of(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_a_document_names_is_there(name: str) -> None:
    paths = PATH.findall(text_of(name)) + LINK.findall(text_of(name))
    assert [path for path in paths if not (PROJECT / path).exists()] == []


def commands_in(text: str) -> list[list[str]]:
    """The words of every `runner ...` in code marks, or at the beginning of a line."""
    quoted = re.findall(r"`runner ([^`]+)`", text) + re.findall(r"^runner ([^#\n]+)", text, re.MULTILINE)
    return [command.split() for command in quoted]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_command_and_option_that_a_document_names_is_one(name: str) -> None:
    commands = commands_in(text_of(name))
    assert len(commands) > 10
    wrong = []
    for words in commands:
        command: Any = typer.main.get_command(app)
        rest = list(words)
        while rest and rest[0] in getattr(command, "commands", ()):
            command = command.commands[rest.pop(0)]
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        unknown = [word for word in rest if word.startswith("-") and word not in options]
        if unknown or hasattr(command, "commands"):
            wrong.append(" ".join(words))
    assert wrong == []


def test_the_map_has_the_wings_in_the_order_of_their_imports() -> None:
    for name, head in (("CONTRIBUTING.md", "    runner/   "), ("README.md", "    runner/   ")):
        _, _, rest = text_of(name).partition(head)
        part = rest.partition("    reports/")[0]
        assert tuple(re.findall(r"\b(\w+)/ ", part.replace("/\n", "/ ").replace("docker/, process/", ""))) == WINGS, (
            name
        )
