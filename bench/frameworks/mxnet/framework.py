"""MXNet's switches, versions and device, for Gluon and for Module.

No peak of memory is reported: MXNet 1.9 counts the memory in use only.
"""

import os

# cuDNN searches for its fastest algorithm: the pictures' size is fixed.
os.environ.setdefault("MXNET_CUDNN_AUTOTUNE_DEFAULT", "1")
os.environ["MXNET_CUDNN_LIB_CHECKING"] = "0"

from bench import cuda, environment  # noqa: E402


def configure(setup):
    """Threads and precision, before `import mxnet`: the library reads them when it is loaded."""
    os.environ["OMP_NUM_THREADS"] = str(setup.threads)
    os.environ["MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION"] = "0"
    # By default cuDNN's convolutions use TF32, and cuBLAS' products do not. NVIDIA's variable is documented for 0, which is off in both.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    import mxnet

    if setup.device == "cuda":
        cuda.require_gpus("mxnet %s" % mxnet.__version__, _built(), mxnet.context.num_gpus(), setup.devices)


def context(setup):
    return contexts(setup)[0]


def contexts(setup):
    """All contexts of the cell. On a CPU, cpu(1) is another queue of MXNet's engine on the same processors."""
    import mxnet

    return [mxnet.gpu(index) if setup.device == "cuda" else mxnet.cpu(index) for index in range(setup.devices)]


def kvstore(contexts):
    """The kvstore that adds up the gradients of several contexts: on the devices. One context needs none."""
    return "device" if len(contexts) > 1 else None


def _built():
    """MXNet does not tell the version of its CUDA."""
    import mxnet

    return "" if mxnet.runtime.Features().is_enabled("CUDA") else None


def versions():
    import mxnet

    numbers = {"framework": mxnet.__version__, "mxnet": mxnet.__version__}
    if mxnet.runtime.Features().is_enabled("CUDA"):
        numbers.update(cuda.package_versions())
        numbers.update(cuda.driver_version())
    return numbers


def device_kinds():
    return cuda.kinds(_built())


def device(setup):
    import mxnet

    if setup.device == "cpu":
        return environment.cpu_device(len(contexts(setup)))
    # MXNet has no function for the model.
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
    """The device is synchronised before the clock is read."""
    import mxnet

    mxnet.nd.waitall()
