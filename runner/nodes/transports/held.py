"""Runs a command for as long as the standard input is open: whatever ends the process that holds the other end ends the command.

Run as `python held.py COMMAND...`. A Slurm allocation is held this way: it must not outlive the runner that submitted it, even if that
is killed while it waits in line.
"""

import contextlib
import select
import subprocess
import sys

_LOOK_MILLISECONDS = 200

# Once nodes are granted, salloc exits when its command exits. A signal then would make it hang. While
# it waits in line it runs nothing, and a signal ends it.
_BY_ITSELF_SECONDS = 3.0
_BY_SIGNAL_SECONDS = 10.0


def main() -> int:
    process = subprocess.Popen(sys.argv[1:])
    poll = select.poll()
    # Nothing is ever written into it, and the command may read it.
    poll.register(0, select.POLLHUP)
    while process.poll() is None:
        if poll.poll(_LOOK_MILLISECONDS):
            return _end(process)
    return process.returncode


def _end(process: "subprocess.Popen[bytes]") -> int:
    for seconds, end in ((_BY_ITSELF_SECONDS, process.terminate), (_BY_SIGNAL_SECONDS, process.kill)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
        end()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
