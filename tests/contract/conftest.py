"""The images' own environments, made from their locks, for tests that need a framework."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT, load_catalog
from runner.engines.process.venv import VenvEngine
from tests.fixtures.cpus import take_own_cpus

# The hooks by which a test is not run again with the same inputs.
from tests.fixtures.green import pytest_configure  # noqa: F401


@pytest.fixture(scope="session")
def run_in() -> Callable[..., str]:
    """Run a script of this folder, with arguments, in an image's environment; returns what it prints."""

    def run(image_name: str, script: str, *arguments: str) -> str:
        image = load_catalog()[image_name]
        engine = VenvEngine()
        if reason := engine.unfit(image):
            pytest.skip(f"no environment for {image_name}: {reason}")
        python = engine.prepare(image, print).command[0]
        path = Path(__file__).with_name(script)
        command = [python if path.suffix == ".py" else "Rscript", str(path), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "DLBENCH_PYTHON": python}
        ended = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, preexec_fn=take_own_cpus
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        return ended.stdout

    return run
