"""TensorFlow 1's switches, versions and device, for every workload.

tensorflow.compat.v1 is in TensorFlow 1.15 and in TensorFlow 2, so one adapter serves both: 1.15 shows the past, the newest release shows
the same program on today's kernels. Nothing is synchronised: Session.run synchronises the device before it returns.
"""

import os
import warnings

# No banner in the log.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

# NumPy warns about the dtypes of 1.15.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow.compat.v1 as tf

# The only list of devices that both versions have.
from tensorflow.python.client import device_lib  # noqa: E402

from bench import cuda, environment  # noqa: E402
from bench.errors import Unsupported  # noqa: E402

NAME = "tensorflow_v1"

_gpus = []
_config = None


def configure(setup):
    """The options of every session, before the first session starts."""
    global _gpus, _config
    tf.disable_v2_behavior()
    # TensorFlow 2 would write a warning for every renamed function.
    tf.logging.set_verbosity(tf.logging.ERROR)
    _config = tf.ConfigProto(
        intra_op_parallelism_threads=setup.threads,
        inter_op_parallelism_threads=setup.threads,
        # Without it TensorFlow takes the whole memory at once.
        gpu_options=tf.GPUOptions(allow_growth=True),
        device_count={"GPU": 0} if setup.device == "cpu" else None,
    )
    _gpus = []
    if setup.device == "cuda":
        if _has_tf32():
            tf.config.experimental.enable_tensor_float_32_execution(setup.precision == "tf32")
        elif setup.precision == "tf32":
            raise Unsupported("tensorflow %s is older than tf32; ask for fp32" % tf.__version__)
        _gpus = [device for device in device_lib.list_local_devices(_config) if device.device_type == "GPU"]
        cuda.require_gpus("tensorflow %s" % tf.__version__, _built(), len(_gpus))


def session(graph):
    """A session on a finalised graph: the loop cannot add to it by mistake."""
    graph.finalize()
    return tf.Session(graph=graph, config=_config)


def channels_first():
    """Channels first (N, C, H, W), the layout that cuDNN computes in, on a GPU. On a CPU TensorFlow has channels last only."""
    return bool(_gpus)


def on_gpu():
    return bool(_gpus)


def _built():
    return _cuda_versions()["cuda"] or "" if tf.test.is_built_with_cuda() else None


def versions():
    numbers = {"framework": tf.__version__, "tensorflow": tf.__version__}
    if tf.test.is_built_with_cuda():
        numbers.update((name, version) for name, version in _cuda_versions().items() if version)
    numbers["compiler"] = str(tf.COMPILER_VERSION)
    return numbers


def _cuda_versions():
    """CUDA's and cuDNN's versions, each None if TensorFlow does not have it, and the driver's."""
    # Only TensorFlow 2 has this function.
    if hasattr(tf.sysconfig, "get_build_info"):
        build = tf.sysconfig.get_build_info()
        built = {"cuda": build.get("cuda_version"), "cudnn": build.get("cudnn_version")}
        return dict(built, **dict(cuda.package_versions(), **cuda.driver_version()))
    from tensorflow.python.platform import build_info

    names = {"cuda": "cuda_version_number", "cudnn": "cudnn_version_number"}
    return dict({name: getattr(build_info, own, None) for name, own in names.items()}, **cuda.driver_version())


def device_kinds():
    return cuda.kinds(_built())


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
        # cuDNN searches for its fastest algorithm unless this is 0. The old flag for Winograd is not set: it is slower today.
        "cudnn_autotune": os.environ.get("TF_CUDNN_USE_AUTOTUNE", "1") != "0",
        "layout": "NCHW" if channels_first() else "NHWC",
        "memory_growth": _config.gpu_options.allow_growth,
    }


def _has_tf32():
    return hasattr(tf.config.experimental, "enable_tensor_float_32_execution")


def device_peak_bytes():
    if not _gpus or not hasattr(tf.config.experimental, "get_memory_info"):
        # 1.15 has no such function.
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def forget_device_peak():
    tf.config.experimental.reset_memory_stats("GPU:0")
    return True


def is_out_of_memory(error):
    return isinstance(error, tf.errors.ResourceExhaustedError)
