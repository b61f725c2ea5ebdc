"""Chainer's switches, versions and device, for every workload.

No peak of memory is reported: CuPy's pool counts the memory in use only.
"""

import os
import warnings

# Chainer is older than its dependencies, and warns about them.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import chainer

import numpy

from bench import cuda, environment

NAME = "chainer"

# Room for one of cuDNN's algorithms, as in Caffe2.
WORKSPACE_BYTES = 2**30

_gpu = False
# ChainerMN's communicator, where several devices train.
_communicator = None


def configure(setup):
    global _gpu
    _gpu = setup.device == "cuda"
    if _gpu:
        cuda.require_gpus("chainer %s" % chainer.__version__, _built(), _count(), setup.devices)
        chainer.backends.cuda.get_device_from_id(setup.rank).use()
    # cuDNN searches for its fastest algorithm: the pictures' size is fixed.
    chainer.config.autotune = True
    chainer.config.use_cudnn = "always"
    if _gpu:
        # CuPy's default, 8 MiB, leaves out the algorithms of cuDNN that are fast and need room.
        chainer.backends.cuda.set_max_workspace_size(WORKSPACE_BYTES)
    # By default cuDNN's convolutions use TF32, and cuBLAS' products do not. NVIDIA's variable is documented for 0, which is off in both.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"


def _built():
    """CUDA's version of CuPy's build, such as "11.0"; "" where CuPy is installed, and is not imported."""
    if not chainer.backends.cuda.available:
        return "" if cuda.installed(r"cupy(-cuda.*)?") else None
    number = chainer.backends.cuda.cupy.cuda.runtime.runtimeGetVersion()
    return "%d.%d" % (number // 1000, number % 1000 // 10)


def _count():
    runtime = chainer.backends.cuda.available and chainer.backends.cuda.cupy.cuda.runtime
    try:
        return runtime.getDeviceCount() if runtime else 0
    # CuPy raises it where there is no GPU, and where the driver is too old.
    except runtime.CUDARuntimeError:
        return 0


def to_device(*arrays):
    """NumPy arrays on the cell's device: the same arrays on a CPU."""
    return [chainer.backends.cuda.to_gpu(array) for array in arrays] if _gpu else arrays


def to_host(array):
    return chainer.backends.cuda.to_cpu(array)


def seed(number):
    """Seed the generator of dropout: NumPy's global one on a CPU, CuPy's on a GPU."""
    numpy.random.seed(number)
    if _gpu:
        chainer.backends.cuda.cupy.random.seed(number)


def random_state():
    """The state of the generator of dropout on a CPU. CuPy tells none."""
    return None if _gpu else numpy.random.get_state()


def set_random_state(state):
    numpy.random.set_state(state)


def place(link):
    """The link with its parameters on the cell's device."""
    return link.to_gpu() if _gpu else link


def join(communicator):
    """From now on networks are trained together with the processes of this communicator."""
    global _communicator
    _communicator = communicator


def set_up(optimizer, network):
    """The optimiser on its network. Where several devices train, it takes the mean of their gradients before each step."""
    if _communicator is None:
        return optimizer.setup(network)
    import chainermn

    optimizer = chainermn.create_multi_node_optimizer(optimizer, _communicator).setup(network)
    # Its first update() would send the parameters to all processes and take no step. These two lines do that before the first step.
    optimizer.is_changed(network)
    _communicator.bcast_data(network)
    return optimizer


def all_reduced(array):
    """The sum of the arrays of all devices."""
    return _communicator.allreduce(array)


def average(network):
    """Replace the network's gradients by the mean of all devices'."""
    if _communicator is not None:
        _communicator.multi_node_mean_grad(network)


def average_persistent(network):
    """Replace the network's running statistics by the mean of all devices'.

    They go through the host's memory: ChainerMN's AllreducePersistent gives MPI the GPU's memory, which MPICH's wheel cannot read.
    """
    if _communicator is None:
        return
    for link in network.links():
        if isinstance(link, chainer.links.BatchNormalization):
            for running in (link.avg_mean, link.avg_var):
                (mean,) = to_device(_communicator.allreduce(to_host(running)) / _communicator.size)
                running[...] = mean


def versions():
    numbers = {"framework": chainer.__version__, "chainer": chainer.__version__}
    if chainer.backends.cuda.available:
        cupy = chainer.backends.cuda.cupy
        numbers["cupy"] = cupy.__version__
        numbers["cuda"] = _built()
        if chainer.backends.cuda.cudnn_enabled:
            cudnn = cupy.cuda.cudnn.getVersion()
            numbers["cudnn"] = "%d.%d.%d" % (cudnn // 1000, cudnn % 1000 // 100, cudnn % 100)
        numbers.update(cuda.driver_version())
    return numbers


def device_kinds():
    return cuda.kinds(_built())


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
        "cudnn": str(chainer.config.use_cudnn) if _gpu and chainer.backends.cuda.cudnn_enabled else "none",
        "cudnn_workspace_bytes": chainer.backends.cuda.get_max_workspace_size() if _gpu else 0,
        "ideep": chainer.backends.intel64.is_ideep_available(),
        # NumPy's BLAS reads this variable when it is loaded, before the adapter is.
        "threads": int(os.environ.get("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "0"))),
        "tf32_override": os.environ["NVIDIA_TF32_OVERRIDE"],
        "dtype": numpy.dtype(chainer.config.dtype).name,
        "layout": "NCHW",
    }


def synchronize():
    """The device is synchronised before the clock is read."""
    if _gpu:
        chainer.backends.cuda.Stream.null.synchronize()


def is_out_of_memory(error):
    return type(error).__name__ == "OutOfMemoryError"
