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
from bench.errors import Unsupported  # noqa: E402

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
        try:
            there = len(jax.devices())
        except (RuntimeError, AssertionError) as error:  # the latter where no CUDA plugin is installed
            raise Unsupported(
                "a GPU was asked for, but jax %s finds none (%s); start the container with one, or use the CPU image"
                % (jax.__version__, str(error) or "no CUDA plugin is installed")
            )
        if there < setup.devices:
            raise Unsupported("%d GPUs were asked for, and jax finds %d" % (setup.devices, there))


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
        if cuda.driver_version():
            found["driver"] = cuda.driver_version()
    return found


def device(setup):
    if setup.device == "cpu":
        return environment.cpu_device(len(jax.devices()))
    found = jax.devices()
    return {
        "kind": "cuda",
        "name": found[0].device_kind,
        "count": len(found),
        "uuids": cuda.uuids(len(found)),
        "compute_capability": getattr(found[0], "compute_capability", None),
        "memory_bytes": cuda.memory_bytes(0),
    }


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
