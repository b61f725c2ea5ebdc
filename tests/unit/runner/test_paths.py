"""Where the user's files go: the folders are part of what users script against."""

from __future__ import annotations

import pwd
import sys
import types
from pathlib import Path

import pytest

from runner import paths
from runner.errors import UserError


def test_the_folders_are_those_of_the_xdg_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert paths.cache_folder() == tmp_path / "cache" / "dlbench"
    assert paths.data_folder() == tmp_path / "data" / "dlbench"


def test_without_the_variables_they_lie_in_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.cache_folder() == tmp_path / ".cache" / "dlbench"
    assert paths.data_folder() == tmp_path / ".local" / "share" / "dlbench"


@pytest.mark.parametrize("unset", [None, "", "rel"])
@pytest.mark.parametrize("listed", [True, False])
def test_a_home_or_cache_that_is_no_absolute_path_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unset: str | None, listed: bool
) -> None:
    def getpwuid(_: int) -> types.SimpleNamespace:
        if listed:
            return types.SimpleNamespace(pw_dir=str(tmp_path))
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
        if unset is not None:
            monkeypatch.setenv(name, unset)
    if listed:
        assert paths.cache_folder() == tmp_path / ".cache" / "dlbench"
    else:
        with pytest.raises(UserError, match="set HOME, or XDG_CACHE_HOME, to the absolute path"):
            paths.cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert paths.cache_folder() == tmp_path / "cache" / "dlbench"


def test_a_command_to_type_is_the_one_by_which_the_runner_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "bin" / "runner"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert paths.own_command() == str(script)
    monkeypatch.setenv("PATH", str(script.parent))
    assert paths.own_command() == "runner"
    monkeypatch.setattr(sys, "argv", ["__main__.py"])
    assert paths.own_command() == "runner"
