"""What the engine `docker` decides by itself: whom a container belongs to, what a cell gets, why no engine answers."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import docker.credentials
import docker.tls
import pytest
from docker import errors
from requests import exceptions
from urllib3.exceptions import ProtocolError

from runner.catalog.images import Image, load_catalog
from runner.engines import cell_cache
from runner.engines.base import EngineGoneError, Launch, ReadyImage, Slot
from runner.engines.docker import container, read_back
from runner.engines.docker import engine as docker_engine
from runner.engines.docker.engine import DockerEngine, DockerRunning
from runner.engines.process.process import is_dead, owner_of
from runner.errors import EngineError
from runner.images import docker_client
from runner.paths import PROJECT
from tests.fixtures.waiting import wait_for


@pytest.fixture
def prepared() -> ReadyImage:
    image: Image = load_catalog()["torch-2.9.1-cu128"]
    return ReadyImage(image, "sha256:1", ("python", "-m", "bench"))


def test_only_a_process_that_is_certainly_gone_counts_as_dead() -> None:
    boot, namespace, pid, begun = owner_of(os.getpid()).split("/")
    assert not is_dead(f"{boot}/{namespace}/{pid}/{begun}")
    assert is_dead(f"{boot}/{namespace}/{pid}/{int(begun) - 1}")  # the number was given out again
    assert is_dead(f"{boot}/{namespace}/4194305/{begun}")  # above the kernel's largest process id
    assert is_dead(f"another-boot/{namespace}/{pid}/{begun}")
    assert not is_dead(f"{boot}/1/4194305/{begun}")  # another container's processes cannot be seen
    assert not is_dead("")
    assert not is_dead("something else")
    # A cell without walls names its folders as it likes, and whoever starts containers their labels.
    for odd in ("²", "٣", "9" * 5000, "-1", " 1", "1_0", ""):
        assert not is_dead(f"{boot}/{namespace}/{odd}/1")


def test_a_process_that_only_waits_to_be_reaped_counts_as_dead() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    owner = owner_of(os.getpid()).split("/")
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert is_dead("/".join([*owner[:2], str(child), "1"]))
    os.waitpid(child, 0)


def test_a_cell_gets_exactly_the_gpus_of_its_slot(prepared: ReadyImage, tmp_path: Path) -> None:
    slot = Slot("cuda", ("GPU-a", "GPU-b"), (4, 5), 1 << 30)
    options = container.container_options(Launch(prepared, ["run"], slot, "run", tmp_path), "1:1")
    (request,) = options["device_requests"]
    assert request["DeviceIDs"] == ["GPU-a", "GPU-b"]
    assert request["Capabilities"] == [["gpu"]]
    assert not request["Count"]  # the engine refuses both
    assert "NVIDIA_VISIBLE_DEVICES" not in options["environment"]
    assert options["environment"]["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert options["environment"]["CUDA_CACHE_MAXSIZE"] == "4294967296"
    assert options["network_mode"] == "none"
    assert options["cpuset_cpus"] == "4,5"
    assert options["mem_limit"] == options["memswap_limit"] == 1 << 30


def test_a_cell_that_gets_its_gpus_by_name_gets_no_more_of_a_runtime(prepared: ReadyImage, tmp_path: Path) -> None:
    slot = Slot("cuda", ("GPU-a",), (), None)
    options = container.container_options(Launch(prepared, [], slot, "run", tmp_path), "1:1", {"nvidia.com/gpu=GPU-a"})
    assert options["device_requests"][0]["DeviceIDs"] == ["nvidia.com/gpu=GPU-a"]
    assert options["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_a_cells_memory_comes_from_the_nodes_of_its_slot(prepared: ReadyImage, tmp_path: Path) -> None:
    slot = Slot("cuda", ("GPU-a",), (0,), None, (1,))
    assert container.container_options(Launch(prepared, [], slot, "run", tmp_path), "1:1")["cpuset_mems"] == "1"


def test_a_cell_gets_the_group_of_device_nodes_that_not_everybody_may_open(
    prepared: ReadyImage, tmp_path: Path
) -> None:
    # Ordinary files stand in for device nodes: whoever runs the tests may not make those.
    shut, open_to_all, of_root = (tmp_path / name for name in ("nvidia0", "nvidiactl", "nvidia-uvm"))
    for node, mode in ((shut, 0o660), (open_to_all, 0o666), (of_root, 0o600)):
        node.touch()
        node.chmod(mode)
    (tmp_path / "nvidia-caps").mkdir(0o770)
    group = _group_of_its_own(shut)
    assert container.device_groups({}, tmp_path) == [group]
    slot = Slot("cuda", ("GPU-a",), (), None)
    options = container.container_options(Launch(prepared, [], slot, "run", tmp_path), "1:1", (), [group])
    assert options["group_add"] == [group]
    assert "group_add" not in container.container_options(Launch(prepared, [], slot, "run", tmp_path), "1:1")
    cpu = Slot("cpu", (), (), None)
    assert "group_add" not in container.container_options(
        Launch(prepared, [], cpu, "run", tmp_path), "1:1", (), [group]
    )


def _group_of_its_own(node: Path) -> int:
    """Another group than root's for a file: `video`'s usual number where that may be given, otherwise the user's own."""
    if os.getuid() == 0:
        os.chown(node, 0, 44)
    return node.stat().st_gid


def test_no_group_is_added_that_means_nothing_or_too_much(tmp_path: Path) -> None:
    node = tmp_path / "nvidia0"
    node.touch()
    node.chmod(0o660)
    _group_of_its_own(node)
    assert container.device_groups({"SecurityOptions": ["name=rootless"]}, tmp_path) == []
    assert container.device_groups({}, tmp_path / "no-such-folder") == []
    node.chmod(0o666)
    assert container.device_groups({}, tmp_path) == []
    if os.getuid() == 0:
        os.chown(node, 0, 0)
        node.chmod(0o660)
        assert container.device_groups({}, tmp_path) == []


def test_a_cpu_cell_asks_for_no_gpu_and_without_a_limit_gets_none(prepared: ReadyImage, tmp_path: Path) -> None:
    options = container.container_options(Launch(prepared, ["run"], Slot("cpu", (), (), None), "run", tmp_path), "1:1")
    assert options["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert not {"device_requests", "cpuset_cpus", "mem_limit", "memswap_limit"} & set(options)
    assert options["command"] == ["run"]
    assert [mount["Target"] for mount in options["mounts"]] == ["/cache"]


def test_a_cell_that_nobody_watches_any_more_ends_by_itself(prepared: ReadyImage, tmp_path: Path) -> None:
    slot = Slot("cpu", (), (), None, seconds=1)
    options = container.container_options(Launch(prepared, ["run"], slot, "run", tmp_path), "1:1")
    entrypoint = options["entrypoint"]
    assert tuple(entrypoint[-len(prepared.command) :]) == prepared.command
    alarm = [sys.executable, *entrypoint[1 : -len(prepared.command)]]
    assert subprocess.run([*alarm, "sleep", "60"], timeout=30, check=False).returncode == -signal.SIGALRM
    assert subprocess.run([*alarm, "sh", "-c", "exit 7"], timeout=30, check=False).returncode == 7


def test_the_cache_is_writable_for_whoever_the_cell_runs_as(tmp_path: Path) -> None:
    own = container.prepare_cache(tmp_path / "own", shared=False)
    uid, gid = map(int, own.split(":"))
    assert uid != 0
    assert ((tmp_path / "own").stat().st_uid, (tmp_path / "own").stat().st_gid) == (uid, gid)
    container.prepare_cache(tmp_path / "shared", shared=True)
    assert (tmp_path / "shared").stat().st_mode & 0o7777 == 0o1777


def test_no_other_user_reaches_the_cache_of_a_rootless_engines_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cells' user has a number of its own on the host, so the folder is open to all; but nobody else enters the one above it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = cell_cache.folder_of("docker", "torch", "sha256:0")
    container.prepare_cache(cache, shared=True)
    above = cell_cache.caches_folder()
    assert above in cache.parents
    assert (above.stat().st_uid, above.stat().st_mode & 0o777) == (os.geteuid(), 0o700)


def test_no_engine_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert DockerEngine().unavailable() == f"no container engine answers at unix://{tmp_path}/none.sock"


def test_a_socket_that_nobody_listens_at_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left.sock"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/left.sock")
    assert str(DockerEngine().unavailable()).startswith("no container engine answers at ")


def test_the_engine_of_dockers_context_is_named_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As rootless Docker leaves it: the library asks there, and not at the usual socket."""
    place = f"unix://{tmp_path}/rootless.sock"
    folder = tmp_path / "contexts" / "meta" / hashlib.sha256(b"rootless").hexdigest()
    folder.mkdir(parents=True)
    meta = {"Name": "rootless", "Metadata": {}, "Endpoints": {"docker": {"Host": place, "SkipTLSVerify": False}}}
    (folder / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": "rootless"}))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert DockerEngine().unavailable() == f"no container engine answers at {place}"


def test_an_engine_that_answers_with_an_error_is_not_called_absent() -> None:
    error = errors.DockerException("Error while fetching server API version: 400")
    error.__cause__ = errors.APIError("400 Client Error", explanation="client version 1.24 is too old")
    said = docker_client.why_no_engine(error)
    assert "answers with an error" in said
    assert "client version 1.24 is too old" in said
    assert "no container engine" not in said


def test_only_an_engine_that_answers_gives_a_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), FarEngine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        DockerEngine().answer()
        server.shutdown()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineError, match="no container engine answers at"):
        DockerEngine().answer()


class FarEngine(BaseHTTPRequestHandler):
    """The answers of an engine on another machine, as far as they are asked for here."""

    def do_GET(self) -> None:
        answer = json.dumps({"ApiVersion": "1.41", "OSType": "linux"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


def test_an_engine_on_another_machine_builds_images_and_runs_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), FarEngine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        engine = DockerEngine()
        assert engine.why_no_build() is None
        assert "is on another machine and cannot see this one's folders" in str(engine.unavailable())
        server.shutdown()


def test_an_engine_that_one_may_not_use_is_told_with_what_to_do() -> None:
    error = OSError("('Connection aborted.', PermissionError(13, 'Permission denied'))")
    assert "join the group `docker`" in docker_client.why_no_engine(error)


def test_a_container_that_the_engine_made_and_did_not_tell_of_in_time_is_swept(
    prepared: ReadyImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    removed: list[str] = []

    def create(name: str, **_: Any) -> None:
        made.append(name)
        raise exceptions.ReadTimeout("Read timed out. (read timeout=60)")

    def remove_container(name: str, **_: Any) -> None:
        if not removed:
            removed.append("no answer")
            raise exceptions.ReadTimeout("Read timed out. (read timeout=20)")
        removed.append(name)

    api = SimpleNamespace(api_version="1.41", remove_container=remove_container, containers=lambda **_: [])
    client: Any = SimpleNamespace(host=None, api=api, containers=SimpleNamespace(create=create), close=lambda: None)
    engine = DockerEngine()
    engine.__dict__ |= {"_client": client, "_info": {}}
    monkeypatch.setattr(docker_engine.docker_client, "connect", lambda *_: client)
    with pytest.raises(EngineGoneError, match="could not be made"):
        engine.start(Launch(prepared, [], Slot("cpu", (), (), None), "run", tmp_path / "cache"))
    assert engine.sweep() == 0
    assert engine.sweep() == 1
    assert removed == ["no answer", *made]


def test_containers_that_hang_are_removed_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the engine's time, as after it was killed: one after the other they held the end of a run up for minutes."""
    together = threading.Barrier(8)
    names = [f"dlbench-{number}" for number in range(8)]

    def remove_container(name: str, **_: Any) -> None:
        together.wait(10)
        raise exceptions.ReadTimeout("Read timed out. (read timeout=20)")

    api = SimpleNamespace(api_version="1.41", remove_container=remove_container, containers=lambda **_: [])
    client: Any = SimpleNamespace(host=None, api=api, close=lambda: None)
    engine = DockerEngine()
    engine.__dict__ |= {"_client": client, "_left": list(names)}
    monkeypatch.setattr(docker_engine.docker_client, "connect", lambda *_: client)
    assert engine.sweep() == 0
    assert not together.broken
    assert sorted(engine._left) == names


class Stuck:
    """An engine's answers about one container that it cannot end: it is asked to kill it, or waited for, in vain."""

    def __init__(self, answers_pings: bool = True) -> None:
        self.kills = 0
        self.freed = threading.Event()
        self.id, self.short_id, self.name = "c" * 64, "c" * 10, "dlbench-stuck"
        self.api_version, self.base_url, self.timeout = "1.41", "http://engine", 60.0
        self.answers_pings, self.host = answers_pings, None
        self.api = self.containers = self

    def kill(self, _: str) -> None:
        self.kills += 1
        raise exceptions.ReadTimeout("Read timed out.")

    def get(self, url: str, timeout: float) -> Any:
        if not self.answers_pings:
            raise exceptions.ReadTimeout("Read timed out.")
        return SimpleNamespace(raise_for_status=lambda: None)

    def inspect_container(self, _: str, **options: bool) -> Any:
        raise exceptions.ReadTimeout("Read timed out.")

    remove_container = inspect_container

    def wait(self) -> None:
        self.freed.wait()

    def reload(self) -> None:
        raise exceptions.ReadTimeout("Read timed out.")

    def close(self) -> None: ...


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Stuck, Any, list[str], socket.socket]]]:
    monkeypatch.setattr(docker_engine, "_END_SECONDS", 0.05)
    made: list[tuple[Stuck, socket.socket, Any]] = []

    def make(**options: Any) -> tuple[Stuck, Any, list[str], socket.socket]:
        engine, left = Stuck(**options), list[str]()
        monkeypatch.setattr(docker_engine.docker_client, "connect", lambda *_: engine)
        ours, theirs = socket.socketpair()
        stream = socket.SocketIO(ours, "rb")
        made.append((engine, theirs, ours))
        return engine, DockerRunning(cast(Any, engine), cast(Any, engine), stream, left), left, theirs

    yield make
    for engine, theirs, ours in made:
        engine.freed.set()
        theirs.close()
        ours.close()


def test_a_container_that_cannot_be_ended_ends_for_its_reader_and_is_named_and_left_for_the_sweep(
    stuck: Callable[..., tuple[Stuck, Any, list[str], socket.socket]],
) -> None:
    engine, running, left, theirs = stuck()
    theirs.sendall(b"\x01\0\0\0\0\0\0\x02ab")
    chunks = running.events()
    assert next(chunks) == b"ab"
    begin = time.monotonic()
    running.stop()
    assert time.monotonic() - begin < 1, "whoever stops a cell does not wait for the engine"
    assert list(chunks) == []
    ended = running.wait()
    assert (ended.code, engine.kills) == (137, 3)
    assert "container dlbench-stuck (cccccccccc) could not be ended" in ended.left
    assert engine.id in left
    assert running.wait() == ended


def test_an_engine_that_answers_nothing_is_waited_for_and_its_container_is_not_given_up(
    stuck: Callable[..., tuple[Stuck, Any, list[str], socket.socket]],
) -> None:
    engine, running, left, _ = stuck(answers_pings=False)
    running.stop()
    wait_for(lambda: engine.kills > 4, seconds=30)
    assert left == []
    assert not running._settled.is_set()
    engine.answers_pings = True
    assert running.wait().left


def test_what_the_libraries_raise_becomes_an_error_of_ours() -> None:
    with (
        pytest.raises(docker_client.NotThereError, match="^looking: No such image$") as missing,
        docker_client.asking("looking"),
    ):
        raise errors.ImageNotFound("404", explanation="No such image")
    assert missing.value.said == "No such image"
    for error in (exceptions.ReadTimeout("too late"), ProtocolError("broken")):
        with (
            pytest.raises(EngineGoneError, match="^looking: no container engine answers at"),
            docker_client.asking("looking"),
        ):
            raise error


def raised_by_docker_py() -> Iterator[type[Exception]]:
    """The exception classes of every module of the library."""
    for module in pkgutil.walk_packages(docker.__path__, "docker."):
        if module.name.endswith(("npipeconn", "npipesocket", "sshconn")):
            continue  # of Windows, and of an engine elsewhere, which is refused
        for found in vars(importlib.import_module(module.name)).values():
            ours = isinstance(found, type) and issubclass(found, Exception) and found.__module__.startswith("docker.")
            if ours and not issubclass(found, Warning):
                yield found


@pytest.mark.parametrize("of_the_library", sorted(set(raised_by_docker_py()), key=lambda kind: kind.__name__))
def test_each_exception_class_of_the_library_becomes_an_error_of_ours(of_the_library: type[Exception]) -> None:
    own = inspect.signature(of_the_library.__init__).parameters.values() if "__init__" in vars(of_the_library) else ()
    needed = [each for each in own if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    error = of_the_library(*["words"] * max(1, len(needed) - 1))
    with pytest.raises(EngineError, match="^looking: "), docker_client.asking("looking"):
        raise error


@pytest.mark.filterwarnings("ignore:docker-credential-desktop.exe")
def test_a_credential_store_whose_program_is_missing_is_named_with_the_fix() -> None:
    with (
        pytest.raises(EngineError, match=r'not installed.*take "credsStore" .* out of'),
        docker_client.asking("building"),
    ):
        docker.credentials.Store("desktop.exe").list()


def test_a_store_of_credentials_whose_program_is_missing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"credsStore": "none.exe", "credHelpers": {"here": "sure", "there": "none.exe"}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "docker-credential-sure").touch(mode=0o755)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    # A version that is given is not asked for.
    client = docker_client.connect("1.41")
    auth = client.api._auth_configs
    with (
        pytest.raises(docker_client.DeniedError, match=r"docker login.*; its settings name docker-credential-none.exe"),
        docker_client.asking_registry(client, "pushing"),
    ):
        raise docker_client.DockerError("", "unauthorized")
    assert (auth.creds_store, auth.cred_helpers) == (None, {"here": "sure"})
    assert not auth.is_empty, "the library would read the file again"


def test_the_command_line_loads_neither_docker_nor_requests() -> None:
    script = "import sys, runner.cli.main; print([name for name in ('docker', 'requests', 'urllib3') if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert ended.stdout == "[]\n"


class Mounting:
    """An engine's answers about a container with a mounted folder: what it sees there, or the error of making it."""

    def __init__(self, sees: bytes | Exception | None) -> None:
        self.sees, self.left = sees, 0
        self.api = self

    def import_image_from_data(self, _: bytes) -> str:
        return '{"status": "sha256:0"}\n'

    def create_host_config(self, mounts: Any) -> Any:
        return mounts

    def create_container(self, *_: Any, host_config: Any, **__: Any) -> Any:
        if isinstance(self.sees, Exception):
            raise self.sees
        self.left, self.source = 1, Path(host_config[0]["Source"])
        return {"Id": "c"}

    def get_archive(self, _: str, path: str) -> Any:
        packed = io.BytesIO()
        content = (self.source / "file").read_bytes() if self.sees is None else self.sees
        with tarfile.open(fileobj=packed, mode="w") as archive:
            member = tarfile.TarInfo(Path(path).name)
            member.size = len(cast(bytes, content))
            archive.addfile(member, io.BytesIO(cast(bytes, content)))
        return iter([packed.getvalue()]), {}

    def remove_container(self, _: str, force: bool) -> None:
        self.left = 0

    def remove_image(self, _: str) -> None: ...


@pytest.mark.parametrize(
    ("sees", "words"),
    [
        (None, None),
        (b"another file", "it does not see the files of"),
        (errors.APIError("400", explanation="bind source path does not exist: /x"), "or use --engine venv"),
        (errors.APIError("500", explanation="something else"), None),
    ],
)
def test_an_engine_that_does_not_see_this_machines_files_is_found_out(
    tmp_path: Path, sees: bytes | Exception | None, words: str | None
) -> None:
    engine = Mounting(sees)
    why = read_back.why_not_the_same_files(cast(Any, engine), tmp_path, {})
    assert why is None if words is None else words in str(why)
    assert engine.left == 0
    assert list(tmp_path.iterdir()) == []


def test_an_engine_whose_disk_is_full_says_nothing_of_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Mounting(None)
    monkeypatch.setattr(engine, "import_image_from_data", lambda _: '{"error": "no space left on device"}\n')
    assert read_back.why_not_the_same_files(cast(Any, engine), tmp_path, {}) is None
    assert list(tmp_path.iterdir()) == []
