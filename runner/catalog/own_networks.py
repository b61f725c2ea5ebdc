"""A person's own network as the planner needs it. Its files are read and never run here: only the cell runs them."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from bench import rules
from runner.catalog.names import suggest
from runner.catalog.workloads import Workload
from runner.errors import UserError, system_fault

# The most bytes of a file: a network is code, and its numbers are drawn.
_MOST_BYTES = 1 << 20
# The longest name of a file, in bytes, since a run's folder keeps it; and how much of it stands in the workload's name.
_MOST_NAME, _MOST_STEM = 100, 40
_DROPOUT = (None, False, True, "always")
_PRECISIONS = tuple(sorted(rules.OWN_BOUNDS["loss"]))


class OwnNetworkError(UserError):
    """A person's file that is no network; the message names file, field and fix."""


class OwnNetwork(Workload):
    """A network of a person's own, for the frameworks that it has a file for."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*@[0-9a-f]{12}$")
    task: str = Field(default=rules.OWN, pattern=rules.OWN)  # type: ignore[assignment]
    # framework -> the content of its file, and the file's name
    files: dict[str, tuple[str, bytes]] = Field(exclude=True)

    @property
    def texts(self) -> dict[str, str]:
        """File's name -> its content, a character a byte."""
        return {name: content.decode("latin-1") for name, content in self.files.values()}


def is_path(word: str) -> bool:
    """True if this word of --workloads is the path of a person's network, and no workload's name."""
    return "/" in word or word.endswith(".py")


def own_networks(words: Iterable[str]) -> dict[str, OwnNetwork]:
    """Each word that is a path -> its network. Raises OwnNetworkError."""
    return {word: read(Path(word)) for word in words if is_path(word)}


def read(path: Path) -> OwnNetwork:
    """The network of a file, or of a folder with a file for each framework. Raises OwnNetworkError."""
    paths = sorted(path.glob("*.py")) if path.is_dir() else [path]
    if not paths:
        raise OwnNetworkError(f"--workloads {path}: the folder has no .py file; put one for each framework there")
    # The name for a person: of the file, or of a folder without the digest that a run's folder adds.
    stem = paths[0].stem if len(paths) == 1 else path.resolve().name.partition("@")[0]
    return _network(path, stem, {each: _content(each) for each in paths})


def of_texts(name: str, texts: Mapping[str, str]) -> OwnNetwork:
    """The network of that name whose files another machine kept (`OwnNetwork.texts`). Raises OwnNetworkError where they are another's."""
    stem = name.partition("@")[0]
    network = _network(Path(stem), stem, {Path(file): text.encode("latin-1") for file, text in sorted(texts.items())})
    if network.name != name:
        raise OwnNetworkError(f"{name}: its files are those of {network.name}")
    return network


def _network(path: Path, stem: str, contents: Mapping[Path, bytes]) -> OwnNetwork:
    found: dict[str, tuple[Path, bytes, Mapping[str, Any]]] = {}
    for each, content in contents.items():
        constants = _constants(each, content)
        framework = _framework(each, constants, len(contents) > 1)
        if (dropout := constants.get("DROPOUT")) not in _DROPOUT:
            raise OwnNetworkError(f"{each}: DROPOUT: {dropout!r:.60}; write True, False or 'always'")
        if framework in found:
            raise OwnNetworkError(f"{each}: FRAMEWORK: {found[framework][0].name} is for {framework}, too; keep one")
        found[framework] = each, content, constants
    batches = {framework: _batch(each, constants) for framework, (each, _, constants) in found.items()}
    if len(set(batches.values())) > 1:
        raise OwnNetworkError(f"{path}: ITEMS: its files have {batches}; one network has one batch")
    whole = hashlib.sha256()
    for framework, (_, content, _) in sorted(found.items()):
        whole.update(f"{framework} {len(content)}\n".encode() + content)
    short = re.sub(r"[^a-z0-9]+", "-", stem.lower())[:_MOST_STEM].strip("-") or "network"
    declared = rules.own_declaration(f"{short}@{whole.hexdigest()[:12]}")
    precisions = {each for file, _, constants in found.values() for each in _precisions(file, constants)}
    declared |= {"batch": next(iter(batches.values())), "precisions": ["fp32", *sorted(precisions - {"fp32"})]}
    files = {framework: (each.name, content) for framework, (each, content, _) in found.items()}
    return OwnNetwork.model_validate(declared | {"files": files})


def _content(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise OwnNetworkError(f"--workloads: {path} is no file; name the file of a network")
    if len(path.name.encode("utf-8", "surrogateescape")) > _MOST_NAME:
        raise OwnNetworkError(
            f"--workloads: {path}: a name of more than {_MOST_NAME} bytes; give the file a shorter one"
        )
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise OwnNetworkError(f"--workloads: {system_fault(error)}; name the file of a network") from None
    if len(content) > _MOST_BYTES:
        raise OwnNetworkError(f"{path}: more than 1 MiB; keep the code of the network there, and draw its numbers")
    return content


def _constants(path: Path, content: bytes) -> dict[str, Any]:
    """The constants that the file assigns at its top, and the names that it defines there (-> None)."""
    try:
        tree = ast.parse(content, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        text = (getattr(error, "text", None) or "").strip()[:100]
        where = f", line {line}: `{text}`" if line else ""
        raise OwnNetworkError(f"{path}{where}: {getattr(error, 'msg', None) or error}; correct it") from None
    found: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = None
            _look_for_step(path, statement)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                found.update(_assigned(target, statement.value))
    for name, kind in (("Network", "class Network"), ("batch", "def batch(random)")):
        if name not in found:
            raise OwnNetworkError(f"{path}: it has no `{kind}`; docs/own-networks.md shows whole files")
    return found


def _look_for_step(path: Path, statement: ast.FunctionDef | ast.ClassDef) -> None:
    """Raise OwnNetworkError for a class Network that has no step. One that inherits may have it from there."""
    if (
        not isinstance(statement, ast.ClassDef)
        or statement.name != "Network"
        or statement.bases
        or statement.decorator_list
    ):
        return
    names = {name for each in statement.body for name in _named(each)}
    if "step" not in names:
        raise OwnNetworkError(
            f"{path}, line {statement.lineno}: class Network has no `def step(self, *batch)`{suggest('step', names)}; "
            "write there what a step is"
        )


def _named(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of a class gives."""
    if isinstance(statement, ast.FunctionDef):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
        yield from (name for each in statement.body for name in _named(each))


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, Any]]:
    """(name, its constant) of an assignment, of several names too; None where it is no constant."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, its)
    elif isinstance(target, ast.Name):
        try:
            yield target.id, ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            yield target.id, None


def _framework(path: Path, constants: Mapping[str, Any], several: bool) -> str:
    known = rules.own_frameworks()
    name = constants.get("FRAMEWORK") or (path.stem if several or path.stem in known else None)
    if name not in known:
        meant = suggest(name, known) if isinstance(name, str) else ""
        raise OwnNetworkError(
            f"{path}: FRAMEWORK: {name!r:.60} is none of {', '.join(known)}{meant}; write one of them"
        )
    return str(name)


def _batch(path: Path, constants: Mapping[str, Any]) -> int:
    items = constants.get("ITEMS")
    if type(items) is not int or not 0 < items < 10**9:
        raise OwnNetworkError(
            f"{path}: ITEMS: {items!r:.60}; write how many items a step takes as a number: ITEMS = 32"
        )
    return items


def _precisions(path: Path, constants: Mapping[str, Any]) -> tuple[str, ...]:
    named = constants.get("PRECISIONS", ())
    if not isinstance(named, tuple | list) or any(each not in _PRECISIONS for each in named):
        raise OwnNetworkError(f"{path}: PRECISIONS: {named!r:.60}; name some of {', '.join(_PRECISIONS)} in a tuple")
    return tuple(named)
