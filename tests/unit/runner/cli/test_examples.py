"""The examples for other people's systems: they parse, and say only options that the commands have."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from runner.catalog.images import PROJECT
from runner.cli.main import app

ACTION = PROJECT / ".github" / "actions" / "verify" / "action.yml"
WORKFLOW = PROJECT / "docs" / "examples" / "verify-on-github.yml"
BATCH = PROJECT / "docs" / "examples" / "slurm-matrix.sbatch"
ARRAY = PROJECT / "docs" / "examples" / "slurm-verify.sbatch"
JOB = PROJECT / "docs" / "examples" / "verify-node.yaml"


REFERENCES = PROJECT / "docs" / "examples" / "references-on-github.yml"


def options_of(command: str) -> set[str]:
    """The options of a command, as Click has them."""
    group: Any = typer.main.get_command(app)
    return {option for parameter in group.commands[command].params for option in parameter.opts}


@pytest.mark.parametrize("path", [ACTION, JOB, ARRAY], ids=lambda path: path.name)
def test_an_example_says_only_options_of_runner_verify(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if "--out" in line or "words+=" in line]
    said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(lines)))
    assert {"--out", "--each-gpu"} <= said <= options_of("verify")


def test_the_workflow_gives_the_action_only_inputs_that_it_has() -> None:
    action, workflow = yaml.safe_load(ACTION.read_text()), yaml.safe_load(WORKFLOW.read_text())
    step = workflow["jobs"]["verify"]["steps"][-1]
    assert ".github/actions/verify@" in step["uses"]
    assert set(step["with"]) <= set(action["inputs"])
    assert {name for name, value in action["inputs"].items() if value.get("required")} <= set(step["with"])


def test_no_input_of_the_action_is_text_of_a_script() -> None:
    for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_the_job_lets_only_a_pass_complete_and_shuts_the_container_off() -> None:
    job = yaml.safe_load(JOB.read_text())
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert (job["spec"]["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    assert container["command"][:2] == ["runner", "verify"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}


def test_the_batch_script_is_a_script_and_says_only_options_of_runner_matrix() -> None:
    lines = BATCH.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    (command,) = (line for line in lines if line.startswith("exec runner matrix "))
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", command)) <= options_of("matrix")
    asked = [line.split()[1] for line in lines if line.startswith("#SBATCH ")]
    # Without the first, others' work runs beside the cells; without the second, a node that fails ends the job.
    assert {"--exclusive", "--no-kill", "--signal=B:USR1@120"} <= set(asked)


@pytest.mark.parametrize(("content", "code"), [(b"no archive", 1), (None, 0)])
def test_the_workflow_of_a_repository_of_references_judges_what_a_pull_request_brings(
    content: bytes | None, code: int, tmp_path: Path
) -> None:
    """Its last step, verbatim, in a clone with a commit that adds a bundle; the collection has others, which it does not name."""

    def git(*words: str) -> str:
        own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        ended = subprocess.run(["git", *own, *words], cwd=clone, capture_output=True, text=True, check=True)
        return ended.stdout.strip()

    clone, place = tmp_path / "clone", Path("gpu") / "image" / "workload"
    (clone / place).mkdir(parents=True)
    git("init", "--quiet")
    (clone / place / "there.tar.gz").write_bytes(b"broken, and not of this pull request")
    git("add", ".")
    git("commit", "--quiet", "-m", "base")
    base = git("rev-parse", "HEAD")
    if content is not None:
        (clone / place / "it's new.tar.gz").write_bytes(content)
    (clone / "README.md").write_text("words")
    git("add", ".")
    git("commit", "--quiet", "-m", "a bundle")
    (step,) = [
        step for step in yaml.safe_load(REFERENCES.read_text())["jobs"]["judge"]["steps"] if step.get("name") == "judge"
    ]
    assert "${{" not in step["run"]
    program = tmp_path / "bin" / "runner"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{PROJECT}" exec "{sys.executable}" -m runner "$@"\n')
    program.chmod(0o755)
    variables = {"BASE": base, "RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    ended = subprocess.run(
        command,
        cwd=clone,
        env={**os.environ, **variables, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, (ended.stdout, ended.stderr)
    if content is None:
        assert not (tmp_path / "summary").exists()
    else:
        assert (tmp_path / "summary").read_text().startswith("### References: 1 refused\n")
        assert "new" in ended.stdout
        assert "there.tar.gz" not in ended.stdout
