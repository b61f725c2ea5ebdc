"""The Rosetta stone: the same workload in each framework's own file, and what this one uses of the framework's helpers.

The source is this checkout's. A report shows it only beside cells that the same source measured.
"""

from __future__ import annotations

import base64
import difflib
import functools
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import rules
from reports import specifications
from reports.page import helpers
from reports.specifications import titles, workloads
from runner.errors import UserError
from runner.text import visible

_DOCSTRING = re.compile(r'\s*"""(.*?)"""', re.DOTALL)

PROJECT = Path(rules.BENCH).parent

LANGUAGES = {".py": "python", ".R": "r", ".jl": "julia"}


class RosettaError(UserError):
    """There is no such workload or framework; the message names those that exist."""


@dataclass(frozen=True)
class Code:
    """Source text: its file, its text and its language."""

    path: str  # relative to the project
    text: str
    language: str  # as Pygments names it

    @property
    def highlighted(self) -> str:
        """The text as HTML, with a class for each kind of token (`styles`)."""
        return _highlighted(self.text, self.language)


@dataclass(frozen=True)
class Source(Code):
    """One framework's file for a workload, whole; `helpers` is what it uses of other files of its framework, a file each."""

    framework: str
    title: str
    helpers: tuple[Code, ...]

    @property
    def lesson(self) -> str:
        """The file's own description, such as what is idiomatic in its framework: its docstring, or its first comment."""
        if docstring := _DOCSTRING.match(self.text):
            return " ".join(docstring[1].split())
        comment = itertools.takewhile(lambda line: line.startswith("#"), self.text.splitlines())
        return " ".join(line.lstrip("#").strip() for line in comment).strip()


def frameworks(workload: str) -> tuple[str, ...]:
    """The frameworks that compute the workload."""
    return tuple(name for name in titles() if _path(name, workload))


def source(workload: str, framework: str) -> Source:
    """The file that computes a workload in a framework, which may lie in a folder that several share. Raises RosettaError."""
    if workload not in workloads():
        raise RosettaError(f"there is no workload {workload!r}{_meant(workload, workloads())}")
    path = _path(framework, workload) if framework in titles() else None
    if path is None:
        raise RosettaError(f"no framework {framework!r} has {workload}{_meant(framework, frameworks(workload))}")
    untested = specifications.untested(framework)
    title = f"{titles()[framework]} (untested: {untested})" if untested else titles()[framework]
    return Source(
        path=path.relative_to(PROJECT).as_posix(),
        text=path.read_text(encoding="utf-8"),
        language=LANGUAGES[path.suffix],
        framework=framework,
        title=title,
        helpers=tuple(
            Code(helper.relative_to(PROJECT).as_posix(), text, LANGUAGES[helper.suffix])
            for helper, text in helpers.used(framework, path)
        ),
    )


def with_code(workload: str, names: Iterable[str]) -> list[str]:
    """For a report: those of the frameworks that have a file for the workload. A stored name may hold anything."""
    return sorted(set(names) & set(frameworks(workload))) if workload in workloads() else []


def _path(framework: str, workload: str) -> Path | None:
    module = rules.module_of(workload, specifications.specification(workload))
    path = rules.adapter_path(framework, module)
    return Path(path) if path else None


def _meant(word: str, choices: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(choices), n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    return f"{meant}; there are: {', '.join(choices)}"


def _titled(file: Source) -> Iterator[tuple[str, Code]]:
    """A file, and what it uses of helpers, with their titles."""
    yield f"{file.title} · {file.path}", file
    for helper in file.helpers:
        yield f"{file.title} · used of {helper.path}", helper


def plain(workload: str, names: Iterable[str]) -> str:
    """Each file whole under its title, and what it uses of helpers: nothing breaks a line, and nothing is drawn around the code."""
    codes = [titled for name in names for titled in _titled(source(workload, name))]
    return "\n".join(f"==== {title} ====\n\n{visible(code.text, len(code.text)).rstrip()}\n" for title, code in codes)


def terminal(workload: str, names: Iterable[str]) -> None:
    """Print the files side by side, or one after another where the terminal is narrow. Below each stands what it uses of helpers."""
    from rich.columns import Columns
    from rich.console import Console, Group
    from rich.panel import Panel
    from rich.syntax import Syntax

    files = [source(workload, name) for name in names]
    console = Console()
    beside = console.is_terminal and console.width >= 200
    width = console.width // len(files) - 1 if beside else None

    def panel(code: Code, title: str) -> Panel:
        numbers = console.is_terminal and isinstance(code, Source)
        syntax = Syntax(code.text, code.language, theme="ansi_light", line_numbers=numbers, word_wrap=True)
        return Panel(syntax, title=title, width=width)

    groups = [Group(*(panel(code, title) for title, code in _titled(file))) for file in files]
    for part in [Columns(groups)] if beside else groups:
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


def digest(inline: str) -> str:
    """How a content security policy names a script or a style of the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


def page(workload: str, names: Iterable[str]) -> str:
    """One self-contained HTML page of the files side by side."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    engine = Environment(loader=PackageLoader("reports.page", "templates"), autoescape=True, undefined=StrictUndefined)
    engine.filters["code"] = lambda code: Markup(code.highlighted)
    light, dark = styles("pre", ":root pre")
    style = Markup(engine.get_template("rosetta.css.j2").render(light=Markup(light), dark=Markup(dark)))
    files = [source(workload, name) for name in names]
    template = engine.get_template("rosetta.html.j2")
    return template.render(workload=workload, files=files, style=style, digest=Markup(digest(style)))
