"""Images in a folder: what is whole comes back, and what is not is named and loaded by nobody. The engine is a stub of three calls."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from runner.catalog.images import load_catalog
from runner.images.recipe import Recipe
from runner.images.recipe import recipe as make_recipe
from runner.images.transfer import folder
from runner.images.transfer.folder import FolderError

CONTENT = [b"layers ", b"of an ", b"image"]


class Client:
    """An engine that has one image, or none yet."""

    def __init__(self, recipe: Recipe, chunks: Callable[[], Iterator[bytes]] = lambda: iter(CONTENT)) -> None:
        self.recipe, self.chunks, self.images = recipe, chunks, self
        self.labels = recipe.labels("")
        self.loaded: list[bytes] = []

    def get(self, name: str) -> Any:
        if name != self.recipe.tag:
            raise ImageNotFound(name)
        return SimpleNamespace(
            id="sha256:1", labels=self.labels, tags=[name], save=lambda chunk_size, named: self.chunks()
        )

    def load(self, file: Any) -> None:
        self.loaded.append(file.read())

    def remove(self, name: str, noprune: bool) -> None:
        assert name == self.recipe.tag
        self.loaded.clear()


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return make_recipe(load_catalog()["torch-2.13.0-cpu"])


def loaded(recipe: Recipe, place: Path) -> tuple[str | None, str, list[bytes]]:
    """The id that the folder gave, what was said last, and what the engine got."""
    client, said = Client(recipe), list[str]()
    return folder.load(client, recipe, place, said.append), said[-1], client.loaded  # type: ignore[arg-type]


def export(recipe: Recipe, place: Path, client: Any = None) -> folder.Exported:
    return folder.export(client or Client(recipe), recipe, place)[0]


def test_an_exported_image_is_loaded_and_is_not_exported_twice(recipe: Recipe, tmp_path: Path) -> None:
    entry = export(recipe, tmp_path / "new")
    assert entry.bytes == len(b"".join(CONTENT))
    assert loaded(recipe, tmp_path / "new") == (
        "sha256:1",
        f"loading {recipe.image.name} from {tmp_path / 'new'}: 0.00 GB",
        [b"".join(CONTENT)],
    )
    other = Client(recipe, lambda: iter([b"made again, and other bytes"]))
    assert export(recipe, tmp_path / "new", other) == entry


def test_an_image_of_other_inputs_is_no_image_of_these(recipe: Recipe, tmp_path: Path) -> None:
    assert "has no torch-2.13.0-cpu of these inputs" in loaded(recipe, tmp_path)[1]
    export(recipe, tmp_path)
    stale, said = Client(recipe), list[str]()
    stale.labels = {**stale.labels, "dlbench.lock_sha256": "0" * 64}
    assert folder.load(stale, recipe, tmp_path, said.append) is None  # type: ignore[arg-type]
    assert said[-1].endswith("was built from another lock")
    assert stale.loaded == []


def _flip(tar: Path, about: Path) -> None:
    data = bytearray(tar.read_bytes())
    data[3] ^= 1
    tar.write_bytes(data)


def _pipe(tar: Path, about: Path) -> None:
    tar.unlink()
    os.mkfifo(tar)


def _says(**fields: Any) -> Callable[[Path, Path], None]:
    def change(tar: Path, about: Path) -> None:
        about.write_text(json.dumps(json.loads(about.read_text()) | fields))

    return change


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_flip, r"\.tar is damaged: its sha256 is not its name"),
        (_pipe, r"\.tar cannot be read \(it is no file\)"),
        (lambda tar, about: tar.write_bytes(b"short"), r"\.tar has 5 bytes and not 18"),
        (lambda tar, about: tar.unlink(), r"\.json: its file .*\.tar is not there"),
        (lambda tar, about: about.write_bytes(b"\0[[["), r"\.json: "),
        (lambda tar, about: about.write_bytes(b" " * 100_000), r"\.json cannot be read \(it has more than"),
        (_says(sha256="../" * 20), r"\.json: sha256"),
        (_says(sha256="0" * 64), r"\.json: its file .*/0{64}\.tar is not there"),
        (_says(bytes=-1), r"\.json: bytes"),
        (_says(tag="dlbench/other:1"), r"\.json describes another image"),
        (_says(more="x"), r"\.json: more"),
    ],
)
def test_what_is_damaged_is_named_with_the_remedy_not_loaded_and_exported_again(
    recipe: Recipe, tmp_path: Path, damage: Callable[[Path, Path], None], why: str
) -> None:
    entry = export(recipe, tmp_path)
    tar, about = tmp_path / f"{entry.sha256}.tar", folder.description(tmp_path, recipe)
    damage(tar, about)
    image_id, said, got = loaded(recipe, tmp_path)
    assert (image_id, got) == (None, [])
    assert re.search(why, said)
    assert said.endswith("`runner images export torch-2.13.0-cpu --to FOLDER`")
    if tar.is_fifo():
        tar.unlink()
    if "sha256 is not" not in why:  # only a whole reading finds that, and an export reads nothing
        export(recipe, tmp_path)
        assert loaded(recipe, tmp_path)[0] == "sha256:1"


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
        (OSError(28, "No space left on device"), FolderError, r"\(No space left on device\); make room there"),
    ],
)
def test_half_an_image_is_never_left(
    recipe: Recipe, tmp_path: Path, error: BaseException, kind: type[BaseException], said: str
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise error

    with pytest.raises(kind, match=said):
        export(recipe, tmp_path, Client(recipe, chunks))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_a_sentence(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="could not be exported to .*file"):
        export(recipe, tmp_path / "file")
    assert loaded(recipe, tmp_path / "file")[0] is None
