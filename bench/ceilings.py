"""The highest rates that this environment reaches, as one JSON object: `python -m bench.ceilings FRAMEWORK DEVICE PRECISION`.

NumPy's matrix product, one core's arithmetic, a copy of memory; and of a framework that has a ceilings.py, its matrix product, copy
and the time of its smallest operation. Every rate is a list of windows. Python 3.6 syntax; it needs NumPy.
"""

import importlib
import json
import os
import re
import sys
import time

WINDOWS = 9
WINDOW_SECONDS = 0.06
# Sizes that fill the device: square matrices, and a copy beyond any cache but the largest servers'.
SIDES = {"cpu": 1024, "cuda": 8192}
COPY_BYTES = {"cpu": 64 * 2**20, "cuda": 2**30}
# In place of a framework: NumPy's rates alone.
NO_FRAMEWORK = "none"
CORE_ITEMS = 4096  # in the first-level cache: arithmetic of one core, no memory


def rates(call, work, synchronize=lambda: None, warm_up_seconds=0.0):
    """Work per second of each window, after a first call and the warm-up, which are not counted."""
    call()
    synchronize()
    end = time.perf_counter() + warm_up_seconds
    while time.perf_counter() < end:
        call()
        synchronize()
    count, windows = 1, []
    while len(windows) < WINDOWS:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        synchronize()
        seconds = time.perf_counter() - begin
        if seconds < WINDOW_SECONDS and count < 2**20 and not windows:
            count *= 2
            continue
        windows.append(work * count / max(seconds, 1e-9))
    return windows


def numpy_rates():
    import numpy

    random, side, copy_bytes = numpy.random.RandomState(1), SIDES["cpu"], COPY_BYTES["cpu"]
    a = random.rand(side, side).astype(numpy.float32)
    b, product = a.T.copy(), numpy.empty_like(a)
    source = numpy.ones(copy_bytes // 4, numpy.float32)
    target = numpy.empty_like(source)
    x = random.rand(CORE_ITEMS).astype(numpy.float32)
    y = numpy.empty_like(x)
    return {
        "matmul_flops": rates(lambda: numpy.matmul(a, b, out=product), 2.0 * side**3),
        "copy_bytes": rates(lambda: numpy.copyto(target, source), 2.0 * copy_bytes),
        "core_operations": rates(lambda: numpy.sqrt(x, out=y), float(CORE_ITEMS)),
    }


def framework_rates(name, device, precision):
    """The framework's own rates, configured as a cell configures it; None where it has no ceilings.py."""
    if name == NO_FRAMEWORK:
        return None
    from bench import contract, environment, rules, timing

    framework = contract.load_framework(name)
    framework.configure(contract.Setup(device, precision, "default", environment.cpu_count(), 1, True))
    path = rules.adapter_module(name, "ceilings")
    if path is None:
        return None
    product, copy, small = importlib.import_module(path).calls(device)
    how = framework.synchronize, timing.WARMUP_SECONDS[device]
    return {
        "matmul_flops": rates(product, 2.0 * SIDES[device] ** 3, *how),
        "copy_bytes": rates(copy, 2.0 * COPY_BYTES[device], *how),
        "launches": rates(small, 1.0, *how),
    }


def linear_algebra(maps="/proc/self/maps"):
    """The paths of the libraries of linear algebra that this process has loaded."""
    from bench import speed

    named = re.compile(r"blas|lapack|mkl|atlas|blis|dnnl|armpl|nvpl|eigen", re.I)
    found = [path[:300] for path in speed.mapped(maps) if ".so" in path and named.search(os.path.basename(path))]
    return found[:50]


def is_debug_build():
    """True if the interpreter, or PyTorch, was built for debugging."""
    torch = sys.modules.get("torch")
    return hasattr(sys, "gettotalrefcount") or bool(getattr(getattr(torch, "version", None), "debug", False))


def main(name, device, precision):
    printed = os.dup(1)
    os.dup2(2, 1)  # what a framework prints must not break the JSON
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    own = framework_rates(name, device, precision)
    report = {"load": load, "cpus": os.cpu_count(), "numpy": numpy_rates(), "framework": own, "debug": is_debug_build()}
    report["libraries"] = linear_algebra()
    os.write(printed, json.dumps(report).encode("utf-8") + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
