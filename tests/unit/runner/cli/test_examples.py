"""The examples for other people's systems: they parse, and say only options that the commands have."""

from __future__ import annotations

import os
import re
import shlex
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
    lines = [line for line in path.read_text().splitlines() if "--results" in line or "words+=" in line]
    said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(lines)))
    assert {"--results", "--each-gpu"} <= said <= options_of("verify")


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


def test_the_command_that_names_the_node_changes_its_name_and_nothing_else() -> None:
    """The command of the job's own comment, in a clone. It once renamed the variable DLBENCH_NODE, too."""
    (command,) = re.findall(r"(sed '.*') docs/examples/verify-node.yaml \| kubectl apply", JOB.read_text())
    named = subprocess.run([*shlex.split(command), str(JOB)], capture_output=True, text=True, check=True).stdout
    before, job = yaml.safe_load(JOB.read_text()), yaml.safe_load(named)
    pod = job["spec"]["template"]["spec"]
    assert (job["metadata"]["name"], pod["nodeSelector"]) == ("verify-gpu-17", {"kubernetes.io/hostname": "gpu-17"})
    assert f"job/{job['metadata']['name']}" in named
    assert {entry["name"] for entry in pod["containers"][0]["env"]} == {"DLBENCH_NODE", "XDG_CACHE_HOME", "HOME"}
    # Capital letters are no name in Kubernetes: a job that nobody gave a node is refused.
    assert before["metadata"]["name"] != before["metadata"]["name"].lower()


def test_the_batch_script_is_a_script_and_says_only_options_of_runner_matrix() -> None:
    lines = BATCH.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    (command,) = (line for line in lines if line.startswith('exec "${DLBENCH_RUNNER:-runner}" matrix '))
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", command)) <= options_of("matrix")
    asked = [line.split()[1] for line in lines if line.startswith("#SBATCH ")]
    # Without the first, others' work runs beside the cells; without the second, a node that fails ends the job.
    assert {"--exclusive", "--no-kill", "--signal=B:USR1@120"} <= set(asked)


def run_step(job: str, name: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A step of the workflow of a repository of references, verbatim."""
    steps = yaml.safe_load(REFERENCES.read_text())["jobs"][job]["steps"]
    (step,) = [step for step in steps if step.get("name") == name]
    assert "${{" not in step["run"]
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def brings_a_file(place: Path) -> None:
    (place / "it's new.tar.gz").write_bytes(b"no archive")


def brings_a_link(place: Path) -> None:
    (place / "it's new.tar.gz").symlink_to("/etc/hostname")


def changes_a_file_to_a_link(place: Path) -> None:
    (place / "there.tar.gz").unlink()
    (place / "there.tar.gz").symlink_to("../../README.md")


def brings_it_where_none_belongs(place: Path) -> None:
    (place.parent / "new.tgz").write_bytes(b"no archive")


def brings_none(place: Path) -> None:
    (place / "README.md").write_text("words")


def removes_one(place: Path) -> None:
    (place / "there.tar.gz").unlink()


def removes_one_and_brings_another(place: Path) -> None:
    removes_one(place)
    brings_a_file(place)


def changes_the_judge(place: Path) -> None:
    brings_a_file(place)
    workflows = place.parents[2] / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "judge.yml").write_text("on: push")


@pytest.mark.parametrize(
    ("brings", "said"),
    [
        (brings_a_file, "new.tar.gz: it is damaged"),
        (brings_a_link, "new.tar.gz is a link"),
        (changes_a_file_to_a_link, "there.tar.gz is a link"),
        (brings_it_where_none_belongs, "new.tgz: it is damaged"),
        (brings_none, "this request adds gpu/image/workload/README.md"),
        (removes_one, "this request removes gpu/image/workload/there.tar.gz"),
        (removes_one_and_brings_another, "this request removes gpu/image/workload/there.tar.gz"),
        (changes_the_judge, "this request adds .github/workflows/judge.yml"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_workflow_of_a_repository_of_references_judges_what_a_pull_request_brings(
    brings: Any, said: str, tmp_path: Path
) -> None:
    """Its steps, verbatim, in a clone of a repository with a pull request; the collection has another bundle, which is not judged."""

    def git(folder: Path, *words: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *own, *words], cwd=folder, capture_output=True, text=True, check=True)

    origin, clone, place = tmp_path / "origin", tmp_path / "clone", Path("gpu") / "image" / "workload"
    (origin / place).mkdir(parents=True)
    git(origin, "init", "--quiet", "--initial-branch", "main")
    (origin / place / "there.tar.gz").write_bytes(b"broken, and not of this pull request")
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "-m", "base")
    git(origin, "checkout", "--quiet", "-b", "theirs")
    brings(origin / place)
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "-m", "a bundle")
    git(origin, "update-ref", "refs/pull/7/head", "HEAD")
    git(origin, "checkout", "--quiet", "main")
    git(tmp_path, "clone", "--quiet", str(origin), str(clone))
    programs = tmp_path / "bin"
    program(programs, "runner", f'PYTHONPATH="{PROJECT}" exec "{sys.executable}" -m runner "$@"')
    program(programs, "gh", 'echo "$@" > "$GH_SAID.words"; exec cat > "$GH_SAID"')
    files = {name: tmp_path / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GH_SAID")}
    variables = {
        **{name: str(path) for name, path in files.items()},
        "NUMBER": "7",
        "AUTHOR": "Mallory",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_REPOSITORY": "lab/cells",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    ended = run_step("judge", "judge", clone, **variables)
    brought = brings not in (brings_none, removes_one)
    assert ended.returncode == (1 if brought else 3), (ended.stdout, ended.stderr)
    assert said in ended.stdout
    if "request" in said:
        assert ended.stdout.startswith(f"open     {said}\n"), "what it changes besides is said first"
    assert ("there.tar.gz" in ended.stdout) == ("there" in said)
    first, *lines, last = files["GITHUB_OUTPUT"].read_text().splitlines()
    assert first == f"comment<<{last}"
    assert files["GITHUB_STEP_SUMMARY"].read_text().splitlines() == lines
    run_step("comment", "comment", clone, **variables, COMMENT="\n".join(lines)).check_returncode()
    assert files["GH_SAID"].read_text().startswith(f"### References: {'1 refused' if brought else 'no bundle'}\n")
    assert (tmp_path / "GH_SAID.words").read_text() == "pr comment 7 --repo lab/cells --body-file -\n"


def test_the_job_that_reads_what_a_stranger_brings_may_write_nothing() -> None:
    workflow = yaml.safe_load(REFERENCES.read_text())
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["judge"]["permissions"] == {"contents": "read"}
    assert workflow["jobs"]["comment"]["permissions"] == {"pull-requests": "write"}
    assert not any("uses" in step for step in workflow["jobs"]["comment"]["steps"])
