"""Every name that a file of the bench takes from another file of it is there: most frameworks are not at hand where it is edited."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
FILES = sorted((PROJECT / "bench").rglob("*.py"))


def file_of(module: str) -> Path | None:
    """The file of a module of the bench; None for what is no module."""
    path = PROJECT.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """What a file defines or imports outside of functions and classes."""
    names: set[str] = set()
    # `if`, `try` and `with` at the top of a file define names too
    waiting: list[ast.AST] = list(ast.parse(path.read_text()).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            shared = file_of(node.module or "")
            for alias in node.names:
                names.update(names_in(shared) if alias.name == "*" and shared else [alias.asname or alias.name])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        else:
            waiting += ast.iter_child_nodes(node)
    return frozenset(names)


def taken(path: Path) -> Iterator[tuple[str, str, int]]:
    """(module, name, line) of what a file takes from modules of the bench: by import, and as an attribute of such a module."""
    tree = ast.parse(path.read_text())
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bench":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if file_of(whole):
                    modules[alias.asname or alias.name] = whole
                elif alias.name != "*":
                    yield str(node.module), alias.name, node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield modules[node.value.id], node.attr, node.lineno


def missing(path: Path) -> Iterator[str]:
    """What a file takes from modules of the bench that they do not have."""
    # a parameter or a local may bear a module's name
    bound = {node.arg for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.arg)}
    for module, name, line in taken(path):
        defining = file_of(module)
        place = f"{path.relative_to(PROJECT).as_posix()}:{line} {module}"
        if defining is None:
            yield place
        elif name not in names_in(defining) and not file_of(f"{module}.{name}") and module.split(".")[-1] not in bound:
            yield f"{place}.{name}"


def test_a_name_that_is_taken_from_another_file_is_there() -> None:
    assert len(FILES) > 200
    assert [line for path in FILES for line in missing(path)] == []
