"""The help of every command: examples, types that a reader knows, groups; the lists of names, and what a shell completes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import load_catalog
from runner.catalog.workloads import load_workloads
from runner.cli.completion import candidates
from runner.cli.help import EXAMPLES, OLDER
from runner.cli.main import app
from tests.fixtures import synthetic

RUNS = ("20261120-000000-aaaa", "20261121-000000-bbbb")


def commands(group: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each command that a person calls, by its words."""
    group = group or typer.main.get_command(app)
    for name in getattr(group, "names", None) or group.commands:
        command, words = group.commands[name], f"{path} {name}".strip()
        yield from commands(command, words) if hasattr(command, "commands") else [(words, command)]


COMMANDS = dict(commands())


def shown(*words: str) -> str:
    return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).stdout


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_of_a_command_has_examples_and_no_types_of_a_programmer(path: str) -> None:
    text = shown(*path.split())
    assert 2 <= len(EXAMPLES[path]) <= 4
    for what, line in EXAMPLES[path]:
        assert f"  {line}\n      {what}\n" in text
        assert any(f"runner {path}" in part for part in line.split("&&"))
    assert re.findall(r"<(?:list|str|int|float|path|number range)\b[^>]*>", text) == []
    assert re.findall(r"\b(?:TEXT|INTEGER|FLOAT|PATH)\b", text) in ([], ["PATH"])


def test_every_example_is_of_a_command_and_has_options_of_it() -> None:
    assert set(EXAMPLES) - {""} == set(COMMANDS)
    for each in EXAMPLES.values():
        for part in (part.strip() for _, line in each for part in line.split("&&")):
            if not part.startswith("runner "):
                continue
            words = part.split()[1:]
            path = next(name for name in sorted(COMMANDS, key=len, reverse=True) if part.startswith(f"runner {name}"))
            known = {option for parameter in COMMANDS[path].params for option in parameter.opts}
            assert {word for word in words if word.startswith("-")} <= known, part


def test_a_long_list_of_options_stands_under_heads_and_loses_none() -> None:
    for path in ("matrix", "verify", "blame", "nodes"):
        text = shown(*path.split())
        assert "\nOptions:\n" not in text
        assert {"Cells:", "On which machine:", "Results and answers:"} <= set(text.splitlines())
        options = {
            option for parameter in COMMANDS[path].params for option in parameter.opts if option.startswith("--")
        } - {*OLDER}
        assert {
            option for option in options if not re.search(rf"^  (?:-\w, |--[\w-]+, )*{option}\b", text, re.MULTILINE)
        } == set()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("workloads", set(load_workloads())),
        ("frameworks", set(load_frameworks())),
        ("images", set(load_catalog(locks=False))),
        ("precisions", {name for workload in load_workloads().values() for name in workload.precisions}),
    ],
)
def test_the_names_that_options_take_are_listed(kind: str, names: set[str]) -> None:
    lines = CliRunner().invoke(app, ["list", kind]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(dict.fromkeys(line.split()[0] for line in lines))
    assert {line.split()[0] for line in lines} == names


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for day, run in enumerate(RUNS):
        created = {"created": f"2026-11-{20 + day}T10:00:00+00:00"}
        synthetic.make_run(Path("results") / run, windows=12, draw=day, manifest=created)
    return tmp_path


def test_latest_is_the_newest_run_wherever_a_run_is_asked_for(results: Path) -> None:
    text = CliRunner().invoke(app, ["report", "latest", "--text"]).stdout
    assert text.startswith(f"run {RUNS[1]} ")
    assert f"{RUNS[1]}" in CliRunner().invoke(app, ["compare", RUNS[0], "latest"]).stdout
    assert CliRunner().invoke(app, ["list", "runs"]).stdout.split()[:2] == ["latest", RUNS[1]]
    resumed = CliRunner().invoke(app, ["matrix", "--resume", "latest", "--dry-run"])
    assert "it is not a run" not in resumed.stderr


@pytest.mark.parametrize(
    ("before", "last", "found"),
    [
        ([], "mat", ["matrix"]),
        (["images"], "bu", ["build"]),
        (["matrix"], "--work", ["--workloads"]),
        (["matrix", "--workloads"], "gru-imdb,cnn-c", ["gru-imdb,cnn-cifar10"]),
        (["matrix", "--images"], "torch-2.13", ["torch-2.13.0-cpu"]),
        (["matrix", "--preset"], "q", ["quick"]),
        (["matrix", "--resume"], "2026112", [RUNS[1], RUNS[0]]),
        (["report"], "lat", ["latest"]),
        (["rosetta"], "gru", ["gru-imdb"]),
        (["rosetta", "gru-imdb"], "tens", ["tensorflow", "tensorflow_v1"]),
        (["list"], "f", ["frameworks"]),
        (["completion"], "z", ["zsh"]),
    ],
)
def test_the_words_of_a_command_are_completed(results: Path, before: list[str], last: str, found: list[str]) -> None:
    assert sorted(candidates(before, last)) == sorted(found)


def test_bash_completes_with_the_script_that_the_command_prints(results: Path) -> None:
    """By bash itself, as if Tab were pressed."""
    bin_ = results / "bin"
    bin_.mkdir()
    (bin_ / "runner").write_text(f'#!/bin/sh\nexec {sys.executable} -m runner "$@"\n')
    (bin_ / "runner").chmod(0o755)
    script = (
        'eval "$(runner completion bash)"\n'
        "COMP_WORDS=(runner matrix --frameworks torch,ja); COMP_CWORD=3; _runner\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    root = Path(__file__).resolve().parents[4]
    environment = os.environ | {"PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": str(root)}
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert (ended.stdout, ended.stderr) == ("torch,jax\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_another_shell_is_one_that_it_reads(shell: str, tmp_path: Path) -> None:
    script = CliRunner().invoke(app, ["completion", shell]).stdout
    assert "runner complete --" in script.replace("${words[1]}", "runner")
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not on this machine")
    (tmp_path / "script").write_text(script)
    subprocess.run([program, "-n", tmp_path / "script"], check=True)


def test_an_idea_has_one_name_in_every_help_and_its_older_names_are_taken(tmp_path: Path) -> None:
    """The results' folder was --out beside -o, a file; a run was --run, --runs or RUN; a page was -o or --html."""
    texts = {path: shown(*path.split()) for path in COMMANDS}
    older = re.compile(rf"(?<![\w-])({'|'.join(OLDER)})(?![\w-])")
    assert [path for path, text in texts.items() if older.search(text)] == []
    files = {path for path, text in texts.items() if "-o, --output" in text}
    assert files >= {"report", "compare", "history", "rosetta", "share", "reference export", "reference index"}
    page = tmp_path / "x.html"
    assert CliRunner().invoke(app, ["rosetta", "cnn-cifar10", "torch", "jax", "--html", str(page)]).exit_code == 0
    assert page.is_file()
    words = ["compare", "torch", "jax", "--runs", "none", "--out", str(tmp_path)]
    assert "No such option" not in CliRunner().invoke(app, words).output
