"""MindSpore's switches, versions and device, for every workload."""

import os

# MindSpore logs errors only.
os.environ.setdefault("GLOG_v", "3")

import mindspore  # noqa: E402

from bench import cuda, environment  # noqa: E402
from bench.errors import Unsupported  # noqa: E402

NAME = "mindspore"

_setup = None


def configure(setup):
    """Graph or eager, device and threads, before the first tensor."""
    global _setup
    mindspore.set_context(mode=mindspore.GRAPH_MODE if setup.mode == "default" else mindspore.PYNATIVE_MODE)
    try:
        mindspore.set_device("GPU" if setup.device == "cuda" else "CPU")
    except (RuntimeError, ValueError) as error:
        if setup.device == "cuda":
            cuda.require_gpus("mindspore %s" % mindspore.__version__, _built(), 0)
        reason = str(error).splitlines()[0]
        raise Unsupported("mindspore %s cannot compute on %s: %s" % (mindspore.__version__, setup.device, reason))
    target = mindspore.get_context("device_target")
    if target != ("GPU" if setup.device == "cuda" else "CPU"):
        raise Unsupported(
            "mindspore %s computes on %s where %s is asked for" % (mindspore.__version__, target, setup.device)
        )
    mindspore.runtime.set_cpu_affinity(False)
    mindspore.set_context(runtime_num_threads=setup.threads)
    _setup = setup


def compiled(setup, function):
    """The function, compiled as a graph unless the cell's mode is pynative."""
    return mindspore.jit(function) if setup.mode == "default" else function


def _built():
    """It tells whether its build has a library for GPUs, and not which CUDA."""
    return "" if mindspore.device_context.gpu.is_available() else None


def versions():
    driver = cuda.driver_version() if _setup.device == "cuda" else {}
    return dict(driver, framework=mindspore.__version__, mindspore=mindspore.__version__)


def device_kinds():
    return cuda.kinds(_built())


def device(setup):
    return environment.cpu_device() if setup.device == "cpu" else cuda.device()


def settings():
    return {
        "graph": mindspore.get_context("mode") == mindspore.GRAPH_MODE,
        "device": mindspore.get_context("device_target"),
        "threads": mindspore.get_context("runtime_num_threads"),
        "layout": "NCHW",
        "onednn_max_cpu_isa": os.environ.get("ONEDNN_MAX_CPU_ISA", "default"),
    }


def synchronize():
    """The device is synchronised before the clock is read."""
    mindspore.runtime.synchronize()
