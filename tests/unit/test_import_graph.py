"""The map of the house, held against the code: which wing may import which, and no circle of files anywhere.

Every import counts, those inside functions and those for types alike.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

# From the ground up: a wing imports from itself and from those before it.
WINGS = (
    "results", "catalog", "machine", "images", "engines", "plan", "admission", "run", "blame", "kit", "nodes", "verify", "doctor", "cli",
)  # fmt: skip
# What every wing may import beside.
GROUND = (
    "runner.text",
    "runner.errors",
    "runner.errors",
    "runner.paths",
    "runner.text",
    "runner.errors",
    "runner.terminal",
    "runner.trees",
    "runner.known_messages",
    "runner.messages",
    "runner.paths",
)
HALLS = ("reports.data", "reports.answers", "reports.page")

# What the host may take from the bench. The bench takes nothing from the host.
BORDER = ("bench.protocol", "bench.rules", "bench.identity", "bench.collectives", "bench.workloads.ops")
FRAMEWORKS = ("torch", "tensorflow", "jax", "flax", "optax", "mxnet", "chainer", "keras", "theano", "lasagne", "cntk", "caffe2",
              "onnxruntime", "onnx", "paddle", "tinygrad", "mindspore")  # fmt: skip


@dataclass(frozen=True)
class Import:
    """One import: from which module, of which, and where it stands."""

    importer: str
    imported: str
    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.imported}"


def sources() -> dict[str, Path]:
    """Module name -> file, of runner, reports and bench."""
    files = [path for folder in ("runner", "reports", "bench") for path in (PROJECT / folder).rglob("*.py")]
    names = {path: ".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in files}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def imports_of(name: str, path: Path, known: dict[str, Path]) -> Iterator[Import]:
    """The imports of one file; of our own modules by their whole name."""
    where = path.relative_to(PROJECT).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, where, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{where}:{node.lineno}: imports are absolute"
            assert node.module
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield Import(name, whole if whole in known else node.module, where, node.lineno)


KNOWN = sources()


@functools.cache
def imports() -> list[Import]:
    """All of them: read by the tests of this file, and not by each process that collects the tests."""
    return [found for name, path in KNOWN.items() for found in imports_of(name, path, KNOWN)]


def inside(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def wing_of(module: str) -> int | None:
    """The floor of a module of runner; None for what lies on the ground."""
    parts = module.split(".")
    return WINGS.index(parts[1]) if len(parts) > 1 and parts[1] in WINGS else None


def upward() -> Iterator[Import]:
    for found in imports():
        below, above = wing_of(found.importer), wing_of(found.imported)
        if not found.imported.startswith("runner.") or found.importer in ("runner.__main__",):
            continue
        if found.importer.startswith("runner.") and (above is not None and (below is None or above > below)):
            yield found


def test_no_wing_of_the_runner_imports_from_a_higher_one() -> None:
    assert [str(found) for found in upward()] == []


def test_every_module_of_the_runner_lies_in_a_wing_or_on_the_ground() -> None:
    allowed = {"runner", "runner.__main__"}
    loose = [name for name in KNOWN if inside(name, "runner") and wing_of(name) is None and not inside(name, *GROUND)]
    assert [name for name in loose if name not in allowed] == []


def test_the_reports_stand_on_the_results_and_in_three_halls() -> None:
    ground = (
        "runner.results",
        "runner.errors",
        "runner.text",
        "reports.wording",
        "reports.specifications",
        *BORDER,
        "bench",
    )
    wrong = []
    for found in (found for found in imports() if inside(found.importer, "reports")):
        if not inside(found.imported, "runner", "reports", "bench") or found.imported in ("reports", "bench"):
            continue
        halls = [hall for hall in HALLS if inside(found.importer, hall)]
        below = HALLS[: HALLS.index(halls[0]) + 1] if halls else ()
        if not inside(found.imported, *ground, *below):
            wrong.append(str(found))
    assert wrong == []


def test_the_reports_print_nothing() -> None:
    """What they make is printed by the command, or written by whom it is handed to."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (PROJECT / "reports").rglob("*.py")}
    calls = [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert len(calls) > 1000
    assert [path.name for path, node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"] == []


def test_only_the_command_and_verify_import_the_reports() -> None:
    users = [found for found in imports() if inside(found.importer, "runner") and inside(found.imported, "reports")]
    assert users
    assert [str(found) for found in users if not inside(found.importer, "runner.cli", "runner.verify")] == []


def test_the_bench_imports_nothing_of_the_host_and_the_host_only_the_border() -> None:
    of_host = [
        found for found in imports() if inside(found.importer, "bench") and inside(found.imported, "runner", "reports")
    ]
    assert [str(found) for found in of_host] == []
    of_bench = [
        found for found in imports() if inside(found.importer, "runner", "reports") and inside(found.imported, "bench")
    ]
    assert of_bench
    assert [str(found) for found in of_bench if not inside(found.imported, *BORDER)] == []


def test_a_framework_is_imported_in_its_own_folder_only() -> None:
    users = [found for found in imports() if found.imported.split(".")[0] in FRAMEWORKS]
    assert len(users) > 100
    assert [str(found) for found in users if not inside(found.importer, "bench.frameworks")] == []


def test_there_is_no_circle_of_files() -> None:
    edges: dict[str, dict[str, Import]] = {}
    for found in imports():
        if found.imported in KNOWN and found.imported != found.importer:
            edges.setdefault(found.importer, {})[found.imported] = found
    done: set[str] = set()

    def circle_from(module: str, path: list[str]) -> list[Import] | None:
        if module in path:
            round_trip = [*path[path.index(module) :], module]
            return [edges[one][other] for one, other in zip(round_trip, round_trip[1:], strict=False)]
        if module in done:
            return None
        for imported in sorted(edges.get(module, ())):
            if circle := circle_from(imported, [*path, module]):
                return circle
        done.add(module)
        return None

    circles = [circle for module in sorted(edges) if (circle := circle_from(module, []))]
    assert [[str(found) for found in circle] for circle in circles[:1]] == []


@pytest.mark.parametrize("folder", sorted({path.parent for name, path in KNOWN.items() if inside(name, "runner")}))
def test_a_folder_of_the_runner_has_at_most_twelve_modules(folder: Path) -> None:
    assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= 12


def test_no_function_is_longer_than_sixty_lines() -> None:
    """Of the code: its docstring and the comments count as well."""
    long = [
        f"{path.relative_to(PROJECT)}:{node.lineno} {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"
        for path in KNOWN.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno + 1 > 60
    ]
    assert long == []


def test_no_comment_is_a_code_that_needs_a_key() -> None:
    import re

    code = re.compile(r"\b[A-D][0-9]{1,2}\b")
    files = [path for path in (PROJECT / "bench").rglob("*") if path.suffix in (".py", ".R", ".jl", ".json")]
    lines = [(path, number, line) for path in files for number, line in enumerate(path.read_text().splitlines(), 1)]
    assert [
        f"{path.relative_to(PROJECT)}:{number} {line.strip()}" for path, number, line in lines if code.search(line)
    ] == []


def test_text_becomes_a_number_in_one_place() -> None:
    """`isdigit` is true of "²", which `int` refuses: a folder of that name ended every run."""
    own = {"bench/rules.py", "bench/frameworks"}  # an adapter asks it of the names of its own layers
    wrong = [
        f"{path.relative_to(PROJECT)}:{node.lineno} uses {node.attr}; rules.whole of bench/rules.py does the same with limits"
        for folder in ("runner", "bench")
        for path in sorted((PROJECT / folder).rglob("*.py"))
        if not any(path.is_relative_to(PROJECT / name) for name in own)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("isdigit", "isdecimal", "isnumeric")
    ]
    assert wrong == []


def test_one_module_goes_through_folders_that_others_wrote() -> None:
    """What Python brings for that calls itself for each folder below, and a folder 1 000 deep ends the run."""
    recursive = ("rmtree", "walk", "fwalk", "rglob", "copytree")
    own = {
        # Copies of this project's own folders.
        ("runner/kit/bundle.py", "copytree"),
        ("runner/images/update.py", "copytree"),
    }
    wrong = []
    for path in sorted((PROJECT / "runner").rglob("*.py")):
        name = path.relative_to(PROJECT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute) or (isinstance(node.value, ast.Name) and node.value.id == "ast"):
                continue
            if node.attr in recursive and (name, node.attr) not in own:
                wrong.append(f"{name}:{node.lineno} uses {node.attr}; runner/trees.py does the same with limits")
    assert wrong == []


def shared(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """name -> the modules that have it, for each name of several."""
    places: dict[str, list[str]] = {}
    for name, module in names:
        places.setdefault(name, []).append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1}


# The modules whose names a reader meets side by side: packages may be called as a module elsewhere.
MODULES = {
    name: path
    for name, path in KNOWN.items()
    if inside(name, "runner", "reports", *BORDER) and path.stem not in ("__init__", "__main__")
}


def test_no_two_modules_have_one_name() -> None:
    assert shared((path.stem, name) for name, path in MODULES.items()) == {}


def test_no_two_public_classes_have_one_name() -> None:
    classes = (
        (node.name, name)
        for name, path in MODULES.items()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert shared(classes) == {}
