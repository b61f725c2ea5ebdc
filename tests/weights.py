"""docs/weights.md: what each behaviour of the house weighs, by imports. `make docs` writes it.

The product's lines of a behaviour are those of the files that nothing else reaches: take its own files away, and no command and no
cell comes to them any more. The tests' lines are those of the test files of which a fifth or more of what they import of the product
is among these.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from runner.paths import PROJECT

PAGE = PROJECT / "docs" / "weights.md"
# A table that is off by more lines than this is old.
MOST_OFF = 40

# Behaviour -> the beginnings of the names of its own modules.
BEHAVIOURS: Mapping[str, tuple[str, ...]] = {
    "verify, with levels and references": ("runner.verify", "runner.cli.verify", "runner.cli.reference"),
    "verify: index of references": ("runner.verify.references.contributed",),
    "verify: each GPU, each node": ("runner.verify.peer_comparison", "runner.verify.fleet_run", "runner.verify.outliers"),
    "verify: ceilings, load, same bits": ("runner.verify.probes",),
    "verify: the pinned image beside it": ("runner.verify.pinned",),
    "nodes": ("runner.nodes",),
    "nodes: Slurm and Ray": ("runner.nodes.transports.slurm", "runner.nodes.transports.ray"),
    "the kit, import and share": ("runner.kit",),
    "Docker engine and builds": ("runner.engines.docker", "runner.images.builder", "runner.images.docker_client"),
    "Podman": ("runner.engines.podman",),
    "Apptainer": ("runner.engines.apptainer", "runner.engines.sif"),
    "environments and own interpreters": ("runner.engines.process.venv", "runner.engines.process.host"),
    "images of no catalog": ("runner.engines.foreign", "runner.engines.docker.foreign_image"),
    "own networks": ("runner.catalog.own_networks", "bench.own_network", "bench.own_cell", "bench.own_float64"),
    "doctor": ("runner.doctor",),
    "known messages": ("runner.messages", "runner.known_messages"),
    "images: try": ("runner.images.tried", "runner.engines.trial", "runner.cli.images.try_"),
    "images: compile for absent GPUs": ("runner.images.compiled", "runner.images.compile_program", "runner.engines.compilation"),
    "images: push and export": ("runner.images.transfer", "runner.cli.images.push"),
    "images: lock and update": ("runner.images.locking", "runner.images.update", "runner.cli.images.lock"),
    "blame": ("runner.blame", "runner.cli.blame"),
    "--minutes": ("runner.run.budget", "runner.run.outlook", "runner.run.open_pairs"),
    "compare": ("reports.answers.comparison", "reports.answers.contrast", "reports.answers.partners", "reports.answers.sessions"),
    "history": ("reports.answers.run_history", "reports.answers.change_point", "reports.answers.other_formats"),
    "time to a loss": ("reports.answers.to_loss", "runner.results.rank.time_to_loss"),
    "scaling's model": ("reports.answers.scaling",),
    "the page": ("reports.page",),
    "single operations": ("bench.operators", "bench.workloads.ops", "reports.data.operators"),
    "help, lists and completion": ("runner.cli.help", "runner.cli.completion"),
}  # fmt: skip

# What a person or a container starts.
ROOTS = ("runner.__main__", "runner.cli", "bench.__main__", "bench.frameworks", "runner.kit.start", "runner.kit.measure",
         "runner.engines.process.keeper", "runner.nodes.transports.held", "runner.nodes.transports.ray_actor",
         "runner.images.installing")  # fmt: skip

_BEFORE = """\
<!-- Made by `make docs` from the imports. -->
# Weights

What each behaviour weighs: the product's lines of its files, which nothing else reaches by imports, and those of the tests that are
about them. A behaviour may hold others, so the rows have no sum. A change says which row it makes heavier.

| behaviour | files | product's lines | tests' lines |
| --- | ---: | ---: | ---: |
"""
_ROW = re.compile(r"^\| (.+?) \| ([0-9 ]+) \| ([0-9 ]+) \| ([0-9 ]+) \|$", re.M)


@dataclass(frozen=True)
class Weight:
    files: int
    product: int
    tests: int


def modules(*folders: str) -> dict[str, str]:
    """Name of a module -> its text."""
    files = [path for folder in folders for path in sorted((PROJECT / folder).rglob("*.py"))]
    names = {
        path: ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__") for path in files
    }
    return {name: path.read_text(encoding="utf-8") for path, name in names.items()}


def _imported(text: str, known: Mapping[str, str]) -> set[str]:
    """The modules that a file imports, wherever it does, and those that it names, as the tables of engines and commands do."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            found.add(node.value.partition(":")[0])
    return found & known.keys()


def only_by(edges: Mapping[str, set[str]], roots: tuple[str, ...], own: frozenset[str]) -> frozenset[str]:
    """The modules `own`, and those to which no root comes without them."""
    return own | (_reached(edges, roots, frozenset()) - _reached(edges, roots, own))


def _reached(edges: Mapping[str, set[str]], roots: tuple[str, ...], without: frozenset[str]) -> set[str]:
    waiting = [name for name in edges if name not in without and inside(name, roots)]
    seen = set(waiting)
    while waiting:
        for name in edges[waiting.pop()] - seen - without:
            seen.add(name)
            waiting.append(name)
    return seen


def inside(name: str, of: tuple[str, ...]) -> bool:
    return any(name == one or name.startswith(one + ".") for one in of)


def weights() -> dict[str, Weight]:
    """Behaviour -> its weight."""
    product, tests = modules("bench", "runner", "reports"), modules("tests")
    edges = {name: _imported(text, product) for name, text in product.items()}
    of_tests = {name: _imported(text, product) for name, text in tests.items()}
    found = {}
    for behaviour, own in BEHAVIOURS.items():
        files = only_by(edges, ROOTS, frozenset(name for name in product if inside(name, own)))
        about = [name for name, imported in of_tests.items() if imported and len(imported & files) * 5 >= len(imported)]
        found[behaviour] = Weight(
            len(files), sum(map(_lines, map(product.get, files))), sum(map(_lines, map(tests.get, about)))
        )
    return found


def _lines(text: str | None) -> int:
    return len((text or "").splitlines())


def text() -> str:
    rows = (f"| {name} | {one.files} | {one.product} | {one.tests} |\n" for name, one in weights().items())
    return _BEFORE + "".join(rows)


def written() -> dict[str, Weight]:
    """What the page says."""
    return {name: Weight(*map(int, numbers)) for name, *numbers in _ROW.findall(PAGE.read_text(encoding="utf-8"))}


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
