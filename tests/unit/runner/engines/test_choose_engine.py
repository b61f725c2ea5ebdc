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
from runner.engines.podman import PodmanEngine
from runner.engines.process.host import HostEngine
from runner.errors import UserError
from runner.run.begin import look_ahead
from runner.run.options import Options


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
# Without a base, and planned only where it is named.
UNTESTED = BASELESS.model_copy(update={"name": "untested-cpu", "untested": "nobody has tried it"})


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A Docker Engine and a Podman that answer as told, and have no base for BASELESS."""

    def answers(unavailable: str | None = None, no_gpu: str | None = None) -> None:
        def unfit(self: DockerEngine, image: Image) -> str | None:
            assert unavailable is None, "an engine that does not answer must not be asked about images"
            return "its base image cannot be had" if image.name in (BASELESS.name, UNTESTED.name) else None

        monkeypatch.setattr(DockerEngine, "unavailable", lambda self: unavailable)
        for engine in (DockerEngine, PodmanEngine):
            monkeypatch.setattr(engine, "why_no_gpu", lambda self: no_gpu)
        monkeypatch.setattr(DockerEngine, "unfit", unfit)
        monkeypatch.setattr(DockerEngine, "images", lambda self, gpus: {each.name: each for each in (GOOD, BASELESS)})

    return answers


def test_auto_takes_docker_where_it_can_make_the_images(docker: Callable[..., None]) -> None:
    docker(no_gpu="no NVIDIA runtime")
    engine, why = choose("auto", planned=lambda _: [GOOD])
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
    engine, why = choose("auto", planned=lambda _: images, gpus=gpus)
    assert engine.name == "venv"
    assert why == f"engine venv: docker is not used: {reason}; podman is not used: {reason}"


def test_one_old_base_image_that_is_missing_does_not_push_the_others_out_of_their_containers(
    docker: Callable[..., None],
) -> None:
    docker()
    engine, why = choose("auto", planned=lambda _: [GOOD, BASELESS, GOOD])
    assert (engine.name, why) == ("docker", "engine docker: it answers here and can make 2 of 3 images")


def test_images_that_are_not_planned_do_not_decide_which_engine_it_is(
    docker: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GOOD serves torch alone; only BASELESS serves chainer."""
    docker()
    (tmp_path / "requirements.lock").touch()

    def offered(*images: Image) -> None:
        here = {each.name: each.model_copy(update={"folder": tmp_path}) for each in images}
        monkeypatch.setattr(DockerEngine, "images", lambda self, gpus: here)

    monkeypatch.setattr(DockerEngine, "parts", lambda self, image: {})
    monkeypatch.setattr(DockerEngine, "images_folder", lambda self: None)
    monkeypatch.setattr(DockerEngine, "notes", lambda self, gpus: ())

    def engine(*names: str) -> str:
        return look_ahead(Options(gpus="none", out=tmp_path, frameworks=names)).engine.name

    offered(GOOD, BASELESS)
    assert engine("chainer") == "venv"
    offered(GOOD, UNTESTED)
    assert engine() == "docker"


def test_an_engine_that_was_asked_for_is_never_replaced(docker: Callable[..., None]) -> None:
    docker(unavailable="nothing listens")
    with pytest.raises(EngineError, match="the engine docker cannot be used: nothing listens"):
        choose("docker")
    assert choose("venv")[0].name == "venv"


def test_the_host_engine_measures_the_interpreter_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostEngine, "_frameworks", [{"framework": "torch", "version": "1.0"}])
    engine, why = choose("host", Settings(python=Path(sys.executable)))
    assert engine.name == "host"
    assert why == "engine host: as --engine says"


def test_an_unknown_engine_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UserError, match="no engine 'lxc'; there are auto, docker, podman, apptainer, venv, host"):
        choose("lxc")


@pytest.mark.parametrize("name", ["auto", "docker", "venv"])
def test_an_engine_that_measures_no_interpreter_says_so(docker: Callable[..., None], name: str) -> None:
    docker()
    with pytest.raises(UserError, match=f"--python: engine {name} does not measure an interpreter; say --engine host"):
        choose(name, Settings(python=Path(sys.executable)))


def test_a_folder_of_images_is_for_an_engine_that_loads_them(docker: Callable[..., None], tmp_path: Path) -> None:
    docker()
    for name in ("auto", "docker"):
        assert choose(name, Settings(images_from=tmp_path))[0].name == "docker"
    for name in ("venv", "host"):
        with pytest.raises(UserError, match=f"--images-from: engine {name} loads no images; leave it out"):
            choose(name, Settings(images_from=tmp_path))


class Toy(Engine):
    name = "toy"

    def __init__(self, settings: Settings) -> None:
        self.base_image = settings.base_image


def test_an_engine_is_a_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engines.ENGINES, "toy", f"{__name__}:Toy")
    engine, why = choose("toy", Settings(base_image="site:{python}"))
    assert isinstance(engine, Toy)
    assert (engine.base_image, why) == ("site:{python}", "engine toy: as --engine says")
    assert engine.images(gpus=False), "an engine that says nothing else runs the images of the catalog"


def test_an_engine_whose_library_is_missing_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engines.ENGINES, "docker", "runner.engines.no_such_module:Engine")
    with pytest.raises(EngineError, match="the engine docker cannot be used: No module named"):
        choose("docker")
    engine, why = choose("auto")
    assert engine.name == "venv"
    assert "No module named" in why


def test_auto_takes_podman_where_no_docker_answers(
    docker: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    docker()
    monkeypatch.setitem(engines.ENGINES, "docker", "runner.engines.no_such_module:Engine")
    engine, why = choose("auto", planned=lambda _: [GOOD])
    assert engine.name == "podman"
    assert why.startswith("engine podman: it answers here and can make the images; docker is not used: ")
