"""Doctor's checks one by one, on scenes of machines that are well and ill; the engine's part of them is in tests/engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker.errors import DockerException

from runner import known_messages
from runner.catalog.images import PROJECT, load_catalog
from runner.doctor import builds as doctor_builds
from runner.doctor import container_engine as doctor_engine
from runner.doctor import folders as doctor_folders
from runner.doctor import gpu_checks as doctor_gpus
from runner.doctor import limits
from runner.doctor.scene import FAIL, OK, SKIPPED, WARN, Check, Scene
from runner.engines.base import ReadyImage, Slot
from runner.engines.docker import container, gpu_trial
from runner.engines.process.host import HostEngine
from runner.engines.process.interpreters import Interpreter
from runner.engines.process.venv import COMPLETE, environment_folder
from runner.machine import control_groups
from runner.machine.devices import Gpu, Process
from runner.messages.xids import xid
from tests.fixtures.json_documents import valid
from tests.stand_ins.fleet import FakeGpu, Fleet, environment

GPU = Gpu(0, "GPU-a", "NVIDIA L4", "8.9", 24 << 30, "580.1", (0,), cuda_driver="13.0", persistence=True)
WELL = Scene((GPU,), None, (), "580.1", None, "no container engine answers", {}, None, None)
ENGINE = {"ServerVersion": "28.2.2", "CgroupDriver": "cgroupfs", "Runtimes": {"runc": {}}}


class Client:
    """An engine whose containers print `said`, or what the doctor's question to CUDA gets: `cuda`, or the GPUs that were given."""

    def __init__(self, said: bytes | Exception = b"", cuda: str | None = None, without_hook: bool = False) -> None:
        self._said, self._cuda, self._without_hook = said, cuda, without_hook
        self.asked: list[dict[str, Any]] = []
        # Whether the container is there.
        self.kept = False

    @property
    def containers(self) -> Client:
        return self

    def create(self, **options: Any) -> Client:
        self.asked.append(options)
        self.kept = True
        return self

    def start(self) -> None:
        request = self.asked[-1]["device_requests"][0]
        if self._without_hook and request["Driver"] == "nvidia.runtime-hook":
            raise DockerException('could not select device driver "nvidia.runtime-hook" with capabilities: [[gpu]]')
        if isinstance(self._said, Exception):
            raise self._said

    def wait(self) -> None: ...

    def logs(self) -> bytes:
        assert isinstance(self._said, bytes)
        if self.asked[-1]["entrypoint"] == ["nvidia-smi"]:
            return self._said
        uuids = self.asked[-1]["device_requests"][0]["DeviceIDs"]
        return (self._cuda or json.dumps([",".join(uuids), uuids, None])).encode()

    def remove(self, force: bool) -> None:
        self.kept = False


def the(found: Iterator[Check]) -> Check:
    (check,) = found
    return check


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, OK, ""),
        (
            {"gpus": (), "why_no_gpu": "there is no NVIDIA driver on this machine", "module": None},
            WARN,
            "no NVIDIA kernel module is loaded.*modprobe",
        ),
        (
            {"gpus": (), "why_no_gpu": "the NVIDIA driver does not answer (Driver/library version mismatch)"},
            FAIL,
            "the kernel still runs the old module.*restart the machine",
        ),
        (
            {"gpus": (), "why_no_gpu": "the NVIDIA driver does not answer (Unknown Error); `runner doctor` says more"},
            FAIL,
            "the container lost its devices.*start it again",
        ),
        (
            {"gpus": (), "why_no_gpu": "the NVIDIA driver does not answer (Timeout); `runner doctor` says more"},
            FAIL,
            "the kernel module is .*restart the machine: its kernel module is loaded",
        ),
        ({"module": "570.2"}, FAIL, "kernel module 570.2"),
    ],
)
def test_the_driver_is_told_with_what_it_means_and_the_fix(changes: dict[str, Any], status: str, words: str) -> None:
    check = the(doctor_gpus.driver(replace(WELL, **changes)))
    assert check.status == status
    assert re.search(words, f"{check.saw} {check.means} {check.fix}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"persistence": False}, "persistence mode is off"),
        ({"pcie_width": 16, "pcie_width_now": 4}, "uses 4 of its 16 PCIe lanes"),
        ({"processes": (Process(7, "python", "someone", 1 << 30),)}, "python (process 7 of someone"),
        ({"processes": None}, "the driver does not say who computes on it"),
        ({"compute_mode": "exclusive process"}, "its compute mode is exclusive process"),
        ({"free_bytes": 9 << 30}, "16.1 GB of its memory are in use, and no program on it is listed"),
    ],
)
def test_what_a_gpu_lacks_is_told_with_a_fix(changes: dict[str, Any], words: str) -> None:
    check = the(doctor_gpus.gpus(replace(WELL, gpus=(replace(GPU, **changes),))))
    assert (check.name, check.status) == ("GPU 0", WARN)
    assert words in check.saw
    assert check.means
    assert check.fix


def test_a_server_that_shares_a_gpu_is_named() -> None:
    shared = replace(GPU, processes=(Process(7, "nvidia-cuda-mps", "root", 1 << 20),))
    sentences = [check.saw for check in doctor_gpus.gpus(replace(WELL, gpus=(shared,)))]
    assert any("an MPS server runs on it" in sentence for sentence in sentences)


def test_a_gpu_that_is_well_is_said_to_be_and_one_off_the_bus_fails() -> None:
    check = the(doctor_gpus.gpus(WELL))
    assert (check.status, check.saw) == (OK, "NVIDIA L4, 24 GiB, free")
    broken = replace(WELL, gpus=(), refused=("GPU 1 answers with an error (GPU is lost); it needs a reset",))
    check = the(doctor_gpus.gpus(broken))
    assert check.status == FAIL
    assert "restart the machine" in check.fix


@pytest.mark.parametrize(
    ("answer", "status", "saw", "fix"),
    [
        ((["GPU-a"], ""), "ok", "it opens GPU 0", ""),
        (
            ([], "cuInit says 802 X; start nvidia-fabricmanager"),
            "fail",
            "GPU 0: cuInit says 802 X",
            "start nvidia-fabri",
        ),
        (([], "libcuda.so.1: cannot open; start"), "warn", "libcuda.so.1: cannot open", "start"),
        ((["GPU-2"], ""), "fail", "to CUDA", "restart the machine"),
        (([], ""), "ok", "it opens GPU 0", ""),
    ],
)
def test_cuda_itself_is_asked_whether_it_opens_a_gpu(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[list[str], str], status: str, saw: str, fix: str
) -> None:
    monkeypatch.setattr(doctor_gpus.installed, "opened", lambda *_: answer)
    check = the(doctor_gpus.cuda(WELL))
    assert (check.status, saw in check.saw, check.fix.startswith(fix)) == (status, True, True)


def test_an_engine_under_systemds_groups_may_lose_its_gpus_unless_it_has_cdi() -> None:
    under = replace(WELL, client=Client(), info=ENGINE | {"CgroupDriver": "systemd"})
    check = the(doctor_engine.cgroups(under))
    assert check.status == WARN
    assert "daemon-reload" in check.means
    named = {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=GPU-a"}]}
    assert the(doctor_engine.cgroups(replace(under, info=under.info | named))).status == OK


def look(check: Callable[[Scene], Iterator[Check]], *names: str) -> Check:
    """A check on an engine that knows these CDI names."""
    named = [{"Source": "cdi", "ID": f"nvidia.com/gpu={name}"} for name in names]
    return the(check(replace(WELL, client=Client(), info=ENGINE | {"DiscoveredDevices": named})))


def test_cdi_names_that_lack_a_gpu_are_told() -> None:
    assert look(doctor_engine.cdi, "GPU-a", "all").status == OK
    check = look(doctor_engine.cdi, "0", "all")
    assert check.status == WARN
    assert "GPU-a" in check.saw
    assert "nvidia-ctk cdi generate" in check.fix


def test_a_hook_is_missed_only_where_a_gpu_has_no_cdi_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look(doctor_engine.hook, "GPU-a").status == OK
    check = look(doctor_engine.hook, "0")
    assert (check.status, "restart dockerd" in check.fix) == (WARN, True)
    program = tmp_path / "nvidia-container-runtime-hook"
    program.touch(0o755)
    assert (look(doctor_engine.hook).status, look(doctor_engine.hook).saw) == (OK, str(program))


@pytest.fixture(autouse=True)
def own_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor's containers get a folder of their own below the cells'."""
    monkeypatch.setattr(gpu_trial, "cache_folder", lambda: tmp_path)


def started(said: bytes | Exception, *gpus: Gpu, cuda: str | None = None) -> Check:
    seen = replace(WELL, gpus=gpus or (GPU,), client=Client(said, cuda), info=ENGINE, image="tiny")
    return the(doctor_engine.container(seen))


def test_the_container_must_see_just_the_gpus_it_was_given() -> None:
    assert started(b"GPU 0: NVIDIA L4 (UUID: GPU-a)\n").status == OK
    check = started(b"GPU 0: NVIDIA L4 (UUID: GPU-b)\n")
    assert check.status == FAIL
    assert "was given GPU-a and sees GPU-b" in check.saw


def test_a_cut_gpu_that_is_listed_above_its_instances_is_none_too_many() -> None:
    part = replace(GPU, uuid="MIG-1", board="GPU-a", instance=0)
    said = b"GPU 0: NVIDIA H100 (UUID: GPU-a)\n  MIG 3g.40gb     Device  0: (UUID: MIG-1)\n"
    assert started(said, part).status == OK


SEES = b"GPU 0: NVIDIA L4 (UUID: GPU-a)\n"


@pytest.mark.parametrize(
    ("cuda", "status", "saw", "fix"),
    [
        ('["GPU-a", ["GPU-a"], null]', OK, "just what it was given, through NVIDIA's hook; CUDA opens them", ""),
        ('noise\n["void", ["GPU-a"], null]\n', OK, "through CDI; CUDA opens them", ""),
        (
            '["GPU-a", [], "cuInit says 802 CUDA_ERROR_SYSTEM_NOT_READY; start nvidia-fabricmanager"]',
            FAIL,
            "through NVIDIA's hook, and CUDA opens none of them (cuInit says 802 CUDA_ERROR_SYSTEM_NOT_READY)",
            "start nvidia-fabricmanager",
        ),
        ('["void", ["GPU-b"], null]', FAIL, "through CDI, and CUDA opens GPU-b", "`nvidia-ctk cdi generate`"),
        ("ModuleNotFoundError: No module named 'bench'", WARN, "the image has no bench to ask CUDA with", "name an"),
    ],
)
def test_a_container_in_which_nvml_answers_is_asked_for_cuda_too(cuda: str, status: str, saw: str, fix: str) -> None:
    check = started(SEES, cuda=cuda)
    assert (check.status, check.fix[: len(fix)]) == (status, fix)
    assert saw in check.saw


def test_the_doctors_containers_have_the_limits_of_a_cell() -> None:
    client = Client(SEES)
    the(doctor_engine.container(replace(WELL, client=client, info=ENGINE, image="tiny")))
    slot = Slot("cuda", (GPU.uuid,), (), None)
    cell = container.container_options(ReadyImage(None, "tiny", ("x",)), [], slot, None, Path("/"), "1:1")
    own = {"entrypoint", "command", "mounts", "user", "log_config"}
    for options in client.asked:
        assert {key: options[key] for key in options.keys() - own} == {key: cell[key] for key in cell.keys() - own}
        assert [mount["Target"] for mount in options["mounts"]] == ["/cache"]


def test_each_instance_of_a_cut_gpu_is_opened_by_a_container_of_its_own() -> None:
    parts = [replace(GPU, uuid=f"MIG-{number}", board="GPU-a", instance=number) for number in (1, 2)]
    client = Client(b"GPU 0: NVIDIA H100 (UUID: GPU-a)\n  MIG (UUID: MIG-1)\n  MIG (UUID: MIG-2)\n")
    scene = replace(WELL, gpus=tuple(parts), client=client, info=ENGINE, image="tiny")
    assert the(doctor_engine.container(scene)).status == OK
    given = [options["device_requests"][0]["DeviceIDs"] for options in client.asked]
    assert given == [["MIG-1", "MIG-2"], ["MIG-1"], ["MIG-2"]]


@pytest.mark.parametrize("without_hook", [False, True])
def test_docker_29_is_asked_for_its_hook_by_name_and_without_one_where_it_has_none(without_hook: bool) -> None:
    client = Client(SEES, without_hook=without_hook)
    info = ENGINE | {"ServerVersion": "29.1.0"}
    assert the(doctor_engine.container(replace(WELL, client=client, info=info, image="tiny"))).status == OK
    drivers = [options["device_requests"][0]["Driver"] for options in client.asked]
    assert drivers == ["nvidia.runtime-hook", ""] * 2 if without_hook else ["nvidia.runtime-hook"] * 2
    assert not client.kept


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "install the NVIDIA Container Toolkit"),
        ("unresolvable CDI devices nvidia.com/gpu=GPU-a", "nvidia-cdi-refresh"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0", "a newer driver"),
        ("Unknown runtime specified nvidia", "nvidia-ctk runtime configure"),
        ("something new", "journalctl -u docker"),
    ],
)
def test_what_the_engine_says_is_explained(said: str, fix: str) -> None:
    check = started(DockerException(said))
    assert (check.status, check.saw) == (FAIL, said)
    assert fix in check.fix


def test_the_container_has_the_groups_that_a_cell_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_trial, "device_groups", lambda info: [44])
    client = Client(b"GPU 0: NVIDIA L4 (UUID: GPU-a)\n")
    the(doctor_engine.container(replace(WELL, gpus=(GPU,), client=client, info=ENGINE, image="tiny")))
    assert [options["group_add"] for options in client.asked] == [[44], [44]]


@pytest.mark.parametrize("said", [b"GPU 0: NVIDIA L4 (UUID: GPU-a)\n", DockerException("no such runtime")])
def test_no_container_stays_whether_it_could_be_started_or_not(said: bytes | Exception) -> None:
    client = Client(said)
    the(doctor_engine.container(replace(WELL, gpus=(GPU,), client=client, info=ENGINE, image="tiny")))
    assert client.asked
    assert not client.kept


def test_a_container_that_could_not_be_started_is_not_passed_over() -> None:
    assert the(doctor_engine.container(WELL)).status == SKIPPED
    assert the(doctor_engine.container(replace(WELL, client=Client(), image=None))).status == WARN


def test_the_pip_index_is_shown_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):  # what else this machine may ask
        monkeypatch.delenv(name, raising=False)
    check = the(doctor_builds.pip_index(replace(WELL, client=Client())))
    assert check.status == WARN
    assert check.saw.startswith("pip did not reach http://127.0.0.1: a server takes no connections from here")
    assert "secret" not in str(check)


@pytest.mark.parametrize("url", ["http://me:secret@nowhere.invalid/simple", "http://me:secret@[::1/simple"])
def test_what_pip_says_of_an_index_is_shown_without_the_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", url)
    # The last one is cut in the middle of the password.
    for said in (f"looked at {url}", "me:secret@nowhere.invalid did not answer", f"http://me:secret@{'x' * 196}"):
        ended = subprocess.CompletedProcess([], 1, "", said)
        monkeypatch.setattr(doctor_builds, "_pip", lambda *_, ended=ended: ended)
        check = the(doctor_builds.pip_index(replace(WELL, client=Client())))
        assert "ret" not in check.saw


@pytest.mark.parametrize(
    ("said", "saw", "fix"),
    [
        (
            "WARNING: Retrying after connection broken by 'ProxyError('Cannot connect to proxy.', OSError('refused'))': /simple/pip/ "
            + "x" * 300
            + " ERROR: No matching distribution found for pip",
            "pip did not reach https://site.example: the proxy that HTTPS_PROXY or HTTP_PROXY names",
            "unset them where no proxy is needed",
        ),
        (
            "ERROR: HTTPSConnectionPool: Tunnel connection failed: 407 Proxy Authentication Required",
            "the proxy",
            "a name and password",
        ),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "a disk is full", "free some space"),
        (
            "ERROR: No matching distribution found for pip",
            "https://site.example does not answer",
            "names your site's index",
        ),
    ],
)
def test_the_index_is_not_blamed_for_a_proxy_or_a_full_disk(
    said: str, saw: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://site.example/simple")
    monkeypatch.setattr(doctor_builds, "_pip", lambda *_: subprocess.CompletedProcess([], 1, "", said))
    check = the(doctor_builds.pip_index(replace(WELL, client=Client())))
    assert saw in check.saw
    assert fix in check.fix


def test_a_folder_of_temporary_files_that_takes_none_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Root may write everywhere but there.
    monkeypatch.setenv("TMPDIR", "/proc/nowhere")
    (check,) = [check for check in doctor_folders.folders(WELL) if check.name == "temporary"]
    assert (check.status, "set TMPDIR to another folder" in check.fix) == (FAIL, True)
    assert check.saw.startswith("/proc/nowhere ")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with monkeypatch.context() as full:
        # A full disk takes a folder and the name of a file.
        full.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        (check,) = [check for check in doctor_folders.folders(WELL) if check.name == "temporary"]
        assert (check.status, check.saw) == (FAIL, f"{tmp_path} cannot be written (No space left on device)")
    for free, status in ((1e9, WARN), (1e11, OK)):
        monkeypatch.setattr(doctor_folders.Room, "of", lambda _, free=free: doctor_folders.Room(int(free), 10**7))
        assert [one.status for one in doctor_folders.folders(WELL) if one.name == "temporary"] == [status]


def test_an_index_that_does_not_answer_fails_only_where_nothing_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor_builds, "_pip", lambda *_: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(HostEngine, "unavailable", lambda _: "it has no framework")
    check = the(doctor_builds.pip_index(WELL))
    assert check.status == FAIL
    assert check.means.startswith("nothing can be measured")
    monkeypatch.setattr(HostEngine, "unavailable", lambda _: None)
    assert the(doctor_builds.pip_index(WELL)).status == WARN
    monkeypatch.setattr(HostEngine, "unavailable", lambda _: "it has no framework")
    made = environment_folder(load_catalog()["torch-2.13.0-cpu"], Interpreter(Path(sys.executable), "3.11.7"))
    made.mkdir(parents=True)
    assert the(doctor_builds.pip_index(WELL)).status == FAIL
    (made / COMPLETE).touch()
    assert the(doctor_builds.pip_index(WELL)).status == WARN


@pytest.mark.parametrize(
    ("refusal", "saw", "fix"),
    [
        (("the registry does not answer (no such host)", "look"), "; the registry does not answer (no such host)", "look; or "),
        (("the registry refuses this user", "`docker login`"), "; the registry refuses this user", "`docker login`; or "),
        (("something new", ""), "; their registry gives no answer: something new", "a mirror"),
    ],
)  # fmt: skip
def test_why_base_images_cannot_be_fetched_is_said_once_with_its_own_remedy(
    monkeypatch: pytest.MonkeyPatch, refusal: tuple[str, str], saw: str, fix: str
) -> None:
    monkeypatch.setattr(doctor_builds, "_is_here", lambda *_: False)
    monkeypatch.setattr(doctor_builds, "_registry_refuses", lambda *_: refusal)
    check = the(doctor_builds.base_image(replace(WELL, client=Client())))
    assert check.status == WARN
    assert check.saw.partition(", ...)")[2] == saw
    assert check.fix.startswith(fix)


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(nvml_library: Path, tmp_path: Path) -> Command:
    def command(fleet: Fleet, *options: str) -> subprocess.CompletedProcess[str]:
        variables = environment(nvml_library, fleet.write(tmp_path / "fleet"))
        variables |= {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
        arguments = [sys.executable, "-m", "runner", "doctor", *options]
        return subprocess.run(arguments, cwd=PROJECT, env=variables, capture_output=True, text=True)

    return command


def test_the_command_exits_1_when_something_failed_and_a_script_learns_what(command: Command) -> None:
    ended = command(Fleet((FakeGpu(),), init_error=18), "--format", "json")
    assert ended.returncode == 1, ended.stderr
    assert "driver" in valid("doctor", ended.stdout)["failed"]


def test_a_machine_without_an_engine_can_measure_so_nothing_failed(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = tmp_path / "cache" / "dlbench" / "venvs" / "torch"
    made.mkdir(parents=True)
    (made / COMPLETE).touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ended = command(Fleet((FakeGpu(persistence=0),)), "--format", "json")
    assert ended.returncode == 0, ended.stderr
    told = valid("doctor", ended.stdout)
    assert told["failed"] == []
    by_name = {check["name"]: check for check in told["checks"]}
    assert by_name["driver"]["status"] == "ok"
    assert by_name["GPU 0"]["status"] == "warn"
    assert by_name["container"]["status"] == "skipped"
    assert by_name["engine"]["status"] == "warn"
    assert by_name["engine"]["means"].startswith("it is optional")


def test_the_command_shows_a_person_what_it_saw_what_it_means_and_how_to_fix_it(command: Command) -> None:
    shown = command(Fleet((FakeGpu(),), init_error=18)).stdout
    assert "fail     driver: the NVIDIA driver does not answer (RM has detected an NVML/RM version mismatch.)" in shown
    assert "means: the driver was upgraded" in shown
    assert "fix: restart the machine" in shown
    assert "failed: driver" in shown


# -- the table of messages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "max_compute_capability",
        ),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "more memory"),
        ("jax: RESOURCE_EXHAUSTED: Out of memory while trying to allocate", "more memory"),
        ("the provided PTX was compiled with an unsupported toolchain.", "older CUDA"),
        ("OSError: libcudnn.so.8: cannot open shared object file: No such file or directory", "LD_LIBRARY_PATH"),
        ("OSError: [Errno 28] No space left on device", "--resume"),
        ("its process ended with exit code 132 (SIGILL) before its `end`", "AVX"),
        ("its process ended with exit code 137 (SIGKILL) before its `end`", "dmesg"),
        ("its process ended with exit code 135 (SIGBUS) before its `end`", "shared memory"),
        ("Failed to initialize NVML: Unknown Error", "cgroupfs"),
        ("CUDA error 802: system not yet initialized", "nvidia-fabricmanager"),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "-c DEFAULT"),
        ("GPU access blocked by the operating system", "no Linux driver inside WSL"),
        ("CUDA error 804: forward compatibility was attempted on non supported HW", "`compat`"),
        ("failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart the machine"),
        ("Error 803: system has unsupported display driver / cuda driver combination", "restart the machine"),
        ("RuntimeError: No CUDA GPUs; no CUDA-capable device is detected", "CUDA_VISIBLE_DEVICES"),
        ("torch 2.11 finds no GPU: cuInit says 100 CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("CUDA error: invalid device ordinal", "nvidia-smi -L"),
        ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment", "nvidia_uvm"),
        ("jax finds no GPU: cuInit says 999 CUDA_ERROR_UNKNOWN", "nvidia_uvm"),
        ("failed call to cuInit: CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized", "nvidia-fabricmanager"),
        ("CUDA error: an illegal memory access was encountered", "another version"),
        ("Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so", "cuda_nvrtc"),
        ("nvrtc: error: failed to open libnvrtc-builtins.so.12.4.", "cuda_nvrtc"),
        ("Loaded runtime CuDNN library: 8.5.0 but source was compiled with: 8.9.4", "LD_LIBRARY_PATH"),
        ("Outdated cuDNN installation found.", "LD_LIBRARY_PATH"),
        ("Failed to create cuDNN handle: CUDNN_STATUS_NOT_INITIALIZED", "who else uses"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "who else uses"),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "knows this GPU"),
        ("libdevice not found at ./libdevice.10.bc", "xla_gpu_cuda_data_dir"),
        ("Couldn't find ptxas binary in ${CUDA_DIR}/bin", "wheels of nvcc"),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", "modprobe nvidia"),
        ("nvidia-container-cli: initialization error: cuda error: unknown error: unknown", "modprobe nvidia_uvm"),
        ('exec: "runc": find runc path: executable file not found in $PATH', "install runc"),
        (
            "failed to register layer: open /var/lib/docker/overlay2/c2/.tmp-committed1: no such file or directory",
            "docker system df",
        ),
        ("failed to register layer: mkdir /opt/app/cache: no space left on device", "free some space"),
        (
            "FATAL: container creation failed: failed to find loop device: Could not open loop device /dev/loop0",
            "modprobe loop",
        ),
        ("[TRT] CUDA initialization failure with error 35. Please check your CUDA installation", "newer driver"),
        ("CUDA failed to initialize. [[ Initialization error (error 3) ]]", "dmesg"),
        ("CUDA failed to initialize. [[ System not yet initialized (error 802) ]]", "nvidia-fabricmanager"),
        (
            "Error loading shared library libsubid.so.5: No such file or directory (needed by /usr/bin/starter-suid)",
            "apt-file",
        ),
        ("RuntimeError: unable to open shared memory object </torch_3> in read-write mode", "ulimit -n"),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", "next version"),
        ("cuDNN error: CUDNN_STATUS_BAD_PARAM", "next version"),
        ("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`", "next version"),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", "who else uses"),
        ("RuntimeError: GET was unable to find an engine to execute this computation", "knows this GPU"),
        ("Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice", "xla_gpu_cuda_data_dir"),
        ("Couldn't invoke ptxas --version", "wheels of nvcc"),
        ("Could not load library libnvrtc.so.12", "cuda_nvrtc"),
        ("RuntimeError: No CUDA GPUs are available", "CUDA_VISIBLE_DEVICES"),
        ("Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.", "CUDA_VISIBLE_DEVICES"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "nvidia-smi"),
        ("The NVIDIA driver on your system is too old (found version 12020)", "a newer driver"),
        ("torch 2.11.0 opens no GPU, and the CUDA driver does: the driver is of CUDA 12.2", "a newer driver"),
        ("torch 2.11.0+cpu is built without CUDA; install its build with CUDA", "-gpu"),
        ("failed to inject CDI devices: failed to inject devices", "nvidia-ctk cdi list"),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=0", "nvidia-cdi-refresh"),
        ("failed call to cuInit: CUDA_ERROR_MPS_CONNECTION_FAILED", "CUDA_MPS_PIPE_DIRECTORY"),
        ("external/xla/xla/stream_executor: operation cuInit(0) failed", "dmesg"),
        ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "CUDA_VISIBLE_DEVICES"),
        ("ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory", "cuda_nvrtc"),
        ("CUDA_ERROR_MPS_RPC_FAILURE", "CUDA_MPS_PIPE_DIRECTORY"),
        ("CUDA error: MPS server is not ready to accept new MPS client requests", "CUDA_MPS_PIPE_DIRECTORY"),
        ("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "CUDA_MPS_PIPE_DIRECTORY"),
        ("jax finds no GPU: cuInit says 809; `nvidia-smi` may tell more", "CUDA_MPS_PIPE_DIRECTORY"),
        ("torch 2.11.0 finds no GPU: cuInit says 3; `nvidia-smi` may tell more", "dmesg"),
        ("failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)", "dmesg"),
        ("NVIDIA GeForce RTX 5090 is not compatible with the current PyTorch installation", "another image"),
        ("CUDA error: unspecified launch failure", "another version"),
        ("undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12", "other copies of CUDA"),
        ("OSError: libcudart.so.12: cannot open shared object file", "LD_LIBRARY_PATH"),
        ('could not select device driver "nvidia.runtime-hook" with capabilities: [[gpu]]', "nvidia-ctk cdi generate"),
        ("OSError: [Errno 122] Disk quota exceeded", "your files"),
        ("ImportError: libx.so: failed to map segment from shared object", "noexec"),
        ("RuntimeError: can't start new thread", "ulimit -u"),
        ("OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2", "pids.max"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "more memory"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 3 GiB", "more memory"),
        ("OSError: [Errno 12] Cannot allocate memory", "more memory"),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9",
            "more memory",
        ),
        (
            "unable to open shared memory object </torch_9_1> in read-write mode: No space left on device (28)",
            "df /dev/shm",
        ),
        ("unable to write to file </torch_9_1>: No space left on device (28)", "df /dev/shm"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'", "df /dev/shm"),
        ("OSError: [Errno 116] Stale file handle: '/home/x'", "mount it again"),
        ("/lib/libstdc++.so.6: version `CXXABI_1.3.15' not found", "--engine docker"),
        ("libgomp.so.1: cannot allocate memory in static TLS block", "LD_PRELOAD"),
        ("/lib/libm.so.6: version `GLIBC_2.38' not found", "--engine docker"),
        ("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found", "--engine docker"),
        ("Requested CPUs are not available - requested 0-7, available: 0-3", "taskset"),
        ("invalid mount config for type bind: bind source path does not exist: /cache", "--engine venv"),
        ("Fatal glibc error: CPU does not support x86-64-v2", "--base-image"),
        ("OSError: [Errno 30] Read-only file system: '/cache/x'", "XDG_CACHE_HOME"),
        ("    fcntl.flock(fd, fcntl.LOCK_EX)\nOSError: [Errno 38] Function not implemented", "another one"),
        ("OSError: [Errno 37] No locks available", "another one"),
        ("SSLError: certificate verify failed: certificate is not yet valid", "`date`"),
        ("docker-credential-desktop.exe not installed or not available in PATH", '"credsStore"'),
        ("OSError: [Errno 24] Too many open files", "ulimit -n"),
        ("rank 1 of 2: it was ended by signal 7 (SIGBUS)", "shared memory"),
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "libgl1"),
        ("exec /usr/bin/python3: exec format error", "architecture"),
        (
            "The TensorFlow library was compiled to use AVX instructions, but these aren't available on your machine.",
            "AVX",
        ),
        ("RuntimeError: CUDA error: CUDA_ERROR_CONTAINED", "stayed within it"),
        ("CUDA error: uncorrectable NVLink error detected during the execution", "nvlink -e"),
        ("ModuleNotFoundError: No module named 'numpy.linalg'", "lacks a Python package"),
        ("407 Proxy Authentication Required", "proxy"),
        ("cuda runtime error (30) : unknown error at /opt/conda/THCGeneral.cpp:51", "nvidia_uvm"),
        ("Check failed: device_count_ > 0 (-1 vs. 0) : GPU usage requires at least 1 GPU", "CUDA_VISIBLE_DEVICES"),
        ("No GPU/TPU found, falling back to CPU.", "CUDA_VISIBLE_DEVICES"),
        ("OSError: libmxnet.so: undefined symbol: nvmlDeviceGetComputeRunningProcesses_v2", "a newer driver"),
        ("RuntimeError: UNKNOWN: PTX JIT compiler library not found", "code for this GPU"),
        ("ptxas exited with non-zero error code 256, output: ", "newer CUDA"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "licence"),
        ("nvidia-container-cli: initialization error: change root failed: no such file or directory", "config.toml"),
        (
            "nvidia-container-cli: initialization error: driver rpc error: failed to process request",
            "nvidia-container-cli -k",
        ),
        ("nvidia-container-cli: detection error: nvml error: unknown error", "nvidia-container-cli -k"),
        (
            "OCI runtime create failed: runc create failed: unable to start container process: something new",
            "hello-world",
        ),
        (
            "apparmor failed to apply profile: write /proc/self/attr/exec: permission denied",
            "systemctl restart apparmor",
        ),
        ("INFO:    Could not find any nv files on this host!", "ldconfig -p"),
        (
            "failed to open CUDA IPC handle : 217 peer access is not supported between these two devices",
            "NCCL_P2P_DISABLE=1",
        ),
        ("ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister", "pip list"),
        ("ImportError: libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent", "look for other copies"),
        (
            "RuntimeError: module compiled against ABI version 0x1000009 but this version of numpy is 0x2000000",
            "numpy<2",
        ),
        ("ImportError: numpy.core.multiarray failed to import", "numpy<2"),
        ("RuntimeError: CUDA error: operation not supported", "dmesg"),
        ("ImportError: libopenblas.so.0: cannot open shared object file: No such file or directory", "apt-file"),
        ("ImportError: cannot import name 'runtime_version' from 'google.protobuf'", "the releases of the lock"),
        ("RuntimeError: The server socket has failed to listen: EADDRINUSE, Address already in use", "ss -ltnp"),
        ("PermissionError: [Errno 13] Permission denied: '/data/x'", "ls -ld"),
        ("Error 500: named symbol not found", "Docker Desktop (4.31"),
        ("RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.", "dmesg"),
        ("CUDA driver is a stub library", "`stubs`"),
        (
            "NCCL WARN Error while creating shared memory segment nccl-shm-recv-2-0-1-3 (size 9637888)\nNCCL error: unhandled system error",
            "df /dev/shm",
        ),
        ("Call to posix_fallocate failed: No space left on device", "df /dev/shm"),
        (
            "NCCL WARN Call to shm_open failed : Permission denied\nRuntimeError: NCCL error in: unhandled system error",
            "chmod 1777",
        ),
        ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=216)", "NCCL_P2P_DISABLE"),
        (
            "NCCL error\nncclInternalError: Internal check failed.\nncclSocketInit: connecting to address  with family 59936",
            "NCCL_SOCKET_IFNAME",
        ),
        ("NCCL WARN Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"),
        ("Failed to create CUDAExecutionProvider. Please reference https://onnxruntime.ai", "LD_LIBRARY_PATH"),
        (
            "symbol free_gemm_select version libcublasLt.so.11 not defined in file libcublasLt.so.11 with link time reference",
            "other copies of CUDA",
        ),
        (
            "cuDNN version incompatibility: PyTorch was compiled  against (8, 7, 0) but found runtime version (8, 2, 4).",
            "LD_LIBRARY_PATH",
        ),
        ("Found cuDNN version 8600, but JAX was built against version 8906, which is newer.", "LD_LIBRARY_PATH"),
        ("Found CUDA version 12010, but JAX was built against version 12020, which is newer.", "LD_LIBRARY_PATH"),
        ("CUDA backend failed to initialize: Unable to load cuDNN. Is it installed?", "LD_LIBRARY_PATH"),
        ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", "knows this GPU"),
        ("nvrtc: error: invalid value for --gpu-architecture (-arch)", "max_compute_capability"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "gcc"),
        ("nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open", "snap"),
        (
            "nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file or directory",
            "ldconfig.real",
        ),
        (
            "nvidia-container-cli: mount error: failed to add device rules: unable to find any existing device filters",
            "no-cgroups",
        ),
        (
            "nvidia-container-cli: mount error: file creation failed: /merged/usr/lib/libnvidia-ml.so.1: file exists",
            "docker commit",
        ),
        (
            "nvidia-container-cli: mount error: stat failed: /usr/lib/wsl/lib/libcuda.so.1: no such file or directory",
            "wsl --shutdown",
        ),
        (
            'setting up CDI devices: failed to inject devices: failed to stat CDI host device "/dev/dri/renderD129"',
            "nvidia-cdi-refresh",
        ),
        ("unresolvable CDI devices nvidia.com/gpu=all", "cdi-spec-dirs"),
        ("potentially insufficient UIDs or GIDs available in user namespace (requested 0:42)", "add-subuids"),
        ("GPU 0 answers with an error (GPU requires restart); it needs a reset", "--gpu-reset"),
        ("GPU 0 answers with an error (Unknown Error); `nvidia-smi -q -i 0` says more", "restart the machine"),
        ("the NVIDIA driver does not answer (Driver Not Loaded); `runner doctor` says more", "Secure Boot"),
        ("the NVIDIA driver knows no GPU", "RmInitAdapter"),
        ("Failed to establish a new connection: [Errno -3] Temporary failure in name resolution", "resolv.conf"),
        (
            "error: Failed to fetch: `https://a/simple/b/` dns error: failed to lookup address information",
            "resolv.conf",
        ),
        ("ReadTimeoutError: HTTPSConnectionPool(host='files', port=443): Read timed out.", "PIP_TIMEOUT"),
        ("NewConnectionError: Failed to establish a new connection: [Errno 111] Connection refused", "HTTPS_PROXY"),
        ("urllib3.exceptions.IncompleteRead: IncompleteRead(900 bytes read, 100 more expected)", "a proxy or firewall"),
        ("invalid peer certificate: UnknownIssuer", "names the authority"),
        ("The virtual environment was not created successfully because ensurepip is not available.", "python3-venv"),
    ],
)
def test_a_known_message_has_advice(text: str, words: str) -> None:
    assert words in str(known_messages.hint("crash", text))


@pytest.mark.parametrize(
    ("reason", "log", "words"),
    [
        ("exit code 139 (SIGSEGV)", "OpenBLAS blas_thread_init: pthread_create failed for thread 1", "pids.max"),
        ("NCCL error: unhandled system error", "shm.h:48 NCCL WARN Call to shm_open failed : Permission denied", "chmod 1777"),
        ("NCCL error: unhandled system error", "nothing else", "NCCL_DEBUG"),
        # TensorFlow prints this wherever there is no GPU: it ended no process.
        ("exit code 137 (SIGKILL)", "Could not find cuda drivers on your machine, GPU will not be used.", "out of memory"),
        ("exit code 137 (SIGKILL)", "dlerror: libnvinfer.so.7: cannot open shared object file: No such file", "out of memory"),
        # A process that lost the others says so of its connections, and no server is to blame.
        ("exit code 139 (SIGSEGV)", "RuntimeError: [gloo] Connection reset by peer [127.0.0.1]:3", "the stack"),
    ],
)  # fmt: skip
def test_a_general_message_gives_way_to_what_the_log_says_of_the_machine(reason: str, log: str, words: str) -> None:
    assert words in str(known_messages.hint("crash", reason, log))


def test_the_cause_of_an_installer_s_failure_is_a_line_before_its_last_words() -> None:
    warning = "WARNING: Retrying: NewConnectionError('Failed to establish a new connection: [Errno -2] Name or service not known')"
    assert known_messages.cause(["Collecting a", warning, "ERROR: No matching distribution found for a"]) == warning
    assert known_messages.cause(["Collecting a", "ERROR: No matching distribution found for a"]) is None


def test_an_unknown_message_has_the_advice_of_its_kind_or_none() -> None:
    assert "--timeout" in str(known_messages.hint("time-limit", "what is this"))
    assert known_messages.hint("crash", "what is this") is None
    semaphores = "    sl = _multiprocessing.SemLock(\nOSError: [Errno 38] Function not implemented"
    assert known_messages.hint("crash", semaphores) is None
    assert xid(79)[0] == "the GPU has fallen off the bus"
    assert xid(149)[0] == "an error on an NVLink"
    assert xid(9999)[0]


def test_every_pattern_is_a_regular_expression_and_every_entry_says_all_three() -> None:
    for known in known_messages.KNOWN:
        assert known_messages.find("nothing that is known here") is None
        assert known.pattern
        assert known.means
        assert known.fix


@pytest.mark.parametrize(
    ("may", "quota", "given", "status", "words"),
    [
        (64, None, "", None, ""),
        (64, None, "64", None, ""),
        (1, None, "8", WARN, "1 of the machine's 64 (affinity)"),
        (8, None, "8", OK, "8 of the machine's 64 (affinity)"),
        (64, 1.5, "", OK, "1.5 at a time (a quota of the control group)"),
    ],
)
def test_the_cpus_of_a_job_are_told(
    monkeypatch: pytest.MonkeyPatch, may: int, quota: float | None, given: str, status: str | None, words: str
) -> None:
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda _: set(range(may)))
    monkeypatch.setattr(limits.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(control_groups, "limits", lambda: control_groups.GroupLimits(quota, None, None))
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", given)
    checks = list(limits.cpus(WELL))
    assert [(check.status, check.saw) for check in checks] == ([(status, words)] if status else [])
    assert all("SLURM_CPUS_PER_TASK" in check.means and "srun" in check.fix for check in checks if check.status == WARN)


def test_a_driver_whose_gpus_are_all_refused_is_no_ok_row() -> None:
    refused = ("NVIDIA H100: MIG is on, and it has no instance",)
    (check,) = doctor_gpus.driver(replace(WELL, gpus=(), refused=refused))
    assert check.status == WARN
    assert check.saw == f"the driver answers, and no GPU can be used: {refused[0]}"


def test_a_cache_below_a_folder_with_a_colon_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a:b").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a:b"))
    (check,) = (check for check in doctor_folders.folders(replace(WELL, out=tmp_path)) if check.name == "cache")
    assert check.status == FAIL
    assert "has a ':' in its path" in check.saw


@pytest.mark.parametrize(("left", "status"), [(None, None), (5000, OK), (40, WARN)])
def test_a_group_with_room_for_few_processes_is_told(
    monkeypatch: pytest.MonkeyPatch, left: int | None, status: str | None
) -> None:
    monkeypatch.setattr(control_groups, "limits", lambda: control_groups.GroupLimits(None, None, left))
    checks = list(limits.processes(WELL))
    assert [check.status for check in checks] == ([status] if status else [])
    assert all(f"{left} more may begin" in check.saw for check in checks)
    if status == WARN:
        assert "can't start new thread" in checks[0].means
