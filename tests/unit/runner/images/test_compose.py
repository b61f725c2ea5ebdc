"""compose.gpu.yml: a service an image, restricted as the runner restricts a cell."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from runner.catalog.images import PROJECT, CatalogError, Image, load_catalog
from runner.catalog.workloads import adapters
from runner.engines.base import Launch
from runner.engines.docker import container
from runner.images import generated_files


@pytest.fixture(scope="module")
def catalog() -> dict[str, Image]:
    return load_catalog()


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, object]]:
    return dict(yaml.safe_load((PROJECT / "compose.gpu.yml").read_text())["services"])


def test_compose_has_one_service_an_image(catalog: dict[str, Image], services: dict[str, dict[str, object]]) -> None:
    assert set(services) == set(catalog)
    for name, service in services.items():
        image = catalog[name]
        assert service["image"] == f"dlbench/{name}:latest"
        assert service["pull_policy"] == "never"
        assert service["profiles"] == [*image.frameworks, image.accelerator]
        command = service["command"]
        assert isinstance(command, list)
        framework = command[command.index("--framework") + 1]
        assert framework in image.frameworks
        assert command[command.index("--device") + 1] == image.accelerator
        # A service runs as it stands: its framework has that workload.
        assert (framework, command[1].replace("-", "_")) in adapters()


def test_the_service_of_a_framework_with_none_of_the_usual_workloads_runs_one_that_it_has(
    catalog: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = catalog["chainer-7.8.1-cpu"]
    now = "head:\n\nservices:\n\nvolumes:\n"
    monkeypatch.setattr(generated_files, "adapters", lambda: frozenset({("chainer", "mlp_mnist"), ("torch", "ops")}))
    assert "command: [run, mlp-mnist, --framework, chainer" in generated_files.compose_text([image], now)
    monkeypatch.setattr(generated_files, "adapters", lambda: frozenset({("torch", "ops")}))
    with pytest.raises(
        CatalogError,
        match=r"chainer-7.8.1-cpu/image.toml: frameworks: chainer has no adapter; write one in bench/frameworks/chainer",
    ):
        generated_files.compose_text([image], now)


def test_compose_gives_a_gpu_to_the_cuda_images_and_to_no_other(
    catalog: dict[str, Image], services: dict[str, dict[str, object]]
) -> None:
    for name, service in services.items():
        environment = service["environment"]
        assert isinstance(environment, dict)
        if catalog[name].accelerator == "cuda":
            devices = service["deploy"]["resources"]["reservations"]["devices"]  # type: ignore[index]
            assert [device["capabilities"] for device in devices] == [["gpu"]]
            assert "NVIDIA_VISIBLE_DEVICES" not in environment
        else:
            assert "deploy" not in service
            assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_compose_restricts_a_service_as_the_runner_restricts_a_cell(
    catalog: dict[str, Image], services: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    docker_engine_types = pytest.importorskip("docker.types")
    assert docker_engine_types
    user = f"{container.BENCH_USER}:{container.BENCH_USER}"
    for name, service in services.items():
        cuda = catalog[name].accelerator == "cuda"
        slot = container.Slot("cuda", ("GPU-1",), (), None) if cuda else container.Slot("cpu", (), (), None)
        prepared = container.ReadyImage(catalog[name], "sha256:1", ("python", "-m", "bench"))
        cell = container.container_options(Launch(prepared, [], slot, "run", tmp_path, tmp_path), user)
        assert service["read_only"] is cell["read_only"] is True
        assert service["network_mode"] == cell["network_mode"] == "none"
        assert service["ipc"] == cell["ipc_mode"]
        assert service["user"] == cell["user"]
        assert service["init"] is cell["init"]
        assert service["hostname"] == cell["hostname"]
        for field in ("cap_drop", "security_opt", "pids_limit", "shm_size", "environment"):
            assert service[field] == cell[field], field
        assert service["tmpfs"] == [f"{path}:{options}" for path, options in cell["tmpfs"].items()]
        assert service["ulimits"] == {limit["Name"]: limit["Soft"] for limit in cell["ulimits"]}
        # Each image has a cache of its own, as in the runner.
        assert service["volumes"] == [f"cache-{name}:/cache", "${DLBENCH_DATA:-data}:/data:ro"]
