"""tinygrad's switches, versions and device, for every workload.

No peak of memory is reported: tinygrad counts the memory in use only.
"""

import os
import shutil
import subprocess

from bench import cuda, environment
from bench.errors import Unsupported

NAME = "tinygrad"

_gpu = False
# It compiles its kernels as it runs, and needs the driver only.
_BUILT = ""


def configure(setup):
    """Threads, device and precision, before `import tinygrad`: the library reads them once."""
    global _gpu
    _gpu = setup.device == "cuda"
    if _gpu:
        cuda.require_gpus("tinygrad", _BUILT, len(cuda.uuids()))
    os.environ["DEV"] = "CUDA" if _gpu else "CPU"
    os.environ["CPU_COUNT"] = str(setup.threads)
    os.environ["ALLOW_TF32"] = "0"


def jit(setup, function):
    """The function in the cell's mode: captured once and replayed, or in mode no-jit as it is."""
    from tinygrad import TinyJit

    return TinyJit(function) if setup.mode == "default" else function


def versions():
    from importlib import metadata

    numbers = dict.fromkeys(("framework", "tinygrad"), metadata.version("tinygrad"))
    compiler = shutil.which("clang")
    if compiler:
        ended = subprocess.run([compiler, "--version"], stdout=subprocess.PIPE, universal_newlines=True, check=False)
        numbers["compiler"] = ended.stdout.splitlines()[0][:80] if ended.stdout else "clang"
    if _gpu:
        numbers.update(cuda.driver_version())
    return numbers


def device_kinds():
    return cuda.kinds(_BUILT)


def device(setup):
    from tinygrad import Device

    # A version that does not know the variable chooses a device by itself.
    if Device.DEFAULT != os.environ["DEV"]:
        raise Unsupported("tinygrad computes on %s where DEV asks for %s" % (Device.DEFAULT, os.environ["DEV"]))
    # tinygrad has the architecture of a GPU, not the model.
    return environment.cpu_device() if setup.device == "cpu" else cuda.device()


def settings():
    from tinygrad import Device
    from tinygrad.helpers import BEAM, JIT

    return {
        "device": Device.DEFAULT,
        "threads": int(os.environ["CPU_COUNT"]),
        # 0: no search for faster kernels.
        "beam": BEAM.value,
        "jit": JIT.value,
        "layout": "NCHW",
    }


def synchronize():
    """The device is synchronised before the clock is read."""
    from tinygrad import Device

    Device[Device.DEFAULT].synchronize()
