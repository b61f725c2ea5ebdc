"""Doctor's checks one by one, on scenes of machines that are well and ill; the engine's part of them is in tests/engine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
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
from runner.doctor import container_engine as doctor_builds
from runner.doctor import container_engine as doctor_engine
from runner.doctor import diagnosis, gpu_checks
from runner.doctor import gpu_checks as doctor_gpus
from runner.doctor import scene as doctor_folders
from runner.doctor.scene import FAIL, OK, SKIPPED, WARN, Check, Scene
from runner.engines.base import Launch, ReadyImage, Slot
from runner.engines.docker import container
from runner.engines.podman import PodmanEngine
from runner.engines.process.host import HostEngine
from runner.engines.process.interpreters import Interpreter
from runner.engines.process.venv import COMPLETE, environment_folder
from runner.errors import EngineError
from runner.machine import telemetry_cpu
from runner.machine.devices import Gpu, Process
from tests.fixtures.json_documents import valid
from tests.fixtures.mounts import TROUBLES, filled, tmpfs
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


def test_variables_that_make_programs_share_a_gpu_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu = replace(WELL, gpus=(GPU,))
    assert not list(doctor_gpus.mps(with_gpu))
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    check = the(doctor_gpus.mps(with_gpu))
    assert check.saw == "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10"
    assert "a part of it" in check.means
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert "no control daemon" in the(doctor_gpus.mps(with_gpu)).means
    (tmp_path / "control").touch()
    assert "a part of it" in the(doctor_gpus.mps(with_gpu)).means


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
    monkeypatch.setattr(container.paths, "cache_folder", lambda: tmp_path)


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
    cell = container.container_options(Launch(ReadyImage(None, "tiny", ("x",)), [], slot, "", Path("/")), "1:1")
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
    monkeypatch.setattr(container, "device_groups", lambda info: [44])
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


@pytest.mark.parametrize(
    ("trouble", "saw"),
    [
        ("full", "takes nothing more"),
        ("quota", "Disk quota exceeded"),
        ("read-only", "Read-only file system"),
        ("failing", "Input/output error"),
    ],
)
def test_the_disk_of_the_engine_s_images_is_named_with_what_it_does_not_do(
    tmp_path: Path, trouble: str, saw: str
) -> None:
    """Real file systems that take no byte, no file, or nothing at all any more."""
    what, scene = TROUBLES[trouble], replace(WELL, info={"DockerRootDir": str(tmp_path / "root")})
    with what.mounted(tmp_path / "root"):
        assert next(doctor_folders.folders(scene)).status != FAIL
        with what.befalls(tmp_path / "root"):
            check = next(doctor_folders.folders(scene))
        assert (check.name, check.status) == ("images", FAIL)
        assert saw in check.saw
        assert "data-root" in check.fix
        assert next(doctor_folders.folders(scene)).status != FAIL, "mended, it is no fault any more"


# The options of a file system with each fault, and the system's words for it; and what shall befall it then.
FAULTS = {
    "full": ("size=24m,nr_inodes=400", "No space left on device"),
    "read-only": ("ro", "Read-only file system"),
    "no inodes": ("nr_inodes=2", "No space left on device"),
    "noexec": ("noexec", "runs no programs"),
}
# The row of each folder that a run uses, and the remedy that it names.
FOLDERS = {
    "cache": "set XDG_CACHE_HOME",
    "temporary": "set TMPDIR",
    "results": "--results",
    "images": "data-root",
    "Podman's images": "graphroot",
    "shared memory": "as root mount it anew",
}


@pytest.mark.parametrize("row", FOLDERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_folder_of_a_run_is_named_with_its_fault_and_remedy(
    fault: str, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of noexec only the cache suffers, from which programs run."""
    options, words = FAULTS[fault]
    for name in FOLDERS:
        (tmp_path / name).mkdir()
    for name, place in {"XDG_CACHE_HOME": "cache", "TMPDIR": "temporary"}.items():
        monkeypatch.setenv(name, str(tmp_path / place))
    scene = replace(WELL, info={"DockerRootDir": str(tmp_path / "images")}, out=tmp_path / "results")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(doctor_folders, "SHARED_MEMORY", tmp_path / "shared memory")
    monkeypatch.setattr(PodmanEngine, "unavailable", lambda _: None)
    monkeypatch.setattr(PodmanEngine, "guarantees", lambda _: "much")
    monkeypatch.setattr(PodmanEngine, "info", {"DockerRootDir": str(tmp_path / "Podman's images")}, raising=False)
    monkeypatch.setenv("CONTAINER_HOST", "unix:///podman.sock")

    def bad() -> list[Check]:
        checks = [*doctor_folders.folders(scene), *diagnosis.podman(scene)]
        return [check for check in checks if check.status == FAIL or check.name == "shared memory"]

    assert bad() == []
    with tmpfs(tmp_path / row, options) as disk, filled(disk) if fault == "full" else contextlib.nullcontext():
        (*failed,) = bad()
    suffers = fault != "noexec" or row == "cache"
    assert [check.name for check in failed] == ([row.removeprefix("Podman's ")] if suffers else [])
    for check in failed:
        assert str(tmp_path / row) in check.saw
        assert words in check.saw or (check.name == "images" and "takes nothing more" in check.saw)
        assert FOLDERS[row] in check.fix


# The words of a system or a server for each fault, as any program that a row asks may print them.
WORDS = {
    "full, or no inodes": "write /x: no space left on device",
    "read-only": "open /x: read-only file system",
    "noexec": "libx.so: failed to map segment from shared object",
    "quota": "[Errno 122] Disk quota exceeded",
    "refused": "Failed to establish a new connection: [Errno 111] Connection refused",
    "proxy": "407 Proxy Authentication Required",
    "certificate": "invalid peer certificate: UnknownIssuer",
    "rate limit": "429 Client Error: Too Many Requests for url",
    "portal": "ssl handshake: WRONG_VERSION_NUMBER",
}


def of_row(row: str, words: str, patch: pytest.MonkeyPatch, folder: Path) -> Check:
    """A row of the doctor's whose program prints these words."""

    def refuses(*_: object, **__: object) -> Any:
        raise EngineError(words)

    patch.setattr(doctor_gpus, "_in_wsl", lambda: False)
    patch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    if row == "driver":
        return the(doctor_gpus.driver(replace(WELL, gpus=(), why_no_gpu=words)))
    if row == "GPU":
        return the(doctor_gpus.gpus(replace(WELL, gpus=(), refused=(words,))))
    if row == "CUDA":
        patch.setattr(doctor_gpus.installed, "opened", refuses)
        return the(doctor_gpus.cuda(WELL))
    if row == "engine":
        return the(doctor_engine.engine(replace(WELL, why_no_engine=words)))
    if row == "container":
        return started(DockerException(words))
    if row == "Podman":
        patch.setattr("runner.engines.podman.PodmanEngine.unavailable", lambda _: words)
        return the(diagnosis.podman(WELL))
    if row == "Apptainer":
        patch.setattr("runner.engines.sif.version", refuses)
        return the(diagnosis.apptainer(WELL))
    if row == "Apptainer's container":
        (folder / "a.sif").touch()
        patch.setattr("runner.engines.sif.version", lambda: "1.4.0")
        patch.setattr("runner.engines.sif.own_folder", lambda: folder)
        patch.setattr(diagnosis, "_apptainer_lacks", lambda: None)
        patch.setattr(diagnosis, "_apptainer_refusal", lambda _: words)
        return the(diagnosis.apptainer(WELL))
    if row == "base images":
        patch.setattr(doctor_builds, "_is_here", lambda *_: False)
        patch.setattr("runner.images.docker_client.registry_digest", refuses)
        return the(doctor_builds.base_image(replace(WELL, client=Client())))
    patch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    patch.setattr(doctor_builds, "_pip", lambda *_: subprocess.CompletedProcess([], 1, "", words))
    return the(doctor_builds.pip_index(replace(WELL, client=Client())))


ROWS = (
    "driver", "GPU", "CUDA", "engine", "container", "Podman", "Apptainer", "Apptainer's container", "base images", "pip index"
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("fault", WORDS)
def test_each_row_gives_the_remedy_of_what_was_said_before_its_own(
    fault: str, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = known_messages.find(WORDS[fault])
    assert known is not None
    check = of_row(row, WORDS[fault], monkeypatch, tmp_path)
    assert check.status in (WARN, FAIL)
    # pip is asked for a package: of what its general words mean the index itself is asked, below.
    if row != "pip index" or not known.general:
        assert known.fix in check.fix
    assert of_row(row, "words that nobody knows", monkeypatch, tmp_path).fix != check.fix or row == "pip index"


def test_an_engine_s_folder_from_which_nothing_runs_or_that_may_not_be_seen_is_no_fault(tmp_path: Path) -> None:
    """Containers run programs of such a disk: Docker 20.10 with overlay2 was tried on one."""
    with tmpfs(tmp_path / "root", "noexec") as root:
        assert next(doctor_folders.folders(replace(WELL, info={"DockerRootDir": str(root)}))).status != FAIL
    hidden = replace(WELL, info={"DockerRootDir": str(tmp_path / "nowhere")})
    assert [check.name for check in doctor_folders.folders(hidden) if check.name == "images"] == []


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
    monkeypatch.setattr(gpu_checks.os, "sched_getaffinity", lambda _: set(range(may)))
    monkeypatch.setattr(gpu_checks.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(telemetry_cpu, "group_limits", lambda: telemetry_cpu.GroupLimits(quota, None, None))
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", given)
    checks = list(gpu_checks.cpus(WELL))
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
    monkeypatch.setattr(telemetry_cpu, "group_limits", lambda: telemetry_cpu.GroupLimits(None, None, left))
    checks = list(gpu_checks.processes(WELL))
    assert [check.status for check in checks] == ([status] if status else [])
    assert all(f"{left} more may begin" in check.saw for check in checks)
    if status == WARN:
        assert "can't start new thread" in checks[0].means


@pytest.mark.parametrize(("known", "status"), [(True, OK), (False, WARN)])
def test_apptainer_is_told_that_it_finds_no_driver(known: bool, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_gpus.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(doctor_gpus.venv, "is_there", lambda probe: known)
    (check,) = doctor_gpus.apptainer(WELL)
    assert (check.status, "libcuda.so.1" in check.saw) == (status, True)
    assert list(doctor_gpus.apptainer(replace(WELL, gpus=()))) == []
    monkeypatch.setattr(doctor_gpus.shutil, "which", lambda name: None)
    assert list(doctor_gpus.apptainer(WELL)) == []
