"""Whole cells of real frameworks, by the runner: what is honest ends well, whatever the host judges and whatever a cell proves of itself.

A check (test_every_framework.py) never trains on the workload's own batch, which is 60 times the canonical one in mlp-mnist.
tinygrad's captured step takes one shape, so it is always measured here.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT, load_catalog
from runner.catalog.workloads import adapters
from runner.results import store
from tests.fixtures.cpus import take_own_cpus
from tests.fixtures.weekly import only_with

IMAGES = {
    image.name: image for image in load_catalog().values() if image.accelerator == "cpu" and image.untested is None
}
# The quickest first. An image is measured in the first of these that one of its frameworks computes.
QUICKEST = ("mlp-mnist", "cnn-cifar10", "resnet50-features")

pytestmark = pytest.mark.slow


@only_with("DLBENCH_CURVES", "a cell takes half a minute; a matrix of three frameworks is measured with each change")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("image", IMAGES)
def test_a_quick_cell_of_each_framework_ends_well(image: str, tmp_path: Path) -> None:
    frameworks = IMAGES[image].frameworks
    able = {w: [name for name in frameworks if (name, w.replace("-", "_")) in adapters()] for w in QUICKEST}
    workload = next(w for w in QUICKEST if able[w])
    options = ["--gpus", "none", "--engine", "venv", "--workloads", workload, "--repeats", "1", "--images", image]
    command = [sys.executable, "-m", "runner", "matrix", *options, "--out", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, check=False, preexec_fn=take_own_cpus)
    cells = store.read([next(tmp_path.iterdir())], "cells").to_pylist()
    status = {cell["framework"]: cell["status"] for cell in cells if cell["framework"] in able[workload]}
    assert status == dict.fromkeys(able[workload], "ok"), ended.stdout[-2000:] + ended.stderr[-2000:]
