"""Which engine is taken, and what the user is told of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from runner.catalog.images import Image
from runner.engines import choose
from runner.engines.base import EngineError
from runner.engines.docker.engine import DockerEngine
from runner.engines.process.host import HostEngine


def image(name: str) -> Image:
    return Image(
        name=name,
        folder=Path(),
        frameworks=("torch",),
        framework_version="1.0",
        python="3.11",
        accelerator="cpu",
        base="python:3.11",
        precisions=("fp32",),
        locked=date(2026, 1, 1),
        download_gb=0.001,
    )


GOOD, BASELESS = image("good-cpu"), image("baseless-cpu")


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A Docker Engine that answers as told, and has no base for BASELESS."""

    def answers(unavailable: str | None = None, no_gpu: str | None = None) -> None:
        def unfit(self: DockerEngine, image: Image) -> str | None:
            assert unavailable is None, "an engine that does not answer must not be asked about images"
            return "its base image cannot be had" if image is BASELESS else None

        monkeypatch.setattr(DockerEngine, "unavailable", lambda self: unavailable)
        monkeypatch.setattr(DockerEngine, "why_no_gpu", lambda self: no_gpu)
        monkeypatch.setattr(DockerEngine, "unfit", unfit)

    return answers


def test_auto_takes_docker_where_it_can_make_the_images(docker: Callable[..., None]) -> None:
    docker(no_gpu="no NVIDIA runtime")
    engine, why = choose("auto", [GOOD])
    assert engine.name == "docker", "without a GPU to use, it does not matter that docker could give none"
    assert why == "engine docker: it answers here and can make the images"


@pytest.mark.parametrize(
    ("told", "images", "gpus", "reason"),
    [
        ({"unavailable": "nothing listens"}, [GOOD], False, "nothing listens"),
        ({}, [GOOD, BASELESS], False, "its base image cannot be had"),
        ({"no_gpu": "no NVIDIA runtime"}, [GOOD], True, "no NVIDIA runtime"),
    ],
)
def test_auto_takes_environments_where_docker_is_no_use_and_says_why(
    docker: Callable[..., None], told: dict[str, str], images: list[Image], gpus: bool, reason: str
) -> None:
    docker(**told)
    engine, why = choose("auto", images, gpus)
    assert engine.name == "venv"
    assert why == f"engine venv: docker is out, because {reason}"


def test_an_engine_that_was_asked_for_is_never_replaced(docker: Callable[..., None]) -> None:
    docker(unavailable="nothing listens")
    with pytest.raises(EngineError, match="the engine docker cannot be used: nothing listens"):
        choose("docker", [GOOD])
    assert choose("venv", [GOOD])[0].name == "venv"


def test_the_host_engine_measures_the_interpreter_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostEngine, "_frameworks", [{"framework": "torch", "version": "1.0"}])
    engine, why = choose("host", [], python=Path(sys.executable))
    assert engine.name == "host"
    assert why == "engine host: as asked"


def test_an_unknown_engine_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(EngineError, match="no engine 'podman'; there are auto, docker, venv, host"):
        choose("podman", [])
