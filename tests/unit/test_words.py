"""What a person reads uses the words of the field: skipped, tied, interrupted, fix, changed, reported."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fixtures.words import INSTEAD, clauses, messages, unwanted

PROJECT = Path(__file__).resolve().parents[2]

# Text that a reader does not see: comments of templates, and files of others.
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
WRITTEN = files("runner/**/*.py", "reports/**/*.py", "bench/**/*.py")
PAGE = files("reports/page/templates/*")

# Comments, docstrings and messages that begin with What, Whether, That, Who or Where. It only ever falls.
MOST_CLAUSES = 23
# So that a sentence that goes with its code does not end a change.
SLACK = 10


def unwanted_in(path: Path) -> set[str]:
    text = path.read_text("utf-8")
    if path in CODE:
        # The docstrings of a command's file are its help.
        help_ = named(path).startswith("runner/cli/")
        return set().union(*map(unwanted, messages(text, documentation=help_)))
    return set(unwanted(UNSEEN.sub("", text) if path in PAGE else text))


def test_no_message_no_document_no_declaration_and_nothing_of_the_page_has_an_unwanted_word() -> None:
    found = {named(path): unwanted_in(path) for path in (*CODE, *READ, *PAGE)}
    assert not {name: {word: INSTEAD.get(word) for word in words} for name, words in found.items() if words}


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


def test_few_sentences_begin_with_a_clause_and_never_more_than_before() -> None:
    lines = [f"{named(path)}:{line}: {text}" for path in WRITTEN for line, text in clauses(path.read_text("utf-8"))]
    count = len(lines)
    assert count <= MOST_CLAUSES, "\n".join(
        [*lines, f"{count} begin with a clause, at most {MOST_CLAUSES} may: name the thing"]
    )
    assert count > MOST_CLAUSES - SLACK, f"only {count} begin with a clause now: lower MOST_CLAUSES to {count}"


def test_a_comment_a_docstring_and_a_message_that_begin_with_a_clause_are_counted() -> None:
    source = """
# What comes is read.
# Where it goes on, it is one comment.
class A:
    x: int
    '''Whether it is there.'''

    def f(self):
        '''The value.'''
        return f"That {self.x} is wrong", "Where does it go?", "Whatever it is", "Who"  # the rest
"""
    assert [line for line, _ in clauses(source)] == [2, 6, 10]
