"""The Rosetta stone: the same workload in each framework's own file, and what this one uses of the framework's helpers.

The source is this checkout's. A report shows it only beside cells that the same source measured.
"""

from __future__ import annotations

import ast
import base64
import difflib
import functools
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import identity, rules
from reports import specifications
from reports.specifications import titles, workloads
from runner.errors import UserError
from runner.text import visible

# The helpers that an adapter uses of its framework: the functions, classes and constants that its code names, directly or through these.
#
# Nobody keeps a list. A Python file is read by its imports. A file of R or Julia names no file at each use: the files that the
# framework's entrypoint sources or includes are its helpers, each as a whole. Only files below bench/frameworks are looked into, and of
# these only the folders that the framework uses (bench.identity): the bench's own code stays out.

FRAMEWORKS = Path(rules.FRAMEWORKS)

# The place of a definition: the file, and its name there.
Place = tuple[Path, str]

_PACKAGE = "bench.frameworks."
_DAMAGED = (OSError, SyntaxError, ValueError, MemoryError, RecursionError)
_READ = re.compile(r'(?:source|include)\([^"\n]*"([^"\n]+\.(?:R|jl))"')
# In R: `name <- import("bench.frameworks.keras._adam", ...)`, and then `name$Adam`.
_IMPORTED_IN_R = re.compile(r'(\w+) <- import\("bench\.frameworks\.(\w+)\.(\w+)"')


def helpers_used(framework: str, adapter: Path) -> list[tuple[Path, str]]:
    """(file, text of what the adapter uses of it) for each helper, the nearest first. A damaged file has none."""
    folders = frozenset(identity.folders([framework], rules.BENCH))
    reached: dict[Path, set[str]] = {}
    whole = [] if adapter.suffix == ".py" else _read_by_entrypoint(framework)
    waiting = list(_imported_in_r(adapter) if whole else _uses(adapter, None, folders))
    seen = set(waiting)
    while waiting:
        path, name = waiting.pop(0)
        if path == adapter:
            continue
        reached.setdefault(path, set()).add(name)
        new = [place for place in _uses(path, name, folders) if place not in seen]
        seen.update(new)
        waiting += new
    parts = [(path, text) for path, names in reached.items() if (text := _text(path, names))]
    return parts + [(path, path.read_text(encoding="utf-8")) for path in whole]


def _uses(path: Path, name: str | None, folders: frozenset[str]) -> Iterator[Place]:
    """The definitions that the definition `name` of a Python file uses; None: the whole file."""
    try:
        yield from _python_file(path, path.read_text(encoding="utf-8"), folders).uses(name)
    except _DAMAGED:
        return


def _text(path: Path, names: set[str]) -> str:
    """The definitions of these names, in the file's order, each with the comment above it."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    spans = _python_spans(_parsed(text))
    wanted = sorted({span for name, span in spans.items() if name in names})
    return "\n\n\n".join("\n".join(lines[_with_comment(lines, first) : last]) for first, last in wanted) + "\n" * bool(
        wanted
    )


def _with_comment(lines: list[str], first: int) -> int:
    while first > 0 and lines[first - 1].startswith("#"):
        first -= 1
    return first


# -- Python ---------------------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=200)  # each file is asked for once for each name that is used of it
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _statements(block: ast.AST) -> Iterator[ast.stmt]:
    """Every statement below a node. Expressions, which are most of a program, are not searched."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for node in getattr(block, name, ()):
            if isinstance(node, ast.stmt):
                yield node
            yield from _statements(node)


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """Name -> the statement that defines it. A variable that a function sets later (`_device = None`) says nothing."""
    definitions: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions[node.name] = node
        elif isinstance(node, ast.Assign) and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            names = [name for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            definitions.update((name.id, node) for name in names)
    return definitions


def _python_spans(tree: ast.Module) -> dict[str, tuple[int, int]]:
    spans = {}
    for name, node in _definitions(tree).items():
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        spans[name] = (first - 1, node.end_lineno or first)
    return spans


class _PythonFile:
    """A Python file below bench/frameworks, and what its names stand for in other files there."""

    def __init__(self, path: Path, text: str, folders: frozenset[str]) -> None:
        self.path, self.folders = path, folders
        self.tree = _parsed(text)
        self.definitions = _definitions(self.tree)
        self.modules: dict[str, Path] = {}  # a name that stands for a module
        self.imported: dict[str, Place] = {}  # a name that stands for a definition of a module
        self.for_their_effect: list[Path] = []  # modules that are imported and not named
        for node in _statements(self.tree):
            if isinstance(node, ast.Import):
                self._modules_of(node)
            elif isinstance(node, ast.ImportFrom):
                self._names_of(node)

    def _file(self, module: str) -> Path | None:
        """The file of a module of the framework's folders."""
        folder, _, stem = module.removeprefix(_PACKAGE).partition(".")
        path = FRAMEWORKS / folder / f"{stem}.py"
        return path if module.startswith(_PACKAGE) and folder in self.folders and stem and path.is_file() else None

    def _modules_of(self, node: ast.Import) -> None:
        for alias in node.names:
            if path := self._file(alias.name):
                if alias.asname:
                    self.modules[alias.asname] = path
                else:
                    self.for_their_effect.append(path)

    def _names_of(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            name = alias.asname or alias.name
            if path := self._file(f"{node.module}.{alias.name}"):
                self.modules[name] = path
            elif path := self._file(node.module or ""):
                self.imported[name] = (path, alias.name)

    def uses(self, name: str | None) -> Iterator[Place]:
        """The definitions that one definition uses; None: the whole file."""
        if name is None:
            for path in self.for_their_effect:
                yield from ((path, effect) for effect in _definitions(_parsed(path.read_text(encoding="utf-8"))))
        node = self.tree if name is None else self.definitions.get(name)
        for part in _names(node, frozenset()) if node else ():
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in self.modules:
                yield self.modules[part.value.id], part.attr
            elif isinstance(part, ast.Name) and part.id in self.imported:
                yield self.imported[part.id]
            elif isinstance(part, ast.Name) and part.id in self.definitions and part.id != name:
                yield self.path, part.id


@functools.lru_cache(maxsize=200)
def _python_file(path: Path, text: str, folders: frozenset[str]) -> _PythonFile:
    return _PythonFile(path, text, folders)


def _names(node: ast.AST, local: frozenset[str]) -> Iterator[ast.AST]:
    """The names and attributes in a part of a program, without the variables and parameters of its functions."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        inside = list(ast.walk(node))
        stored = {part.id for part in inside if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        local |= stored | {part.arg for part in inside if isinstance(part, ast.arg)}
    if not (isinstance(node, ast.Name) and node.id in local):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _names(child, local)


# -- R and Julia ------------------------------------------------------------------------------------------------------------------------


def _files_read(script: Path) -> list[Path]:
    """The files of the bench that a script of R or Julia reads, directly or through one another, itself first."""
    files = [script]
    for file in files:
        named = _READ.findall(file.read_text(encoding="utf-8")) if file.is_file() else []
        files += [path for name in named if (path := (file.parent / name).resolve()) not in files and path.is_file()]
    return files


def _read_by_entrypoint(framework: str) -> list[Path]:
    """The files that the entrypoint of a framework of another language reads, without the adapters and itself."""
    script = FRAMEWORKS / framework / rules.framework_declaration(framework)["entrypoint"][1]
    return [file for file in _files_read(script)[1:] if not _is_adapter(file)]


def _imported_in_r(adapter: Path) -> Iterator[Place]:
    """The definitions that a file of R uses of the bench's Python files."""
    text = adapter.read_text(encoding="utf-8")
    for variable, folder, stem in _IMPORTED_IN_R.findall(text):
        for attribute in re.findall(rf"\b{variable}\$(\w+)", text):
            yield FRAMEWORKS / folder / f"{stem}.py", attribute


def _is_adapter(path: Path) -> bool:
    return path.stem in {rules.module_of(name, rules.workload_declaration(name)) for name in rules.workload_names()}


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
            for helper, text in helpers_used(framework, path)
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
