"""The pinned images that a foreign image is verified beside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runner.engines.foreign import _bare
from runner.errors import CannotBeginError, UserError
from runner.machine.detect import detect
from runner.results.on_disk.image_names import is_of_no_catalog
from runner.run.options import Options
from runner.verify import pinned as foreign_beside

ADDRESS = "docker:mine:1"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The fields of the image that is looked into."""
    fields: dict[str, Any] = {
        "frameworks": ("chainer", "torch"),
        "framework_version": "7.7.0",
        "releases": {"chainer": "7.7.0", "torch": "2.12.1"},
    }
    images = SimpleNamespace(images=lambda gpus: {ADDRESS: _bare(ADDRESS, "sha256:1", {}, **fields)})
    monkeypatch.setattr(foreign_beside, "foreign_images", lambda *_: images)
    assert detect("none", False).gpus == ()
    return fields


def beside(**options: Any) -> Options:
    return foreign_beside.beside(Options(gpus="none", **{"against": "nearest"} | options), ADDRESS)


def test_of_each_framework_the_nearest_release_is_measured_in_the_same_run(found: dict[str, Any]) -> None:
    chosen = beside()
    assert chosen.images == (ADDRESS, "chainer-7.8.1-cpu", "torch-2.13.0-cpu")
    assert chosen.frameworks == ("chainer", "torch")
    assert beside(frameworks=("torch",)).images == (ADDRESS, "torch-2.13.0-cpu")


def test_another_image_or_none_stands_beside_it_where_the_user_says_so(found: dict[str, Any]) -> None:
    assert beside(against="none").images == (ADDRESS,)
    assert beside(against="torch-2.13.0-cpu").images == (ADDRESS, "torch-2.13.0-cpu")
    with pytest.raises(UserError, match="is no image of the catalog"):
        beside(against="torch-2.13-cpu")
    with pytest.raises(UserError, match="it has none of the frameworks of docker:mine:1"):
        beside(against="theano-1.0.5-cpu")


def test_what_cannot_be_verified_is_refused_before_anything_begins(found: dict[str, Any]) -> None:
    with pytest.raises(CannotBeginError, match="docker:mine:1 has chainer, torch only"):
        beside(frameworks=("jax",))
    with pytest.raises(UserError, match="there is no 'tourch'"):
        beside(frameworks=("tourch",))
    found |= {"frameworks": (), "refusal": "it has no Python"}
    with pytest.raises(CannotBeginError, match="docker:mine:1: it has no Python"):
        beside()


def test_an_installation_is_told_from_the_pinned_images_by_its_name() -> None:
    assert is_of_no_catalog("host-torch-2.1")
    assert is_of_no_catalog(ADDRESS)
    assert not is_of_no_catalog("torch-2.13.0-cpu")
