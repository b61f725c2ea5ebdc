"""CNTK's switches, versions and device, for CNTK itself and for Keras 2 on it."""

import glob
import os
import warnings

import numpy as np

from bench import cuda, environment
from bench.errors import Unsupported

NAME = "cntk"

_gpu = False
# One number on the device, which synchronize() reads.
_number = None


def configure(setup):
    """Device and threads, before anything is built."""
    global _gpu, _number
    # MKL and OpenMP read it when the library is loaded.
    os.environ["OMP_NUM_THREADS"] = str(setup.threads)
    # CNTK warns that it misses libraries for a GPU, and that it does not know the Linux distribution.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cntk
    cntk.logging.set_trace_level(cntk.logging.TraceLevel.Error)
    cntk.cntk_py.set_max_num_cputhreads(setup.threads)
    _gpu = setup.device == "cuda"
    if _gpu:
        cuda.require_gpus("cntk %s" % cntk.__version__, _built(), gpu_count())
    if not cntk.try_set_default_device(cntk.gpu(0) if _gpu else cntk.cpu()):
        raise Unsupported("cntk %s does not take the %s as its device" % (cntk.__version__, "GPU" if _gpu else "CPU"))
    cntk.cntk_py.set_fixed_random_seed(setup.seed)
    _number = cntk.NDArrayView.from_dense(np.zeros(1, "float32"), device=cntk.use_default_device())


def _built():
    """CUDA's version by the library in its wheel, such as "10.0": libcudart.so.10.0."""
    import cntk

    files = glob.glob(os.path.join(os.path.dirname(cntk.__file__), "libs", "libcudart.so.*"))
    return os.path.basename(files[0]).replace("libcudart.so.", "") if files else None


def gpu_count():
    import cntk

    return sum(device.type() == cntk.DeviceKind.GPU for device in cntk.all_devices())


def versions():
    import cntk

    return dict(cuda.driver_version() if _gpu else {}, framework=cntk.__version__, cntk=cntk.__version__)


def device_kinds():
    return cuda.kinds(_built())


def device(setup):
    if setup.device == "cpu":
        return environment.cpu_device()
    import cntk

    gpu = cntk.cntk_py.get_gpu_properties(cntk.gpu(0))
    capability = "%d.%d" % (gpu.version_major, gpu.version_minor)
    # CNTK counts the memory in MiB.
    return cuda.device(gpu.name, gpu_count(), capability, int(gpu.total_memory) * 1024 * 1024)


def settings():
    import cntk

    return {
        "device": str(cntk.use_default_device()),
        "threads": cntk.cntk_py.get_max_num_cputhreads(),
        "layout": "NCHW",
    }


def synchronize():
    """The device is synchronised before the clock is read.

    CNTK has no function for that. All its work on a GPU is in one queue, so a copy to the host waits for what was started before it.
    """
    _number.asarray()
