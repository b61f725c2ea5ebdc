"""MXNet's switches, versions and device, for Gluon and for Module."""

import os

os.environ.setdefault("MXNET_CUDNN_AUTOTUNE_DEFAULT", "1")  # A3: images of one size, so the search pays
os.environ["MXNET_CUDNN_LIB_CHECKING"] = "0"

from bench import cuda, environment  # noqa: E402

_setup = None


def configure(setup):
    """Threads and precision. Read by the library when it is loaded, so before `import mxnet`."""
    global _setup
    os.environ["OMP_NUM_THREADS"] = str(setup.threads)
    os.environ["MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION"] = "0"
    # TF32 in cuBLAS and cuDNN is NVIDIA's own switch here: MXNet 1.9 has none.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if setup.precision == "tf32" else "0"
    import mxnet

    if setup.device == "cuda":
        cuda.require_gpus("mxnet %s" % mxnet.__version__, mxnet.context.num_gpus(), setup.devices)
    _setup = setup


def context(setup):
    return contexts(setup)[0]


def contexts(setup):
    """All that train together. On a CPU, cpu(1) is another queue of MXNet's engine on the same processors."""
    import mxnet

    return [mxnet.gpu(index) if setup.device == "cuda" else mxnet.cpu(index) for index in range(setup.devices)]


def kvstore(several):
    """Who adds the gradients of several contexts up: the devices themselves, or nobody where there is one."""
    return "device" if len(several) > 1 else None


def versions():
    import mxnet

    found = {"framework": mxnet.__version__, "mxnet": mxnet.__version__}
    if mxnet.runtime.Features().is_enabled("CUDA"):
        found.update(cuda.package_versions())
        found.update(cuda.driver_version())
    return found


def device(setup):
    import mxnet

    if setup.device == "cpu":
        return environment.cpu_device(len(contexts(setup)))
    # MXNet does not tell the model.
    return cuda.device(count=mxnet.context.num_gpus(), memory=mxnet.context.gpu_memory_info(0)[1])


def settings():
    import mxnet

    features = mxnet.runtime.Features()
    return {
        "threads": int(os.environ["OMP_NUM_THREADS"]),
        "mkldnn": features.is_enabled("MKLDNN"),
        "cudnn": features.is_enabled("CUDNN"),
        "cudnn_autotune": os.environ["MXNET_CUDNN_AUTOTUNE_DEFAULT"],
        "engine": os.environ.get("MXNET_ENGINE_TYPE", "ThreadedEnginePerDevice"),
        "tf32_override": os.environ["NVIDIA_TF32_OVERRIDE"],
        "layout": "NCHW",
    }


def synchronize():
    """Wait until the engine has done all it was given (B5, B7)."""
    import mxnet

    mxnet.nd.waitall()


def device_peak_bytes():
    return None  # MXNet 1.9 tells the memory in use, not its peak


def is_out_of_memory(error):
    return "out of memory" in str(error).lower()
