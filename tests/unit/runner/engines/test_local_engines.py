"""Cells as processes: what they see of the user's environment, and that nothing of them is left, however they end."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import PROJECT, Image
from runner.engines.base import LOG_TAIL_BYTES, Launch, ReadyImage, Settings, Slot
from runner.engines.process import process, venv
from runner.engines.process.process import LocalRunning, start_process, sweep_scratch
from tests.fixtures.waiting import wait_for

CPUS = tuple(sorted(os.sched_getaffinity(0)))
SLOT = Slot("cpu", (), CPUS[:1], None)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "dlbench"


def image(folder: Path, lock: str = "", **fields: Any) -> Image:
    (folder / "requirements.lock").write_text(lock)
    usual: dict[str, Any] = {
        "frameworks": ("torch",),
        "framework_version": "1.0",
        "python": f"3.{sys.version_info.minor}",
        "accelerator": "cpu",
        "base": "python:3.11",
        "precisions": ("fp32",),
        "locked": date(2026, 1, 1),
        "download_gb": 0.001,
    }
    return Image(name="tiny-cpu", folder=folder, **(usual | fields))


def start(tmp_path: Path, script: str, slot: Slot = SLOT, data: Path | None = None) -> LocalRunning:
    prepared = ReadyImage(image(tmp_path), "sha256:0", (sys.executable, "-c", script))
    return start_process(Launch(prepared, ["run"], slot, "test-run", tmp_path / "data-cache", data))


def output(running: LocalRunning) -> bytes:
    return b"".join(running.events())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until_gone(pids: list[int]) -> None:
    """By themselves they would go on for five minutes."""
    wait_for(lambda: not any(map(alive, pids)))


# A cell that starts a child, and a daemon that leaves its session and its parent, and tells their numbers.
FAMILY = """
import os, subprocess, sys, time
daemon = "import os,time\\nif os.fork(): os._exit(0)\\nos.setsid()\\nos.write(1, b'%d\\\\n' % os.getpid())\\nos.close(1)\\ntime.sleep(300)"
subprocess.run([sys.executable, "-c", daemon])
child = subprocess.Popen(["sleep", "300"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.write(1, b"%d %d\\n" % (child.pid, os.getpid()))
"""


def family(running: LocalRunning) -> list[int]:
    told = b""
    for chunk in running.events():
        told += chunk
        if told.count(b"\n") == 2:
            break
    return [int(word) for word in told.split()]


def test_a_cell_is_read_to_its_end_and_its_exit_code_is_told(tmp_path: Path) -> None:
    running = start(tmp_path, "import sys; print('x' * 200000); print('why', file=sys.stderr); sys.exit(3)")
    assert len(output(running)) == 200001
    ended = running.wait()
    assert (ended.code, ended.out_of_memory, ended.log_tail) == (3, False, "why\n")


def test_a_signal_is_told_as_a_shell_does(tmp_path: Path) -> None:
    running = start(tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert running.wait().code == 128 + signal.SIGSEGV


def test_a_command_that_does_not_exist_is_an_exit_code_with_its_reason(tmp_path: Path) -> None:
    prepared = ReadyImage(image(tmp_path), "sha256:0", ("/nowhere/python",))
    ended = start_process(Launch(prepared, [], SLOT, "test-run", tmp_path / "c")).wait()
    assert ended.code == 126
    assert "/nowhere/python cannot be started" in ended.log_tail


def test_only_the_end_of_the_log_is_kept(tmp_path: Path) -> None:
    running = start(tmp_path, "import sys\nfor i in range(100000): print(i, file=sys.stderr)")
    tail = running.wait().log_tail
    assert len(tail) <= LOG_TAIL_BYTES
    assert tail.endswith("99999\n")


def test_a_cell_that_is_stopped_ends_at_once_with_all_that_it_started(tmp_path: Path) -> None:
    running = start(tmp_path, FAMILY + "time.sleep(300)")
    pids = family(running)
    assert all(map(alive, pids))
    begin = time.monotonic()
    threading.Thread(target=running.stop).start()
    assert running.wait().code == 137
    assert time.monotonic() - begin < 20
    wait_until_gone(pids)
    running.stop()


def test_what_a_cell_leaves_when_it_ends_by_itself_is_ended(tmp_path: Path) -> None:
    running = start(tmp_path, FAMILY)
    pids = family(running)
    assert running.wait().code == 0
    wait_until_gone(pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_runner_that_is_killed_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    script = f"""
import sys
from pathlib import Path
from tests.unit.runner.engines import test_local_engines as t
running = t.start(Path({str(tmp_path)!r}), t.FAMILY + "time.sleep(300)")
print(*t.family(running), flush=True)
running.wait()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as runner:
        assert runner.stdout is not None
        pids = [int(word) for word in runner.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(alive, pids))
        runner.send_signal(number)
    wait_until_gone(pids)


def test_a_keeper_that_is_killed_takes_its_cell_with_it(tmp_path: Path) -> None:
    running = start(tmp_path, "import os, time; os.write(1, b'%d %d' % (os.getpid(), os.getppid())); time.sleep(300)")
    cell, keeper = (int(word) for word in next(running.events()).split())
    os.kill(keeper, signal.SIGKILL)
    wait_until_gone([cell])
    assert running.wait().code == 137


def test_a_cell_sees_its_cpus_its_caches_and_nothing_of_the_users_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaks = {
        "PYTHONSTARTUP": "/x",
        "PYTHONHASHSEED": "1",
        "LD_PRELOAD": "",
        "TF_XLA_FLAGS": "x",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    for name, value in leaks.items():
        monkeypatch.setenv(name, value)
    script = "import json, os; print(json.dumps([dict(os.environ), sorted(os.sched_getaffinity(0)), os.getcwd()]))"
    environment, cpus, folder = json.loads(output(start(tmp_path, script)))
    assert not {"PYTHONSTARTUP", "PYTHONHASHSEED", "LD_PRELOAD", "TF_XLA_FLAGS"} & set(environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["DLBENCH_CACHE"] == str(tmp_path / "data-cache")
    assert {environment[f"{library}_NUM_THREADS"] for library in ("OMP", "MKL", "OPENBLAS")} == {"1"}
    assert cpus == [CPUS[0]]
    assert environment["TMPDIR"] == folder
    assert environment["HOME"] == folder


def test_a_gpu_cell_sees_only_its_gpu(tmp_path: Path) -> None:
    slot = Slot("cuda", ("GPU-1",), CPUS, None)
    assert output(start(tmp_path, "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", slot)) == b"GPU-1\n"
    assert output(start(tmp_path, "import os; print(os.environ['CUDA_CACHE_MAXSIZE'])", slot)) == b"4294967296\n"


def test_a_signal_means_to_a_cell_what_it_means_to_any_process(tmp_path: Path) -> None:
    # a data loader ends its workers by SIGTERM: one that ignored it would hang the cell
    script = (
        "import signal as s; print(*(s.getsignal(n).__name__ if n == 2 else int(s.getsignal(n)) for n in (1, 2, 15)))"
    )
    assert output(start(tmp_path, script)) == b"0 default_int_handler 0\n"


def test_a_cell_that_ends_a_worker_by_sigterm_does_not_wait_for_ever(tmp_path: Path) -> None:
    script = "import subprocess as s; w = s.Popen(['sleep', '300']); w.terminate(); print(w.wait(timeout=60))"
    assert output(start(tmp_path, script)) == b"-15\n"


@pytest.mark.timeout(90)
@pytest.mark.parametrize("leave", ["pass", "os.chdir('/')", "os.close(1); os.close(2)"])
def test_a_process_without_environment_is_ended_with_its_cell_that_killed_its_keeper(
    tmp_path: Path, leave: str
) -> None:
    """It lies in the cell's folder, or holds its pipes."""
    # A test run that was killed may have left such a process.
    seconds = str(10**8 + secrets.randbelow(10**8))
    script = f"""
import os, signal, time
if not os.fork():
    os.setsid()
    {leave}
    os.execve("/bin/sleep", ["sleep", "{seconds}"], {{}})
time.sleep(0.5)
os.kill(os.getppid(), signal.SIGKILL)
"""
    running = start(tmp_path, script)
    threading.Timer(3, running.stop).start()
    output(running)
    assert running.wait().left is None
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if seconds.encode() in line and line.startswith(b"sleep")]


def test_orphans_that_end_while_the_cell_runs_do_not_pile_up(tmp_path: Path) -> None:
    script = """
import os, subprocess, time
def of_the_keeper():
    found = 0
    for n in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += open("/proc/%s/stat" % n).read().rsplit(")", 1)[1].split()[1] == str(os.getppid())
        except OSError: pass
    return found
for _ in range(20): subprocess.run(["sh", "-c", "sleep 0.05 &"])
end = time.monotonic() + 60
while of_the_keeper() > 1 and time.monotonic() < end: time.sleep(0.05)
print(of_the_keeper())
"""
    assert output(start(tmp_path, script)) == b"1\n"


def test_the_kernel_would_end_the_cell_and_not_the_runner_for_its_memory(tmp_path: Path) -> None:
    mine = Path("/proc/self/oom_score_adj").read_text()
    running = start(tmp_path, "print(open('/proc/self/oom_score_adj').read())")
    assert int(output(running)) == 1000
    assert Path("/proc/self/oom_score_adj").read_text() == mine


@pytest.mark.parametrize(
    ("script", "kills", "expected"),
    [
        ("print('rank 1 of 2: it was ended by signal 9 (SIGKILL)'); sys.exit(1)", 1, True),
        ("print('rank 1 of 2: it was ended by signal 9 (SIGKILL)'); sys.exit(1)", 0, False),
        ("os.write(1, b'x' * 65532 + b'(SIGKILL)'); sys.exit(1)", 1, True),
        ("os.write(1, b'x(SIG'); time.sleep(0.5); os.write(1, b'KILL)'); sys.exit(1)", 1, True),
        ("sys.exit(1)", 1, False),
        ("os.kill(os.getpid(), 9)", 1, True),
    ],
)
def test_the_kernel_ended_a_cell_or_one_of_its_processes_for_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kills: int, expected: bool
) -> None:
    counts = iter([0, kills])
    monkeypatch.setattr(process, "oom_kills", lambda: next(counts))
    running = start(tmp_path, f"import os, sys, time; {script}")
    for _ in running.events():
        pass
    assert running.wait().out_of_memory is expected


def test_a_cell_leaves_no_byte_code_in_the_project(tmp_path: Path) -> None:
    assert output(start(tmp_path, "import sys; print(sys.dont_write_bytecode)")) == b"True\n"


def test_the_data_folder_is_named_as_the_cell_sees_it(tmp_path: Path) -> None:
    running = start(tmp_path, "import sys; print(*sys.argv[1:])", data=tmp_path)
    assert output(running) == f"run --data {tmp_path}\n".encode()


def test_the_scratch_folder_goes_with_the_cell_and_a_dead_runners_is_swept(tmp_path: Path, own_cache: Path) -> None:
    running = start(tmp_path, "import os; print(os.environ['TMPDIR'])")
    scratch = Path(output(running).decode().strip())
    running.wait()
    assert not scratch.exists()
    mine = start(tmp_path, "import time; time.sleep(300)")
    left = scratch.parent / "boot-of-before_1_1_1_x"
    left.mkdir()
    assert sweep_scratch() == 1
    assert not left.exists()
    assert len(list(scratch.parent.iterdir())) == 1, "the running cell's own folder must stay"
    mine.stop()
    mine.wait()


def test_a_cell_of_an_environment_finds_the_driver_that_only_the_user_s_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_driver, other = tmp_path / "driver", tmp_path / "other"
    for folder in (with_driver, other):
        folder.mkdir()
    (with_driver / venv.DRIVER).write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{other}:{with_driver}:")
    monkeypatch.setattr(venv, "is_there", lambda probe: False)
    assert venv.driver_variables() == {"LD_LIBRARY_PATH": str(with_driver)}, "no other folder of the user's"
    given: list[dict[str, str]] = []
    monkeypatch.setattr(venv, "start_process", lambda *_, extra: given.append(extra))
    for kind in ("cuda", "cpu"):
        slot = Slot(kind, ("GPU-1",) if kind == "cuda" else (), (0,), 1 << 30)
        venv.VenvEngine(Settings()).start(Launch(ReadyImage(None, "sha256:0", ("python",)), [], slot, "run", tmp_path))
    assert [each.get("LD_LIBRARY_PATH") for each in given] == [str(with_driver), None]
    # Where the loader knows the driver the variable is the user's own affair.
    monkeypatch.setattr(venv, "is_there", lambda probe: True)
    assert venv.driver_variables() == {}
