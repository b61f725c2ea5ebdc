"""tinygrad's switches, versions and device, for every workload."""

import os
import shutil
import subprocess

from bench import cuda, environment
from bench.errors import Unsupported

NAME = "tinygrad"

_gpu = False


def configure(setup):
    """Threads, device and precision. Read by the library when it is imported."""
    global _gpu
    _gpu = setup.device == "cuda"
    if _gpu:
        cuda.require_gpus("the CUDA driver", len(cuda.uuids()))
    if setup.precision == "tf32":
        raise Unsupported("tinygrad takes tensor cores for float32 by ALLOW_TF32 in its own search only; ask for fp32")
    os.environ["DEV"] = "CUDA" if _gpu else "CPU"
    os.environ["CPU_COUNT"] = str(setup.threads)
    os.environ["ALLOW_TF32"] = "0"


def jit(setup, function):
    """The function as the cell's mode runs it."""
    from tinygrad import TinyJit

    return TinyJit(function) if setup.mode == "default" else function


def versions():
    from importlib import metadata

    found = {"framework": metadata.version("tinygrad")}
    found["tinygrad"] = found["framework"]
    compiler = shutil.which("clang")
    if compiler:
        said = subprocess.run([compiler, "--version"], stdout=subprocess.PIPE, universal_newlines=True, check=False)
        found["compiler"] = said.stdout.splitlines()[0][:80] if said.stdout else "clang"
    if _gpu:
        found.update(cuda.driver_version())
    return found


def device(setup):
    # tinygrad tells the architecture of a GPU, not the model.
    return environment.cpu_device() if setup.device == "cpu" else cuda.device()


def settings():
    from tinygrad import Device
    from tinygrad.helpers import BEAM, JIT

    return {
        "device": Device.DEFAULT,
        "threads": int(os.environ["CPU_COUNT"]),
        "beam": BEAM.value,  # 0: no search for faster kernels
        "jit": JIT.value,
        "layout": "NCHW",
    }


def synchronize():
    """Wait until the device has done all it was given (B5)."""
    from tinygrad import Device

    Device[Device.DEFAULT].synchronize()


def device_peak_bytes():
    return None  # tinygrad counts the memory in use, not its peak


def is_out_of_memory(error):
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()
