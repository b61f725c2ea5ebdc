"""Caffe2's switches, versions and device, for every workload.

Nothing is synchronised: RunNet returns when the net has run.
"""

import os

from caffe2.proto import caffe2_pb2
from caffe2.python import core, workspace

from bench import cuda, environment

NAME = "caffe2"

_gpu = False
_threads = 0


def configure(setup):
    global _gpu, _threads
    _gpu, _threads = setup.device == "cuda", setup.threads
    if _gpu:
        count = workspace.NumGpuDevices() if workspace.has_cuda_support else 0
        cuda.require_gpus("caffe2", _built(), count)
    os.environ["OMP_NUM_THREADS"] = str(setup.threads)
    import torch

    # PyTorch and Caffe2 share one OpenMP pool.
    torch.set_num_threads(setup.threads)
    core.GlobalInit(["caffe2", "--caffe2_log_level=2", "--caffe2_omp_num_threads=%d" % setup.threads])


def scope():
    """A context for `with`: operators that are added inside it run on the cell's device."""
    return core.DeviceScope(core.DeviceOption(caffe2_pb2.CUDA, 0) if _gpu else core.DeviceOption(caffe2_pb2.CPU))


def _built():
    import torch

    # has_cuda_support would say whether there is a GPU. This function is only in the extension with CUDA.
    return torch.version.cuda if hasattr(workspace.C, "num_cuda_devices") else None


def versions():
    import torch

    numbers = {"framework": torch.__version__, "torch": torch.__version__}
    if _gpu:
        numbers.update(cuda.driver_version(), cuda=torch.version.cuda)
    return numbers


def device_kinds():
    return cuda.kinds(_built())


def device(setup):
    if setup.device == "cpu":
        return environment.cpu_device()
    gpu = workspace.GetDeviceProperties(0)
    capability = "%d.%d" % (gpu["major"], gpu["minor"])
    return cuda.device(gpu["name"], workspace.NumGpuDevices(), capability, gpu["totalGlobalMem"])


def settings():
    return {
        "threads": _threads,
        "cudnn_exhaustive_search": _gpu,
        "mkldnn": bool(workspace.C.use_mkldnn),
        "layout": "NCHW",
    }
