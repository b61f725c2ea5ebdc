"""The environment of a cell, as the cell sees it."""

import os
import platform
import sys
import time

from bench import identity, speed
from bench.errors import BenchError


def cpu_count():
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _first_line(path, key):
    try:
        with open(path) as lines:
            for line in lines:
                if line.startswith(key):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def free_memory():
    """The bytes that this process may still take; None where nothing tells. Of a container's limit it has its own part by now."""
    found = []
    available, own = (
        _first_line("/proc/meminfo", "MemAvailable").split(),
        _first_line("/proc/self/status", "VmRSS").split(),
    )
    if available:
        found.append(int(available[0]) * 1024)
    for path in _LIMITS:
        limit = _number_in(path)
        if limit is not None and own:
            found.append(max(0, limit - int(own[0]) * 1024))
    return min(found) if found else None


# A container's limit of memory, of both versions of cgroups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def _number_in(path):
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def host():
    """The protocol's `host`: CPU model, usable processors, memory in bytes, kernel, whether inside a container."""
    memory = _first_line("/proc/meminfo", "MemTotal").split()
    return {
        "cpu_model": _first_line("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "cpu_count": cpu_count(),
        "memory_bytes": int(memory[0]) * 1024 if memory else 0,
        "kernel": platform.release(),
        "container": os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"),
    }


def cpu_device(count=1):
    """The protocol's `device` for the CPU, for adapters; `count` processes or virtual devices share it."""
    facts = host()
    return {
        "kind": "cpu",
        "name": facts["cpu_model"],
        "count": count,
        "uuids": [],
        "compute_capability": None,
        "memory_bytes": facts["memory_bytes"],
    }


def describe(framework, workload, setup, zero):
    """The fields of the environment event. `framework` is bench.frameworks.<F>.framework, already configured."""
    import numpy

    versions = {"python": platform.python_version(), "numpy": numpy.__version__}
    versions.update(framework.versions())
    settings = {"mode": setup.mode, "precision": setup.precision, "threads_asked": setup.threads}
    # The adapter's own reading wins.
    settings.update(speed.facts(framework.NAME, setup.threads))
    settings.update(framework.settings())
    return {
        "framework": framework.NAME,
        "framework_version": versions["framework"],
        "versions": versions,
        "device": framework.device(setup),
        "host": host(),
        "settings": settings,
        "bench_sha256": identity.source_digest(),
        "core_sha256": identity.core_sha256(workload),
        "code_sha256": identity.code_sha256(framework.NAME, workload),
        "clock": {
            "name": "time.perf_counter",
            "resolution_seconds": time.get_clock_info("perf_counter").resolution,
            "unix_at_zero": time.time() - (time.perf_counter() - zero),
        },
    }


def refuse_other_threads(told, now):
    """Raise BenchError if the framework computes with other threads than it told before it built anything.

    told, now: its settings before and after the measurement. Building a network may start threads, or set their number.
    """
    for name in sorted(told):
        if name.startswith("threads") and name in now and now[name] != told[name]:
            raise BenchError(
                "its setting %r was %s before the network was built and is %s after the measurement: "
                "the adapter may not change it; configure(setup) sets it" % (name, told[name], now[name])
            )


def host_peak_bytes():
    """The most resident memory this program has had, in bytes.

    Linux counts it for the program (VmHWM, proc(5)). The peak that getrusage tells is the process', and a process takes over
    what its launcher had at the moment of the exec: a small program started by a large one would be shown the launcher's.
    """
    try:
        with open("/proc/self/status") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # no Linux
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
