"""What each engine guarantees of a cell, as a cell on it sees it, against the table in docs and against the engine's own word."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.catalog import guarantees
from runner.catalog.images import Image
from runner.engines import sif
from runner.engines.apptainer import ApptainerEngine
from runner.engines.base import Engine, EngineError, Launch, ReadyImage, Slot
from runner.engines.docker.engine import DockerEngine
from runner.engines.podman import PodmanEngine
from runner.engines.process.venv import VenvEngine
from runner.results.on_disk.isolation import caveat, not_held
from tests.fixtures.lies import PLAY, honest, row_of
from tests.stand_ins.podman import OwnPodman, why_not

pytestmark = [pytest.mark.engine, pytest.mark.slow]

MEMORY = 512 << 20
SLOT = Slot("cpu", (), (0,), MEMORY)

# What each guarantee is for the cell itself. It looks, and tries nothing: on the engine `venv` it has the user's own rights.
LOOK = (
    """
import json, os, stat
def read(*paths):
    for path in paths:
        try: return open(path).read().strip()
        except OSError: pass
def groups(name, v1, v2):
    own = dict(line.strip().split(":", 2)[1:] for line in open("/proc/self/cgroup"))
    return read(f"/sys/fs/cgroup/{name}/{v1}", f"/sys/fs/cgroup/{v2}", f"/sys/fs/cgroup/{name}{own.get(name, '')}/{v1}")
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
plain = {"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"}
nodes = {name for name in os.listdir("/dev") if stat.S_IFMT(os.lstat("/dev/" + name).st_mode) in (stat.S_IFBLK, stat.S_IFCHR)}
print(json.dumps({
    "network": [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]] == ["lo"],
    "root": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
    "capabilities": all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
        and status["NoNewPrivs"].strip() == "1",
    "seccomp": status["Seccomp"].strip() == "2",
    "memory": groups("memory", "memory.limit_in_bytes", "memory.max") == str(%d),
    "processes": groups("pids", "pids.max", "pids.max") == "4096",
    "CPUs": os.sched_getaffinity(0) == {0},
    "devices": nodes <= plain,
}))
"""
    % MEMORY
)

# A cell with a child, which the number in their command lines finds.
FAMILY = "import os, time; os.fork(); print('up', flush=True); time.sleep(600.125)"


@pytest.fixture(scope="module")
def own_podman(base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnPodman]:
    if reason := why_not():
        pytest.skip(f"left out, because {reason}")
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    subprocess.run(["docker", "save", "--output", str(archive), base_image], check=True)
    with OwnPodman() as podman:
        podman.take(archive)
        yield podman


@pytest.fixture(scope="module")
def base_sif(base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        sif.version()
    except EngineError as error:
        pytest.skip(f"left out, because {error}")
    folder = tmp_path_factory.mktemp("sif")
    subprocess.run(["docker", "save", "--output", str(folder / "image.tar"), base_image], check=True)
    # lz4 takes the least time to make.
    build = ["apptainer", "--quiet", "build", "--disable-cache", "--mksquashfs-args", "-comp lz4"]
    subprocess.run([*build, str(folder / "image.sif"), f"docker-archive:{folder / 'image.tar'}"], check=True)
    return folder / "image.sif"


@pytest.fixture
def engine_of(
    request: pytest.FixtureRequest, base_image: str, catalog: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[Engine, tuple[str, ...], str]]:
    """An engine, its Python, and the image in it."""

    def engine(name: str) -> tuple[Engine, tuple[str, ...], str]:
        if name == "venv":
            return VenvEngine(), (sys.executable,), ""
        if name == "apptainer":
            return ApptainerEngine(), (str(request.getfixturevalue("base_sif")), "python3"), ""
        if name == "podman":
            monkeypatch.setenv("CONTAINER_HOST", request.getfixturevalue("own_podman").url)
        started = PodmanEngine() if name == "podman" else DockerEngine()
        if reason := started.unavailable():
            pytest.skip(f"left out, because {reason}")
        return started, ("python3",), str(started._client.images.get(base_image).id)

    return engine


def is_left() -> bool:
    return any(b"600.125" in path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())


@pytest.mark.parametrize("name", ["docker", "podman", "apptainer", "venv"])
def test_a_cell_sees_what_the_table_says_of_its_engine(
    engine_of: Callable[[str], Any], catalog: dict[str, Image], name: str, tmp_path: Path
) -> None:
    engine, python, digest = engine_of(name)
    image = next(iter(catalog.values()))

    def start(script: str) -> Any:
        return engine.start(
            Launch(ReadyImage(image, digest, (*python, "-c", script)), [], SLOT, "look", tmp_path / "c")
        )

    running = start(LOOK)
    sees = json.loads(b"".join(running.events()))
    ended = running.wait()
    family = start(FAMILY)
    next(iter(family.events()))
    assert is_left()
    family.stop()
    assert family.wait().code == 137
    end = time.monotonic() + 10
    while is_left() and time.monotonic() < end:
        time.sleep(0.05)
    sees["kill"] = not is_left()
    key = ("venv", None, None) if name == "venv" else engine.kind()
    tested = guarantees.TABLE.get(key)
    if tested is not None:
        assert {guarantee for guarantee, held in sees.items() if held} == tested.held
    if name != "venv":
        # The engine's own word, which each row has.
        broken = {{"read-only root": "root"}.get(limit, limit) for limit in not_held(ended.isolation)} - {"swap"}
        assert broken == {guarantee for guarantee, held in sees.items() if not held}
    if tested is None:
        pytest.skip(f"the table has no row of {guarantees.named(*key)}, which sees {sees}")


def test_a_cell_on_podman_is_measured_and_its_row_has_podmans_own_name(
    engine_of: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    engine, python, digest = engine_of("podman")
    row = row_of(engine, (*python, "-c", PLAY), digest, honest, tmp_path)
    assert (row["status"], row["engine"]) == ("ok", "podman"), row["reason"]
    isolation = json.loads(row["isolation_json"])
    assert isolation["engine"].startswith("Podman Engine ")
    assert isolation["rootless"] is (os.getuid() != 0)


def test_a_cell_in_apptainer_is_measured_and_its_row_says_what_did_not_hold(
    engine_of: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    engine, python, digest = engine_of("apptainer")
    row = row_of(engine, (*python, "-c", PLAY), digest, honest, tmp_path)
    assert (row["status"], row["engine"]) == ("ok", "apptainer"), row["reason"]
    isolation = json.loads(row["isolation_json"])
    assert isolation["engine"] == f"Apptainer {engine.version}"
    assert "seccomp" in not_held(isolation)
    assert "did not apply these limits to its container:" in str(caveat(isolation))


def test_a_cell_in_apptainer_that_lost_its_keeper_is_ended(
    engine_of: Callable[[str], Any], catalog: dict[str, Image], tmp_path: Path
) -> None:
    engine, python, digest = engine_of("apptainer")
    prepared = ReadyImage(next(iter(catalog.values())), digest, (*python, "-c", FAMILY))
    running = engine.start(Launch(prepared, [], SLOT, "keeper", tmp_path / "c"))
    next(iter(running.events()))
    os.kill(running.pid(), signal.SIGKILL)
    running.stop()
    assert running.wait().left is None
    assert not is_left()


def test_a_sif_that_cannot_be_started_is_told_with_apptainers_own_reason(
    engine_of: Callable[[str], Any], catalog: dict[str, Image], tmp_path: Path
) -> None:
    engine, _, digest = engine_of("apptainer")
    (tmp_path / "image.sif").write_bytes(b"no image")
    prepared = ReadyImage(next(iter(catalog.values())), digest, (str(tmp_path / "image.sif"), "python3"))
    with pytest.raises(EngineError, match="Apptainer started no container: FATAL"):
        engine.start(Launch(prepared, [], SLOT, "broken", tmp_path / "c"))


def test_a_podman_that_would_leave_gpus_out_is_refused_for_them(
    engine_of: Callable[[str], Any], catalog: dict[str, Image], tmp_path: Path
) -> None:
    engine, python, digest = engine_of("podman")
    slot = Slot("cuda", ("GPU-00000000-0000-0000-0000-000000000000",), (0,), None)
    with pytest.raises(EngineError, match=r"5\.4\.0 gives them|finds no GPU by CDI"):
        engine.start(Launch(ReadyImage(next(iter(catalog.values())), digest, python), [], slot, "gpu", tmp_path / "c"))


def test_a_docker_engine_at_podmans_address_is_told(engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{engine._client.api._custom_adapter.socket_path}")  # type: ignore[attr-defined]
    assert "not Podman; use --engine docker" in str(PodmanEngine().unavailable())
