"""An error of the system that reaches the terminal names its file: a write to a full disk names none, so each writer does."""

from __future__ import annotations

import ast
import contextlib
import errno
import io
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.cli.matrix import measure
from runner.errors import ExitCode, naming, system_fault
from runner.known_messages import hint
from runner.machine import detect
from runner.paths import PROJECT
from runner.results.store import RunStore
from runner.run import progress
from tests.fixtures import synthetic
from tests.fixtures.mounts import tmpfs

# File -> why its writes need no name.
_OTHERWISE = {
    "reports/page/cache.py": "a fault is passed over: nothing is kept then",
    "runner/cli/main.py": "it writes to nowhere",
    "runner/engines/docker/read_back.py": "its error is caught, and the sentence has the folder",
    "runner/engines/host_fault.py": "its error is caught, and the sentence has the folder",
    "runner/engines/process/keeper.py": "it writes to /proc, and a fault there is passed over",
    "runner/images/builder.py": "its log is opened there, and each write to it is named",
    "runner/images/transfer/folder.py": "its error is caught, and the sentence has the folder",
    "runner/kit/bundle.py": "its error is caught, and the sentence has the folder",
    "runner/machine/clocks.py": "its error is caught, and the sentence has the file",
    "runner/results/on_disk/derived.py": "its error is caught, and the sentence has the file",
}


def writes(tree: ast.AST, named: bool = False) -> Iterator[ast.Call]:
    """The calls that write a file outside of `with naming(…)`."""
    if isinstance(tree, ast.With):
        named = named or any(
            ast.unparse(item.context_expr).startswith(("naming(", "errors.naming(")) for item in tree.items
        )
    if isinstance(tree, ast.Call) and not named and is_write(tree):
        yield tree
    for child in ast.iter_child_nodes(tree):
        yield from writes(child, named)


def is_write(call: ast.Call) -> bool:
    if getattr(call.func, "attr", getattr(call.func, "id", "")) not in ("open", "write_text", "write_bytes"):
        return False
    called = ast.unparse(call.func)
    if called.endswith((".write_text", ".write_bytes")):
        return not called.startswith(("store.", "whole."))
    if called in ("os.open", "tarfile.open"):
        return False
    modes = [arg.value for arg in [*call.args, *(key.value for key in call.keywords)] if isinstance(arg, ast.Constant)]
    return any(isinstance(mode, str) and len(mode) < 4 and {*mode} & {*"wax+"} for mode in modes)


def test_every_write_to_a_file_names_the_file_in_its_fault() -> None:
    found = {}
    for path in sorted([*(PROJECT / "runner").rglob("*.py"), *(PROJECT / "reports").rglob("*.py")]):
        text = path.read_text()
        tree = ast.parse(text) if "open(" in text or ".write_" in text else ast.Module([], [])
        calls = [f"{call.lineno}: {ast.unparse(call)[:80]}" for call in writes(tree)]
        if calls:
            found[path.relative_to(PROJECT).as_posix()] = calls
    assert {path: calls for path, calls in found.items() if path not in _OTHERWISE} == {}
    assert set(_OTHERWISE) == set(found), "an exception that is none"


def test_the_search_finds_a_write() -> None:
    text = "with naming(p):\n    p.write_text('')\np.write_bytes(b'')\nopen(p, 'w')\np.open(mode='a')\nopen(p)\nstore.write_bytes(p)"
    assert [call.lineno for call in writes(ast.parse(text))] == [3, 4, 5]


@pytest.mark.parametrize(
    ("number", "fix"),
    [
        (errno.ENOSPC, "; make room there"),
        (errno.EDQUOT, "; make room there"),
        (errno.EROFS, "; make it yours, or name another"),
        (errno.EIO, ""),
    ],
)
def test_a_fault_names_its_file_and_the_fix(number: int, fix: str) -> None:
    with pytest.raises(OSError) as caught, naming(Path("/there/file")):
        raise OSError(number, os.strerror(number))
    assert system_fault(caught.value) == f"/there/file: {os.strerror(number)}{fix}"


@pytest.mark.parametrize(
    "words",
    [
        ["report", "RUN"],
        ["report", "RUN", "--output", "OUT/report.html"],
        ["reference", "save", "RUN", "--name", "lab"],
        ["matrix", "--gpus", "none", "--out", "OUT", "--engine", "venv", "--workloads", "gru-imdb", "--frameworks", "torch"],
    ],
    ids=lambda words: " ".join(words[:3]),
)  # fmt: skip
def test_a_command_that_cannot_write_says_to_which_file(tmp_path: Path, words: list[str]) -> None:
    """A process that may write files of no byte at most gets an error without a name, as on a full disk."""
    run = synthetic.make_run(tmp_path / "run", windows=8)
    (tmp_path / "out").mkdir()
    words = [word.replace("RUN", str(run)).replace("OUT", str(tmp_path / "out")) for word in words]
    ended = subprocess.run(
        [sys.executable, "-m", "runner", *words],
        cwd=PROJECT,
        env=os.environ | dict.fromkeys(("XDG_CACHE_HOME", "XDG_DATA_HOME"), str(tmp_path / "elsewhere")),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    assert "Errno" not in ended.stderr
    line = next(line for line in ended.stderr.splitlines() if "File too large" in line)
    assert str(tmp_path) in line


@pytest.mark.parametrize("guarded", [True, False])
def test_bytecode_that_a_full_disk_cuts_short_is_not_left_for_the_next_command(tmp_path: Path, guarded: bool) -> None:
    """A file of 1024 bytes at most is cut short as on a full disk: the write says how much it took, and Python 3.11 does not ask."""
    (tmp_path / "large.py").write_text("\n".join(f"name_{number} = 'text {number}'" for number in range(500)))
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)); import large"
    begin = "from runner.__main__ import _whole_bytecode_only; _whole_bytecode_only(); " if guarded else ""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = f"{PROJECT}{os.pathsep}{tmp_path}"
    subprocess.run([sys.executable, "-c", begin + limited], env=environment, check=True)

    def load() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "import large"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    after = load()
    assert after.returncode == 0 or not guarded, after.stderr
    if sys.version_info < (3, 12):
        # Later releases of Python ask by themselves.
        assert (after.returncode == 0) is guarded
    if after.returncode:
        # A cell that meets such a file, as one of an environment on that disk, says the remedy, which helps.
        advice = hint("crash", "its process ended with exit code 1", after.stderr)
        assert advice is not None
        assert "remove the __pycache__ folders of the environment; then --resume" in advice
        shutil.rmtree(tmp_path / "__pycache__")
        assert load().returncode == 0


def test_a_command_whose_module_a_full_disk_cut_short_says_the_remedy(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path / "bytecode")

    def listed() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "runner", "list", "precisions"]
        return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)

    assert listed().returncode == 0
    (bytecode,) = (tmp_path / "bytecode").rglob("runner/cli/completion.*.pyc")
    os.truncate(bytecode, 500)
    ended = listed()
    assert ended.returncode == ExitCode.CANNOT_BEGIN
    (said,) = ended.stderr.splitlines()
    assert f"remove the __pycache__ folders below {sys.prefix} and {PROJECT}" in said
    shutil.rmtree(tmp_path / "bytecode")
    assert listed().returncode == 0


@pytest.mark.parametrize("size", ["4k", "64k"])
def test_a_kit_that_a_disk_does_not_hold_is_named_with_the_fault_and_leaves_nothing(tmp_path: Path, size: str) -> None:
    """The first size cuts the list of the kit's files short, and a later build would not have known them as its own."""
    with tmpfs(tmp_path / "kit", f"size={size}"):
        ended = CliRunner().invoke(app, ["gpu-kit", str(tmp_path / "kit")])
        assert ended.exit_code == ExitCode.CANNOT_BEGIN, ended.output
        assert re.search(rf"{tmp_path}/kit/\S+: No space left on device; make room there\n$", ended.stderr)
        assert list((tmp_path / "kit").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "this process may take no more: Cannot allocate memory"),
        (
            RuntimeError("can't start new thread"),
            "this process may start no more threads: Resource temporarily unavailable; raise the limit of its processes: "
            "`ulimit -u`, or that of its container or job",
        ),
    ],
)
def test_a_process_that_may_take_no_more_says_so_and_how_a_run_goes_on(
    error: Exception, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under `ulimit -v`, or in a full group of processes, a command and a run in its middle ended with a traceback."""

    def without(*_: object) -> None:
        raise error

    monkeypatch.setattr(detect, "detect", without)
    ended = CliRunner().invoke(app, ["matrix", "--dry-run", "--results", str(tmp_path)])
    assert ended.exit_code == ExitCode.CANNOT_BEGIN
    assert ended.stderr == f"runner: {words}\n"
    monkeypatch.setattr(progress, "announce", without)
    prospect: Any = SimpleNamespace(engine=SimpleNamespace(images_folder=lambda: None), plan=SimpleNamespace(skips=()))
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert measure(prospect, RunStore(tmp_path / "run"), resumed=False) == ExitCode.CANNOT_BEGIN
    assert f"{words} (" in said.getvalue()
    assert f"Go on with: runner matrix --resume run --results {tmp_path}\n" in said.getvalue()
