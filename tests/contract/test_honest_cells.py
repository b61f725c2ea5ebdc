"""No honest adapter is refused: each passes every gate of a short cell, at each precision of a CPU, with three seeds."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import load_catalog
from tests.fixtures.weekly import only_with

pytestmark = pytest.mark.slow

SEEDS = "1,2,3"
FRAMEWORKS = load_frameworks()
CASES = [
    (image.name, framework, precision)
    for image in load_catalog().values()
    if image.accelerator == "cpu" and image.untested is None
    for framework in image.frameworks
    for precision in ("fp32", *FRAMEWORKS[framework].half)
    if precision.removeprefix("amp-") in image.precisions
]
HOURS = "all workloads take minutes to an hour each; the network on MNIST is run each time, and cells of real runs"


def held(cells: list[dict[str, object]]) -> None:
    assert cells
    assert [cell for cell in cells if cell["failed"] or cell["error"]] == []
    assert [cell for cell in cells if not cell["rows"]] == [], "it ended before a gate"


@only_with("DLBENCH_CURVES", HOURS)
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("image", "framework", "precision"), CASES)
def test_no_adapter_is_refused_at_any_precision_of_a_cpu_with_three_seeds(
    run_in: Callable[..., str], image: str, framework: str, precision: str
) -> None:
    held(json.loads(run_in(image, "honest_cells.py", framework, precision, SEEDS)))


@pytest.mark.timeout(600)
def test_pytorch_s_perceptron_passes_with_three_seeds(run_in: Callable[..., str]) -> None:
    held(json.loads(run_in("torch-2.13.0-cpu", "honest_cells.py", "torch", "fp32", SEEDS, "mlp-mnist")))
