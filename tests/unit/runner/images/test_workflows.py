"""The workflows of CI: they call commands that are there, and nothing from outside gets into a shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from runner.catalog.images import PROJECT
from runner.cli import images as cli_images

FOLDER = PROJECT / ".github" / "workflows"
FILES = sorted(path.name for path in FOLDER.glob("*.yml"))


def load(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / name).read_text()))


def jobs(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from load(name)["jobs"].items()


def steps(name: str) -> Iterator[dict[str, Any]]:
    for _, job in jobs(name):
        yield from job["steps"]


def test_the_three_workflows_are_there() -> None:
    assert FILES == ["images.yml", "tests.yml", "verify.yml"]


@pytest.mark.parametrize("name", FILES)
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
        assert "contents: write" not in str(found.get("permissions")), job
    for step in steps(name):
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("name", FILES)
def test_the_commands_about_images_are_there_with_their_options(name: str) -> None:
    from typer.main import get_command

    group = get_command(cli_images.app)
    text = "\n".join(step.get("run", "") for step in steps(name)).replace("\\\n", " ")
    called = re.findall(r"runner images ([\w-]+)(.*)", text)
    assert called or name == "verify.yml"
    for command, rest in called:
        found = group.commands[command]  # type: ignore[attr-defined]
        known = {option for parameter in found.params for option in parameter.opts}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", rest)) <= known, (command, rest)


def test_images_are_built_from_the_matrix_that_the_catalog_prints() -> None:
    plan, build = load("images.yml")["jobs"]["plan"], load("images.yml")["jobs"]["build"]
    assert build["strategy"]["matrix"] == "${{ fromJSON(needs.plan.outputs.matrix) }}"
    assert plan["outputs"]["matrix"] == "${{ steps.matrix.outputs.matrix }}"
    assert "packages" not in load("images.yml")["permissions"]
    assert build["permissions"]["packages"] == "write"


def test_verify_runs_on_a_machine_with_a_gpu_and_never_for_a_pull_request() -> None:
    found = load("verify.yml")
    assert {"self-hosted", "gpu"} <= set(found["jobs"]["verify"]["runs-on"])
    assert "pull_request" not in found[True]  # YAML reads `on` as true
