"""Keeps a device at full load and prints how fast it was, as one JSON object: `python -m bench.load FRAMEWORK DEVICE SECONDS START`.

Several processes, one a GPU, load all GPUs of a machine at once: START is the Unix time at which all of them begin their first load, and
until then they keep their devices hot. START 0 means now. Each load takes SECONDS. Its rates are those of the second half, when the device
is hot. Python 3.6 syntax.
"""

import importlib
import json
import os
import sys
import time

WINDOW_SECONDS = 0.25
LEAST_WINDOWS = 3
MOST_WINDOWS = 2000
_UNIX_AT_ZERO = time.time() - time.monotonic()


def unix_now():
    """The wall clock, as it was set when this process began: no window is shorter because somebody sets it."""
    return _UNIX_AT_ZERO + time.monotonic()


def windows(call, synchronize, until, clock=unix_now):
    """[(its end on the clock, runs a second)] of windows of runs until a moment, at least LEAST_WINDOWS."""
    call()
    synchronize()
    count, done = 1, []
    while clock() < until or len(done) < LEAST_WINDOWS:
        begin = clock()
        for _ in range(count):
            call()
        synchronize()
        end = clock()
        done.append((end, count / max(end - begin, 1e-9)))
        if end - begin < WINDOW_SECONDS / 2 and count < 2**20:
            count *= 2
    return done[-MOST_WINDOWS:]


def hot(done, since):
    """The windows that began after a moment, or where these are few the last LEAST_WINDOWS."""
    later = [window for window in done if window[0] >= since]
    return later[1:] if len(later) > LEAST_WINDOWS else done[-LEAST_WINDOWS:]


def measure(loads, synchronize, seconds, start, clock=unix_now):
    """The rates of each of the loads, which are (name, unit, work of a run, what is called before, a run)."""
    if start:
        loads[0][3]()
        windows(loads[0][4], synchronize, start, clock)
    begin, found = start or clock(), []
    for number, (name, unit, work, prepare, call) in enumerate(loads, 1):
        prepare()
        done = windows(call, synchronize, begin + number * seconds, clock)
        done = hot(done, begin + (number - 0.5) * seconds)
        rates = [work * runs for _, runs in done]
        # A window's end, so that what a host saw meanwhile is of the same time.
        found.append(
            {"name": name, "unit": unit, "begin_unix": done[0][0], "end_unix": done[-1][0], "rates": rates[-1000:]}
        )
    return found


def main(name, device, seconds, start):
    printed = os.dup(1)
    os.dup2(2, 1)  # what a framework prints must not break the JSON
    from bench import contract, environment, rules

    framework = contract.load_framework(name)
    framework.configure(contract.Setup(device, "fp32", "default", environment.cpu_count(), 1, True))
    path = rules.adapter_module(name, "ceilings")
    loads = getattr(importlib.import_module(path), "loads", None) if path else None
    if loads is None:
        sys.exit("%s has no load here: its ceilings.py has no loads(device)" % name)
    found = measure(loads(device), framework.synchronize, float(seconds), float(start))
    os.write(printed, json.dumps({"loads": found}).encode("utf-8") + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:5])
