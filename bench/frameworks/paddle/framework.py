"""PaddlePaddle's switches, versions and device, for every workload."""

import os

import paddle

from bench import cuda, environment
from bench.errors import Unsupported

NAME = "paddle"

_gpu = False


def configure(setup):
    global _gpu
    if setup.mode not in ("default", "to-static"):
        raise Unsupported("paddle has no mode %r here; it has: default (dygraph), to-static" % setup.mode)
    _gpu = setup.device == "cuda"
    if _gpu and not (paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count()):
        raise Unsupported(
            "a GPU was asked for, but paddle %s (CUDA %s) finds none; start the container with a GPU, or use the CPU image"
            % (paddle.__version__, paddle.version.cuda())
        )
    # TF32 in cuBLAS and cuDNN, by NVIDIA's own switch: Paddle has none that holds for both.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if setup.precision == "tf32" else "0"
    paddle.set_device("gpu:0" if _gpu else "cpu")
    paddle.base.core.set_num_threads(setup.threads)
    if _gpu:
        paddle.set_flags({"FLAGS_cudnn_exhaustive_search": True})  # A3: images of one size, so the search pays


def compiled(setup, network):
    """The network as the cell's mode runs it."""
    return paddle.jit.to_static(network, full_graph=True) if setup.mode == "to-static" else network


def versions():
    found = {"framework": paddle.__version__, "paddle": paddle.__version__}
    if paddle.is_compiled_with_cuda():
        found["cuda"], found["cudnn"] = paddle.version.cuda(), paddle.version.cudnn()
        if cuda.driver_version():
            found["driver"] = cuda.driver_version()
    return found


def device(setup):
    if setup.device == "cpu":
        return environment.cpu_device()
    found = paddle.device.cuda.get_device_properties(0)
    return {
        "kind": "cuda",
        "name": found.name,
        "count": paddle.device.cuda.device_count(),
        "uuids": cuda.uuids(paddle.device.cuda.device_count()),
        "compute_capability": "%d.%d" % (found.major, found.minor),
        "memory_bytes": int(found.total_memory),
    }


def settings():
    told = {
        "device": paddle.get_device(),
        "threads": int(paddle.base.core.get_num_threads()) if hasattr(paddle.base.core, "get_num_threads") else None,
        "tf32_override": os.environ["NVIDIA_TF32_OVERRIDE"],
        "onednn": bool(paddle.get_flags("FLAGS_use_mkldnn")["FLAGS_use_mkldnn"]),
        "layout": "NCHW",
    }
    if _gpu:
        told.update(paddle.get_flags("FLAGS_cudnn_exhaustive_search"))
    return {name: value for name, value in told.items() if value is not None}


def synchronize():
    """Wait until the device has done all it was given (B5)."""
    if _gpu:
        paddle.device.synchronize()


def device_peak_bytes():
    return int(paddle.device.cuda.max_memory_allocated()) if _gpu else None


def is_out_of_memory(error):
    return "ResourceExhausted" in type(error).__name__ or "out of memory" in str(error).lower()
