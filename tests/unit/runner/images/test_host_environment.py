"""The host's own environment: one step makes it from a lock, by the uv that the lock names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.images import installing
from runner.paths import PROJECT

LOCK = (PROJECT / "requirements-host.lock").read_text()


def test_a_pin_is_its_line_with_all_its_digests_and_nothing_of_the_next_one() -> None:
    uv = "uv==1.2 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    lock = f"uv-extra==9 \\\n    --hash=sha256:00\n{uv}wheel==3 \\\n    --hash=sha256:cc\n"
    assert installing.pin(lock, "uv") == uv
    assert installing.pin(lock, "wheel") == "wheel==3 \\\n    --hash=sha256:cc\n"
    with pytest.raises(SystemExit, match="the lock has no pip"):
        installing.pin(lock, "pip")


def test_whatever_is_fetched_for_the_host_is_held_to_a_digest_also_where_uv_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / "some.lock").write_text(installing.pin(LOCK, "uv"))
    commands: list[list[str]] = []

    def run(command: list[str], *rest: object, **more: object) -> bool:
        commands.append([str(word) for word in command])
        return "uv" not in Path(command[0]).name

    monkeypatch.setattr(installing, "_succeeds", run)
    monkeypatch.setattr(installing, "pip_variables", lambda python: {})
    installing.main("some.lock")
    installs = [words for words in commands if "install" in words]
    # pip's own wheel; uv; the lock and the checkout, by uv and then by pip.
    assert len(installs) == 6
    fetched = [words for words in installs if not {"--no-index", "-e"} & set(words)]
    assert len(fetched) == 3
    assert all("--require-hashes" in words for words in fetched)
    assert all({"--no-deps", "--no-build-isolation"} <= set(words) for words in installs if "-e" in words)


@pytest.mark.slow
def test_a_checkout_gets_its_environment_in_one_step_that_says_what_it_does(tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns(".*", "tests", "__pycache__", "results")
    shutil.copytree(PROJECT, tmp_path, ignore=left_out, dirs_exist_ok=True)
    # Of the lock what builds the checkout, and uv.
    names = ("uv", "hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers")
    (tmp_path / "some.lock").write_text("".join(installing.pin(LOCK, name) for name in names))
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-m", "runner.images.installing", "some.lock"]
    ended = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "making .venv: uv installs the 6 packages of some.lock\n"
    script = "import packaging, runner; print(packaging.__cached__, runner.__file__)"
    python = tmp_path / ".venv" / "bin" / "python"
    cached, file = subprocess.run(
        [python, "-c", script], cwd="/", env=own, capture_output=True, text=True, check=True
    ).stdout.split()
    # The first import compiled it. No file is one of uv's cache.
    assert Path(cached).parent.with_name("__init__.py").stat().st_nlink == Path(cached).stat().st_nlink == 1
    assert Path(file).is_relative_to(tmp_path)
    subprocess.run([python, "-m", "pip", "--version"], check=True, capture_output=True)
