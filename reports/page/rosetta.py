"""The Rosetta stone: the same workload as each framework's own file has it.

The source shown is this checkout's. A report shows it only beside cells that the very same source measured.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reports.data import specifications
from reports.data.specifications import BENCH, titles
from reports.text import visible
from runner.errors import UserError

# A file that holds one import of an adapter from another framework's folder, and nothing to read.
_SHARED = re.compile(r"^from bench\.frameworks\.(\w+)\.(\w+) import (Training|Inference)$", re.MULTILINE)
_SUFFIXES = (".py", ".R", ".jl")
_DOCSTRING = re.compile(r'\s*"""(.*?)"""', re.DOTALL)


class RosettaError(UserError):
    """A workload or framework that is not there; the message names those that are."""


@dataclass(frozen=True)
class Source:
    """One framework's file for a workload: the title people call it by, where it lies, its text and its language."""

    framework: str
    title: str
    path: str  # relative to the project
    text: str
    language: str  # as Pygments names it

    @property
    def lesson(self) -> str:
        """What the file says of itself: what it computes with, and what is idiomatic in its framework. Its docstring, or first comment."""
        if found := _DOCSTRING.match(self.text):
            return " ".join(found[1].split())
        comment = itertools.takewhile(lambda line: line.startswith("#"), self.text.splitlines())
        return " ".join(line.lstrip("#").strip() for line in comment).strip()

    @property
    def highlighted(self) -> str:
        """The text as HTML, with a class for each kind of token (`styles`)."""
        return _highlighted(self.text, self.language)


def workloads() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (BENCH / "workloads").glob("*.json")))


def frameworks(workload: str) -> tuple[str, ...]:
    """The frameworks that have a file for the workload."""
    declared = sorted(path.parent for path in (BENCH / "frameworks").glob("*/framework.json"))
    return tuple(folder.name for folder in declared if _file(folder, workload))


def source(workload: str, framework: str) -> Source:
    """The file of a workload in a framework; where it only passes on another folder's, that one. Raises RosettaError."""
    if workload not in workloads():
        raise RosettaError(f"there is no workload {workload!r}{_meant(workload, workloads())}")
    if framework not in frameworks(workload):
        raise RosettaError(f"no framework {framework!r} has {workload}{_meant(framework, frameworks(workload))}")
    folder = BENCH / "frameworks" / framework
    path = _file(folder, workload)
    assert path is not None  # frameworks() has looked
    text = path.read_text(encoding="utf-8")
    shared = _SHARED.search(text)
    if shared and "\nclass " not in text:
        path = BENCH / "frameworks" / shared[1] / f"{shared[2]}.py"
        text = path.read_text(encoding="utf-8")
    untested = specifications.untested(framework)
    title = f"{titles()[framework]} (untested: {untested})" if untested else titles()[framework]
    language = {".py": "python", ".R": "r", ".jl": "julia"}[path.suffix]
    return Source(framework, title, path.relative_to(BENCH.parent).as_posix(), text, language)


def sources(workload: str, wanted: Iterable[str]) -> list[Source]:
    """For a report: the files of those frameworks that have one."""
    if workload not in workloads():
        return []
    there = set(frameworks(workload))
    return [source(workload, name) for name in sorted(set(wanted)) if name in there]


def _file(folder: Path, workload: str) -> Path | None:
    computed = str(specifications.specification(workload).get("computes") or workload)
    found = (folder / (computed.replace("-", "_") + suffix) for suffix in _SUFFIXES)
    return next((path for path in found if path.is_file()), None)


def _meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    return f"{meant}; there are: {', '.join(known)}"


def terminal(workload: str, names: Iterable[str]) -> None:
    """Print the files side by side, or one after another where the terminal is narrow."""
    from rich.columns import Columns
    from rich.console import Console
    from rich.panel import Panel
    from rich.syntax import Syntax

    found = [source(workload, name) for name in names]
    console = Console()
    beside = console.is_terminal and console.width >= 200
    panels = [
        Panel(
            Syntax(one.text, one.language, theme="ansi_light", line_numbers=console.is_terminal, word_wrap=True),
            title=f"{one.title} · {one.path}",
            width=console.width // len(found) - 1 if beside else None,
        )
        for one in found
    ]
    for part in [Columns(panels)] if beside else panels:
        console.print(part)


@functools.cache
def _highlighted(text: str, language: str) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    # Pygments escapes what it highlights
    return str(highlight(visible(text, len(text)), get_lexer_by_name(language), HtmlFormatter(nowrap=True)))


def styles(light: str, dark: str) -> tuple[str, str]:
    """The styles of highlighted code inside these two CSS selectors: on light ground, and on dark."""
    from pygments.formatters import HtmlFormatter

    schemes = (("default", light), ("github-dark", dark))
    found = [str(HtmlFormatter(style=style).get_style_defs(scope)) for style, scope in schemes]
    return found[0], found[1]


def page(workload: str, names: Iterable[str]) -> str:
    """One self-contained HTML page of the files side by side."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    engine = Environment(loader=PackageLoader("reports.page", "templates"), autoescape=True, undefined=StrictUndefined)
    shown = [(one, Markup(one.highlighted)) for one in (source(workload, name) for name in names)]
    light, dark = styles("pre", ":root pre")
    template = engine.get_template("rosetta.html.j2")
    return template.render(workload=workload, shown=shown, light=Markup(light), dark=Markup(dark))
