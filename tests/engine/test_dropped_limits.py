"""An engine that drops a limit without a word: each is named in the row, and a GPU that is not there ends the cell before it starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.engines.base import EngineError, Launch, ReadyImage, Slot
from runner.engines.docker.engine import OWNER_LABEL, DockerEngine
from runner.results.on_disk.isolation import caveat, described, not_held
from tests.fixtures.lies import PLAY, honest, row_of
from tests.stand_ins.dropping import DroppingEngine, HostConfig

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SLOT = Slot("cpu", (), (0,), 512 << 20, memory_nodes=(0,))


def without(*fields: str) -> Callable[[HostConfig], None]:
    def drop(host: HostConfig) -> None:
        for field in fields:
            del host[field]

    return drop


def unconfined(host: HostConfig) -> None:
    host["SecurityOpt"].append("seccomp=unconfined")


def privileged(host: HostConfig) -> None:
    host.clear()
    host["Privileged"] = True


# What the engine drops -> the limits that are named for it. Without a limit of memory there is none of swap.
DROPS: dict[str, tuple[Callable[[HostConfig], object], set[str]]] = {
    "nothing": (lambda host: None, set()),
    "memory": (without("Memory", "MemorySwap"), {"memory", "swap"}),
    "swap": (lambda host: host.update(MemorySwap=-1), {"swap"}),
    "processes": (without("PidsLimit"), {"processes"}),
    "CPUs": (without("CpusetCpus"), {"CPUs"}),
    "memory nodes": (without("CpusetMems"), {"memory nodes"}),
    "root": (without("ReadonlyRootfs"), {"read-only root"}),
    "network": (without("NetworkMode"), {"network"}),
    "capabilities": (without("CapDrop"), {"capabilities"}),
    "privileges": (without("SecurityOpt"), {"no new privileges"}),
    "seccomp": (unconfined, {"seccomp"}),
    "all": (
        privileged,
        {"memory", "swap", "processes", "CPUs", "memory nodes", "read-only root", "network", "capabilities", "seccomp",
         "no new privileges"},
    ),
}  # fmt: skip


@pytest.fixture
def digest(client: Any, base_image: str) -> str:
    return str(client.images.get(base_image).id)


@pytest.fixture
def dropping(
    digest: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Callable[[HostConfig], object]], DockerEngine]]:
    """The engine `docker` on a stand-in that drops something."""
    started: list[DroppingEngine] = []
    # The engine of the environment, when the stand-in's address takes its place.
    real = DockerEngine()._client.api._custom_adapter.socket_path  # type: ignore[attr-defined]

    def start(drop: Callable[[HostConfig], object]) -> DockerEngine:
        stand_in = DroppingEngine(real, tmp_path_factory.mktemp("engine") / "docker.sock", drop)
        started.append(stand_in.__enter__())
        monkeypatch.setenv("DOCKER_HOST", stand_in.url)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        return DockerEngine()

    yield start
    for stand_in in started:
        stand_in.__exit__()


@pytest.mark.parametrize("dropped", DROPS)
def test_a_limit_that_is_dropped_in_silence_is_named(
    dropping: Callable[..., DockerEngine], digest: str, catalog: dict[str, Any], dropped: str, tmp_path: Path
) -> None:
    drop, limits = DROPS[dropped]
    prepared = ReadyImage(next(iter(catalog.values())), digest, ("true",))
    ended = dropping(drop).start(Launch(prepared, [], SLOT, "test", tmp_path / "cache")).wait()
    assert ended.code == 0, ended.log_tail
    assert ended.isolation is not None
    assert set(not_held(ended.isolation)) == limits


def test_the_row_and_the_report_name_what_did_not_hold(
    dropping: Callable[..., DockerEngine], digest: str, tmp_path: Path
) -> None:
    row = row_of(dropping(without("PidsLimit")), ("python3", "-c", PLAY), digest, honest, tmp_path)
    assert row["status"] == "ok", row["reason"]
    isolation = json.loads(row["isolation_json"])
    assert isolation["limits"]["network"] == ["none", "none"]
    assert isolation["limits"]["processes"][0] == 4096
    assert described(isolation).endswith(", without processes")
    assert str(caveat(isolation)).endswith("did not apply these limits to its container: processes.")


def test_a_gpu_that_is_dropped_in_silence_ends_the_cell_before_it_starts(
    dropping: Callable[..., DockerEngine], digest: str, catalog: dict[str, Any], client: Any, tmp_path: Path
) -> None:
    engine, prepared = dropping(without("DeviceRequests")), ReadyImage(next(iter(catalog.values())), digest, ("true",))
    slot = Slot("cuda", ("GPU-00000000-0000-0000-0000-000000000000",), (0,), None)
    with pytest.raises(EngineError, match=r"Engine \S+ gave the container 0 of 1 GPUs, without a word"):
        engine.start(Launch(prepared, [], slot, "test", tmp_path / "cache"))
    left = client.containers.list(all=True, filters={"label": f"{OWNER_LABEL}={engine._owner}"}, ignore_removed=True)
    assert left == []
