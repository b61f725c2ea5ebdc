"""Chainer's switches, versions and device, for every workload."""

import os
import warnings

with warnings.catch_warnings():  # it is older than its dependencies
    warnings.simplefilter("ignore")
    import chainer

import numpy

from bench import cuda, environment

NAME = "chainer"

_gpu = False
_communicator = None  # ChainerMN's, where several devices train


def configure(setup):
    global _gpu
    _gpu = setup.device == "cuda"
    if _gpu:
        gpus = chainer.backends.cuda.cupy.cuda.runtime.getDeviceCount() if chainer.backends.cuda.available else 0
        cuda.require_gpus("chainer %s" % chainer.__version__, gpus, setup.devices)
        chainer.backends.cuda.get_device_from_id(setup.rank).use()
    chainer.config.autotune = True  # A3: cuDNN searches its fastest algorithm, which pays for images of one size
    chainer.config.use_cudnn = "always"
    # TF32 in cuBLAS and cuDNN is NVIDIA's own switch here: Chainer 7 has none.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if setup.precision == "tf32" else "0"


def to_device(*arrays):
    """NumPy arrays where the computing is: themselves on a CPU."""
    return [chainer.backends.cuda.to_gpu(array) for array in arrays] if _gpu else arrays


def to_host(array):
    return chainer.backends.cuda.to_cpu(array)


def seed(number):
    """Seed what dropout draws from: NumPy's global generator on a CPU, CuPy's on a GPU."""
    numpy.random.seed(number)
    if _gpu:
        chainer.backends.cuda.cupy.random.seed(number)


def place(link):
    """The link with its parameters where the computing is."""
    return link.to_gpu() if _gpu else link


def join(communicator):
    """From here on networks are trained with the processes of this communicator."""
    global _communicator
    _communicator = communicator


def set_up(optimizer, network):
    """The optimiser on its network; where several devices train, one that takes the mean of their gradients before each step."""
    if _communicator is None:
        return optimizer.setup(network)
    import chainermn

    optimizer = chainermn.create_multi_node_optimizer(optimizer, _communicator).setup(network)
    # Its first update() would only send the parameters round, and take no step: that is done here.
    optimizer.is_changed(network)
    _communicator.bcast_data(network)
    return optimizer


def all_reduced(array):
    """The sum of the arrays that all devices give."""
    return _communicator.allreduce(array)


def average(network):
    """Leave the mean of all devices' gradients in the network's."""
    if _communicator is not None:
        _communicator.multi_node_mean_grad(network)


def average_persistent(network):
    """Leave the mean of all devices' running statistics in the network's.

    Through the host's memory: ChainerMN's AllreducePersistent hands a GPU's to MPI, and MPICH's wheel knows none.
    """
    if _communicator is None:
        return
    for link in network.links():
        if isinstance(link, chainer.links.BatchNormalization):
            for running in (link.avg_mean, link.avg_var):
                (mean,) = to_device(_communicator.allreduce(to_host(running)) / _communicator.size)
                running[...] = mean


def versions():
    found = {"framework": chainer.__version__, "chainer": chainer.__version__}
    if chainer.backends.cuda.available:
        cupy = chainer.backends.cuda.cupy
        found["cupy"] = cupy.__version__
        runtime = cupy.cuda.runtime.runtimeGetVersion()
        found["cuda"] = "%d.%d" % (runtime // 1000, runtime % 1000 // 10)
        if chainer.backends.cuda.cudnn_enabled:
            number = cupy.cuda.cudnn.getVersion()
            found["cudnn"] = "%d.%d.%d" % (number // 1000, number % 1000 // 100, number % 100)
        found.update(cuda.driver_version())
    return found


def device(setup):
    if setup.device == "cpu":
        return environment.cpu_device(1 if _communicator is None else _communicator.size)
    runtime = chainer.backends.cuda.cupy.cuda.runtime
    gpu = runtime.getDeviceProperties(0)
    name, capability = gpu["name"].decode("utf-8", "replace"), "%d.%d" % (gpu["major"], gpu["minor"])
    return cuda.device(name, runtime.getDeviceCount(), capability, gpu["totalGlobalMem"])


def settings():
    return {
        "cudnn_autotune": chainer.config.autotune,
        "cudnn": str(chainer.config.use_cudnn) if _gpu else "none",
        "ideep": chainer.backends.intel64.is_ideep_available(),
        # NumPy's BLAS reads it when it is loaded, before the adapter is
        "threads": int(os.environ.get("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "0"))),
        "tf32_override": os.environ["NVIDIA_TF32_OVERRIDE"],
        "dtype": numpy.dtype(chainer.config.dtype).name,
        "layout": "NCHW",
    }


def synchronize():
    """Wait until the device has done all it was given (B5, B7)."""
    if _gpu:
        chainer.backends.cuda.Stream.null.synchronize()


def device_peak_bytes():
    return None  # CuPy's pool tells what it holds, not what it held at most


def is_out_of_memory(error):
    return type(error).__name__ == "OutOfMemoryError"
