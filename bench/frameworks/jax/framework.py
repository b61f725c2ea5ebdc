"""JAX's switches, versions and device, for every workload."""

import os
import re

# JAX reads both when the backend starts. Without the first it takes three quarters of a GPU's memory at once, and hides its peak.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import flax  # noqa: E402
import jax  # noqa: E402
import jaxlib  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402

from bench import cuda, environment  # noqa: E402
from bench.frameworks.jax._cache import remembered as remembered  # noqa: E402

NAME = "jax"

_pending = None


def configure(setup):
    """Platform, threads and precision, before the backend starts."""
    jax.config.update("jax_disable_jit", setup.mode == "no-jit")
    # Without it every float64 becomes a float32.
    jax.config.update("jax_enable_x64", setup.precision == "fp64")
    # XLA's CPU client starts this number of threads.
    os.environ["NPROC"] = str(setup.threads)
    jax.config.update("jax_platforms", setup.device)
    # XLA reads its flags when the backend starts. The virtual devices share the threads.
    if setup.device == "cpu" and setup.devices > 1:
        flag = " --xla_force_host_platform_device_count=%d" % setup.devices
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + flag
    # By default matmul and convolution use tf32 on Ampere and later. settings() reads this value back. "float32" is the highest
    # precision in every version; JAX 0.4 has no "highest" among this option's values.
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if setup.precision == "tf32" else "float32")
    if setup.device == "cuda":
        library = "jax %s" % jax.__version__
        try:
            gpus = len(jax.devices())
        except (RuntimeError, AssertionError) as error:
            # JAX raises an AssertionError without a text where no CUDA plugin is installed, or one cannot start.
            library, gpus = library + (str(error) and " (%s)" % error), 0
        cuda.require_gpus(library, _built(), gpus, setup.devices)


def _built():
    """The major release of CUDA of its plugin, such as "12". jaxlib itself held CUDA up to 0.4, and its version names the release."""
    plugin = " ".join(cuda.installed(r"jax-cuda\d+-plugin")) or jaxlib.__version__
    return (re.findall(r"cuda(\d+)", plugin) or [None])[0]


def versions():
    numbers = {
        "framework": jax.__version__,
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "flax": flax.__version__,
        "optax": optax.__version__,
    }
    plugins = cuda.installed(r"jax-cuda\d+-plugin")
    if plugins:
        numbers.update(plugins)
        numbers.update(cuda.package_versions())
        numbers.update(cuda.driver_version())
    return numbers


def device_kinds():
    return cuda.kinds(_built())


def device(setup):
    devices = jax.devices()
    if setup.device == "cpu":
        return environment.cpu_device(len(devices))
    return cuda.device(devices[0].device_kind, len(devices), getattr(devices[0], "compute_capability", None))


def settings():
    return {
        "platform": jax.default_backend(),
        "matmul_precision": jax.config.jax_default_matmul_precision,
        "threads": int(os.environ["NPROC"]),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "preallocate": os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"],
        # Flax's layout. XLA chooses its own for the kernels.
        "layout": "NHWC",
    }


def donated(*numbers):
    """The arguments of a jitted step whose memory XLA may use for the results: all of `numbers` on a GPU, none on a CPU.

    On a CPU memory is not short, and donation takes time: a step of gru-imdb in Keras takes 99 ms with it, 90 ms without (JAX 0.10.2).
    """
    return () if jax.default_backend() == "cpu" else numbers


def undrawn(network):
    """(structure, parameters) of the module that `network()` makes, the parameters zeros: the caller loads its own.

    To draw Flax's own first values, operation by operation, XLA compiles for seconds.
    """
    structure, shapes = nnx.split(nnx.eval_shape(network))
    return structure, jax.tree.map(lambda shape: jax.numpy.asarray(np.zeros(shape.shape, shape.dtype)), shapes)


def started(result):
    """Remember the newest result, and return it. When it is computed, so is every step before it."""
    global _pending
    _pending = result
    return result


def synchronize():
    """The device is synchronised before the clock is read. Every step needs the step before, so the newest result is enough."""
    jax.block_until_ready(_pending)


def device_peak_bytes():
    statistics = jax.devices()[0].memory_stats() or {}
    return statistics.get("peak_bytes_in_use") if jax.default_backend() == "gpu" else None


def is_out_of_memory(error):
    return "RESOURCE_EXHAUSTED" in str(error)
