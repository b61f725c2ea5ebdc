"""Caffe2's switches, versions and device, for every workload."""

import os

from caffe2.proto import caffe2_pb2
from caffe2.python import core, workspace

from bench import cuda, environment
from bench.errors import Unsupported

NAME = "caffe2"

_gpu = False
_threads = 0


def configure(setup):
    global _gpu, _threads
    if setup.mode != "default":
        raise Unsupported("caffe2 has no mode %r here; it has: default" % setup.mode)
    if setup.precision == "tf32":
        raise Unsupported("caffe2 is older than tf32; ask for fp32")
    _gpu, _threads = setup.device == "cuda", setup.threads
    if _gpu and not (workspace.has_cuda_support and workspace.NumGpuDevices()):
        raise Unsupported(
            "a GPU was asked for, but this caffe2 finds none; start the container with a GPU, or use the CPU image"
        )
    os.environ["OMP_NUM_THREADS"] = str(setup.threads)
    import torch

    torch.set_num_threads(setup.threads)  # the same OpenMP pool
    core.GlobalInit(["caffe2", "--caffe2_log_level=2", "--caffe2_omp_num_threads=%d" % setup.threads])


def scope():
    """A with-statement's context: operators that are added in it run where the cell computes."""
    return core.DeviceScope(core.DeviceOption(caffe2_pb2.CUDA, 0) if _gpu else core.DeviceOption(caffe2_pb2.CPU))


def versions():
    import torch

    found = {"framework": torch.__version__, "torch": torch.__version__}
    if _gpu:
        found["cuda"] = torch.version.cuda
        if cuda.driver_version():
            found["driver"] = cuda.driver_version()
    return found


def device(setup):
    if setup.device == "cpu":
        return environment.cpu_device()
    found = workspace.GetDeviceProperties(0)
    return {
        "kind": "cuda",
        "name": found["name"],
        "count": workspace.NumGpuDevices(),
        "uuids": cuda.uuids(workspace.NumGpuDevices()),
        "compute_capability": "%d.%d" % (found["major"], found["minor"]),
        "memory_bytes": int(found["totalGlobalMem"]),
    }


def settings():
    return {
        "threads": _threads,
        "cudnn_exhaustive_search": _gpu,
        "mkldnn": bool(workspace.C.use_mkldnn),
        "layout": "NCHW",
    }


def synchronize():
    """Nothing to wait for: RunNet returns when the net has run."""


def device_peak_bytes():
    return None


def is_out_of_memory(error):
    return "out of memory" in str(error).lower()
