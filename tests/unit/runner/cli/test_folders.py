"""Commands where a home, a cache or locks are missing: each works, or says in a sentence what to set."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.engines.base import EngineError
from runner.engines.process import venv
from tests.fixtures import synthetic

COMMANDS = {
    "doctor": "doctor",
    "plan": "matrix --dry-run --gpus none --engine venv --images onnxruntime-* --workloads resnet50-features",
    "run": "matrix --gpus none --engine venv --images onnxruntime-* --workloads resnet50-features --repeats 1 --out OUT",
    "verify": "verify --gpus none --engine venv --image onnxruntime-* --workloads resnet50-features --out OUT",
    "references": "reference list",
    "prune": "images prune --dry-run",
    "report": "report --out OUT",
    "history": "history --out OUT",
    "compare": "compare d1 d1 --out OUT",
    "gpus": "gpus",
}


def no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a user without an entry in the system's list, in an emptied environment."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", home)


def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As HOME=/ of a container whose user may write nothing there."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))


def no_locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As Lustre that was mounted without `flock`."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.parametrize("situation", [no_home, no_cache, no_locks])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_works_or_names_what_to_set(
    name: str, situation: Callable[[pytest.MonkeyPatch, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    if name in ("report", "history", "compare"):
        synthetic.make_run(out / "d1", repeats=2, windows=3)
    situation(monkeypatch, tmp_path)
    result = CliRunner().invoke(app, COMMANDS[name].replace("OUT", str(out)).split())
    said = " ".join(result.output.split())
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in said
    if name in ("report", "history", "compare", "gpus", "plan") and situation is not no_home:
        assert result.exit_code in (0, 2), said
        return
    if result.exit_code:
        assert "XDG_" in said or "--out" in said, said


def test_an_environment_is_not_made_where_two_runners_could_make_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "name.lock").touch()
    no_locks(monkeypatch, tmp_path)
    with pytest.raises(EngineError, match="has no locks .*; set XDG_CACHE_HOME"), venv.alone(tmp_path / "name", print):
        pytest.fail("it was held")
