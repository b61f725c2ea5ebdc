"""What was never run says so wherever it appears, has the files that the contract wants, and is planned only when it is named in full."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.page import rosetta_stone
from runner.catalog.frameworks import Framework, load_frameworks
from runner.catalog.images import PROJECT, Image, load_catalog
from runner.catalog.workloads import BENCH, load_workloads
from runner.machine.devices import Cpu, Machine
from runner.plan.plan import Plan, plan
from runner.plan.request import Request

FRAMEWORKS = load_frameworks()
WORKLOADS = ("cnn-cifar10", "gru-imdb", "mlp-mnist", "cnn-mnist")  # what they have
IMAGES = {name: image for name, image in load_catalog().items() if image.untested}
UNTESTED = {name: framework for name, framework in FRAMEWORKS.items() if framework.untested}
JULIA = sorted((BENCH / "frameworks").rglob("*.jl"))
CPU = Machine(Cpu("a CPU", (0, 1), 8 << 30), (), "there is none")


def planned(image: Image, named: tuple[str, ...]) -> Plan:
    return plan(Request(images=named), [image], load_workloads(), FRAMEWORKS, CPU, lambda image: None)


def test_the_julia_frameworks_are_untested_and_so_is_the_only_image_of_each() -> None:
    assert {"flux", "knet"} <= set(UNTESTED)
    for name, framework in UNTESTED.items():
        serving = [image for image in load_catalog().values() if name in image.frameworks]
        assert [image.untested for image in serving] == [framework.untested]


@pytest.mark.parametrize("framework", UNTESTED.values(), ids=list(UNTESTED))
def test_an_untested_framework_has_the_files_that_the_contract_wants(framework: Framework) -> None:
    folder = BENCH / "frameworks" / framework.name
    assert framework.entrypoint is not None
    script = framework.entrypoint[1]
    suffix = Path(script).suffix
    wanted = [script, "framework" + suffix, *(load_workloads()[name].module + suffix for name in WORKLOADS)]
    assert [name for name in wanted if not (folder / name).is_file()] == []
    # every file that the entrypoint reads is there
    text = (folder / script).read_text()
    included = [line.split('"')[1] for line in text.splitlines() if line.startswith("include(")]
    assert [name for name in included if not (folder / name).is_file()] == []
    assert set(wanted) - {script} <= set(included)
    assert f'main("{framework.name}"' in text


def syntax_errors(source: bytes) -> list[str]:
    """The places where a text is not Julia, each as line and text."""
    # By name: mypy need not know a module that only this test loads.
    tree_sitter, grammar = importlib.import_module("tree_sitter"), importlib.import_module("tree_sitter_julia")
    tree = tree_sitter.Parser(tree_sitter.Language(grammar.language())).parse(source)

    def below(node: Any) -> Iterator[Any]:
        yield node
        for child in node.children:
            yield from below(child)

    wrong = [node for node in below(tree.root_node) if node.is_error or node.is_missing]
    return [f"{node.start_point[0] + 1}: {node.text[:80]!r}" for node in wrong]


def test_there_are_julia_files_for_each_framework_and_for_what_they_share() -> None:
    assert {path.parent.name for path in JULIA} == {"flux", "knet", "julia"}


@pytest.mark.parametrize("path", JULIA, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_julia_file_is_julia_and_is_not_without_any_of_its_lines_that_end_a_block(path: Path) -> None:
    source = path.read_bytes()
    assert syntax_errors(source) == []
    lines = source.splitlines()
    ends = [number for number, line in enumerate(lines) if line.strip() == b"end"]
    # bench.jl of a framework only includes; it has no block.
    assert ends or path.stem == "bench"
    for number in ends:
        assert syntax_errors(b"\n".join(lines[:number] + lines[number + 1 :])), number + 1


@pytest.mark.parametrize(
    "image", [image for image in IMAGES.values() if image.accelerator == "cpu"], ids=lambda image: image.name
)
def test_an_untested_image_is_left_out_with_the_reason_until_it_is_named_in_full(image: Image) -> None:
    left_out = planned(image, ("*-cpu",))
    assert not left_out.cells
    assert {skip.workload for skip in left_out.skips} == {
        name for name, workload in load_workloads().items() if not workload.on_request
    }
    assert all(skip.reason.startswith(f"untested: {image.untested}; ") for skip in left_out.skips)
    assert {cell.workload for cell in planned(image, (image.name,)).cells} == set(WORKLOADS)


@pytest.mark.parametrize("framework", UNTESTED.values(), ids=list(UNTESTED))
def test_a_reader_of_an_untested_framework_s_code_is_told(framework: Framework) -> None:
    for workload in WORKLOADS:
        shown = rosetta_stone.source(workload, framework.name)
        assert shown.language == "julia"
        assert f"untested: {framework.untested}" in shown.title
    page = rosetta_stone.page("cnn-cifar10", ["torch", framework.name])
    assert '<span class="k">end</span>' in page  # a keyword of Julia's and not of Python's
    assert f"untested: {framework.untested}" in page


@pytest.mark.parametrize("image", IMAGES.values(), ids=list(IMAGES))
def test_the_documents_mark_an_untested_image_wherever_they_name_it(image: Image) -> None:
    documents = [PROJECT / "README.md", PROJECT / "docs" / "workloads.md", PROJECT / "docs" / "images.md"]
    lines = [line for path in documents for line in path.read_text().splitlines() if f"`{image.name}`" in line]
    assert len(lines) >= 2
    assert all("**untested**" in line for line in lines)
