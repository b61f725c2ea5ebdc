"""PaddlePaddle's switches, versions and device, for every workload."""

import os

import paddle

from bench import cuda, environment

NAME = "paddle"

_gpu = False


def configure(setup):
    global _gpu
    _gpu = setup.device == "cuda"
    if _gpu:
        cuda.require_gpus("paddle %s" % paddle.__version__, _built(), paddle.device.cuda.device_count())
    tf32 = setup.precision == "tf32"
    # NVIDIA's variable is documented for 0, which is off in all its libraries. Any other value says nothing.
    if tf32:
        os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    else:
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    if _gpu:
        # By default matmul and convolution use tf32 on Ampere and later. settings() reads both values back.
        paddle.base.core.set_cublas_switch(tf32)
        paddle.base.core.set_cudnn_switch(tf32)
    paddle.set_device("gpu:0" if _gpu else "cpu")
    paddle.base.core.set_num_threads(setup.threads)
    if _gpu:
        # cuDNN searches for its fastest algorithm: the pictures' size is fixed.
        paddle.set_flags({"FLAGS_cudnn_exhaustive_search": True})


def compiled(setup, network):
    """The network in the cell's mode: a graph in mode to-static, else the Layer itself."""
    return paddle.jit.to_static(network, full_graph=True) if setup.mode == "to-static" else network


def _built():
    return paddle.version.cuda() if paddle.is_compiled_with_cuda() else None


def versions():
    numbers = {"framework": paddle.__version__, "paddle": paddle.__version__}
    if paddle.is_compiled_with_cuda():
        numbers["cuda"], numbers["cudnn"] = paddle.version.cuda(), paddle.version.cudnn()
        numbers.update(cuda.driver_version())
    return numbers


def device_kinds():
    return cuda.kinds(_built())


def device(setup):
    if setup.device == "cpu":
        return environment.cpu_device()
    gpu = paddle.device.cuda.get_device_properties(0)
    return cuda.device(gpu.name, paddle.device.cuda.device_count(), "%d.%d" % (gpu.major, gpu.minor), gpu.total_memory)


def settings():
    values = {
        "device": paddle.get_device(),
        "threads": int(paddle.base.core.get_num_threads()) if hasattr(paddle.base.core, "get_num_threads") else None,
        "tf32_override": os.environ.get("NVIDIA_TF32_OVERRIDE", "not set"),
        "onednn": bool(paddle.get_flags("FLAGS_use_mkldnn")["FLAGS_use_mkldnn"]),
        "layout": "NCHW",
    }
    if _gpu:
        values.update(paddle.get_flags("FLAGS_cudnn_exhaustive_search"))
        core = paddle.base.core
        values.update(tf32_matmul=bool(core.get_cublas_switch()), tf32_cudnn=bool(core.get_cudnn_switch()))
    return {name: value for name, value in values.items() if value is not None}


def synchronize():
    """The device is synchronised before the clock is read."""
    if _gpu:
        paddle.device.synchronize()


def device_peak_bytes():
    return int(paddle.device.cuda.max_memory_allocated()) if _gpu else None


def forget_device_peak():
    # Paddle 2 has no such function.
    if not hasattr(paddle.device.cuda, "reset_max_memory_allocated"):
        return False
    paddle.device.cuda.reset_max_memory_allocated()
    return True


def is_out_of_memory(error):
    return "ResourceExhausted" in type(error).__name__ or "out of memory" in str(error).lower()
