"""The parts of a step's time: the framework's own profiler over a few more steps, after all that is measured.

A profiler makes steps slower, so nothing is measured under it: it shows shares, not speeds. A framework that
has one has a profile.py, or its "backend" in framework.json has it:

    def operations(run, device):  # run() does the steps and waits for the device
        return [Operation, ...]

    def kernels(run):
        return [Span, ...]  # the kernels of the GPU: no copies between host and device

The time of kernels hardly changes under most profilers. So their time in a few steps, divided by the time of steps that were measured
without it, is the share of a step's time in which the GPU computed. A profiler that makes short kernels wait for one another shows it by a
quotient above 1: then the share is not known.
"""

import collections
import importlib
import math
import time

from bench import rules
from bench.errors import Unsupported

STEPS = 5
# The share of kernels is of more steps where they are short, so that the GPU has work for a while.
SHARE_SECONDS = 0.2
MOST_STEPS = 100
ROWS = 40  # the longest operations; the rest are one row together
NAME_CHARACTERS = 200  # the name of a fused kernel can be longer than a page

# name: of the operation or kernel; on: "cpu" or "cuda"; seconds: its own, without what it calls, of all its calls together
Operation = collections.namedtuple("Operation", "name on calls seconds")
# one call of an operation in one thread or stream; on the profiler's clock, in seconds
Span = collections.namedtuple("Span", "name on begin seconds")


def profile(framework, device, loop):
    """([Operation, the longest first], seconds of one profiled step) of STEPS steps of a timing.Loop."""
    module = importlib.import_module(rules.adapter_module(framework, "profile"))
    taken = []

    def run():
        begin = time.perf_counter()
        loop.unmeasured(STEPS)
        taken.append(time.perf_counter() - begin)

    return longest(module.operations(run, device)), taken[-1] / STEPS


def no_share_reason(options):
    """Why a cell has no share of kernels, or None."""
    if options.device != "cuda":
        return "kernels are a GPU's, and this cell ran on a CPU"
    if options.devices > 1:
        return "it is measured on one device only, and this cell has %d" % options.devices
    if rules.adapter_module(options.framework, "profile") is None:
        return "%s has no profiler here" % options.framework
    return None


def kernel_share(framework, loop, step_seconds):
    """(the share of a step's time in which kernels ran, how many steps were profiled) of a timing.Loop.

    step_seconds: of a step that was measured without the profiler. Raises Unsupported where the profiler fails, or slows the kernels.
    """
    steps = max(STEPS, min(MOST_STEPS, int(math.ceil(SHARE_SECONDS / step_seconds))))
    try:
        module = importlib.import_module(rules.adapter_module(framework, "profile"))
        spans = module.kernels(lambda: loop.unmeasured(steps))
    except Exception as error:  # all is measured and proved by now, and a profiler that fails must not lose it
        raise Unsupported("%s's profiler failed: %s" % (framework, str(error)[:NAME_CHARACTERS]))
    if not spans:
        raise Unsupported("%s's profiler saw no kernel" % framework)
    share = covered(spans) / (steps * step_seconds)
    if share > 1:
        raise Unsupported(
            "%s's profiler slowed the kernels: they ran for %.3g times the time of a step without it"
            % (framework, share)
        )
    return share, steps


def covered(spans):
    """Seconds in which at least one span ran."""
    seconds, end = 0.0, float("-inf")
    for span in sorted(spans, key=lambda each: each.begin):
        seconds += max(0.0, span.begin + span.seconds - max(end, span.begin))
        end = max(end, span.begin + span.seconds)
    return seconds


def without_copies(lines):
    """The kernels of streams: CUPTI calls everything else on a stream Memcpy or Memset."""
    return [span for spans in lines for span in spans if not span.name.lower().startswith(("memcpy", "memset"))]


def kernels_of_trace(trace):
    """[Span] of the kernels in Chrome's format for traces, as PyTorch writes it. Copies and annotations have other categories there."""
    events = [event for event in trace["traceEvents"] if str(event.get("cat")).lower() == "kernel"]
    return [Span(event["name"], "cuda", event["ts"] / 1e6, event["dur"] / 1e6) for event in events]


def longest(operations):
    """The ROWS longest operations, and one more for all others of a device together."""
    ordered = sorted(
        (operation for operation in operations if operation.seconds > 0),
        key=lambda operation: operation.seconds,
        reverse=True,
    )
    rows = [operation._replace(name=operation.name[:NAME_CHARACTERS]) for operation in ordered[:ROWS]]
    for on in ("cpu", "cuda"):
        rest = [operation for operation in ordered[ROWS:] if operation.on == on]
        if rest:
            calls, seconds = sum(operation.calls for operation in rest), sum(operation.seconds for operation in rest)
            rows.append(Operation("%d other operations" % len(rest), on, calls, seconds))
    return rows


def own_time(lines):
    """[Operation] of spans by thread or stream: a span that lies within another one is taken off the outer one's time."""
    calls, seconds = collections.Counter(), collections.Counter()
    for spans in lines:
        around = []  # (end, key) of the spans that the next one may lie within
        for span in sorted(spans, key=lambda inner: (inner.begin, -inner.seconds)):
            while around and around[-1][0] <= span.begin:
                around.pop()
            if around:
                seconds[around[-1][1]] -= span.seconds
            key = (span.name, span.on)
            around.append((span.begin + span.seconds, key))
            calls[key] += 1
            seconds[key] += span.seconds
    return [Operation(name, on, calls[name, on], seconds[name, on]) for name, on in calls]
