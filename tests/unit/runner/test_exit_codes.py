"""One exit code has one meaning, in every command: the table of runner/errors.py, and nothing beside it."""

from __future__ import annotations

import ast
import errno
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError

import pytest
from typer.testing import CliRunner

from runner.cli.main import app
from runner.doctor import preflight
from runner.errors import (
    HOST_FAULTS,
    MEANINGS,
    CannotBeginError,
    EngineError,
    ExitCode,
    UserError,
    code_of_fault,
    one_code,
)
from runner.machine import lease
from runner.machine.detect import HardwareError, choose_gpus
from runner.machine.devices import Cpu, Gpu, Machine, Refused
from runner.nodes.transports.transport import NodesError
from runner.paths import PROJECT
from runner.run import begin, summary
from runner.run.options import Options
from runner.verify import verification_run

ENDS = {"typer.Exit", "sys.exit", "os._exit"}


def test_each_code_has_a_meaning_and_the_document_and_the_help_print_them() -> None:
    assert {int(code) for code in MEANINGS} == {0, 1, 2, 3, 4, 130}
    assert len(set(MEANINGS.values())) == len(MEANINGS) == len(ExitCode)
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    document = (PROJECT / "docs" / "cli.md").read_text()
    for code, words in MEANINGS.items():
        assert f"* `{code:d}`: {words}." in shown
        assert f"* `{code:d}`: {words}." in document


def values(node: ast.expr) -> Iterator[ast.expr]:
    """The values that an expression may have, as far as its text shows them."""
    parts = (
        [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values if isinstance(node, ast.BoolOp) else []
    )
    yield from (one for part in parts for one in values(part)) if parts else iter([node])


def numbers(tree: ast.AST) -> Iterator[int]:
    """The lines that end a command with a number of their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ENDS:
            given = [one for argument in node.args for one in values(argument)]
            yield from (node.lineno for one in given if isinstance(one, ast.Constant) and type(one.value) is int)
        if isinstance(node, ast.Assign | ast.AnnAssign) and "exit_code" in ast.unparse(node).split("=")[0]:
            yield from (node.lineno for _ in [0] if isinstance(node.value, ast.Constant))


def test_no_command_ends_with_a_number_of_its_own() -> None:
    # Two run before a module of the project can be loaded. The keeper is no command: it ends as its cell does.
    early = {"runner/__main__.py", "runner/kit/start.py", "runner/engines/process/keeper.py"}
    found = {}
    for path in sorted([*PROJECT.glob("runner/**/*.py"), *PROJECT.glob("reports/**/*.py")]):
        name = path.relative_to(PROJECT).as_posix()
        if lines := sorted(set(numbers(ast.parse(path.read_text())))):
            found[name] = lines
    assert set(found) == early, found
    assert list(numbers(ast.parse("raise typer.Exit(1 if bad else 0)"))), "the search finds one"


def test_what_failed_counts_before_what_is_open() -> None:
    assert [one_code(*both) for both in ((False, False), (True, False), (False, True), (True, True))] == [0, 1, 3, 1]


@pytest.mark.parametrize("error", [EngineError, lease.LeaseError, HardwareError, NodesError])
def test_what_the_machine_lacks_is_no_mistake_of_the_user(error: type[UserError]) -> None:
    assert issubclass(error, CannotBeginError)
    assert (UserError.exit_code, error.exit_code) == (2, 4)


def test_a_gpu_that_is_gone_could_not_begin_and_a_word_that_names_none_is_a_mistake() -> None:
    gpu = Gpu(0, "GPU-11111111", "NVIDIA L4", "8.9", 24 << 30, "570.1", (0,), "GPU-11111111")
    for name, code in (("3", 4), ("GPU-22222222", 4), ("0:1", 4), ("first", 2), ("", 2)):
        # A machine without a driver knows no GPU, and the words are the same mistake there.
        for gpus, why in (([gpu], "names no GPU"), ([], "no driver" if code == 4 else "is no index and no UUID")):
            with pytest.raises(UserError, match=why) as refused:
                choose_gpus(gpus, [name], "there is no driver")
            assert refused.value.exit_code == code, name


@pytest.mark.parametrize(
    ("code", "numbers"),
    [
        (4, sorted(HOST_FAULTS)),
        (4, [errno.EACCES, errno.EPERM, errno.ECONNREFUSED, errno.ENETUNREACH, errno.EFBIG]),
        (2, [errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP]),
    ],
)
def test_a_file_that_cannot_be_written_is_the_machines_fault_and_a_wrong_path_the_users(
    tmp_path: Path, code: int, numbers: list[int]
) -> None:
    for number in numbers:
        assert code_of_fault(OSError(number, os.strerror(number), str(tmp_path / "new"))) == code, number


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (URLError(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")), 4),
        (URLError(socket.gaierror(socket.EAI_NONAME, "Name or service not known")), 4),
        (URLError(TimeoutError("timed out")), 4),
        (URLError(ssl.SSLCertVerificationError(1, "certificate verify failed")), 4),
        (HTTPError("http://a", 407, "Proxy Authentication Required", Message(), None), 4),
        (HTTPError("http://a", 503, "Service Unavailable", Message(), None), 4),
        (HTTPError("http://a", 404, "Not Found", Message(), None), 2),
        (URLError("unknown url type: gopher"), 2),
    ],
)
def test_an_address_that_does_not_answer_is_no_mistake_and_one_that_is_not_there_is(error: OSError, code: int) -> None:
    assert code_of_fault(error) == code


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter: pytest shuts those above its own, whenever a session begins."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_file_that_may_not_be_read_is_a_mistake_and_a_folder_that_may_not_be_written_is_none(
    open_folder: Path,
) -> None:
    """In a process of another user, as root may read and write all."""
    secret, folder = open_folder / "secret", open_folder / "folder"
    secret.touch(0o600)
    folder.mkdir(0o755)
    script = """
import os, sys
sys.path.insert(0, sys.argv[1])
from runner.errors import code_of_fault
os.setgroups([]); os.setgid(65534); os.setuid(65534)
def code(act):
    try:
        act()
    except OSError as error:
        return int(code_of_fault(error))
print(code(lambda: open(sys.argv[2])), code(lambda: open(sys.argv[3] + "/new", "w")), code(lambda: os.mkdir(sys.argv[3] + "/new")))
"""
    command = [sys.executable, "-c", script, str(PROJECT), str(secret), str(folder)]
    if os.getuid():
        pytest.skip("left out, because only root can become another user")
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "2 4 4\n"


@pytest.mark.parametrize(
    ("missing", "interrupted", "minutes", "measured", "failed", "code"),
    [
        (0, False, None, 6, 0, 0),
        (0, False, None, 6, 1, 1),
        (3, False, 10.0, 3, 0, 0),
        (3, False, None, 3, 0, 1),
        (6, False, 10.0, 0, 0, 4),
        (6, False, None, 0, 0, 4),
        (3, True, None, 3, 1, 130),
        (6, True, 10.0, 0, 0, 130),
    ],
)
def test_a_run_ends_as_what_became_of_it(
    missing: int, interrupted: bool, minutes: float | None, measured: int, failed: int, code: int
) -> None:
    assert summary.code_of(missing, interrupted, minutes, measured, failed) == code


def test_no_document_says_that_open_is_two() -> None:
    for path in [
        PROJECT / "README.md",
        *sorted(PROJECT.glob("docs/**/*.md")),
        *sorted(path for path in PROJECT.glob("docs/examples/**/*") if path.is_file()),
    ]:
        text = " ".join(path.read_text().split())
        for old in ("open is 2", "2 open", "2: open", "Open (2)", "exit code is 2", "2: it could not be told"):
            assert old not in text, (path, old)


H200 = Gpu(0, "GPU-1", "NVIDIA H200", "9.0", 141 << 30, "580.1", (0,), "GPU-1")


def planned(least: int, gpus: int, kinds: tuple[str, ...], refused: tuple[Refused, ...] = ()) -> Any:
    """A prospect of a machine with so many GPUs, and cells of these kinds of devices."""
    cpu = Cpu("a CPU", (0,), 1 << 30, (), ((0,),))
    machine = Machine(cpu, (H200,) * gpus, None if gpus else "there is no NVIDIA driver on this machine", refused)
    cells = tuple(SimpleNamespace(device_kind=kind) for kind in kinds)
    plan = SimpleNamespace(cells=cells, skips=(SimpleNamespace(image="x", reason="the build is for CPUs"),))
    return SimpleNamespace(options=Options(least_gpus=least), machine=machine, plan=plan)


@pytest.mark.parametrize(
    ("least", "gpus", "kinds", "said"),
    [
        (0, 0, ("cpu",), None),
        (8, 8, ("cpu", "cuda"), None),
        (8, 7, ("cuda",), "--least-gpus 8: 7 GPUs can be used here: GPU 7 fell off the bus"),
        (1, 0, ("cpu",), "--least-gpus 1: 0 GPUs can be used here: GPU 7 fell off the bus"),
        (8, 8, ("cpu",), "--least-gpus 8: no planned cell uses a GPU; the build is for CPUs"),
    ],
)
def test_a_machine_that_lost_a_gpu_or_whose_build_uses_none_does_not_begin(
    least: int, gpus: int, kinds: tuple[str, ...], said: str | None
) -> None:
    prospect = planned(least, gpus, kinds, (Refused("7", "NVIDIA H200", "GPU 7 fell off the bus"),))
    if said is None:
        begin.refuse_nothing(prospect)
        return
    with pytest.raises(CannotBeginError, match=f"^{re.escape(said)}$"):
        begin.refuse_nothing(prospect)


def test_a_build_that_uses_no_gpu_is_named() -> None:
    prospect = planned(0, 8, ("cpu",))
    prospect.machine = replace(
        prospect.machine, notes=("a busy machine", "torch: on the CPU, since it has no build with CUDA")
    )
    said = "--each-gpu: no planned cell uses a GPU; torch: on the CPU, since it has no build with CUDA; the build is for CPUs"
    with pytest.raises(CannotBeginError, match=f"^{re.escape(said)}$"):
        begin.refuse_cpu_only(prospect, "--each-gpu")


def test_a_level_on_a_node_whose_gpus_others_use_is_open_and_on_one_that_lost_them_could_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for reason, code in (("GPU 7 is in use by a job; wait for it", 3), ("GPU 7 fell off the bus", 4)):
        found = planned(8, 7, ("cuda",), (Refused("7", "NVIDIA H200", reason),))
        monkeypatch.setattr(preflight, "look_ahead", lambda _, found=found: found)
        monkeypatch.setattr(preflight, "_MACHINE", ())
        assert preflight.exit_code(preflight.preflight(Options(least_gpus=8), 1, ())) == code


def test_prometheus_is_told_that_a_verification_could_not_begin(tmp_path: Path) -> None:
    file = tmp_path / "dlbench.prom"
    file.write_text('dlbench_verify_exit_code{level="3"} 0\n')
    words = ["verify", "--each-gpu", "--least-gpus", "1", "--prometheus", str(file)]
    ended = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "results")])
    assert ended.exit_code == 4, ended.output
    assert 'dlbench_verify_exit_code{level="3"} 4\n' in file.read_text()


def test_the_gpus_of_several_models_count_together_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = planned(8, 2, ()).machine
    monkeypatch.setattr(verification_run, "detect", lambda *_: machine)
    monkeypatch.setattr(verification_run, "look_ahead", lambda _: SimpleNamespace(machine=machine))
    with pytest.raises(CannotBeginError, match="--least-gpus 8: 2 GPUs can be used here"):
        verification_run.measure_here(Options(least_gpus=8), [], Path, True, lambda _: {}, None)
