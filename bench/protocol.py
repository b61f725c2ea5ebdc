"""The events that a cell prints: one JSON object a line on standard output, and nothing else there.

This module is the whole agreement between an image and the host. It needs only the standard library, so the host imports
it too, and an entrypoint in another language can be written from it. Times are seconds, sizes are bytes.
"""

import json
import os
import sys
import time

from bench.rules import PHASES

VERSION = 1

# One line is at most this long; a longer one is refused unread, so that a broken cell cannot fill the host's memory.
MAX_LINE_BYTES = 256 * 1024
MAX_STRING = 16 * 1024
MAX_ITEMS = 512
# Of any time, the wall clock's included: three centuries. Of anything else that is measured: arithmetic on it must not overflow.
MOST_SECONDS = 1e10
MOST = 1e15

ERROR_KINDS = ("out-of-memory", "unsupported", "no-device", "data", "framework", "bug")
STAGES = ("first", "warm-up", "steady")
# The quantities of a parity event. The phase that it is printed in says of which adapter: bench.rules.due.
QUANTITIES = (
    "logits",
    "loss",
    "gradient",
    "movement",
    "parameter",
    "decay",
    "moved",
    "updates",
    "prediction",
    "landing",
    "dropout",
    "learning",
    "items",
    "evaluated",
    "decoded",
    "exact",
    "features",
    "operation",
)
STOP_REASONS = ("noise", "time", "count", "none")


class ProtocolError(ValueError):
    """A line that does not fit the protocol. The message says what is wrong and quotes the start of the line."""

    def __init__(self, reason, line):
        if isinstance(line, bytes):
            line = line[:200].decode("utf-8", "replace")
        self.reason = reason
        self.line = line[:200]
        super().__init__("%s; the line begins: %r" % (reason, self.line))


def _number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e308 <= value <= 1e308


def _non_negative(value):
    return _number(value) and value >= 0


def _amount(value):
    return _number(value) and 0 <= value <= MOST


def _share(value):
    return _number(value) and 0 <= value <= 1


def _seconds(value):
    return _number(value) and 0 <= value <= MOST_SECONDS


def _count(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _text(value):
    return isinstance(value, str) and len(value) <= MAX_STRING


def _flag(value):
    return isinstance(value, bool)


def _optional(check):
    return lambda value: value is None or check(value)


def _one_of(*values):
    return lambda value: isinstance(value, str) and value in values


def _texts(value):
    return isinstance(value, list) and len(value) <= MAX_ITEMS and all(_text(item) for item in value)


def _text_map(value):
    return isinstance(value, dict) and len(value) <= MAX_ITEMS and all(_text(k) and _text(v) for k, v in value.items())


def _setting_map(value):
    return (
        isinstance(value, dict)
        and len(value) <= MAX_ITEMS
        and all(_text(k) and (v is None or _flag(v) or _number(v) or _text(v)) for k, v in value.items())
    )


def _fields(**checks):
    return lambda value: (
        isinstance(value, dict) and set(value) == set(checks) and all(checks[k](value[k]) for k in checks)
    )


# Every event and its fields. All fields are required; `_optional` ones may be null. Unknown fields are refused: a host
# that silently drops what it does not know would lose measurements.
EVENTS = {
    "environment": {
        "framework": _text,
        "framework_version": _text,
        # package or library name -> version: python, numpy, cuda, cudnn, nccl, driver and the framework's own
        "versions": _text_map,
        "device": _fields(
            kind=_one_of("cpu", "cuda"),
            name=_text,
            count=_count,
            uuids=_texts,
            compute_capability=_optional(_text),
            memory_bytes=_optional(_count),
        ),
        "host": _fields(cpu_model=_text, cpu_count=_count, memory_bytes=_count, kernel=_text, container=_flag),
        # what was switched: tf32, cudnn_benchmark, layout, threads, ...
        "settings": _setting_map,
        # of all the bench that the cell had beside it; a fact, and not what decides whether two cells are of the same code
        "bench_sha256": _text,
        # of the core and the workload's files, which all frameworks share; and of that with the framework's code (bench.identity)
        "core_sha256": _text,
        "code_sha256": _text,
        "clock": _fields(name=_text, resolution_seconds=_seconds, unix_at_zero=_seconds),
    },
    "data": {
        "name": _text,
        "source": _one_of("generated", "files"),
        "sha256": _text,
        "train_items": _count,
        "test_items": _count,
    },
    "phase": {"name": _one_of(*PHASES), "state": _one_of("begin", "end"), "seconds": _optional(_seconds)},
    "plan": {
        "windows": _count,  # the most windows to come
        "steps_per_window": _count,
        "items_per_step": _count,
        "seconds": _seconds,  # the most time they may take together
        "short": _flag,  # true: shorter than the specification's run, so its total is not the published total
    },
    "sample": {
        "index": _count,
        "stage": _one_of(*STAGES),  # first: the step that compiles; only steady windows are summarised
        "begin": _seconds,  # on the clock of `t`
        "seconds": _seconds,
        "steps": _count,
        "items": _count,
    },
    # one measured window of one operation at one size
    "operation": {
        "operation": _text,
        "direction": _one_of("forward", "gradient", "step", "copy", "reduce", "collective"),
        "size": _text,  # its numbers as the workload orders them, joined by x
        "mop": _amount,  # million floating-point operations in one run
        "bytes": _count,  # the least that one run reads and writes
        "buffers": _count,  # the sets of inputs that took turns
        "index": _count,
        "begin": _seconds,  # on the clock of `t`
        "seconds": _seconds,
        "runs": _count,
    },
    # The kernel that the framework took for such a point, where it has several. Before its windows.
    "dispatch": {
        "operation": _text,
        "direction": _one_of("forward", "gradient"),
        "size": _text,
        "kernel": _text,
    },
    # one operation of a step, as the framework's profiler saw it in a few steps after the measured ones
    "profile": {
        "name": _text,
        "on": _one_of("cpu", "cuda"),
        "calls": _count,  # in all the profiled steps together
        "seconds": _seconds,  # its own, without what it calls, of all its calls together
        "steps": _count,  # those that were profiled
        "step_seconds": _seconds,  # of one of them, by the clock: a profiler slows what it watches
    },
    # Of a GPU: in which share of a step's time kernels ran. The profiled steps, after all that is measured.
    "kernels": {"share": _share, "steps": _count},
    "left-out": {"what": _text, "reason": _text},
    "metric": {
        "name": _text,
        "split": _one_of("train", "validation", "test"),
        "step": _count,
        "seconds": _seconds,  # training time so far: first step and warm-up inside, evaluation outside
        "value": _optional(_number),  # null: it was not finite
    },
    "parity": {
        "quantity": _one_of(*QUANTITIES),
        "tensor": _text,
        "error": _optional(_non_negative),  # relative, of most quantities in the 2-norm; null: not finite
        "bound": _non_negative,
        "passed": _flag,
        "variant": _text,  # which form of the computation the reference took; "" for the specification's own
    },
    "memory": {"host_peak_bytes": _count, "device_peak_bytes": _optional(_count)},
    "error": {"kind": _one_of(*ERROR_KINDS), "message": _text, "traceback": _text},
    "end": {
        "status": _one_of("ok", "failed"),
        "stop": _one_of(*STOP_REASONS),
        "noise": _optional(_amount),  # half width of the 95 % interval of the median step time, relative to it
        "steps": _count,
    },
}


def _refuse_constant(name):
    raise ValueError("%s is not a number that JSON knows" % name)


def parse(line):
    """Return the event in `line` (bytes, without the line end), or raise ProtocolError."""
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError("a line of more than %d bytes" % MAX_LINE_BYTES, line)
    try:
        event = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ProtocolError("not a JSON object (%s)" % error, line)
    if not isinstance(event, dict):
        raise ProtocolError("not a JSON object", line)
    check(event, line)
    return event


def check(event, line=b""):
    """Raise ProtocolError unless the dict `event` has exactly the fields of its kind, each of the right type."""
    kind = event.get("event")
    if not isinstance(kind, str) or kind not in EVENTS:
        raise ProtocolError("unknown event %r" % (kind,), line)
    if event.get("v") != VERSION:
        raise ProtocolError("protocol version %r, this host speaks %d" % (event.get("v"), VERSION), line)
    fields = dict(EVENTS[kind], t=_seconds, v=_count, event=_text)
    for name in event:
        if name not in fields:
            raise ProtocolError("%s has an unknown field %r" % (kind, name[:50]), line)
    for name, fits in fields.items():
        if name not in event:
            raise ProtocolError("%s lacks the field %r" % (kind, name), line)
        if not fits(event[name]):
            raise ProtocolError("%s.%s has a wrong type or value (not-finite numbers are null)" % (kind, name), line)


def process_start():
    """The moment this process began, on the clock of time.perf_counter (Linux; elsewhere, now)."""
    now = time.perf_counter()
    try:
        with open("/proc/self/stat") as stat:
            ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
        with open("/proc/uptime") as uptime:
            alive = float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
        return now - max(0.0, alive)
    except (OSError, ValueError, IndexError):
        return now


class Emitter:
    """Prints events on what was standard output, and sends everything else that is printed there to standard error.

    The file descriptor itself is moved, so prints from C++ libraries go to standard error as well.
    """

    def __init__(self):
        sys.stdout.flush()
        self._out = os.fdopen(os.dup(1), "wb", 0)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self.zero = process_start()

    def now(self):
        """Seconds since the process began."""
        return time.perf_counter() - self.zero

    def emit(self, event, **fields):
        """Print one event, checked before it leaves: a wrong field is a bug here, not at the host."""
        fields.update(event=event, t=round(self.now(), 6), v=VERSION)
        check(fields)
        self.write(json.dumps(fields, allow_nan=False, separators=(",", ":")).encode("utf-8") + b"\n")

    def write(self, line):
        """Write bytes to what was standard output, all of them."""
        while line:  # an unbuffered write may be partial on a pipe
            line = line[self._out.write(line) :]
