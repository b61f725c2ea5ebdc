"""The examples for other people's systems: they parse, and say only options that the commands have."""

from __future__ import annotations

import re
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
