"""TensorFlow 1's switches, versions and device, for every workload.

tensorflow.compat.v1 is in TensorFlow 1.15 as in TensorFlow 2, so one adapter serves both: 1.15 shows what was, the newest
what the same program does on today's kernels.
"""

import os
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # no banner in the log

with warnings.catch_warnings():  # 1.15 is older than NumPy's opinion on its dtypes
    warnings.simplefilter("ignore")
    import tensorflow.compat.v1 as tf

from tensorflow.python.client import device_lib  # noqa: E402  the one list of devices that both know

from bench import cuda, environment  # noqa: E402
from bench.errors import Unsupported  # noqa: E402

NAME = "tensorflow_v1"

_setup = None
_gpus = []
_config = None


def configure(setup):
    """Everything that a session must be told, before the first is opened."""
    global _setup, _gpus, _config
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)  # not a line for every function that TensorFlow 2 calls otherwise
    _setup = setup
    _config = tf.ConfigProto(
        intra_op_parallelism_threads=setup.threads,
        inter_op_parallelism_threads=setup.threads,
        # without it TensorFlow takes the whole memory at once
        gpu_options=tf.GPUOptions(allow_growth=True),
        device_count={"GPU": 0} if setup.device == "cpu" else None,
    )
    _gpus = []
    if setup.device == "cuda":
        if _has_tf32():
            tf.config.experimental.enable_tensor_float_32_execution(setup.precision == "tf32")
        elif setup.precision == "tf32":
            raise Unsupported("tensorflow %s is older than tf32; ask for fp32" % tf.__version__)
        _gpus = [found for found in device_lib.list_local_devices(_config) if found.device_type == "GPU"]
        cuda.require_gpus("tensorflow %s" % tf.__version__, len(_gpus))


def session(graph):
    """A session on a graph that is complete: nothing can be added to it in the loop by mistake."""
    graph.finalize()
    return tf.Session(graph=graph, config=_config)


def channels_first():
    """Whether images are N, C, H, W: cuDNN's own order on a GPU (A1); on a CPU TensorFlow only has N, H, W, C."""
    return bool(_gpus)


def on_gpu():
    return bool(_gpus)


def versions():
    found = {"framework": tf.__version__, "tensorflow": tf.__version__}
    if hasattr(tf.sysconfig, "get_build_info"):  # TensorFlow 2
        build = dict(tf.sysconfig.get_build_info())
        if build.get("is_cuda_build"):
            told = {"cuda": build.get("cuda_version"), "cudnn": build.get("cudnn_version")}
            told.update(cuda.package_versions(), **cuda.driver_version())
            found.update((name, version) for name, version in told.items() if version)
    elif tf.test.is_built_with_cuda():
        from tensorflow.python.platform import build_info

        told = {
            "cuda": getattr(build_info, "cuda_version_number", None),
            "cudnn": getattr(build_info, "cudnn_version_number", None),
        }
        told.update(cuda.driver_version())
        found.update((name, version) for name, version in told.items() if version)
    found["compiler"] = str(tf.COMPILER_VERSION)
    return found


def device(setup):
    if setup.device == "cpu":
        return environment.cpu_device()
    # "device: 0, name: Tesla P100-PCIE-16GB, pci bus id: 0000:00:04.0, compute capability: 6.0"
    gpu = dict(part.split(": ", 1) for part in _gpus[0].physical_device_desc.split(", "))
    return cuda.device(gpu.get("name", "unknown"), len(_gpus), gpu.get("compute capability"))


def settings():
    return {
        "tf32": _has_tf32() and bool(_gpus) and tf.config.experimental.tensor_float_32_execution_enabled(),
        "threads": _config.intra_op_parallelism_threads,
        "threads_between_operations": _config.inter_op_parallelism_threads,
        "xla": _config.graph_options.optimizer_options.global_jit_level > 0,
        # A3: TensorFlow searches cuDNN's algorithms unless this is 0. A4: the old Winograd flag is left alone.
        "cudnn_autotune": os.environ.get("TF_CUDNN_USE_AUTOTUNE", "1") != "0",
        "layout": "NCHW" if channels_first() else "NHWC",
        "memory_growth": _config.gpu_options.allow_growth,
    }


def _has_tf32():
    return hasattr(tf.config.experimental, "enable_tensor_float_32_execution")


def synchronize():
    """Nothing to wait for: Session.run returns when the device has done all it was given (B5)."""


def device_peak_bytes():
    if not _gpus or not hasattr(tf.config.experimental, "get_memory_info"):
        return None  # 1.15 has no such call
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def is_out_of_memory(error):
    return isinstance(error, tf.errors.ResourceExhaustedError)
