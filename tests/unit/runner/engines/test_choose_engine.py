"""Which engine is taken, and what the user is told of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from runner import engines
from runner.catalog.images import Image
from runner.engines import choose
from runner.engines.base import Engine, EngineError, Settings
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


GOOD = image("good-cpu")
BASELESS = image("baseless-cpu").model_copy(update={"frameworks": ("torch", "chainer")})


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
        monkeypatch.setattr(DockerEngine, "images", lambda self, gpus: {each.name: each for each in (GOOD, BASELESS)})

    return answers


def test_auto_takes_docker_where_it_can_make_the_images(docker: Callable[..., None]) -> None:
    docker(no_gpu="no NVIDIA runtime")
    engine, why = choose("auto", patterns=["good-cpu"])
    assert engine.name == "docker", "without a GPU to use, it does not matter that docker could give none"
    assert why == "engine docker: it answers here and can make the images"


@pytest.mark.parametrize(
    ("told", "patterns", "gpus", "reason"),
    [
        ({"unavailable": "nothing listens"}, ["good-cpu"], False, "nothing listens"),
        ({}, [], False, "its base image cannot be had"),
        ({"no_gpu": "no NVIDIA runtime"}, ["good-cpu"], True, "no NVIDIA runtime"),
    ],
)
def test_auto_takes_environments_where_docker_is_no_use_and_says_why(
    docker: Callable[..., None], told: dict[str, str], patterns: list[str], gpus: bool, reason: str
) -> None:
    docker(**told)
    engine, why = choose("auto", patterns=patterns, gpus=gpus)
    assert engine.name == "venv"
    assert why == f"engine venv: docker is out, because {reason}"


def test_images_of_other_frameworks_do_not_decide_which_engine_it_is(docker: Callable[..., None]) -> None:
    docker()
    assert choose("auto", frameworks=["keras_torch"])[0].name == "docker"
    assert choose("auto", frameworks=["chainer"])[0].name == "venv"


def test_an_engine_that_was_asked_for_is_never_replaced(docker: Callable[..., None]) -> None:
    docker(unavailable="nothing listens")
    with pytest.raises(EngineError, match="the engine docker cannot be used: nothing listens"):
        choose("docker")
    assert choose("venv")[0].name == "venv"


def test_the_host_engine_measures_the_interpreter_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostEngine, "_frameworks", [{"framework": "torch", "version": "1.0"}])
    engine, why = choose("host", Settings(python=Path(sys.executable)))
    assert engine.name == "host"
    assert why == "engine host: as asked"


def test_an_unknown_engine_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(EngineError, match="no engine 'podman'; there are auto, docker, venv, host"):
        choose("podman")


@pytest.mark.parametrize("name", ["auto", "docker", "venv"])
def test_an_engine_that_measures_no_interpreter_says_so(docker: Callable[..., None], name: str) -> None:
    docker()
    with pytest.raises(
        EngineError, match=f"--python: engine {name} does not measure an interpreter; say --engine host"
    ):
        choose(name, Settings(python=Path(sys.executable)))


class Toy(Engine):
    name = "toy"

    def __init__(self, settings: Settings) -> None:
        self.base_image = settings.base_image


def test_an_engine_is_a_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engines.ENGINES, "toy", f"{__name__}:Toy")
    engine, why = choose("toy", Settings(base_image="site:{python}"))
    assert isinstance(engine, Toy)
    assert (engine.base_image, why) == ("site:{python}", "engine toy: as asked")
    assert engine.images(gpus=False), "an engine that says nothing else runs the images of the catalog"


def test_an_engine_whose_library_is_missing_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engines.ENGINES, "docker", "runner.engines.no_such_module:Engine")
    with pytest.raises(EngineError, match="the engine docker cannot be used: No module named"):
        choose("docker")
    engine, why = choose("auto")
    assert engine.name == "venv"
    assert "No module named" in why
