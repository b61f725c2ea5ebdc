"""The examples and workflows as a stranger has them: a clone of this project, installed by the words that they say, with an empty HOME.

Here no GPU is reached, so the installed runner cannot begin. How it would end on other machines is a stand-in's in the same installation.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from runner.paths import PROJECT
from tests.fixtures.weekly import drawn
from tests.fixtures.workflows import Job, read
from tests.unit.runner.cli.test_node_examples import STAND_IN, STATUSES, WORDS

# They share a clone with its runner.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clone")]

EXAMPLES = PROJECT / "docs" / "examples"
CLONED = ("npd-verify.sh", "slurm-health.sh", "slurm-prolog.sh", "slurm-matrix.sbatch", "slurm-verify.sbatch")
# As the examples say it.
INSTALL = re.compile(r"git clone URL (\S+) && make -C (\S+) (\S+?)[,.]?\s")


@dataclass(frozen=True)
class Stranger:
    """A clone with its runner installed, and the variables of a user who has nothing else."""

    clone: Path
    variables: Mapping[str, str]

    def run(self, folder: Path, *command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """A command in an empty folder."""
        (folder / "empty").mkdir(exist_ok=True)
        words = [str(word) for word in command]
        variables = {**self.variables, **more}
        return subprocess.run(
            words, cwd=folder / "empty", env=variables, capture_output=True, text=True, timeout=300, check=False
        )


def clean(home: Path) -> dict[str, str]:
    """PATH and where packages come from; nothing else of this user's."""
    home.mkdir()
    packages = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
    return {**packages, "PATH": f"{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}", "HOME": str(home)}


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    folder = tmp_path_factory.mktemp("stranger")
    clone, variables = folder / "dlbench", clean(folder / "home")
    install = f"git clone --quiet {shlex.quote(str(PROJECT))} {clone} && make -C {clone} .venv/host.stamp"
    subprocess.run(["bash", "-c", install], cwd=folder, env=variables, check=True)
    return Stranger(clone, variables)


def program(folder: Path, name: str, line: str) -> Path:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", CLONED)
def test_an_example_that_needs_a_clone_says_how_it_is_installed_and_takes_its_runner_from_there(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    said = INSTALL.search(" ".join(line.lstrip("# ") for line in text.splitlines()) + " ")
    assert said is not None
    place, made, target = said.groups()
    assert (made, target) == (place, ".venv/host.stamp")
    assert f"{place}/.venv/bin/runner" in text


@pytest.mark.parametrize(
    ("code", "name"),
    drawn("DLBENCH_FAULTS", 3, [(code, name) for code in (*STATUSES, None) for name in CLONED[:3]]),
    ids=lambda value: value if isinstance(value, str) else "no GPU here" if value is None else f"exit {value}",
)
def test_what_asks_before_a_node_gets_work_tells_a_node_by_the_runner_of_a_clone(
    stranger: Stranger, name: str, code: int | None, tmp_path: Path
) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN.format(status=STATUSES.get(code or 0)))
    python, runner = stranger.clone / ".venv" / "bin" / "python", stranger.clone / ".venv" / "bin" / "runner"
    if code is not None:
        runner = program(tmp_path, "runner", f'exec "{python}" "{tmp_path}/stand_in.py" "$@"')
    program(tmp_path, "scontrol", f'printf "%s\\n" "$@" > "{tmp_path}/scontrol"')
    variables = {
        # A node's daemon gives no more.
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        "DLBENCH_RUNNER": str(runner),
        "DLBENCH_LEVEL": "1",
        "SLURMD_NODENAME": "gpu-17",
    }
    if code is None:
        variables["DLBENCH_LEAST_GPUS"] = "8"
    ended = stranger.run(tmp_path, stranger.clone / "docs" / "examples" / name, **variables)
    code = 4 if code is None else code
    drained = (tmp_path / "scontrol").is_file() and "State=DRAIN" in (tmp_path / "scontrol").read_text()
    said = ended.stdout + ended.stderr
    if name == "slurm-health.sh":
        assert (ended.returncode, drained) == (0, code in (1, 4)), said
    elif name == "slurm-prolog.sh":
        assert (ended.returncode, WORDS[code] in said) == (int(code in (1, 4)), code in (1, 4)), said
    else:
        assert (ended.returncode, said.startswith(WORDS[code])) == ({0: 0, 1: 1, 3: 2, 4: 1}[code], True), said


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("slurm-matrix.sbatch", 2, "--nodes slurm: this is no allocation of Slurm"),
        ("slurm-verify.sbatch", 4, "--least-gpus 2: 0 GPUs can be used here"),
    ],
)
def test_a_batch_script_of_a_clone_fails_where_its_runner_cannot_begin(
    stranger: Stranger, name: str, code: int, said: str, tmp_path: Path
) -> None:
    variables = {
        "DLBENCH_RUNNER": str(stranger.clone / ".venv" / "bin" / "runner"),
        "FLEET": str(tmp_path / "fleet"),
        "SLURMD_NODENAME": "gpu-17",
    }
    ended = stranger.run(tmp_path, "bash", stranger.clone / "docs" / "examples" / name, **variables)
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
    assert not list((tmp_path / "empty").iterdir()), "what could not begin leaves nothing"


@pytest.mark.parametrize("name", ["verify-node.yaml", "verify-before-training.yaml"])
def test_a_container_with_the_runner_of_a_clone_ends_with_4_where_the_node_has_no_gpu(
    stranger: Stranger, name: str, tmp_path: Path
) -> None:
    pod = yaml.safe_load((stranger.clone / "docs" / "examples" / name).read_text())["spec"]["template"]["spec"]
    (container,) = pod.get("initContainers") or pod["containers"]
    places = {"/verify/results": str(tmp_path / "results"), "/references": str(tmp_path / "references")}
    (tmp_path / "references").mkdir()
    path = f"{stranger.clone}/.venv/bin:{stranger.variables['PATH']}"
    ended = stranger.run(tmp_path, *(places.get(word, word) for word in container["command"]), PATH=path)
    assert ended.returncode == 4, ended.stderr
    # Of the checks before a training, the last line of the output is the answer; a measurement begins with that sentence.
    said = ended.stdout.splitlines()[-1:] if "--level" in container["command"] else [ended.stderr]
    assert said[0].startswith(("could not begin: ", "runner: --least-gpus 8: 0 GPUs can be used here")), said


def job_in(stranger: Stranger, folder: Path, **values: str) -> Job:
    """A machine of GitHub's with the clone as its checkout."""
    (folder / "temp").mkdir()
    environment = {**stranger.variables, "RUNNER_TEMP": str(folder / "temp"), "HOME": str(folder)}
    return Job(stranger.clone, values, environment)


def test_the_action_of_a_clone_installs_itself_and_is_red_where_no_gpu_is_reached(
    stranger: Stranger, tmp_path: Path
) -> None:
    values = {
        "github.action_path": str(stranger.clone / ".github" / "actions" / "verify"),
        "steps.host.outputs.python-path": str(Path(sys.base_prefix) / "bin" / "python3"),
    }
    job = job_in(stranger, tmp_path, **values)
    outputs = job.run_action("verify", {"python": sys.executable})
    assert (job.green, outputs) == (False, {"exit-code": "4"}), job.log
    assert (tmp_path / "temp" / "dlbench" / "bin" / "runner").is_file()


def test_the_workflow_that_verifies_our_machines_makes_its_runner_and_is_red_where_no_gpu_is_reached(
    stranger: Stranger, tmp_path: Path
) -> None:
    program(tmp_path, "nvidia-smi", "exit 0")
    values = {"inputs.image": "", "inputs.preset": ""}
    job = job_in(stranger, tmp_path, **values)
    job.environment["PATH"] = f"{tmp_path}/bin:{job.environment['PATH']}"
    job.run(read("workflows/verify.yml"), "verify")
    assert "make .venv/host.stamp" in job.scripts
    assert not job.green, job.log
    assert "there is no NVIDIA driver on this machine" in job.log, job.log


def test_the_workflow_of_a_repository_of_references_installs_the_runner_of_a_clone_and_judges_with_it(
    stranger: Stranger, tmp_path: Path
) -> None:
    """Its steps `install the runner` and `judge`, verbatim; pip takes the clone as it takes a repository of GitHub's."""
    steps = yaml.safe_load((stranger.clone / "docs" / "examples" / "references-on-github.yml").read_text())
    script = {step["name"]: step["run"] for step in steps["jobs"]["judge"]["steps"] if "run" in step}
    own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]

    def git(folder: Path, *words: str) -> None:
        subprocess.run(["git", *own, *words], cwd=folder, env=stranger.variables, capture_output=True, check=True)

    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git(origin, "init", "--quiet", "--initial-branch", "main")
    git(origin, "commit", "--quiet", "--allow-empty", "-m", "base")
    git(origin, "checkout", "--quiet", "-b", "theirs")
    (origin / "new.tar.gz").write_bytes((stranger.clone / "docs" / "h200" / "fp32.tar.gz").read_bytes())
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "-m", "an archive of a kit")
    git(origin, "update-ref", "refs/pull/7/head", "HEAD")
    git(origin, "checkout", "--quiet", "main")
    git(tmp_path, "clone", "--quiet", str(origin), str(clone))
    subprocess.run([Path(sys.base_prefix) / "bin" / "python3", "-m", "venv", tmp_path / "python"], check=True)
    (tmp_path / "temp").mkdir()
    files = {name: str(tmp_path / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    variables = {
        **stranger.variables,
        **files,
        "PATH": f"{tmp_path}/python/bin:{stranger.variables['PATH']}",
        "RUNNER": f"git+file://{stranger.clone}",
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "NUMBER": "7",
        "AUTHOR": "Mallory",
    }
    for name, code in (("install the runner", 0), ("judge", 1)):
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script[name]]
        ended = subprocess.run(command, cwd=clone, env=variables, capture_output=True, text=True, check=False)
        assert ended.returncode == code, ended.stdout + ended.stderr
    assert "new.tar.gz is a kit's archive, which has names" in ended.stdout
