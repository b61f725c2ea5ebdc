"""Where the time of a step goes: the framework's own profiler over a few more steps, after all that is measured.

A profiler makes steps slower, so nothing is measured under it: it shows shares, not speeds. A framework that
has one has a profile.py, or its "backend" in framework.json has it:

    def operations(run, device):  # run() does the steps and waits for the device
        return [Operation, ...]
"""

import collections
import importlib
import time

from bench import rules

STEPS = 5
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
