"""Keeps one cell's processes: starts the cell, and ends all of them when the cell ends or the runner is gone.

Run as `python keeper.py LIFELINE CPUS SCRATCH COMMAND...` in a session of its own. LIFELINE is the read end of a pipe whose other
end only the runner has: a runner that is killed closes it, whatever killed it. Every process that the cell starts stays
below this one (it is their subreaper), even one that makes itself a daemon. The exit status is the cell's, as a shell tells it.
Standard library only: it starts before anything is installed, and takes no CPU while a cell runs.
"""

import ctypes
import os
import select
import shutil
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def start(command: list[str]) -> int:
    """Fork and become the cell; returns its pid."""
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # should this keeper itself be killed
    if os.getppid() != keeper:
        os._exit(128 + signal.SIGKILL)
    try:
        os.execve(command[0], command, os.environ)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error}\n".encode())
        os._exit(126)


def parents() -> dict[int, int]:
    """pid -> parent's pid, of every process of this machine."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    found[int(name)] = int(stat.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                pass  # it ended meanwhile
    return found


def descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def end_all() -> None:
    """Kill and reap all that is below this process. What forks meanwhile is found in the next round."""
    while True:
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def wait(pid: int, lifeline: int) -> int | None:
    """Wait for the cell; returns its exit status, or None when the runner is gone or wants it ended."""
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN | select.POLLHUP)
    poll.register(ended, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if ended in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            return code if code >= 0 else 128 - code
        if lifeline in ready:
            return None


def main() -> None:
    lifeline, cpus, scratch, command = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a terminal's Ctrl-C is the runner's to handle
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if cpus:
        os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
    os.set_inheritable(lifeline, False)
    pid = start(command)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # the cell's output ends when the cell does, not when this does
        os.dup2(nothing, fd)
    code = wait(pid, lifeline)
    end_all()
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)
    os._exit(128 + signal.SIGKILL if code is None else code)


if __name__ == "__main__":
    main()
