"""JAX's cache of compiled functions on the disk, for functions that are only checked. A measured function is always compiled."""

import contextlib
import hashlib
import os

import jax
from jax.experimental.compilation_cache import compilation_cache


@contextlib.contextmanager
def remembered(folder):
    """Within it functions that were compiled before are read from the folder, and others are kept there. On a CPU only.

    On a GPU XLA tries kernels as it compiles, and takes the results for the measured function, too: the first step of a repeat that finds
    the parity check's functions on the disk would take longer than that of one that compiles them.
    """
    if jax.default_backend() != "cpu":
        yield
        return
    _use(os.path.join(folder, "jax", _cpu()))
    try:
        yield
    finally:
        _use(None)


def _use(folder):
    jax.config.update("jax_compilation_cache_dir", folder)
    # Also the single operations: a parity check compiles dozens of them, each in some hundredths of a second.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # JAX decides at the first compilation whether it uses a cache, and remembers that.
    compilation_cache.reset_cache()


def _cpu():
    """A digest of this CPU: another one, which shares the folder over a network, may lack an instruction."""
    with open("/proc/cpuinfo") as lines:
        told = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return hashlib.sha256("".join(told).encode("utf-8")).hexdigest()[:16]
