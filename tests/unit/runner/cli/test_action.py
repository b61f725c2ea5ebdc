"""The action that verifies a machine, its step run as GitHub runs it: red unless it passed, or is open and may be."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.paths import PROJECT

ACTION: dict[str, Any] = yaml.safe_load((PROJECT / ".github" / "actions" / "verify" / "action.yml").read_text())
REAL = f'PYTHONPATH="{PROJECT}" exec "{sys.executable}" -m runner "$@"'


@dataclass(frozen=True)
class Situation:
    """The line of the program `runner`, the inputs, and whether the step is green."""

    line: str
    green: bool
    code: int
    doubt_fails: str = "false"


SITUATIONS = {
    "it passes": Situation("exit 0", True, 0),
    "it passes, and doubt fails": Situation("exit 0", True, 0, "true"),
    "slow": Situation("exit 1", False, 1),
    "open": Situation("exit 3", True, 3),
    "open, and doubt fails": Situation("exit 3", False, 3, "true"),
    "a mistake of the inputs": Situation("exit 2", False, 2),
    "could not begin": Situation("exit 4", False, 4),
    "could not begin, and doubt fails": Situation("exit 4", False, 4, "true"),
    "interrupted": Situation("exit 130", False, 130),
    "a broken program": Situation("echo ModuleNotFoundError >&2; exit 1", False, 1),
    "killed for memory": Situation("kill -9 $$", False, 137),
    "no program": Situation("", False, 127),
    "a switch of another word": Situation("exit 3", False, 2, "yes"),
    "a switch in large letters": Situation("exit 0", False, 2, "True"),
}


def verified(
    folder: Path, line: str, inputs: dict[str, str], summary: str | None = None
) -> subprocess.CompletedProcess[str]:
    """The step `Verify`, verbatim, in an empty folder with a HOME of its own."""
    (step,) = [step for step in ACTION["runs"]["steps"] if step.get("name") == "Verify"]
    programs = folder / "temp" / "dlbench" / "bin"
    for made in (programs, folder / "home", folder / "empty"):
        made.mkdir(parents=True, exist_ok=True)
    if line:
        (programs / "runner").write_text(f"#!/bin/sh\n{line}\n")
        (programs / "runner").chmod(0o755)
    given = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()} | inputs
    own = {name: given[text.split("inputs.")[1].rstrip(" }")] for name, text in step["env"].items()}
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "RUNNER_TEMP": str(folder / "temp"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary") if summary is None else summary,
        **own,
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(
        command, cwd=folder / "empty", env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_action_is_red_unless_it_passed_or_is_open_and_may_be(name: str, tmp_path: Path) -> None:
    situation = SITUATIONS[name]
    ended = verified(tmp_path, situation.line, {"python": "/a/python", "doubt-fails": situation.doubt_fails})
    assert (ended.returncode == 0) is situation.green, ended.stderr
    assert (tmp_path / "output").read_text() == f"exit-code={situation.code}\n"


def test_a_summary_of_an_earlier_step_of_the_job_is_not_shown_as_that_of_this_one(tmp_path: Path) -> None:
    first = 'while [ $# -gt 0 ]; do case $1 in --markdown) echo passed > "$2" ;; esac; shift; done'
    assert verified(tmp_path, first, {"python": "/a/python"}).returncode == 0
    assert (tmp_path / "summary").read_text() == "passed\n"
    (tmp_path / "summary").unlink()
    assert verified(tmp_path, "exit 4", {"python": "/a/python"}).returncode == 4
    assert not (tmp_path / "summary").exists()


@pytest.mark.parametrize("summary", ["", "/nowhere/summary"])
def test_a_machine_that_passed_is_green_where_there_is_no_place_for_the_summary(tmp_path: Path, summary: str) -> None:
    """Services that only resemble GitHub set no GITHUB_STEP_SUMMARY: the job was red, with the code of a slow machine."""
    writes = 'while [ $# -gt 0 ]; do case $1 in --markdown) echo passed > "$2" ;; esac; shift; done'
    for code in (0, 4):
        ended = verified(tmp_path, f"{writes}; exit {code}", {"python": "/a/python"}, summary)
        assert ended.returncode == code, ended.stderr


@pytest.mark.parametrize("held", ["lab.reference.parquet", "index.json"])
def test_a_folder_that_holds_references_is_taken(tmp_path: Path, held: str) -> None:
    (tmp_path / "some references").mkdir()
    (tmp_path / "some references" / held).touch()
    inputs = {"python": "/a/python", "references": str(tmp_path / "some references")}
    assert verified(tmp_path, "exit 0", inputs).returncode == 0


@pytest.mark.parametrize(
    ("inputs", "code", "said"),
    [
        ({"python": sys.executable}, 4, "runner: "),
        ({"python": sys.executable, "each-gpu": "true"}, 4, "--least-gpus 1: 0 GPUs can be used here"),
        ({"python": "/nowhere/python"}, 2, "--python: there is no program /nowhere/python"),
        ({"python": sys.executable, "repeats": "many"}, 2, "--repeats"),
        ({"python": sys.executable, "references": "ci/moved"}, 2, "references: there is no folder 'ci/moved'"),
        ({"python": sys.executable, "references": "--help"}, 2, "references: there is no folder '--help'"),
        ({"python": sys.executable, "references": "."}, 2, "references: the folder '.' holds no *.reference.parquet"),
        ({"python": sys.executable, "references": "http://127.0.0.1:9"}, 4, "index.json cannot be read"),
        ({"python": sys.executable, "least-gpus": "all"}, 2, "--least-gpus"),
    ],
)
def test_the_real_runner_makes_the_action_red_where_nothing_can_be_measured(
    inputs: dict[str, str], code: int, said: str, tmp_path: Path
) -> None:
    ended = verified(tmp_path, REAL, inputs)
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
