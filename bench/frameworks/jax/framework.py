"""JAX's switches, versions and device, for every workload."""

import os
from importlib import metadata

# Read when the backend starts: without the first, JAX takes three quarters of a GPU's memory at once, and no peak can
# be told.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import flax  # noqa: E402
import jax  # noqa: E402
import jaxlib  # noqa: E402
import optax  # noqa: E402

from bench import cuda, environment  # noqa: E402

NAME = "jax"

_pending = None


def configure(setup):
    """Platform, threads and precision, before the backend starts."""
    jax.config.update("jax_disable_jit", setup.mode == "no-jit")
    jax.config.update("jax_enable_x64", setup.precision == "fp64")  # without it every float64 becomes a float32
    os.environ["NPROC"] = str(setup.threads)  # how many threads XLA's CPU client starts
    jax.config.update("jax_platforms", setup.device)
    if (
        setup.device == "cpu" and setup.devices > 1
    ):  # read when the backend starts; the virtual devices share the threads
        flag = " --xla_force_host_platform_device_count=%d" % setup.devices
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + flag
    # The default lets matmul and convolution use tf32 on Ampere and later: set it, and read it back in settings().
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if setup.precision == "tf32" else "highest")
    if setup.device == "cuda":
        library = "jax %s" % jax.__version__
        try:
            gpus = len(jax.devices())
        except (RuntimeError, AssertionError) as error:
            # JAX raises an AssertionError without a text where no CUDA plugin is installed.
            library, gpus = "%s (%s)" % (library, str(error) or "no CUDA plugin is installed"), 0
        cuda.require_gpus(library, gpus, setup.devices)


def versions():
    found = {
        "framework": jax.__version__,
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "flax": flax.__version__,
        "optax": optax.__version__,
    }
    for plugin in ("jax-cuda13-plugin", "jax-cuda12-plugin"):
        try:
            found[plugin] = metadata.version(plugin)
        except metadata.PackageNotFoundError:
            continue
        found.update(cuda.package_versions())
        found.update(cuda.driver_version())
    return found


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
        "layout": "NHWC",  # what Flax is given; XLA chooses its own for the kernels
    }


def donated(*numbers):
    """Of these arguments of a jitted step, those whose memory it may use again: all on a GPU, none on a CPU.

    There it saves no memory that is short, and costs: 99 ms for a step of gru-imdb in Keras, 90 ms without (measured with JAX 0.10.2).
    """
    return () if jax.default_backend() == "cpu" else numbers


def started(result):
    """Remember the newest result, whose completion is that of every step before it; returns it."""
    global _pending
    _pending = result
    return result


def synchronize():
    """Wait until the device has done all it was given (B5): every step needs the parameters of the one before."""
    jax.block_until_ready(_pending)


def device_peak_bytes():
    told = jax.devices()[0].memory_stats() or {}
    return told.get("peak_bytes_in_use") if jax.default_backend() == "gpu" else None


def is_out_of_memory(error):
    return "RESOURCE_EXHAUSTED" in str(error)
