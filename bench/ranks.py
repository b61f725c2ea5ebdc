"""A cell in several processes, one a device: starts them, hands on what the first one tells, ends all when one of them fails.

Each is this entrypoint again with the same arguments, and runs the whole cell; what rank 0 prints is the cell's output. Its `error`
and `end` are held back until all processes have ended: a process that fails makes the others fail after it, and the cell's
error is that of the first. PyTorch's torchrun does the same; it is not used because other frameworks have none.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from bench import environment, parallel

# The others notice a dead process within this time, and say so themselves; then they are ended.
GRACE_SECONDS = 2.0
# What a process may take to end after the others have.
LAST_SECONDS = 60.0
# A process that a signal ended is to blame, unless another one had complained this long before.
TOGETHER_SECONDS = 1.0
_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1


def wanted(options):
    """Whether this process is to start the cell's processes, and is none of them."""
    several = getattr(options, "devices", 1) > 1 and parallel.form(options.framework) == parallel.PROCESSES
    return several and parallel.RANK not in os.environ


class Rank(object):
    """One process of the cell, and what it said. A thread of its own reads it."""

    def __init__(self, number, arguments, variables, hand_on):
        self.number = number
        self.error = None  # its first `error` event
        self.end = None  # the line with its `end`
        self.complained = None  # when it told an error or its output ended
        self.stopped = False  # it was ended here
        self._hand_on = hand_on
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench"] + arguments,
            stdout=subprocess.PIPE,
            env=dict(variables, **{parallel.RANK: str(number)}),
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.daemon = True
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            event = _event(line)
            if event.get("event") == "error":
                self.error, self.complained = self.error or event, self.complained or time.time()
            elif event.get("event") == "end":
                self.end = line
            elif self.number == 0:
                self._hand_on(line)
        self.complained = self.complained or time.time()

    def failed(self):
        return self.process.poll() not in (None, 0)

    def stop(self):
        if self.process.poll() is None:
            self.stopped = True
            self.process.kill()

    def wait(self):
        self.process.wait()
        self._reader.join()


def supervise(arguments, options, emitter):
    """Run `python -m bench ARGUMENTS` in a process for each device; returns the exit status."""
    folder = tempfile.mkdtemp(prefix="dlbench-ranks-")
    try:
        ranks = _start(arguments, options, os.path.join(folder, "meeting"), emitter)
        signal.signal(signal.SIGABRT, lambda *_: _dump(ranks))
        late = _wait(ranks)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    code = max([1 if rank.failed() else 0 for rank in ranks])
    if options.command == "run":
        blamed = late or _to_blame(ranks)
        if blamed is not None:
            _tell_failure(blamed, len(ranks), emitter)
            return 1
        emitter.write(ranks[0].end)
    return code


def _start(arguments, options, meeting, emitter):
    threads = parallel.threads_of_each(options.framework, options.threads or environment.cpu_count(), options.devices)
    variables = dict(os.environ, **{parallel.MEETING: meeting})
    for library in ("OMP", "MKL", "OPENBLAS"):  # read by some libraries when they are loaded
        variables[library + "_NUM_THREADS"] = str(threads)
    return [Rank(number, arguments, variables, emitter.write) for number in range(options.devices)]


def _wait(ranks):
    """Wait until all have ended; ends those that are left when one has failed. The one that did not end after the others, or None."""
    limit = None
    while any(rank.process.poll() is None for rank in ranks):
        over = [rank for rank in ranks if rank.process.poll() is not None]
        if limit is None and over:
            limit = time.time() + (GRACE_SECONDS if any(rank.failed() for rank in over) else LAST_SECONDS)
        elif limit is not None and any(rank.failed() for rank in over):
            limit = min(limit, time.time() + GRACE_SECONDS)
        if limit is not None and time.time() > limit:
            break
        time.sleep(_POLL_SECONDS)
    left = [rank for rank in ranks if rank.process.poll() is None]
    late = left[0] if left and not any(rank.failed() for rank in ranks) else None
    for rank in left:
        rank.stop()
    for rank in ranks:
        rank.wait()
    return late


def _to_blame(ranks):
    """The process that failed first; None where none did."""
    failed = [rank for rank in ranks if (rank.failed() and not rank.stopped) or rank.error]
    if not failed:
        return None if ranks[0].end else ranks[0]
    first = min(failed, key=lambda rank: rank.complained)
    killed = [rank for rank in failed if rank.process.returncode < 0 and rank.error is None]
    near = [rank for rank in killed if rank.complained - first.complained < TOGETHER_SECONDS]
    return min(near, key=lambda rank: rank.complained) if near else first


def _tell_failure(rank, count, emitter):
    who = "rank %d of %d" % (rank.number, count)
    error = rank.error or {"kind": "framework", "message": _how_it_ended(rank), "traceback": ""}
    message = "%s: %s" % (who, error["message"])
    emitter.emit("error", kind=error["kind"], message=message[:16000], traceback=error["traceback"])
    emitter.emit("end", status="failed", stop="none", noise=None, steps=0)


def _how_it_ended(rank):
    if rank.stopped:
        return "it had not ended %d s after the others, and was ended" % LAST_SECONDS
    code = rank.process.returncode
    return "it was ended by signal %d" % -code if code < 0 else "it ended with exit code %d and no error" % code


def _event(line):
    """The event in a line of a process of ours; empty where it is none."""
    try:
        found = json.loads(line.decode("utf-8"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _dump(ranks):
    """The watchdog wants the stack of the cell: it is theirs."""
    for rank in ranks:
        if rank.process.poll() is None:
            rank.process.send_signal(signal.SIGABRT)
    time.sleep(1.0)
    os._exit(128 + signal.SIGABRT)


def end_with_parent():
    """Called by a process of the cell: Linux ends it when the one that started it dies, however it dies."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # another system: the engine ends what is left
