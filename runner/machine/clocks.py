"""Locks the clocks of GPUs while a run lasts, and sets them back whatever happens.

A record lies beside the GPU's lease from before the lock until after it is set back. If the runner is killed, the record stays, and the
next runner that holds the GPU, or the doctor, sets the clocks back. NVML does not tell a lock that was there before: it is not restored.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.machine import lease, nvml

_ENDING = ".clocks"
_BOARD = re.compile(r"GPU-[0-9a-f-]{8,40}")

# Everybody may write into the folder of the leases. Only what this user or root wrote is acted on.
_TRUSTED = (0, os.getuid())


@contextlib.contextmanager
def locked(boards: Sequence[str], megahertz: int, say: Callable[[str], None]) -> Iterator[tuple[str, ...]]:
    """Lock the SM clock of these GPUs (UUIDs) within the block; yields those that are locked.

    Whoever calls it holds the leases of the GPUs. If the driver refuses, `say` gets a sentence, and the clocks float.
    """
    with contextlib.ExitStack() as stack:
        held: list[str] = []
        for board in dict.fromkeys(boards):
            problem = _left_by_another(board) or _write_record(board, megahertz)
            if problem is None:
                # Before the lock: a signal may come between the two.
                held.append(board)
                stack.callback(_undo_and_say, board, held, say)
                problem = _lock(board, megahertz)
                if problem is None:
                    continue
                held.remove(board)
                _record(board).unlink(missing_ok=True)
            say(f"--lock-clocks: {problem}")
        yield tuple(held)


def _write_record(board: str, megahertz: int) -> str | None:
    """Record that the clocks are about to be locked. A sentence where that could not be done."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(_record(board), flags, 0o644), "w") as file:
            json.dump({"megahertz": megahertz, "pid": os.getpid()}, file)
    except FileExistsError:
        return (
            f"the clocks of GPU {board} are still locked by an earlier run, as {_record(board)} says; "
            f"`nvidia-smi -i {board} -rgc` sets them back"
        )
    except OSError as error:
        return f"the clocks of GPU {board} cannot be locked ({_record(board)}: {error.strerror}): they float"
    return None


def _lock(board: str, megahertz: int) -> str | None:
    """Lock the clocks of one GPU. A sentence where the driver refuses."""
    refusal = _do(board, lambda library, gpu: library.nvmlDeviceSetGpuLockedClocks(gpu, megahertz, megahertz))
    return f"the clocks of GPU {board} cannot be locked ({refusal}): they float" if refusal else None


def _do(board: str, action: Callable[[Any, Any], object]) -> str | None:
    """Set something of a GPU. Why it could not be done; None when it is."""
    try:
        with nvml.session() as library:
            try:
                action(library, library.nvmlDeviceGetHandleByUUID(board.encode()))
            except library.NVMLError_NoPermission as error:
                return f"{error}; root may"
            except nvml.errors(library) as error:
                return str(error)
    except nvml.NvmlError as error:
        return str(error)
    return None


def undo(boards: Sequence[str] | None = None) -> list[str]:
    """Set the clocks back that a killed runner left locked; a sentence for each GPU.

    `boards` are GPUs whose leases the caller holds. None: all GPUs that no runner holds; then another user's records are named as well.
    """
    sentences = []
    for board in lease.devices_with(_ENDING):
        foreign = _left_by_another(board)
        if boards is not None:
            sentences += _undo(board) if board in boards and not foreign else []
            continue
        # Everybody may write any name here: a lease is taken, and a sentence printed, only for the name of a GPU.
        if foreign and not _BOARD.fullmatch(board):
            continue
        with contextlib.suppress(lease.LeaseError), lease.hold([board], "doctor", lambda _: None, wait=False):
            sentences += [foreign] if foreign else _undo(board)
    return sentences


def _left_by_another(board: str) -> str | None:
    """A sentence where a record of the GPU's lock lies here that this user may not trust: another user's, or a symbolic link."""
    path = _record(board)
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISLNK(found.st_mode) and found.st_uid in _TRUSTED:
        return None
    try:
        owner = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        owner = f"user {found.st_uid}"
    return (
        f"the clocks of GPU {board} may still be locked by a runner of {owner}, which left {path}; "
        f"as root, `nvidia-smi -i {board} -rgc` sets them back; then remove that file"
    )


def _undo_and_say(board: str, held: Collection[str], say: Callable[[str], None]) -> None:
    """At the end of a run. Expected values are silent. A cleaner of /tmp may have removed the record: the lock is known without it."""
    if board in held:
        for sentence in _undo(board, ours=True):
            say(sentence)


def _undo(board: str, ours: bool = False) -> list[str]:
    """Set the clocks of one GPU back and remove the record; a sentence about it.

    Without a record nothing is done, unless this process locked them (`ours`).
    """
    path = _record(board)
    if not ours and not path.exists():
        return []
    if refusal := _do(board, lambda library, gpu: library.nvmlDeviceResetGpuLockedClocks(gpu)):
        return [f"the clocks of GPU {board} are still locked ({refusal}); `nvidia-smi -i {board} -rgc` sets them back"]
    # A file that somebody else put in its place meanwhile cannot be removed.
    with contextlib.suppress(OSError):
        path.unlink()
    return [] if ours else [f"the clocks of GPU {board}, which a killed runner left locked, are set back"]


def _record(board: str) -> Path:
    return lease.path_of(board, _ENDING)
