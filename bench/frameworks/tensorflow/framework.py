"""TensorFlow's switches, versions and device, for every workload."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# No banner in the log.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

from bench import cuda, environment  # noqa: E402
from bench.frameworks.keras import _mixed  # noqa: E402
from bench.frameworks.pictures import layouts  # noqa: E402

NAME = "tensorflow"

_xla = False
_layout = layouts.LAST


def by_xla(faster_on_a_cpu=False):
    """True if a step is compiled by XLA: in its mode, and on a CPU where it is said to be faster. Mode eager compiles nothing."""
    faster = faster_on_a_cpu and not tf.config.list_logical_devices("GPU")
    return (_xla or faster) and not tf.config.functions_run_eagerly()


def function(python, faster_on_a_cpu=False):
    """tf.function in the cell's mode: a graph, a graph compiled by XLA, or eager (configure() switches tf.function off)."""
    return tf.function(python, jit_compile=by_xla(faster_on_a_cpu))


def configure(setup):
    """Threads, precision and memory, before the first tensor starts the runtime."""
    global _xla, _layout
    _xla = setup.mode == "xla"
    tf.config.run_functions_eagerly(setup.mode == "eager")
    tf.config.threading.set_intra_op_parallelism_threads(setup.threads)
    tf.config.threading.set_inter_op_parallelism_threads(setup.threads)
    # By default matmul and convolution use tf32 on Ampere and later. settings() reads this value back.
    tf.config.experimental.enable_tensor_float_32_execution(setup.precision == "tf32")
    _mixed.configure(setup)
    gpus = tf.config.list_physical_devices("GPU")
    if setup.device == "cpu":
        tf.config.set_visible_devices([], "GPU")
        if setup.devices > 1:
            # The logical devices share the threads.
            parts = [tf.config.LogicalDeviceConfiguration() for _ in range(setup.devices)]
            tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    else:
        cuda.require_gpus("tensorflow %s" % tf.__version__, _built(), len(gpus), setup.devices)
        for gpu in gpus:
            # Without it TensorFlow takes the whole memory at once, and the peak cannot be measured.
            tf.config.experimental.set_memory_growth(gpu, True)
    _layout = layouts.layout_of(NAME, setup, _capability(gpus[0]) if setup.device == "cuda" else ())


def _capability(gpu):
    """(major, minor) of a physical device; (0, 0) where TensorFlow does not tell."""
    return tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))


def _built():
    return tf.sysconfig.get_build_info().get("cuda_version", "") if tf.test.is_built_with_cuda() else None


def versions():
    numbers = {"framework": tf.__version__, "tensorflow": tf.__version__, "keras": keras.__version__}
    build = tf.sysconfig.get_build_info()
    if build.get("is_cuda_build"):
        # The versions that TensorFlow was built for; those of the loaded packages are exact and replace them.
        built = {"cuda": build.get("cuda_version"), "cudnn": build.get("cudnn_version")}
        built.update(cuda.package_versions(), **cuda.driver_version())
        numbers.update((name, version) for name, version in built.items() if version)
    return numbers


def device_kinds():
    return cuda.kinds(_built())


def device(setup):
    if setup.device == "cpu":
        return environment.cpu_device(len(tf.config.list_logical_devices("CPU")))
    gpus = tf.config.list_physical_devices("GPU")
    gpu = tf.config.experimental.get_device_details(gpus[0])
    capability = "%d.%d" % gpu["compute_capability"] if "compute_capability" in gpu else None
    return cuda.device(gpu.get("device_name", "unknown"), len(gpus), capability)


def channels_first():
    """True if pictures are N, C, H, W, and not N, H, W, C (bench.frameworks.pictures.layouts).

    Grappler's layout optimizer may turn a graph's convolutions into the other order where XLA does not compile them.
    """
    return _layout == layouts.FIRST


def settings():
    return {
        "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
        "threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "threads_between_operations": tf.config.threading.get_inter_op_parallelism_threads(),
        "eager": tf.config.functions_run_eagerly(),
        # cuDNN searches for its fastest algorithm unless this is 0. The old flag for Winograd is not set: it is slower today.
        "cudnn_autotune": os.environ.get("TF_CUDNN_USE_AUTOTUNE", "1") != "0",
        "layout": "NCHW" if channels_first() else "NHWC",
        "memory_growth": bool(tf.config.list_logical_devices("GPU")),
    }


def settings_of(adapter):
    """The setting xla: True if XLA compiles the step of a built adapter, or its features. Of single operations the mode says it."""
    names = "train_step", "features", "decode"
    measured = next((getattr(adapter, name) for name in names if hasattr(adapter, name)), None)
    return {"xla": _xla if measured is None else bool(measured._jit_compile)}


def synchronize():
    """The device is synchronised before the clock is read."""
    if hasattr(tf.test, "experimental"):
        tf.test.experimental.sync_devices()
        return
    # TensorFlow up to 2.11: a value that is computed last on a device's only compute stream, and read, comes after all before it.
    for device in tf.config.list_logical_devices("GPU"):
        with tf.device(device.name):
            tf.random.uniform([]).numpy()


def device_peak_bytes():
    if not tf.config.list_logical_devices("GPU"):
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def forget_device_peak():
    tf.config.experimental.reset_memory_stats("GPU:0")
    return True


def is_out_of_memory(error):
    return isinstance(error, tf.errors.ResourceExhaustedError)
