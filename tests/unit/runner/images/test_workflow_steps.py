"""Each command of each workflow, run as GitHub runs it. The programs are stand-ins; tests/engine has the images' jobs with real ones.

A program that fails must make its job red, whichever program it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.paths import PROJECT
from tests.fixtures.workflows import GITHUB, Job, read

DIGEST = "sha256:" + "d" * 64
PUSHED = f"torch-2.13.0-cpu ghcr.io/team/project/torch-2.13.0-cpu:111111111111-222222222222@{DIGEST}"

# Writes its call down, fails if it is told to, and prints what a test gives it.
STAND_IN = """\
#!/bin/bash
call="${0##*/} $*"
echo "$call" >> "$CALLS"
if [[ -n "$FAILS" && "$call" == "$FAILS" ]]; then echo "$call: planted" >&2; exit 9; fi
case "$call" in
  *"ci-matrix"*) echo "$MATRIX" ;;
  *"images build"*) mkdir -p built; echo "$DLBENCH_SOURCE" > built/sources ;;
  *"images push"*) echo "$PUSHED" ;;
  "git diff --cached --quiet") exit 1 ;;
  "git diff"*) echo "the patch" ;;
  *"runner verify"*|"runner verify"*) echo "verdict" > verify.md; exit "${VERDICT:-0}" ;;
esac
"""
PROGRAMS = (
    "gh",
    "sudo",
    "make",
    "docker",
    "git",
    "nvidia-smi",
    ".venv/bin/runner",
    ".venv/bin/python",
    ".venv/bin/actionlint",
    ".ci/run",
)

VALUES = {
    "github.repository": "Team/Project",
    "github.server_url": "https://github.com",
    "github.actor": "somebody",
    "github.event_name": "push",
    "github.ref": "refs/heads/main",
    "github.run_id": "1",
    "github.run_attempt": "1",
    "secrets.GITHUB_TOKEN": "the token",
    "inputs.images": "",
    "inputs.image": "",
    "inputs.preset": "",
    "needs.plan.outputs.any": "true",
    "needs.plan.outputs.any-arm64": "true",
    "needs.plan.result": "success",
    "matrix.image": "torch-2.13.0-cpu",
    "matrix.accelerator": "cpu",
    "matrix.part": "2",
    "matrix.machine": "ubuntu-24.04",
    "matrix.index": "arm64",
}
# (workflow, job, what differs from VALUES)
JOBS: list[tuple[str, str, dict[str, str]]] = [
    ("images.yml", "plan", {}),
    ("images.yml", "plan", {"inputs.images": "torch-* jax-*"}),
    ("images.yml", "build", {"github.event_name": "pull_request"}),
    ("images.yml", "arm64", {}),
    ("images.yml", "publish", {}),
    ("images.yml", "pins", {}),
    ("tests.yml", "quick", {}),
    ("tests.yml", "slow", {}),
    ("thorough.yml", "test", {}),
    ("pages.yml", "site", {}),
    ("verify.yml", "verify", {}),
    ("update.yml", "update", {}),
]
# The answer "there are changes".
NO_FAILURES = ("git diff --cached --quiet",)


@pytest.fixture
def machine(tmp_path: Path) -> Mapping[str, str]:
    """What GitHub and the stand-ins set; the checkout is the folder `checkout`."""
    programs, checkout = tmp_path / "programs", tmp_path / "checkout"
    for name in PROGRAMS:
        path = (checkout if "/" in name else programs) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STAND_IN)
        path.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path / "temporary"),
        "CALLS": str(tmp_path / "calls"),
        "FAILS": "",
        "MATRIX": '{"include": [{"image": "torch-2.13.0-cpu", "accelerator": "cpu", "index": "arm64"}]}',
        "PUSHED": PUSHED,
    }


def calls(machine: Mapping[str, str]) -> list[str]:
    return Path(machine["CALLS"]).read_text().splitlines()


def run(machine: Mapping[str, str], workflow: str, job: str, other: Mapping[str, str]) -> Job:
    Path(machine["CALLS"]).write_text("")
    checkout = Path(machine["RUNNER_TEMP"]).parent / "checkout"
    return Job(checkout, VALUES | dict(other), dict(machine)).run(read(f"workflows/{workflow}"), job)


@pytest.mark.parametrize(("workflow", "job", "other"), JOBS)
def test_a_job_is_green_and_red_where_any_of_its_programs_fails(
    machine: Mapping[str, str], workflow: str, job: str, other: dict[str, str]
) -> None:
    good = run(machine, workflow, job, other)
    assert good.green, good.log
    made = calls(machine)
    assert made
    for call in dict.fromkeys(made):
        bad = run({**machine, "FAILS": call}, workflow, job, other)
        assert bad.green is call.startswith(NO_FAILURES), call
        assert f"{call}: planted" in bad.log


def test_every_command_of_every_workflow_is_run_here(machine: Mapping[str, str]) -> None:
    files = [*GITHUB.glob("workflows/*.yml"), *GITHUB.glob("actions/image/action.yml")]
    jobs = [read(str(path.relative_to(GITHUB))) for path in files]
    every = [one for file in jobs for one in ([file["runs"]] if "runs" in file else file["jobs"].values())]
    scripts = {step["run"] for job in every for step in job["steps"] if "run" in step}
    ran = {script for case in JOBS for script in run(machine, *case).scripts}
    assert scripts == ran


def test_the_plan_asks_the_registry_what_it_lacks_and_hands_on_the_matrix(machine: Mapping[str, str]) -> None:
    job = run(machine, "images.yml", "plan", {})
    assert "runner images ci-matrix --missing-from ghcr.io/team/project" in calls(machine)
    assert json.loads(job.values["steps.matrix.outputs.matrix"])["include"][0]["image"] == "torch-2.13.0-cpu"
    assert job.values["steps.matrix.outputs.any"] == "true"
    empty = run({**machine, "MATRIX": '{"include": []}'}, "images.yml", "plan", {})
    assert empty.values["steps.matrix.outputs.any"] == "false"


def test_names_that_a_person_gives_are_built_as_they_are(machine: Mapping[str, str]) -> None:
    run(machine, "images.yml", "plan", {"inputs.images": "torch-* $(id)"})
    assert "runner images ci-matrix torch-* $(id)" in calls(machine)


def test_a_pull_request_pushes_nothing(machine: Mapping[str, str]) -> None:
    other = {"github.event_name": "pull_request"}
    assert run(machine, "images.yml", "publish", other).scripts == []
    assert run(machine, "images.yml", "pins", other).scripts == []
    assert run(machine, "images.yml", "build", {}).scripts == []
    job = run(machine, "images.yml", "build", other)
    assert [call.split()[2] for call in calls(machine) if call.startswith("runner images")] == ["build", "try"]
    assert not [action for action, _ in job.used if action.startswith("actions/attest@")]


def test_an_image_is_tried_before_it_is_pushed_and_signed_after_it(machine: Mapping[str, str]) -> None:
    job = run(machine, "images.yml", "publish", {})
    ours = [call.split()[2] for call in calls(machine) if call.startswith("runner images")]
    assert ours == ["build", "try", "push", "push"]
    assert (job.folder / "built" / "sources").read_text() == "https://github.com/Team/Project\n"
    unfinished, finished = (call for call in calls(machine) if "images push" in call)
    assert unfinished.endswith(" --unfinished --index arm64")
    assert finished.endswith(f" --digest {DIGEST} --index arm64")
    signed = [given for action, given in job.used if action.startswith("actions/attest@")]
    assert [(given["subject-name"], given["subject-digest"]) for given in signed] == [
        ("ghcr.io/team/project/torch-2.13.0-cpu", DIGEST)
    ] * 2
    assert [given.get("sbom-path") for given in signed] == [None, "built/torch-2.13.0-cpu.spdx.json"]
    # An image that was not tried well has no tag in the registry, and nothing is signed.
    bad = run(
        {**machine, "FAILS": "runner images try torch-2.13.0-cpu --engine docker --limit 300"},
        "images.yml",
        "publish",
        {},
    )
    assert not [call for call in calls(machine) if "images push" in call]
    assert [action.split("@")[0] for action, _ in bad.used] == [
        "actions/checkout",
        "actions/setup-python",
        "actions/upload-artifact",
    ]


def test_an_image_that_cannot_be_signed_gets_no_tag_of_its_inputs(machine: Mapping[str, str]) -> None:
    Path(machine["CALLS"]).write_text("")
    job = Job(Path(machine["RUNNER_TEMP"]).parent / "checkout", dict(VALUES), dict(machine), fails="actions/attest@")
    assert not job.run(read("workflows/images.yml"), "publish").green
    pushes = [call for call in calls(machine) if "images push" in call]
    assert len(pushes) == 1
    assert pushes[0].endswith(" --unfinished --index arm64")


def test_an_image_for_both_architectures_is_built_on_a_machine_of_each(machine: Mapping[str, str]) -> None:
    values = run(machine, "images.yml", "plan", {}).values
    rows = json.loads(values["steps.matrix.outputs.machines"])["include"]
    assert [row["machine"] for row in rows] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    assert json.loads(values["steps.matrix.outputs.arm64"])["include"] == rows[1:]
    run(machine, "images.yml", "arm64", {})
    # On its machine there is no index to make: the other one makes it.
    assert next(call for call in calls(machine) if "images push" in call).endswith(" --unfinished")
    run(machine, "images.yml", "publish", {"matrix.index": ""})
    assert not [call for call in calls(machine) if "--index" in call]
    one = '{"include": [{"image": "torch-2.13.0-cpu", "accelerator": "cpu", "index": ""}]}'
    alone = run({**machine, "MATRIX": one}, "images.yml", "plan", {}).values
    assert alone["steps.matrix.outputs.any-arm64"] == "false"
    assert len(json.loads(alone["steps.matrix.outputs.machines"])["include"]) == 1


def test_the_patch_of_the_pins_is_kept_where_an_image_is_missing(machine: Mapping[str, str]) -> None:
    job = run({**machine, "FAILS": "runner images pin --registry ghcr.io/team/project"}, "images.yml", "pins", {})
    assert not job.green
    assert (job.folder / "pins.patch").read_text() == "the patch\n"
    assert [action.split("@")[0] for action, _ in job.used][-1] == "actions/upload-artifact"


def verified(machine: Mapping[str, str], verdict: int, **inputs: str) -> tuple[Job, dict[str, str]]:
    """The action `verify` with a runner that ends with this exit code."""
    Path(machine["CALLS"]).write_text("")
    temporary = Path(machine["RUNNER_TEMP"])
    (temporary / "dlbench" / "bin").mkdir(parents=True, exist_ok=True)
    for path in (temporary / "python3", *(temporary / "dlbench" / "bin" / name for name in ("python", "runner"))):
        path.write_text(STAND_IN)
        path.chmod(0o755)
    values = {"github.action_path": "actions/verify", "steps.host.outputs.python-path": str(temporary / "python3")}
    job = Job(temporary, values, {**machine, "VERDICT": str(verdict)})
    return job, job.run_action("verify", {"python": "/opt/python", **inputs})


@pytest.mark.parametrize(
    ("verdict", "inputs", "green"),
    [
        *((0, {}, True), (1, {}, False), (2, {}, False), (3, {}, True), (3, {"doubt-fails": "true"}, False)),
        *((4, {}, False), (5, {}, False)),
    ],
)
def test_the_action_ends_as_the_verdict_says(
    machine: Mapping[str, str], verdict: int, inputs: dict[str, str], green: bool
) -> None:
    job, outputs = verified(machine, verdict, **inputs)
    assert (job.green, outputs["exit-code"]) == (green, str(verdict))


def test_the_action_installs_nothing_without_a_hash_and_takes_inputs_as_words(machine: Mapping[str, str]) -> None:
    folder = Path(machine["RUNNER_TEMP"]) / "a b; touch planted"
    folder.mkdir()
    (folder / "lab.reference.parquet").touch()
    verified(machine, 0, references=str(folder))
    made = calls(machine)
    installs = [call for call in made if "pip install" in call]
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "--no-deps --no-build-isolation" in installs[1]
    assert made[-1].endswith(f"--references {folder}")
    assert not list(Path(machine["RUNNER_TEMP"]).glob("planted"))
    assert not Path("planted").exists()


# -- .ci/run -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A GitHub machine for .ci/run: a user who may become root, with Docker, Chrome and Conda; every program is a stand-in."""
    project, programs = tmp_path / "project", tmp_path / "bin"
    (project / ".ci").mkdir(parents=True)
    shutil.copy(PROJECT / ".ci" / "run", project / ".ci" / "run")
    (project / "images").symlink_to(PROJECT / "images")
    programs.mkdir()
    log = 'echo "${0##*/} $*" >> "$CALLS"\n'
    scripts = {
        **dict.fromkeys(("apt-get", "docker", "google-chrome", "chromedriver"), log),
        "sudo": log + '[ "$1" = -n ] && shift; exec "$@"\n',
        "id": "echo 1001\n",
        "ldconfig": "true\n",
        "conda": log,
        "make": log + 'echo "$PATH" >> "$CALLS"; exit "${VERDICT:-0}"\n',
    }
    for name, script in scripts.items():
        (programs / name).write_text("#!/bin/bash\n" + script)
        (programs / name).chmod(0o755)
    kept = (
        "bash",
        "cat",
        "dirname",
        "env",
        "grep",
        "ln",
        "mkdir",
        "mktemp",
        "rm",
        "sed",
        "sort",
        "tail",
        "true",
        "xargs",
    )
    for name in kept:
        (programs / name).symlink_to(
            next(Path(folder) / name for folder in ("/usr/bin", "/bin") if (Path(folder) / name).exists())
        )
    (tmp_path / "conda" / "bin").mkdir(parents=True)
    (tmp_path / "conda" / "bin" / "conda").symlink_to(programs / "conda")
    return project, {
        "PATH": str(programs),
        "CALLS": str(tmp_path / "calls"),
        "GITHUB_ACTIONS": "true",
        "CONDA": str(tmp_path / "conda"),
        "RUNNER_TEMP": str(tmp_path),
    }


@pytest.mark.parametrize(("targets", "verdict"), [([], 0), (["test-slow"], 2)])
def test_a_machine_of_github_gets_what_the_tests_need_and_ends_as_make_does(
    bare: tuple[Path, dict[str, str]], targets: list[str], verdict: int
) -> None:
    project, environment = bare
    environment["VERDICT"] = str(verdict)
    ended = subprocess.run(
        [str(project / ".ci" / "run"), *targets], env=environment, capture_output=True, text=True, check=False
    )
    made = calls(environment)
    assert ended.returncode == verdict, ended.stdout + ended.stderr
    assert made[-2] == f"make --keep-going {' '.join(targets) or 'test test-slow'}"
    installed = " ".join(call for call in made if call.startswith("apt-get install"))
    # The shared libraries and programs of the old images, and the registry for the engine's tests.
    for package in ("docker-registry", "libopenmpi3", "r-base-core"):
        assert package in installed, installed
    # Ubuntu's are snaps, and its registry of bases is reached.
    for package in ("chromium", "mmdebstrap"):
        assert package not in installed
    assert [call for call in made if call.startswith("conda create") and "python=3.6" in call]
    assert made[-1].endswith(f"{environment['RUNNER_TEMP']}/pythons")
