"""The Rosetta stone: the same workload in each framework's own file.

The source is this checkout's. A report shows it only beside cells that the same source measured.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench import rules
from reports import specifications
from reports.specifications import titles, workloads
from runner.errors import UserError
from runner.text import visible

_DOCSTRING = re.compile(r'\s*"""(.*?)"""', re.DOTALL)

PROJECT = Path(rules.BENCH).parent


class RosettaError(UserError):
    """There is no such workload or framework; the message names those that exist."""


@dataclass(frozen=True)
class Source:
    """One framework's file for a workload: the framework's title, the file's path, its text and its language."""

    framework: str
    title: str
    path: str  # relative to the project
    text: str
    language: str  # as Pygments names it

    @property
    def lesson(self) -> str:
        """What the file says about itself, such as what is idiomatic in its framework: its docstring, or its first comment."""
        if docstring := _DOCSTRING.match(self.text):
            return " ".join(docstring[1].split())
        comment = itertools.takewhile(lambda line: line.startswith("#"), self.text.splitlines())
        return " ".join(line.lstrip("#").strip() for line in comment).strip()

    @property
    def highlighted(self) -> str:
        """The text as HTML, with a class for each kind of token (`styles`)."""
        return _highlighted(self.text, self.language)


def frameworks(workload: str) -> tuple[str, ...]:
    """The frameworks that compute the workload."""
    return tuple(name for name in titles() if _path(name, workload))


def source(workload: str, framework: str) -> Source:
    """The file that computes a workload in a framework, which may lie in a folder that several share. Raises RosettaError."""
    if workload not in workloads():
        raise RosettaError(f"there is no workload {workload!r}{_meant(workload, workloads())}")
    if framework not in frameworks(workload):
        raise RosettaError(f"no framework {framework!r} has {workload}{_meant(framework, frameworks(workload))}")
    path = _path(framework, workload)
    assert path is not None  # frameworks() has looked
    untested = specifications.untested(framework)
    title = f"{titles()[framework]} (untested: {untested})" if untested else titles()[framework]
    language = {".py": "python", ".R": "r", ".jl": "julia"}[path.suffix]
    return Source(framework, title, path.relative_to(PROJECT).as_posix(), path.read_text(encoding="utf-8"), language)


def sources(workload: str, names: Iterable[str]) -> list[Source]:
    """For a report: the files of those frameworks that have one."""
    if workload not in workloads():
        return []
    computing = set(frameworks(workload))
    return [source(workload, name) for name in sorted(set(names)) if name in computing]


def _path(framework: str, workload: str) -> Path | None:
    module = rules.module_of(workload, specifications.specification(workload))
    path = rules.adapter_path(framework, module)
    return Path(path) if path else None


def _meant(word: str, choices: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(choices), n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    return f"{meant}; there are: {', '.join(choices)}"


def terminal(workload: str, names: Iterable[str]) -> None:
    """Print the files side by side, or one after another where the terminal is narrow."""
    from rich.columns import Columns
    from rich.console import Console
    from rich.panel import Panel
    from rich.syntax import Syntax

    files = [source(workload, name) for name in names]
    console = Console()
    beside = console.is_terminal and console.width >= 200
    panels = [
        Panel(
            Syntax(file.text, file.language, theme="ansi_light", line_numbers=console.is_terminal, word_wrap=True),
            title=f"{file.title} · {file.path}",
            width=console.width // len(files) - 1 if beside else None,
        )
        for file in files
    ]
    for part in [Columns(panels)] if beside else panels:
        console.print(part)


@functools.cache
def _highlighted(text: str, language: str) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    # Pygments escapes what it highlights.
    return str(highlight(visible(text, len(text)), get_lexer_by_name(language), HtmlFormatter(nowrap=True)))


def styles(light: str, dark: str) -> tuple[str, str]:
    """The styles of highlighted code inside these two CSS selectors: on a light background, and on a dark one."""
    from pygments.formatters import HtmlFormatter

    schemes = (("default", light), ("github-dark", dark))
    sheets = [str(HtmlFormatter(style=style).get_style_defs(scope)) for style, scope in schemes]
    return sheets[0], sheets[1]


def page(workload: str, names: Iterable[str]) -> str:
    """One self-contained HTML page of the files side by side."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    engine = Environment(loader=PackageLoader("reports.page", "templates"), autoescape=True, undefined=StrictUndefined)
    shown = [(file, Markup(file.highlighted)) for file in (source(workload, name) for name in names)]
    light, dark = styles("pre", ":root pre")
    template = engine.get_template("rosetta.html.j2")
    return template.render(workload=workload, shown=shown, light=Markup(light), dark=Markup(dark))
