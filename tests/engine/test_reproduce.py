"""Two builds of one image give the same digest: on another day, without any earlier layer, with packages of Debian or without."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import Image
from runner.images import builder
from runner.images import recipe as recipes
from runner.images.docker_client import find_image
from tests.fixtures.weekly import only_with
from tests.stand_ins.fleet import HERE, compiler

from .test_build import project, scratch
from .test_nvidia_layers import FIRST, SECOND, Make, fetched, locked

__all__ = ["fetched", "locked", "project", "scratch"]

pytestmark = [pytest.mark.engine, pytest.mark.slow]

BASE = "dlbench-scratch-clock:3.11"
# No more, since a mirror's index and the certificates on the way to it are good for some days.
TWO_DAYS = 2 * 86400


@pytest.fixture(scope="module")
def movable_clock(client: Any, base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base image with a clock that NO_PROXY sets ahead."""
    folder = tmp_path_factory.mktemp("clock")
    if (program := compiler()) is None:
        pytest.skip("left out, because there is no C compiler to make the clock with")
    subprocess.run([program, "-shared", "-fPIC", "-O2", "-o", folder / "clock.so", HERE / "clock.c"], check=True)
    (folder / "ld.so.preload").write_text("/usr/local/lib/clock.so\n")
    lines = [f"FROM {base_image}", "COPY clock.so /usr/local/lib/", "COPY ld.so.preload /etc/"]
    (folder / "Dockerfile").write_text("\n".join(lines))
    client.images.build(path=str(folder), tag=BASE)
    yield BASE
    client.images.remove(BASE, force=True)


def set_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    known = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    monkeypatch.setenv("NO_PROXY", f"{known},clock+{TWO_DAYS}")


def day(client: Any, image: str) -> bytes:
    environment = {"NO_PROXY": os.environ.get("NO_PROXY", "")}
    return bytes(client.containers.run(image, entrypoint=["date", "+%F"], environment=environment, remove=True))


@pytest.mark.parametrize(
    "debian",
    [
        pytest.param({}, marks=only_with("DLBENCH_CURVES", "with a package of Debian it has a layer more")),
        {"ed": "ed"},
    ],
    ids=["without packages of Debian", "with one"],
)
def test_a_build_on_another_day_without_earlier_layers_has_the_same_digest(
    client: Any, scratch: Image, movable_clock: str, monkeypatch: pytest.MonkeyPatch, debian: dict[str, str]
) -> None:
    image = scratch.model_copy(update={"debian": debian})
    first = builder.build(image, movable_clock, client=client)
    today = day(client, first)
    set_ahead(monkeypatch)
    assert day(client, first) > today
    wanted = recipes.recipe(image, movable_clock)
    assert builder.build_again(client, wanted, first, print) is None
    # The image in use keeps its names and the steps that serve a later build.
    assert find_image(client, wanted.tag)
    assert find_image(client, wanted.steps_tag)
    assert not client.images.list(name="dlbench-again/*")


def test_the_first_file_that_differs_is_named(
    client: Any, scratch: Image, project: Path, base_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the step that installs the lock: it is not what this test is about.
    text = (project / "images" / "Dockerfile").read_text().splitlines(keepends=True)
    kept = text[: next(number for number, line in enumerate(text) if line.startswith("COPY --from=files /files/lock/"))]
    (project / "images" / "Dockerfile").write_text(
        "".join(kept) + "RUN date +%s%N > /opt/when; touch -d @1 /opt /opt/when\n"
    )
    image = scratch.model_copy(update={"debian": {}})
    first = builder.build(image, client=client)
    difference = builder.build_again(client, recipes.recipe(image), first, print)
    assert difference is not None
    layers = len(client.images.get(first).attrs["RootFS"]["Layers"])
    assert difference.startswith(f"layer {layers} of {layers}: /opt/when differs in its content (")


def test_an_image_says_the_day_of_its_lock_and_nothing_of_its_build(
    client: Any, base_image: str, scratch: Image
) -> None:
    built = client.images.get(builder.build(scratch, client=client))
    assert built.attrs["Created"].startswith(str(scratch.locked))
    assert built.labels["org.opencontainers.image.created"] == f"{scratch.locked}T00:00:00Z"
    assert {step["Created"] for step in built.history()} == {315532800}
    # Each layer still has the step that made it.
    assert sum(step["Size"] > 0 for step in built.history()) == len(built.attrs["RootFS"]["Layers"])


@only_with(
    "DLBENCH_CURVES", "that images share these layers, and that builds of two days are the same, is tested apart"
)
def test_images_share_the_layers_of_nvidia_s_wheels_that_were_built_on_two_days(
    client: Any, locked: Make, movable_clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = locked("scratch", *FIRST), locked("scratch-jax", *SECOND)
    built = builder.build(first, movable_clock, client=client)
    below = client.images.get(recipes.recipe(first, movable_clock).nvidia_tags[1]).attrs["RootFS"]["Layers"]
    set_ahead(monkeypatch)
    # Without any earlier layer: the same image, and of the other image the same layers up to the first wheel that differs.
    assert builder.build_again(client, recipes.recipe(first, movable_clock), built, print) is None
    difference = builder.build_again(client, recipes.recipe(second, movable_clock), built, print)
    assert difference is not None
    assert difference.startswith(f"layer {len(below) + 1} of ")
    assert "nccl" in difference
