"""Versions from the CUDA driver and NVIDIA's packages, for frameworks that do not report them."""

import ctypes
import io
import json
import re
import sys

from bench.errors import NoDevice, Unsupported

_FAILED = -1


# The CUDA driver's answers where it can open no GPU: the number, its name in cuda.h, and the remedy. A driver names the numbers that it
# knows; older ones do not know them all.
_STATES = {
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "the GPU's memory is full: `nvidia-smi` tells which processes hold it"),
    46: (
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "another process holds the GPU in compute mode `exclusive process`, or the mode is `prohibited`: wait, or `nvidia-smi -c DEFAULT`",
    ),
    100: (
        "CUDA_ERROR_NO_DEVICE",
        "no GPU is visible here: look at CUDA_VISIBLE_DEVICES, and at what the container was given",
    ),
    101: (
        "CUDA_ERROR_INVALID_DEVICE",
        "CUDA_VISIBLE_DEVICES names a GPU that is not there; `nvidia-smi -L` tells the names",
    ),
    802: ("CUDA_ERROR_SYSTEM_NOT_READY", "start nvidia-fabricmanager, in the driver's version"),
    803: (
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "libcuda is of another version than the kernel's driver: restart the machine",
    ),
    804: (
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "a libcuda for forward compatibility was loaded, which only data-center GPUs take: take its folder `compat` out of LD_LIBRARY_PATH",
    ),
    999: ("CUDA_ERROR_UNKNOWN", "often nvidia_uvm is not loaded: `modprobe nvidia_uvm`, or restart the machine"),
}


def require_gpus(library, built, count, devices=1):
    """Raises an error where a library finds fewer GPUs than the cell has devices.

    A property of the library, such as a build without CUDA, is Unsupported. The state of a machine that a person can mend, such as a
    driver that is older than the build, is NoDevice. `library` is its name with its version. `built` is what it says of its build: CUDA's
    version, "" where it has CUDA and does not say which, None where it has none.
    """
    if built is None:
        raise Unsupported("%s is built without CUDA; install its build with CUDA" % library)
    if built:
        library = "%s (CUDA %s)" % (library, built)
    if not count:
        reason = why_none(in_a_context=True)
        if reason:
            raise NoDevice("%s finds no GPU: %s" % (library, reason))
        raise NoDevice("%s opens no GPU, and the CUDA driver does: %s" % (library, _why_not_here(built)))
    if count < devices:
        raise Unsupported("the cell needs %d GPUs, and %s finds %d" % (devices, library, count))


def why_none(in_a_context=False):
    """Why the CUDA driver opens no GPU in this process: its own number and name, and the remedy; None where it opens one.

    in_a_context: a context is made on the first GPU, too, as a framework does. That takes a part of the GPU's memory for a moment.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return "%s; start the container with a GPU, or use the CPU image" % error
    number, device, context = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_void_p()
    code, call = driver.cuInit(0), "cuInit"
    if code == 0:
        code, call = driver.cuDeviceGetCount(ctypes.byref(number)), "cuDeviceGetCount"
        # A driver that starts and has no device to show means the same as one that says so.
        code = code or (0 if number.value else 100)
    if code == 0 and in_a_context:
        call = "cuDevicePrimaryCtxRetain"
        code = driver.cuDeviceGet(ctypes.byref(device), 0) or driver.cuDevicePrimaryCtxRetain(
            ctypes.byref(context), device
        )
        if code == 0:
            driver.cuDevicePrimaryCtxRelease(device)
    if code == 0:
        return None
    name, remedy = _STATES.get(code) or (_said(driver.cuGetErrorName, code), _remedy(driver, code))
    return "%s says %d%s; %s" % (call, code, name and " " + name, remedy)


def _remedy(driver, code):
    """A remedy for an error without one of its own. CUDA's sentence for it comes first."""
    sentence = _said(driver.cuGetErrorString, code)
    if 805 <= code <= 810:
        remedy = "look at MPS's control daemon (`nvidia-cuda-mps-control`), or take CUDA_MPS_PIPE_DIRECTORY out of the environment"
    else:
        remedy = "`nvidia-smi` and the kernel's log (`dmesg`) may tell more"
    return sentence and "%s: %s" % (sentence, remedy) or remedy


def _said(function, code):
    """The text that cuGetErrorName or cuGetErrorString has for a number; "" where the driver does not know it."""
    text = ctypes.c_char_p()
    return (text.value or b"").decode("ascii", "replace") if function(code, ctypes.byref(text)) == 0 else ""


def _why_not_here(built):
    """Why a library opens no GPU where the CUDA driver opens one, and the remedy."""
    number = ctypes.c_int(0)
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    driver = number.value // 1000, number.value % 1000 // 10
    needed = tuple(int(part) for part in re.findall(r"\d+", built)[:2])
    # Within a major release of CUDA any driver serves since CUDA 11 (NVIDIA's minor-version compatibility).
    if needed and driver < (needed[:1] if needed >= (11,) else needed):
        return (
            "the driver is of CUDA %d.%d and too old for the build; install a newer driver, or a build for CUDA %d"
            % (driver + driver[:1])
        )
    return (
        "the driver is of CUDA %d.%d, so the build lacks a library of its CUDA, which its log names; install it again with these"
        % driver
    )


def kinds(built):
    """A framework's device_kinds(), by what it says of its build, as for require_gpus."""
    return ("cpu",) if built is None else ("cpu", "cuda")


def device(name="GPU 0", count=None, compute_capability=None, memory=None):
    """The protocol's `device` for a GPU. Facts that the framework lacks come from the CUDA driver, but for the model."""
    names = uuids(count)
    return {
        "kind": "cuda",
        "name": name,
        "count": len(names) if count is None else count,
        "uuids": names,
        "compute_capability": compute_capability,
        "memory_bytes": memory_bytes(0) if memory is None else int(memory),
    }


def uuids(count=None):
    """UUIDs of the first `count` devices that this process sees (None: of all), as NVML writes them.

    A GPU has "GPU-...", a MIG instance "MIG-...". With fewer devices the list has those that exist. [] without a driver, or
    when a device has no UUID.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    if driver.cuInit(0) != 0:
        return []
    number = ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(number))
    names = []
    for index in range(number.value if count is None else min(count, number.value)):
        device = ctypes.c_int(_FAILED)
        if driver.cuDeviceGet(ctypes.byref(device), index) != 0:
            return []
        uuid = _uuid(driver, device)
        if uuid is None:
            return []
        names.append(uuid)
    return names


def _uuid(driver, device):
    """The older call tells the GPU as a whole; the newer one (CUDA 11.4) the MIG instance, where the device is one."""
    whole = _ask_uuid(driver, "cuDeviceGetUuid", device)
    own = _ask_uuid(driver, "cuDeviceGetUuid_v2", device) or whole
    if own is None:
        return None
    kind = "GPU" if whole in (None, own) else "MIG"
    return "%s-%s" % (kind, "-".join(re.match("(.{8})(.{4})(.{4})(.{4})(.{12})", own).groups()))


def _ask_uuid(driver, call, device):
    """32 hexadecimal digits; None where the driver has no such call, or no answer."""
    raw = (ctypes.c_ubyte * 16)()
    try:
        return bytes(bytearray(raw)).hex() if getattr(driver, call)(raw, device) == 0 else None
    except AttributeError:
        return None


def memory_bytes(index):
    """Total memory of a GPU, or None where the driver does not say."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        device, size = ctypes.c_int(_FAILED), ctypes.c_size_t(0)
        answered = driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), index) == 0
        answered = answered and driver.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0
    except (OSError, AttributeError):
        return None
    return size.value if answered else None


def driver_version():
    """{"driver": the kernel driver's version, such as "580.82.07"}; {} without a driver."""
    try:
        with io.open("/sys/module/nvidia/version", encoding="ascii") as file:
            return {"driver": file.read().strip()}
    except (IOError, OSError):
        return {}


def package_versions():
    """{"cuda": ..., "cudnn": ..., "nccl": ...}: versions of NVIDIA's Python packages, those that are installed here."""
    versions = {}
    for name, package in (("cuda", "nvidia-cuda-runtime"), ("cudnn", "nvidia-cudnn"), ("nccl", "nvidia-nccl")):
        # The suffix names the major release of CUDA. Some packages have none since CUDA 13.
        packages = installed(re.escape(package) + r"(-cu\d+)?")
        if packages:
            versions[name] = packages[max(packages, key=_major)]
    return versions


def code_for():
    """The compute capabilities, such as ["7.0", "9.0"], that the loaded framework says its build holds code for. No GPU is needed.

    None where it does not say: only PyTorch and TensorFlow 2 do.
    """
    torch, tensorflow = sys.modules.get("torch"), sys.modules.get("tensorflow")
    flags = getattr(torch, "_C", None) and getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    if flags is None and hasattr(getattr(tensorflow, "sysconfig", None), "get_build_info"):
        flags = " ".join(tensorflow.sysconfig.get_build_info().get("cuda_compute_capabilities") or ())
    numbers = {(int(major), int(minor)) for major, minor in re.findall(r"(?:sm|compute)_(\d+)(\d)", flags or "")}
    return ["%d.%d" % number for number in sorted(numbers)] or None


def installed(pattern):
    """Name -> version of the Python packages installed here whose whole name the regular expression matches."""
    from importlib import metadata  # Python >= 3.8: so have the frameworks that ask

    names = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    return {name: version for name, version in names.items() if re.match(pattern + r"\Z", name or "")}


def _major(package):
    return int(re.search(r"(\d*)\Z", package).group(1) or 0)


if __name__ == "__main__":
    # Asked before anything is measured, in the interpreter that measures.
    sys.stdout.write(json.dumps({"uuids": uuids(), "reason": why_none()}) + "\n")
