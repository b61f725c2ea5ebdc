"""What several unit tests start from: small stand-ins of the data sets in their own layouts, and the folder of an image."""

from pathlib import Path

import pytest

from bench.data import cifar10, imdb, mnist
from tests.fixtures.data_folders import SEED


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def images(tmp_path):
    """A small stand-in of CIFAR-10, written as the Python version, without the mark that it is generated."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    cifar10.write_stand_in(str(folder), 103, 20, SEED)
    return folder


@pytest.fixture
def reviews(tmp_path):
    folder = tmp_path / "reviews"
    folder.mkdir()
    imdb.write_stand_in(str(folder), 60, 20, SEED)
    return folder


@pytest.fixture
def digits(tmp_path):
    """A small stand-in of MNIST, without the mark that it is generated."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    mnist.write_stand_in(str(folder), 60, 20, SEED)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of an image that has only a lock."""
    (tmp_path / "requirements.lock").write_text("a lock\n")
    return tmp_path
