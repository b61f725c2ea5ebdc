"""What is asked of the CUDA driver where a framework does not tell it."""

import ctypes
from types import SimpleNamespace

import pytest

from bench import cuda
from bench.errors import NoDevice, Unsupported


class Driver:
    """The functions of libcuda that are used, for a machine with one GPU and a driver of before MIG."""

    raw = bytes(range(16))

    def cuInit(self, flags):  # noqa: N802 (the driver's names)
        return 0

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, device, index):  # noqa: N802
        device._obj.value = index
        return 0 if index == 0 else 101

    def cuDeviceGetUuid(self, uuid, device):  # noqa: N802
        ctypes.memmove(uuid, self.raw, 16)
        return 0

    def cuDevicePrimaryCtxRetain(self, context, device):  # noqa: N802
        return 0

    def cuDevicePrimaryCtxRelease(self, device):  # noqa: N802
        return 0

    def cuDriverGetVersion(self, version):  # noqa: N802
        version._obj.value = 12020
        return 0

    def cuGetErrorName(self, number, name):  # noqa: N802
        name._obj.value = b"CUDA_ERROR_%d" % number
        return 0 if number < 1000 else 1

    def cuGetErrorString(self, number, sentence):  # noqa: N802
        sentence._obj.value = b"sentence %d" % number
        return 0 if number < 1000 else 1

    def cuDeviceTotalMem_v2(self, size, device):  # noqa: N802
        size._obj.value = 5 << 30
        return 0


class MigDriver(Driver):
    """The one device is a MIG instance: the older call tells its GPU, the newer one itself."""

    own = bytes(range(16, 32))

    def cuDeviceGetUuid_v2(self, uuid, device):  # noqa: N802
        ctypes.memmove(uuid, self.own, 16)
        return 0


class WholeDriver(MigDriver):
    """A newer driver, and a GPU that MIG has not cut: both calls tell the same."""

    own = Driver.raw


class SilentDriver(Driver):
    def cuDeviceGetUuid(self, uuid, device):  # noqa: N802
        return 999


def absent(name):
    raise OSError(name)


def test_a_uuid_is_written_as_nvml_writes_it(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert cuda.uuids(1) == ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"]
    assert cuda.memory_bytes(0) == 5 << 30


def test_a_mig_instance_is_told_by_its_own_uuid_and_not_its_gpus(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: MigDriver())
    assert cuda.uuids(1) == ["MIG-10111213-1415-1617-1819-1a1b1c1d1e1f"]


def test_a_whole_gpu_of_a_newer_driver_is_no_instance(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: WholeDriver())
    assert cuda.uuids(1) == ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"]


def test_a_gpu_whose_uuid_the_driver_does_not_tell_leaves_no_half_list(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SilentDriver())
    assert cuda.uuids(1) == []


class ForgetfulDriver(Driver):
    """It counts two devices and knows one of them."""

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = 2
        return 0


def test_a_gpu_that_the_driver_does_not_know_leaves_no_half_list(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: ForgetfulDriver())
    assert cuda.uuids(2) == cuda.uuids() == []
    assert cuda.memory_bytes(1) is None


@pytest.mark.parametrize("count", [2, 16])
def test_of_fewer_gpus_than_asked_for_those_that_there_are_are_told(monkeypatch, count):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert cuda.uuids(count) == ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"]


def test_without_a_count_the_driver_tells_all_devices(monkeypatch):
    """Frameworks that cannot count GPUs guessed 16; then the list was empty, and the runner refused the cell."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert cuda.uuids() == ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"]


def test_what_a_framework_does_not_tell_of_a_gpu_comes_from_the_driver(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    described = cuda.device()
    assert (described["count"], described["memory_bytes"]) == (1, 5 << 30)
    described = cuda.device("P100", 1, "6.0", 7.0)
    assert (described["name"], described["compute_capability"], described["memory_bytes"]) == ("P100", "6.0", 7)
    assert described["uuids"] == ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"]


def test_too_few_gpus_and_a_build_without_cuda_are_properties(monkeypatch):
    cuda.require_gpus("torch 2.13.0", "13.0", 2, 2)
    with pytest.raises(Unsupported, match=r"the cell needs 2 GPUs, and torch 2.13.0 \(CUDA 13.0\) finds 1"):
        cuda.require_gpus("torch 2.13.0", "13.0", 1, 2)
    # Also on a machine that no build could use.
    for driver in (lambda name: Driver(), absent):
        monkeypatch.setattr(ctypes, "CDLL", driver)
        with pytest.raises(Unsupported, match="torch 2.13.0 is built without CUDA; install its build with CUDA"):
            cuda.require_gpus("torch 2.13.0", None, 0)


@pytest.mark.parametrize(
    ("built", "why"),
    [
        ("12.8", "the driver is of CUDA 12.2, so the build lacks a library"),
        ("12", "the driver is of CUDA 12.2, so the build lacks a library"),
        ("", "the driver is of CUDA 12.2, so the build lacks a library"),
        (
            "13.0",
            "the driver is of CUDA 12.2 and too old for the build; install a newer driver, or a build for CUDA 12",
        ),
        ("13", "the driver is of CUDA 12.2 and too old"),
    ],
)
def test_a_build_with_cuda_that_opens_no_gpu_tells_whether_the_driver_is_too_old(monkeypatch, built, why):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    with pytest.raises(NoDevice) as raised:
        cuda.require_gpus("jax 0.10", built, 0)
    library = "jax 0.10 (CUDA %s)" % built if built else "jax 0.10"
    assert str(raised.value).startswith("%s opens no GPU, and the CUDA driver does: %s" % (library, why))


def test_cuda_before_11_needs_a_driver_of_its_own_minor_release(monkeypatch):
    driver = Driver()
    driver.cuDriverGetVersion = lambda version: setattr(version._obj, "value", 10000)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with pytest.raises(NoDevice, match=r"of CUDA 10\.0 and too old"):
        cuda.require_gpus("caffe2", "10.2", 0)
    with pytest.raises(NoDevice, match=r"of CUDA 10\.0, so the build lacks a library"):
        cuda.require_gpus("cntk 2.7", "10.0", 0)


@pytest.mark.parametrize(("code", "remedy"), [(46, "in compute mode `exclusive process`"), (2, "memory is full")])
def test_a_gpu_that_takes_no_context_is_not_opened_though_it_is_counted(monkeypatch, code, remedy):
    driver = Driver()
    driver.cuDevicePrimaryCtxRetain = lambda context, device: code
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    # The runner asks before it starts a cell, beside others that compute.
    assert cuda.why_none() is None
    with pytest.raises(
        NoDevice, match="finds no GPU: cuDevicePrimaryCtxRetain says %d CUDA_ERROR_.*%s" % (code, remedy)
    ):
        cuda.require_gpus("torch 2.13.0", "13.0", 0)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (100, "100 CUDA_ERROR_NO_DEVICE; no GPU is visible here"),
        (101, "101 CUDA_ERROR_INVALID_DEVICE; CUDA_VISIBLE_DEVICES names a GPU"),
        (802, "802 CUDA_ERROR_SYSTEM_NOT_READY; start nvidia-fabricmanager"),
        (803, "803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; libcuda is of another version"),
        (804, "804 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE; a libcuda for forward compatibility"),
        (999, "999 CUDA_ERROR_UNKNOWN; often nvidia_uvm is not loaded"),
        (805, "805 CUDA_ERROR_805; sentence 805: look at MPS's control daemon"),
        (3, "3 CUDA_ERROR_3; sentence 3: `nvidia-smi` and the kernel's log"),
        # A number that the driver does not know.
        (1001, "1001; `nvidia-smi` and the kernel's log"),
    ],
)
def test_the_reason_is_cuda_s_own_number_with_its_remedy(monkeypatch, code, said):
    driver = Driver()
    driver.cuInit = lambda flags: code
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with pytest.raises(NoDevice) as raised:
        cuda.require_gpus("torch 2.13.0", "", 0)
    assert str(raised.value).startswith("torch 2.13.0 finds no GPU: cuInit says " + said)


def test_a_driver_that_counts_no_gpu_opens_none(monkeypatch):
    driver = Driver()
    driver.cuDeviceGetCount = lambda count: 0
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert cuda.why_none().startswith("cuDeviceGetCount says 100 CUDA_ERROR_NO_DEVICE")


def test_without_a_driver_nothing_is_known(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert cuda.uuids() == []
    assert cuda.memory_bytes(0) is None


def test_nvidia_s_packages_are_found_whatever_major_release_they_are_called_after(monkeypatch):
    packages = {
        "nvidia-cudnn-cu14": "10.1",
        "nvidia-cudnn-cu13": "9.20",
        "nvidia-cuda-runtime": "14.0.1",
        "nvidia-nccl-cu9x": "2",
    }
    found = [SimpleNamespace(metadata={"Name": name}, version=version) for name, version in packages.items()]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    assert cuda.package_versions() == {"cuda": "14.0.1", "cudnn": "10.1"}
