"""What several unit tests start from: small stand-ins of the data sets in their own layouts, and the folder of an image."""

from pathlib import Path

import pytest
from hypothesis import settings

from bench.data import cifar10, imdb, mnist
from tests.fixtures.data_folders import SEED

# The hooks by which a test is not run again with the same inputs.
from tests.fixtures.green import pytest_configure  # noqa: F401

# The tests share the CPUs: how long an example takes says nothing.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """The cache folder of the processes that a test starts: it reads the runs that they stored, so it is the same installation."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def images(tmp_path):
    """CIFAR-10 as the Python version."""
    return stand_in(cifar10, tmp_path / "cifar-10-batches-py", 103)


@pytest.fixture
def reviews(tmp_path):
    return stand_in(imdb, tmp_path / "reviews")


@pytest.fixture
def digits(tmp_path):
    return stand_in(mnist, tmp_path / "mnist")


def stand_in(data_set, folder, items=60):
    """A small stand-in of a data set in a folder of its own, without the mark that it is generated."""
    folder.mkdir()
    data_set.write_stand_in(str(folder), items, 20, SEED)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of an image that has only a lock."""
    (tmp_path / "requirements.lock").write_text("a lock\n")
    return tmp_path
