"""Cells as processes of this machine: what the engines `venv` and `host` have in common.

There is no container around them, so nothing is shut off; but a cell gets its own CPUs, a clean environment, a scratch
folder as its temporary folder, and leaves no process behind, however it or the runner ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from bench import rules
from runner import paths, trees
from runner.engines.base import JIT_CACHE_BYTES, JIT_CACHE_FOLDER, LOG_TAIL_BYTES, Exit, Launch, Slot
from runner.engines.cell_cache import private_folder
from runner.engines.process import keeper
from runner.errors import EngineError, system_fault

# Whose a container or a process is: the runner's process, by a name that never comes back for another one.
#
# By that a later runner finds what a killed one left, and never touches what another runner is still running.


def owner_of(pid: int) -> str:
    """A process as boot/namespace/pid/start time: the same name never comes back for another process."""
    return f"{_boot_id()}/{_pid_namespace()}/{pid}/{_start_time(pid)}"


def is_dead(owner: str) -> bool:
    """True if the process that this label names is certainly gone. One of another namespace cannot be judged."""
    parts = owner.split("/")
    if len(parts) != 4 or (pid := rules.whole(parts[2])) is None:
        return False
    boot, namespace, _, start = parts
    if boot != _boot_id():
        return True
    return namespace == _pid_namespace() and _start_time(pid) != start


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink()).removeprefix("pid:").strip("[]")


def _start_time(pid: int) -> str | None:
    """When a process started, in clock ticks after boot; None when it is gone or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


KEEPER = Path(keeper.__file__)

# A keeper ends a cell within milliseconds. One that has not done so by then was stopped or deceived by the cell, and all of the cell's
# processes that can be found are killed, for as long again.
_END_SECONDS = 10.0

CHUNK_BYTES = 64 * 1024
# bench/ranks.py prints it of a process that was killed.
_KILLED_MARK = b"(SIGKILL)"

# Folders in which frameworks keep compiled code, by default below HOME or a folder that all users share. A cell gets a new folder, as
# in a container: it loads nothing that another cell left.
CACHE_VARIABLES = (
    "XDG_CACHE_HOME",  # tinygrad, JAX, Numba and others
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_CACHE_DIR",
    "CUPY_CACHE_DIR",
    "NUMBA_CACHE_DIR",
    "MS_COMPILER_CACHE_PATH",
)

# The folder on the host, for a cell that sees it under another name.
SCRATCH_VARIABLE = "DLBENCH_SCRATCH"

# The warning about cells of these engines.
NOT_WALLED_IN = (
    "cells run without containers: they can read and write what you can (--engine docker runs them in containers)"
)

# The user's variables that a cell sees. Any other could change the result unnoticed.
KEPT = ("PATH", "USER", "LOGNAME", "SHELL", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "LANGUAGE")


def cell_environment(slot: Slot, cache: Path, scratch: Path, keep: Sequence[str] = ()) -> dict[str, str]:
    """The environment of a cell. `keep` names further variables of the user's that it sees."""
    names = [name for name in (*KEPT, *keep) if name in os.environ]
    environment = {name: os.environ[name] for name in names}
    environment |= {
        "HOME": environment.get("HOME", str(scratch)),
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(paths.PROJECT),
        "PYTHONDONTWRITEBYTECODE": "1",  # the checkout is the user's
        "PYTHONFAULTHANDLER": "1",  # a crash, and the watchdog's SIGABRT, write the stack
        "PYTHONUNBUFFERED": "1",  # the log's last lines are the ones that matter when a cell is killed
        "DLBENCH_CACHE": str(cache),
        **{name: str(scratch / "caches" / name.lower()) for name in CACHE_VARIABLES},
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_CACHE_PATH": str(cache / JIT_CACHE_FOLDER),
        "CUDA_CACHE_MAXSIZE": str(JIT_CACHE_BYTES),
        # a CPU cell sees no GPU, so a CPU result cannot come from one
        "CUDA_VISIBLE_DEVICES": ",".join(slot.device_uuids) if slot.device_kind == "cuda" else "",
    }
    if slot.cpus:
        # Without them these libraries start a thread for each CPU of the machine.
        environment |= dict.fromkeys(rules.THREAD_VARIABLES, str(slot.threads))
    return environment


def start_process(launch: Launch, keep: Sequence[str] = (), extra: Mapping[str, str] | None = None) -> LocalRunning:
    """Start a cell below a keeper. `keep` names further variables of the user's that it sees, `extra` has more. Raises EngineError."""
    launch.cache.mkdir(parents=True, exist_ok=True)
    scratch = make_scratch()
    environment = cell_environment(launch.slot, launch.cache.resolve(), scratch, keep)
    environment |= {**(extra or {}), "DLBENCH_RUN": launch.label}
    command = [*launch.prepared.command, *launch.arguments]
    if launch.data is not None:
        command += ["--data", str(launch.data.resolve())]
    return LocalRunning(*keep_below(command, environment, launch.slot, scratch), scratch)


def keep_below(
    command: Sequence[str], environment: Mapping[str, str], slot: Slot, scratch: Path
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a keeper and below it the command, on the slot's CPUs: the keeper, and the lifeline that ends it when it is closed.

    Raises EngineError, and removes the scratch folder then.
    """
    read_end, write_end = os.pipe()
    cpus = ",".join(map(str, slot.cpus))
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), str(read_end), cpus, str(scratch), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=scratch,
            pass_fds=(read_end,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(write_end)
        trees.remove(scratch)
        raise EngineError(f"a cell of {command[0]} could not be started ({system_fault(error)})") from error
    finally:
        os.close(read_end)
    return process, write_end


class LocalRunning:
    """A started cell. Exactly one thread reads events() and then calls wait(); any may call stop()."""

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int, scratch: Path) -> None:
        self._process = process
        self._lifeline: int | None = lifeline
        self._scratch = scratch
        self._lock = threading.Lock()
        self._killer: threading.Thread | None = None
        # All of its output is read, and its keeper has ended.
        self._ended = threading.Event()
        # Whatever of it could not be ended; the pipe then wakes the reader.
        self._left: str | None = None
        self._wake, self._waker = os.pipe()
        # As /proc names them.
        self._pipes = {f"pipe:[{os.fstat(each.fileno()).st_ino}]" for each in (process.stdout, process.stderr) if each}
        self._oom_kills = oom_kills()
        # Of a cell in several processes the kernel may end one. Then the cell itself ends as after any error (bench/ranks.py).
        self._says_killed = False
        self._log = bytearray()
        self._log_reader = threading.Thread(target=self._read_log, daemon=True)
        self._log_reader.start()

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        # A process that could not be ended may print after the pipe is closed here.
        with contextlib.suppress(ValueError):
            while chunk := os.read(self._process.stderr.fileno(), CHUNK_BYTES):
                self._log += chunk
                del self._log[:-LOG_TAIL_BYTES]

    def events(self) -> Iterator[bytes]:
        """The cell's standard output, until none of its processes is left, or they are given up."""
        assert self._process.stdout is not None
        output, ready = self._process.stdout.fileno(), select.poll()
        ready.register(output, select.POLLIN)
        ready.register(self._wake, select.POLLIN)
        end = b""  # of what was read before: the mark may lie in two chunks
        while self._left is None:
            if output in dict(ready.poll()):
                chunk = os.read(output, CHUNK_BYTES)
                if not chunk:
                    return
                self._says_killed |= _KILLED_MARK in end + chunk
                end = (end + chunk)[1 - len(_KILLED_MARK) :]
                yield chunk

    def stop(self) -> None:
        """Cut the lifeline: the keeper kills the cell and all that it started. A thread sees to it."""
        with self._lock:
            if self._killer is None and not self._ended.is_set():
                self._killer = threading.Thread(target=self._kill, daemon=True)
                self._killer.start()

    def _kill(self) -> None:
        """End the cell. It may have stopped or killed its keeper, or hold the lifeline open; then the keeper does not end it."""
        self._cut()
        end = time.monotonic() + _END_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
            if self._ended.wait(0.1):
                return
        end = time.monotonic() + _END_SECONDS
        while not self._ended.wait(0.1):
            pids = kill_users_of(self._scratch, self._pipes, self.pid())
            if time.monotonic() > end:
                self._left = _could_not_be_ended(pids)
                os.write(self._waker, b"x")
                return

    def dump(self) -> None:
        """The keeper hands it on to the cell."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)

    def pid(self) -> int | None:
        """The keeper: the cell is below it."""
        return self._process.pid if self._process.returncode is None else None

    def scratch(self) -> Path:
        return self._scratch

    def _cut(self) -> None:
        with self._lock:
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._lifeline = None

    def wait(self) -> Exit:
        for _ in self.events():  # read the rest: a cell whose output nobody reads would block
            pass
        code = self._process.wait()
        if code < 0 or self._scratch.exists():
            # Its keeper did not come to its end, so processes of the cell may go on without any output.
            end = time.monotonic() + _END_SECONDS
            while (pids := kill_users_of(self._scratch, self._pipes)) and time.monotonic() < end:
                time.sleep(0.1)
            self._left = self._left or (_could_not_be_ended(pids) if pids else None)
        self._ended.set()
        self._cut()
        self._log_reader.join(timeout=5)
        if self._killer:
            self._killer.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        os.close(self._wake)
        os.close(self._waker)
        _remove(self._scratch)
        killed = (self._says_killed or code == 128 + signal.SIGKILL) and self._killer is None
        out_of_memory = killed and oom_kills() > self._oom_kills
        code = code if code >= 0 else 128 - code  # the keeper itself was killed
        return Exit(code, out_of_memory, bytes(self._log).decode("utf-8", "replace"), self._left)


def _could_not_be_ended(pids: Sequence[int]) -> str:
    named = f" ({', '.join(map(str, pids))})" if pids else ""
    return f"processes of it{named} could not be ended; end them by hand"


def kill_users_of(scratch: Path, pipes: Collection[str] = (), keeper_pid: int | None = None) -> list[int]:
    """Kill the processes of the cell with this temporary folder and these pipes, and those below its keeper; returns them."""
    pids = keeper.descendants(keeper_pid) if keeper_pid is not None else []
    for folder in Path("/proc").glob("[0-9]*"):
        # The runner itself looks at what is in that folder.
        if folder.name != str(os.getpid()) and (_is_of(scratch, folder) or _holds(scratch, pipes, folder)):
            pids.append(int(folder.name))
    keeper.kill(pids)
    return pids


def _is_of(scratch: Path, process: Path) -> bool:
    """True if a process has the environment of the cell."""
    variables = {name + b"=" + os.fsencode(scratch) for name in (b"TMPDIR", SCRATCH_VARIABLE.encode())}
    with contextlib.suppress(OSError):
        return not variables.isdisjoint((process / "environ").read_bytes().split(b"\0"))
    return False


def _holds(scratch: Path, pipes: Collection[str], process: Path) -> bool:
    """True if a process is in the cell's folder, has a file of it open, or can write to its pipes: its environment may be empty."""
    folder = os.path.realpath(scratch)
    with contextlib.suppress(OSError):
        for link in (process / "cwd", *(process / "fd").iterdir()):
            with contextlib.suppress(OSError):
                target = link.readlink().as_posix().removesuffix(" (deleted)")
                # The link of what can be written has that right. A child of the runner may have the other end for a moment.
                if target in pipes and link.lstat().st_mode & stat.S_IWUSR:
                    return True
                if target == folder or target.startswith(folder + os.sep):
                    return True
    return False


def oom_kills() -> int:
    """How many processes the kernel has killed for lack of memory since it began."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def make_scratch() -> Path:
    """A temporary folder that names its owner, so that a later runner can remove what a killed one left."""
    prefix = owner_of(os.getpid()).replace("/", "_") + "_"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=private_folder("scratch")))


def _remove(scratch: Path) -> None:
    trees.detach(scratch)
    trees.remove(scratch)


def sweep_scratch() -> int:
    """Remove the scratch folders of runners that have died, and end the cells whose keepers could not; return how many."""
    removed = 0
    for path in private_folder("scratch").glob("*_*_*_*_*"):
        if is_dead("/".join(path.name.split("_")[:4])):
            kill_users_of(path)
            _remove(path)
            removed += 1
    return removed
