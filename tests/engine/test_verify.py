"""`runner verify` of an image, in real containers: the probe and the cells run where nothing but the image is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from tests.fixtures.cpus import take_own_cpus

from .conftest import CPU_IMAGES

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]


def test_an_image_is_probed_measured_and_judged(base_image: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "runner",
        "verify",
        "--image",
        CPU_IMAGES[0],
        "--engine",
        "docker",
        "--gpus",
        "none",
    ]
    command += ["--frameworks", "torch", "--workloads", "gru-imdb", "--repeats", "1", "--format", "json"]
    command += ["--out", str(tmp_path / "results"), "--references", str(tmp_path / "references")]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, preexec_fn=take_own_cpus)
    assert (ended.returncode, bool(ended.stdout)) == (3, True), ended.stderr
    (found,) = json.loads(ended.stdout)["findings"]
    assert (found["verdict"], found["parity_passed"]) == ("no-reference", True)
    assert found["facts"]["engine"] == "docker"
    assert "GFLOP/s" in found["expectation"]["model"]
    assert found["expectation"]["low"] > 0
