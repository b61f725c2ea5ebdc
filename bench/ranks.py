"""A cell in several processes, one a device: starts them, hands on the output of the first, ends all when one fails.

Each process is this entrypoint again with the same arguments, and runs the whole cell. The output of rank 0 is the cell's output. Its
`error` and `end` are held back until all processes have ended: a process that fails makes the others fail after it, and the cell's
error is that of the first to fail. PyTorch's torchrun does the same. It is not used, because the other frameworks have no such program.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from bench import environment, parallel, rules

# The others have this time to notice a dead process and to emit their errors. Then they are ended.
GRACE_SECONDS = 2.0
# The time that a process has once the others ended.
LAST_SECONDS = 60.0
# A process that a signal ended is to blame, unless another one had failed this long before.
TOGETHER_SECONDS = 1.0
_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1
# The folder where MPI's processes write their output, but for the first; and MPICH's variable for the rank.
ASIDE, PMI_RANK = "DLBENCH_ASIDE", "PMI_RANK"
# The words of MPICH's mpiexec on its output when it has lost a process, and its most lines that are read for them.
_LOST, _MOST_LINES = b"BAD TERMINATION", 100


def starts_processes(options):
    """True if this process must start the cell's processes, and is not one of them."""
    form = parallel.form(options.framework) if options.devices > 1 else None
    return form in (rules.PROCESSES, rules.MPI) and parallel.RANK not in os.environ


class Rank(object):
    """One process of the cell, with its error and its end. A thread reads its output."""

    def __init__(self, number, command, variables, hand_on):
        self.number = number
        self.error = None  # its first `error` event
        self.end = None  # the line with its `end`
        self.complained = None  # when its `error` came, or its output ended
        self.stopped = False  # whether it was ended here
        self.all = parallel.RANK not in variables  # whether it is mpiexec, which stands for all processes
        self.lost = None  # what mpiexec says of a process that it lost
        self._strange = []  # lines of mpiexec's output that are no events
        self._hand_on = hand_on
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=variables)
        self._reader = threading.Thread(target=self._read)
        self._reader.daemon = True
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            event = _event(line)
            if event.get("event") == "error":
                self.blame(event, time.monotonic())
            elif event.get("event") == "end":
                self.end = line
            # A process that is killed leaves half a line, and what follows would stand in it.
            elif self.all and not event and len(self._strange) < _MOST_LINES:
                self._strange.append(line)
            elif self.number == 0 and line.endswith(b"\n"):
                self._hand_on(line)
        self.complained = self.complained or time.monotonic()
        self._judge_strange_lines()

    def _judge_strange_lines(self):
        """mpiexec has one output for all: its words on a lost process go to the log. Any other line is the cell's, and no event."""
        text = b"".join(self._strange)
        if _LOST in text and self.process.wait() != 0:
            self.lost = text.decode("utf-8", "replace")
            sys.stderr.write(self.lost)
            return
        for line in self._strange:
            if line.endswith(b"\n"):
                self._hand_on(line)

    def blame(self, event, moment):
        """It emitted an `error`. The first one counts."""
        self.error, self.complained = self.error or event, self.complained or moment

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
        try:
            ranks = _start(arguments, options, os.path.join(folder, "meeting"), emitter)
        except OSError as error:
            return _emit_no_start(options, error, emitter)
        signal.signal(signal.SIGABRT, lambda *_: _dump(ranks))
        late = _wait(ranks)
        aside = _failed_aside(folder, ranks[0])
        number = _lost_rank(folder, ranks[0], options.devices)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    code = max([1 if rank.failed() else 0 for rank in ranks])
    if options.command == "run":
        blamed = late or aside or _to_blame(ranks)
        if blamed is not None:
            _emit_failure(blamed, options.devices, number, emitter)
            return 1
        emitter.write(ranks[0].end)
    return code


def _start(arguments, options, meeting, emitter):
    threads = parallel.threads_of_each(options.framework, options.threads or environment.cpu_count(), options.devices)
    variables = dict(os.environ, **{parallel.MEETING: meeting})
    variables.update((name, str(threads)) for name in rules.THREAD_VARIABLES)
    command = [sys.executable, "-m", "bench"] + arguments
    if parallel.form(options.framework) == rules.MPI:
        variables[ASIDE] = os.path.dirname(meeting)
        # A container lets no process read another one's memory: MPICH's messages go through shared memory instead.
        variables["MPIR_CVAR_CH4_CMA_ENABLE"] = "0"
        return [Rank(0, _mpiexec(options.devices) + command, variables, emitter.write)]
    own = [dict(variables, **{parallel.RANK: str(number)}) for number in range(options.devices)]
    return [Rank(number, command, own[number], emitter.write) for number in range(options.devices)]


def _mpiexec(count):
    """The command that starts `count` processes of this machine: beside this interpreter, where MPICH's wheel puts it, or on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return [beside if os.path.exists(beside) else "mpiexec", "-launcher", "fork", "-n", str(count)]


def take_place():
    """Called by a process of the cell, before it does anything else.

    Linux ends it when the process that started it dies, however that dies. A process of MPI looks up its rank. If it is not the first,
    it writes its events to a file, because mpiexec has a single output for all.
    """
    if ASIDE in os.environ and parallel.RANK not in os.environ:
        rank = os.environ[parallel.RANK] = os.environ[PMI_RANK]
        with open(os.path.join(os.environ[ASIDE], "process-%d" % os.getpid()), "w") as file:
            file.write(rank)
        if rank != "0":
            path = os.path.join(os.environ[ASIDE], "rank-" + rank)
            aside = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(aside, 1)
            os.close(aside)
    if parallel.RANK not in os.environ:
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux: the engine ends the processes


def leave(code, options):
    """The end of a process: at once where `ends_at_once` says so; otherwise the code is returned to Python's own end."""
    if ends_at_once(code, options):
        sys.stdout.flush()
        sys.stderr.flush()
        # Libraries in C and C++ print, too, and the C library keeps what goes to a pipe.
        ctypes.CDLL(None).fflush(None)
        os._exit(code)
    return code


def ends_at_once(code, options):
    """True if a process need not take its framework down, which takes a second of CPU time in each repeat.

    After a failure among several processes it must not: MPI's own end would wait for the others. A profiler may write its files at the end.
    """
    if parallel.RANK in os.environ:
        return code != 0
    return options.command == "run" and not options.profile and not starts_processes(options)


class FailedAside(object):
    """A process of MPI that wrote an error to its file."""

    stopped = False

    def __init__(self, number, error):
        self.number, self.error = number, error


def _failed_aside(folder, first):
    """The process of MPI with the earliest error; None where only the first process has an error, or no process has."""
    failures = []
    for name in os.listdir(folder):
        if name.startswith("rank-"):
            with open(os.path.join(folder, name), "rb") as lines:
                failures += [
                    FailedAside(int(name[5:]), event) for event in map(_event, lines) if event.get("event") == "error"
                ]
    failures = [failure for failure in failures if first.error is None or failure.error["t"] < first.error["t"]]
    return min(failures, key=lambda failure: failure.error["t"]) if failures else None


def _wait(ranks):
    """Wait until all have ended, and end the rest when one has failed. Returns the one that did not end after the others, or None."""
    limit = None
    while any(rank.process.poll() is None for rank in ranks):
        over = [rank for rank in ranks if rank.process.poll() is not None]
        if limit is None and over:
            limit = time.monotonic() + (GRACE_SECONDS if any(rank.failed() for rank in over) else LAST_SECONDS)
        elif limit is not None and any(rank.failed() for rank in over):
            limit = min(limit, time.monotonic() + GRACE_SECONDS)
        if limit is not None and time.monotonic() > limit:
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
    """The process that failed first, or None."""
    failed = [rank for rank in ranks if (rank.failed() and not rank.stopped) or rank.error]
    if not failed:
        return None if ranks[0].end else ranks[0]
    first = min(failed, key=lambda rank: rank.complained)
    killed = [rank for rank in failed if rank.process.returncode < 0 and rank.error is None]
    near = [rank for rank in killed if rank.complained - first.complained < TOGETHER_SECONDS]
    return min(near, key=lambda rank: rank.complained) if near else first


def _lost_rank(folder, first, count):
    """The rank of the process that mpiexec lost, by its number in the system; None where it is not known.

    mpiexec kills the others, and names the first that a signal ended: the lost one is that or a later one, and certain if it is the last.
    """
    lost = re.search(r"PID (\d+) RUNNING", first.lost or "")
    try:
        with open(os.path.join(folder, "process-" + lost.group(1) if lost else "")) as file:
            number = int(file.read())
    except (OSError, ValueError):
        return None
    return number if number == count - 1 else None


def _emit_failure(rank, count, lost, emitter):
    who = "rank %d of %d" % (rank.number, count)
    if rank.error is None and rank.all:
        who = "one of %d processes of MPI" % count if lost is None else "rank %d of %d" % (lost, count)
    error = rank.error or {"kind": "framework", "message": _how_it_ended(rank), "traceback": ""}
    message = "%s: %s" % (who, error["message"])
    emitter.emit("error", kind=error["kind"], message=message[:16000], traceback=error["traceback"])
    emitter.emit("end", status="failed", stop="none", noise=None, steps=0)


def _emit_no_start(options, error, emitter):
    message = "the processes of %d devices could not be started: %s" % (options.devices, error)
    if options.command == "run":
        emitter.emit("error", kind="unsupported", message=message, traceback="")
        emitter.emit("end", status="failed", stop="none", noise=None, steps=0)
    else:
        sys.stderr.write(message + "\n")
    return 1


def _how_it_ended(rank):
    if rank.stopped:
        return "it had not ended %d s after the others, and was ended" % LAST_SECONDS
    code = rank.process.returncode
    ended = re.search(r"\(signal (\d+)\)", rank.lost or "")
    if ended:
        code = -int(ended.group(1))
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return "it was ended by signal %d (%s)" % (-code, names.get(-code, "no name"))
    return "it ended with exit code %d and no error" % code


def _event(line):
    """The event in a line; {} where the line is no event."""
    try:
        event = json.loads(line.decode("utf-8"))
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _dump(ranks):
    """The watchdog asks for the cell's stack: make every process dump its own."""
    for rank in ranks:
        if rank.process.poll() is None:
            rank.process.send_signal(signal.SIGABRT)
    time.sleep(1.0)
    os._exit(128 + signal.SIGABRT)
