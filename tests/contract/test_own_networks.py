"""The files of docs/own-networks.md, as a person copies them from there: each is measured and proved in its image."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench import rules
from runner.catalog.own_networks import read
from tests.fixtures.cpus import take_own_cpus
from tests.fixtures.own_files import IMAGES, cell_events, own_files

TORCH = "residual_torch.py"

# What a measured step may leave undone, in the example of PyTorch, from the 41st step on: (old text, new text).
LATE = "        self.taken = getattr(self, 'taken', 0) + 1\n"
AUTOCAST = "        with torch.autocast"
FROZEN = "        self.model[0].requires_grad_(self.taken <= 40)\n        loss.backward()\n"
MISTAKES = {
    "half the batch": (AUTOCAST, f"        if self.taken > 40:\n            x, y = x[:8], y[:8]\n{AUTOCAST}"),
    "bfloat16": ("enabled=self.half", "enabled=self.taken > 40"),
    "frozen": ("        loss.backward()\n", FROZEN),
}


def measured(folder: Path, framework: str, *more: str) -> list[dict[str, object]]:
    return cell_events(framework, read(folder).name, folder, *more)


def laid(tmp_path: Path, name: str, text: str | None = None) -> Path:
    (tmp_path / name).write_text(text or own_files()[name])
    return tmp_path


def framework_of(name: str) -> str:
    return name.removesuffix(".py").rpartition("_")[2]


def checks(events: list[dict[str, object]]) -> list[dict[str, object]]:
    assert [event["message"] for event in events if event["event"] == "error"] == []
    return [event for event in events if event["event"] == "parity"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(own_files()))
def test_an_example_is_measured_and_proved(tmp_path: Path, name: str) -> None:
    found = checks(measured(laid(tmp_path, name), framework_of(name)))
    assert found
    assert [check for check in found if not check["passed"]] == []
    # Far from its bound: a network that scatters otherwise must not be refused by chance.
    assert all(float(str(check["error"])) <= 0.5 * float(str(check["bound"])) for check in found), json.dumps(found)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_example_is_proved_in_bfloat16(tmp_path: Path) -> None:
    found = checks(measured(laid(tmp_path, TORCH), "torch", "--precision", "amp-bf16"))
    assert [check for check in found if not check["passed"]] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_step_that_leaves_something_undone_is_refused(tmp_path: Path, mistake: str) -> None:
    old, new = MISTAKES[mistake]
    text = own_files()[TORCH].replace("    def step(self, x, y):\n", "    def step(self, x, y):\n" + LATE)
    assert old in text
    # A smaller network takes more than 40 steps on a slow machine, too.
    text = text.replace(old, new).replace("Residual(32), ", "")
    failed = [check for check in checks(measured(laid(tmp_path, TORCH, text), "torch")) if not check["passed"]]
    assert failed
    assert all(str(check["tensor"]).startswith("a measured step") for check in failed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_schedule_that_moves_the_momentum_is_proved(tmp_path: Path) -> None:
    schedule = "torch.optim.lr_scheduler.CyclicLR(self.optimizer, 1e-4, 1e-3, 50, base_momentum=0.1)"
    text = own_files()[TORCH].replace("Residual(32), ", "").replace("Adam(self", "SGD(momentum=0.9, params=self")
    text = text.replace("lr=1e-3)\n", f"lr=1e-3)\n        self.schedule = {schedule}\n")
    text = text.replace(
        "        self.optimizer.step()\n", "        self.optimizer.step()\n        self.schedule.step()\n"
    )
    assert "self.schedule.step" in text
    found = checks(measured(laid(tmp_path, TORCH, text), "torch"))
    assert found
    assert [check for check in found if not check["passed"]] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_keeps_the_file_that_it_measured(tmp_path: Path) -> None:
    """From the command line: a row that says which file it is of; --resume goes on with the copy, and an edited file is another network."""
    file = tmp_path / "net.py"
    file.write_text(own_files()[TORCH])
    out = tmp_path / "results"

    def run(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "runner", "matrix", "--out", str(out), *words]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, preexec_fn=take_own_cpus
        )
        return ended.returncode, ended.stdout + ended.stderr

    images = ["--engine", "venv", "--images", IMAGES["torch"]]
    code, said = run("--workloads", "./net.py", *images, "--repeats", "1")
    assert code == 0, said
    (folder,) = out.iterdir()
    (copy,) = (folder / "networks").glob("*/*.py")
    assert copy.read_text() == file.read_text()
    cells = pq.read_table(folder / "tables" / "cells.parquet").to_pylist()
    assert [(row["workload"], row["status"]) for row in cells] == [(copy.parent.name, "ok")]
    file.write_text(file.read_text() + "# edited\n")
    code, said = run("--resume", folder.name)
    assert (code, "is complete" in said) == (0, True), said
    code, said = run("--workloads", "./net.py", *images, "--dry-run")
    assert code == 0, said
    assert copy.parent.name not in said
    assert read(file).name in said


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_layers_that_were_left_in_eval_mode_are_told(tmp_path: Path) -> None:
    text = own_files()[TORCH].replace("Residual(32), ", "nn.BatchNorm2d(32), ")
    text = text.replace("        self.optimizer = torch", "        self.model.eval()\n        self.optimizer = torch")
    events = measured(laid(tmp_path, TORCH, text), "torch")
    assert [check for check in checks(events) if not check["passed"]] == []
    (settings,) = [event["settings"] for event in events if event["event"] == "environment"][-1:]
    assert dict(settings)[rules.OWN_EVAL] == "model.1 (BatchNorm2d)"  # type: ignore[call-overload]


def test_the_page_has_a_short_file_for_each_framework() -> None:
    assert {framework_of(name) for name in own_files()} == set(IMAGES)
    assert all(len(text.splitlines()) < 40 for text in own_files().values())


def test_each_framework_with_a_proof_has_a_file() -> None:
    assert set(rules.own_frameworks()) == set(IMAGES)
