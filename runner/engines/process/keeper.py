"""Keeps one cell's processes: starts the cell, and ends all of them when the cell ends or the runner is gone.

Run as `python keeper.py LIFELINE CPUS SCRATCH COMMAND...` in a session of its own. LIFELINE is the read end of a pipe whose other
end only the runner has: a runner that is killed closes it, whatever killed it. Every process that the cell starts stays
below this one (it is their subreaper), even one that makes itself a daemon. The exit status is the cell's, as a shell tells it.
Standard library only: it starts before anything is installed, and takes no CPU while a cell runs.
"""

import ctypes
import importlib.machinery
import os
import resource
import select
import signal
import sys
import time
import types

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Between two looks at the whole tree.
_QUICK_LOOKS = 50

# This process ignores these signals. The cell must not: a program inherits what its parent ignores.
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # nobody reads the core file of a cell
    for number in (*IGNORED, signal.SIGPIPE):  # Python itself ignores SIGPIPE
        signal.signal(number, signal.SIG_DFL)
    kill_me_first()
    try:
        os.execve(command[0], command, os.environ)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error}\n".encode())
        os._exit(126)


def kill_me_first() -> None:
    """When memory runs out, the kernel kills the cell first, before the runner and other people's work."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    except OSError:
        pass  # a sandbox without that file


def parents() -> dict[int, int]:
    """pid -> parent's pid, of every process of this machine."""
    parent_of = {}
    for name in os.listdir("/proc"):
        try:
            pid = int(name)
            with open(f"/proc/{name}/stat") as stat:
                parent_of[pid] = int(stat.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            pass  # it ended meanwhile, or is no process
    return parent_of


def descendants(root: int) -> list[int]:
    """All processes below this one."""
    children_of: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children_of.setdefault(parent, []).append(pid)
    pids: list[int] = []
    waiting = [root]
    while waiting:
        below = children_of.get(waiting.pop(), [])
        pids += below
        waiting += below
    return pids


def children() -> list[int]:
    """The processes directly below this one, as fast as the kernel tells them; none where it does not (CONFIG_PROC_CHILDREN)."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listed:
            return [int(pid) for pid in listed.read().split()]
    except OSError:
        return []


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def end_all() -> None:
    """Kill and reap all that is below this process. New forks are found in the next round.

    A process that forks and ends at once is gone before the whole tree is read. Its child is directly below this one then, and a quick
    look finds it alive.
    """
    while True:
        kill(descendants(os.getpid()))
        for _ in range(_QUICK_LOOKS):
            kill(children())
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
        time.sleep(0.005)


def wake_when_a_child_ends() -> int:
    """The read end of a pipe that gets a byte whenever a child ends; kernels below 5.3 have no pidfd for that."""
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # not ignored, so that the pipe is written
    return read_end


def reap(pid: int) -> int | None:
    """Reap all that has ended; returns the exit status of `pid` if that is among them."""
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if not ended:
            return None


def wait(pid: int, lifeline: int, wake: int) -> int | None:
    """Wait for the cell; returns its exit status, or None when the runner is gone or has cut the lifeline."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN | select.POLLHUP)
    poll.register(wake, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wake in ready:
            os.read(wake, 4096)
            code = reap(pid)
            if code is not None:
                return code
        if lifeline in ready:
            return None


def remove(scratch: str) -> None:
    """This process finds no package: the one file is loaded that removes what a cell leaves."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "trees.py")
    sys.dont_write_bytecode = True  # its folder is the user's
    loader = importlib.machinery.SourceFileLoader("trees", path)
    trees = types.ModuleType(loader.name)
    loader.exec_module(trees)
    folder = trees.Path(scratch)
    trees.detach(folder)
    trees.remove(folder)


def main() -> None:
    lifeline, cpus, scratch, command = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)  # a terminal's Ctrl-C is the runner's to handle
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if cpus:
        os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
    os.set_inheritable(lifeline, False)
    wake = wake_when_a_child_ends()
    pid = start(command)
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(pid, signal.SIGABRT))  # the runner asks for the cell's stack
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # the cell's output ends when the cell does, not when this does
        os.dup2(nothing, fd)
    code = wait(pid, lifeline, wake)
    end_all()
    if scratch:
        remove(scratch)
    os._exit(128 + signal.SIGKILL if code is None else code)


if __name__ == "__main__":
    main()
