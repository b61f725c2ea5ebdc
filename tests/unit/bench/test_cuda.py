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


def test_too_few_gpus_are_a_property_and_none_that_cuda_opens_a_state(monkeypatch):
    cuda.require_gpus("torch 2.13.0", 2, 2)
    with pytest.raises(Unsupported, match="the cell needs 2 GPUs, and torch 2.13.0 finds 1"):
        cuda.require_gpus("torch 2.13.0", 1, 2)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    with pytest.raises(
        Unsupported, match="finds no GPU, and the CUDA driver does: it is built or installed for the CPU"
    ):
        cuda.require_gpus("torch 2.13.0", 0)
    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(
        NoDevice, match="finds no GPU: libcuda.so.1; start the container with a GPU, or use the CPU image"
    ):
        cuda.require_gpus("torch 2.13.0", 0)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (100, "100 CUDA_ERROR_NO_DEVICE; no GPU is visible here"),
        (101, "101 CUDA_ERROR_INVALID_DEVICE; CUDA_VISIBLE_DEVICES names a GPU"),
        (802, "802 CUDA_ERROR_SYSTEM_NOT_READY; start nvidia-fabricmanager"),
        (803, "803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; libcuda is of another version"),
        (804, "804 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE; a libcuda for forward compatibility"),
        (999, "999 CUDA_ERROR_UNKNOWN; often nvidia_uvm is not loaded"),
        (46, "46; `nvidia-smi` and the kernel's log"),
    ],
)
def test_the_reason_is_cuda_s_own_number_with_its_remedy(monkeypatch, code, said):
    driver = Driver()
    driver.cuInit = lambda flags: code
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with pytest.raises(NoDevice) as raised:
        cuda.require_gpus("torch 2.13.0", 0)
    assert str(raised.value).startswith("torch 2.13.0 finds no GPU: cuInit says " + said)


def test_a_driver_that_counts_no_gpu_opens_none(monkeypatch):
    driver = Driver()
    driver.cuDeviceGetCount = lambda count: 0
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert cuda.why_none().startswith("cuInit says 100 CUDA_ERROR_NO_DEVICE")


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
