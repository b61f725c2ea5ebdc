"""Whose a container or a process is: the runner's process, by a name that never comes back for another one.

By that a later runner finds what a killed one left, and never touches what another runner is still running.
"""

from __future__ import annotations

from pathlib import Path

from bench import rules


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
