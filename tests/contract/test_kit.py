"""The kit as its user has it: a copied folder, an empty environment, no network, and an interpreter with a real framework."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.catalog.images import load_catalog
from runner.cli.main import app
from runner.engines.process.venv import VenvEngine
from runner.kit.bundle import build
from runner.results import store
from tests.fixtures.cpus import take_own_cpus

pytestmark = pytest.mark.slow

SHORT = (
    *("--device", "cpu", "--frameworks", "torch,jax", "--workloads", "mlp-mnist"),
    *("--precision", "fp32", "--repeats", "1", "--minutes", "9"),
)
WITHOUT_NETWORK = ["unshare", "--map-root-user", "--net"]


def python_with(folder: Path, *image_names: str) -> Path:
    """The interpreter of an environment that has what these images' environments have: what a user calls "my Python"."""
    packages = []
    for name in image_names:
        image, engine = load_catalog()[name], VenvEngine()
        if reason := engine.unfit(image):
            pytest.skip(f"no environment for {name}: {reason}")
        python = Path(engine.prepare(image, print).command[0])
        packages += [str(path) for path in sorted(python.parents[1].glob("lib/python3.*/site-packages"))]
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    (own,) = folder.glob("lib/python3.*/site-packages")
    (own / "others.pth").write_text("\n".join(packages) + "\n")
    return folder / "bin" / "python"


def shut_off() -> list[str]:
    """What starts a command without a network; nothing where this machine does not allow that."""
    if shutil.which("unshare") is None:
        return []
    return WITHOUT_NETWORK if subprocess.run([*WITHOUT_NETWORK, "true"], capture_output=True).returncode == 0 else []


@pytest.mark.timeout(900)
def test_a_kit_measures_real_frameworks_and_its_archive_is_a_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = python_with(tmp_path / "mine", "torch-2.13.0-cpu", "jax-0.10.2-cpu")
    build(tmp_path / "made")
    there = shutil.copytree(tmp_path / "made", tmp_path / "elsewhere" / "gpu-kit")
    shutil.rmtree(tmp_path / "made")
    command = [*shut_off(), str(python), str(there / "kit.py"), *SHORT]
    environment = {"PATH": os.defpath, "DLBENCH_LEASES": str(tmp_path / "leases")}
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=there, preexec_fn=take_own_cpus
    )
    assert ended.returncode == 0, ended.stderr
    assert "3 steps ended well, 0 were refused, 0 failed, 0 were not done" in ended.stderr
    monkeypatch.setenv("DLBENCH_REFERENCES", str(tmp_path / "references"))
    runner = CliRunner()
    archive = there / "gpu-kit-results" / "gpu-kit-results.tar.gz"
    imported = runner.invoke(app, ["import", str(archive), "--out", str(tmp_path / "runs")])
    assert imported.exit_code == 0, imported.stderr
    folder = Path(imported.stdout.strip())
    cells = store.read([folder], "cells").to_pandas().to_dict("records")
    ran = [cell for cell in cells if cell["status"] != "skipped"]
    modes = [("jax", "default"), ("torch", "compile"), ("torch", "default")]
    assert sorted((cell["framework"], cell["mode"]) for cell in ran) == modes
    assert all(cell["status"] == "ok" and cell["engine"] == "host" and cell["parity_passed"] for cell in ran)
    assert runner.invoke(app, ["reference", "save", str(folder), "--name", "there", "--noisy"]).exit_code == 0
    verified = runner.invoke(app, ["verify", "--run", str(folder), "--reference", "there", "--format", "json"])
    assert verified.exit_code == 3, verified.output
    reasons = [finding["reason"] for finding in json.loads(verified.stdout)["findings"]]
    # All cells are in the reference, which was made from this very run.
    assert len(reasons) == len(modes)
    assert all("this is the run that the reference there was made from" in reason for reason in reasons), reasons


@pytest.mark.alone  # it compares two clocks' times
def test_each_window_lies_between_two_events(run_in: Callable[..., str]) -> None:
    windows = json.loads(run_in("torch-2.13.0-cpu", "window_events.py", "cnn-cifar10").splitlines()[-1])
    assert len(windows) == 4
    for window in windows:
        assert window["steps"] >= 1
        assert abs(window["clock_seconds"] / window["event_seconds"] - 1) < 0.05, window
