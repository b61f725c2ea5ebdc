"""Images in a folder: what is whole comes back, and what is not is named and loaded by nobody. The engine is a stub of three calls."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageLoadError, ImageNotFound

from runner.catalog.images import load_catalog
from runner.images.recipe import Recipe
from runner.images.recipe import recipe as make_recipe
from runner.images.transfer import folder
from runner.images.transfer.folder import FolderError

TAG = make_recipe(load_catalog()["torch-2.13.0-cpu"]).tag
ID = "0" * 64
BASE_ID = "sha256:base"


def archive(**more: Any) -> bytes:
    """What `docker save` of the image gives, with other or further members."""
    repository, _, tag = TAG.rpartition(":")
    members: dict[str, Any] = {
        f"{ID}/layer.tar": b"layer",
        "manifest.json": [{"Config": f"{ID}.json", "RepoTags": [TAG], "Layers": [f"{ID}/layer.tar"]}],
        "repositories": {repository: {tag: ID}},
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for name, content in (members | more).items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


WHOLE = archive()
CONTENT = [WHOLE[:7], WHOLE[7:600], WHOLE[600:]]


class Client:
    """An engine that has one image, or none yet."""

    def __init__(self, recipe: Recipe, chunks: Callable[[], Iterator[bytes]] = lambda: iter(CONTENT)) -> None:
        self.recipe, self.chunks, self.images = recipe, chunks, self
        self.labels = recipe.labels(BASE_ID)
        self.loaded: list[bytes] = []
        self.api = SimpleNamespace(timeout=60)
        self.base_id = ""
        # How long each of the two long calls may take.
        self.patience: list[int] = []

    def get(self, name: str) -> Any:
        if name == self.recipe.base and self.base_id:
            return SimpleNamespace(id=self.base_id, labels={}, tags=[name])
        if name != self.recipe.tag:
            raise ImageNotFound(name)
        return SimpleNamespace(
            id="sha256:1", labels=self.labels, tags=[name], save=lambda chunk_size, named: self.save()
        )

    def save(self) -> Iterator[bytes]:
        self.patience.append(self.api.timeout)
        return self.chunks()

    def load(self, file: Any) -> None:
        self.patience.append(self.api.timeout)
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
    other = Client(recipe, lambda: iter([archive(more=b"made again, and other bytes")]))
    assert export(recipe, tmp_path / "new", other) == entry


def test_an_engine_gets_time_for_a_large_image(recipe: Recipe, tmp_path: Path) -> None:
    client: Any = Client(recipe)
    export(recipe, tmp_path, client)
    folder.load(client, recipe, tmp_path, lambda _: None)
    assert [patience >= 1800 for patience in client.patience] == [True, True]
    assert client.api.timeout == 60


def test_an_image_of_other_inputs_is_no_image_of_these(recipe: Recipe, tmp_path: Path) -> None:
    assert "has no torch-2.13.0-cpu of these inputs" in loaded(recipe, tmp_path)[1]
    export(recipe, tmp_path)
    stale, said = Client(recipe), list[str]()
    stale.labels = {**stale.labels, "dlbench.lock_sha256": "0" * 64}
    assert folder.load(stale, recipe, tmp_path, said.append) is None  # type: ignore[arg-type]
    assert "was built from another lock; remove it, and export it again" in said[-1]
    assert stale.loaded == []


def test_an_image_on_another_base_than_the_one_here_is_not_even_read(recipe: Recipe, tmp_path: Path) -> None:
    entry = export(recipe, tmp_path)
    assert entry.base_id == BASE_ID
    client, said = Client(recipe), list[str]()
    client.base_id = BASE_ID
    assert folder.load(client, recipe, tmp_path, said.append) == "sha256:1"  # type: ignore[arg-type]
    client.loaded.clear()
    client.base_id = "sha256:of this site"
    (tmp_path / f"{entry.sha256}.tar").write_bytes(bytes(entry.bytes))
    assert folder.load(client, recipe, tmp_path, said.append) is None  # type: ignore[arg-type]
    assert "was built on another base image than the one here" in said[-1]
    assert client.loaded == []


def _flip(tar: Path, about: Path) -> None:
    data = bytearray(tar.read_bytes())
    data[3] ^= 1
    tar.write_bytes(data)


def _pipe(tar: Path, about: Path) -> None:
    tar.unlink()
    os.mkfifo(tar)


def _folder(tar: Path, about: Path) -> None:
    tar.unlink()
    tar.mkdir()


def _says(**fields: Any) -> Callable[[Path, Path], None]:
    def change(tar: Path, about: Path) -> None:
        about.write_text(json.dumps(json.loads(about.read_text()) | fields))

    return change


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_flip, r"\.tar is damaged: its sha256 is not its name"),
        (_pipe, r"/[0-9a-f]{64}\.tar cannot be read \(it is no file\)"),
        (_folder, r"/[0-9a-f]{64}\.tar cannot be read \(it is no file\)"),
        (lambda tar, about: tar.write_bytes(b"short"), r"\.tar has 5 bytes and not \d+"),
        (lambda tar, about: tar.unlink(), r"\.json: its file .*\.tar is not there"),
        (lambda tar, about: about.write_bytes(b"\0[[["), r"\.json: "),
        (lambda tar, about: about.write_bytes(b" " * 100_000), r"\.json cannot be read \(it has more than"),
        (_says(sha256="../" * 20), r"\.json: sha256"),
        (_says(sha256="0" * 64), r"\.json: its file .*/0{64}\.tar is not there"),
        (_says(bytes=-1), r"\.json: bytes"),
        (_says(tag="dlbench/other:1"), r"\.json describes another image"),
        (_says(more="x"), r"\.json: more"),
        (_says(**{"x" * 40_000: "x"}), r"\.json: .{200} …: there is no such field"),
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
    if tar.is_dir():
        with pytest.raises(FolderError, match="Is a directory"):
            export(recipe, tmp_path)
        tar.rmdir()
    if "sha256 is not" not in why:  # only a whole reading finds that, and an export reads nothing
        export(recipe, tmp_path)
        assert loaded(recipe, tmp_path)[0] == "sha256:1"


def _tar(content: bytes) -> Callable[[Path], Path]:
    """An exported image that is this, with a description that says so."""

    def make(place: Path) -> Path:
        client = Client(make_recipe(load_catalog()["torch-2.13.0-cpu"]))
        about = folder.description(place, client.recipe)
        export(client.recipe, place)
        sha256 = hashlib.sha256(content).hexdigest()
        _says(sha256=sha256, bytes=len(content))(about, about)
        (place / f"{sha256}.tar").write_bytes(content)
        return place

    return make


def _header(name: str, size: int, kind: bytes) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.GNU_FORMAT)


def _link(name: str, target: str) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry.tobuf()


OTHER = "python:3.11-slim-bookworm"
FOREIGN = [
    (archive(**{"manifest.json": [{"RepoTags": [TAG, OTHER]}]}), "it holds 2 images"),
    (archive(**{"manifest.json": [{"RepoTags": [TAG]}, {"RepoTags": None}]}), "it holds 2 images"),
    (archive(**{"manifest.json": []}), "it holds 0 images"),
    (archive(**{"manifest.json": [{"RepoTags": [OTHER]}]}), f"it names '{OTHER}'"),
    (archive(**{"manifest.json": [{"RepoTags": None}]}), "it names ''"),
    (archive(repositories={"python": {"3.11-slim-bookworm": ID}}), f"it names '{OTHER}'"),
    (
        archive(**{"index.json": {"manifests": [{"annotations": {"io.containerd.image.name": f"docker.io/library/{OTHER}"}}]}}),
        f"it names 'docker.io/library/{OTHER}'",
    ),
    (
        archive(**{"index.json": {"manifests": [{"annotations": {"org.opencontainers.image.ref.name": "latest"}}]}}),
        "it names 'latest'",
    ),
    (archive(**{"./manifest.json": [{"RepoTags": [OTHER]}]}), "manifest.json is there twice"),
    (archive(**{"a/../index.json": {}, "index.json": {}}), "index.json is there twice"),
    (archive(**{"manifest.json": b"[" * 100_000}), "no file of `docker save`"),
    (archive(**{"manifest.json": b" " * (2 << 20)}), "or is no short file"),
    (archive(**{"manifest.json": {"RepoTags": [TAG]}}), "no file of `docker save`"),
    (_link("manifest.json", "elsewhere") + WHOLE, "or is no short file"),
    (_header("x", 8 << 30, tarfile.XHDTYPE) + WHOLE, "its headers are too long"),
    (_header("x", 8 << 30, tarfile.GNUTYPE_LONGNAME) + WHOLE, "its headers are too long"),
    (_header("x", 8 << 30, tarfile.REGTYPE) + WHOLE, "unexpected end of data"),
    (_header("x", 0, tarfile.REGTYPE) * 20_000 + WHOLE, "more than 10000 members"),
    (gzip.compress(WHOLE), "no file of `docker save`"),
    (b"no archive at all, and long enough for a header" * 100, "no file of `docker save`"),
    (WHOLE[:700], "no file of `docker save`"),
    (WHOLE.rstrip(b"\0") + bytes(-len(WHOLE.rstrip(b"\0")) % 512), "its end is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "why"), FOREIGN, ids=[why for _, why in FOREIGN])
def test_what_is_not_this_image_alone_is_not_loaded(recipe: Recipe, tmp_path: Path, content: bytes, why: str) -> None:
    """An engine that loads it would give its image the name of another one, on every node."""
    image_id, said, got = loaded(recipe, _tar(content)(tmp_path))
    assert (image_id, got) == (None, [])
    assert re.search(rf"\.tar is damaged: .*{re.escape(why)}.*; remove it, and export it again", said)


def test_what_the_engine_says_of_a_file_is_handed_on_with_the_remedy(recipe: Recipe, tmp_path: Path) -> None:
    export(recipe, tmp_path)
    client, said = Client(recipe), list[str]()

    def load(file: Any) -> None:
        raise ImageLoadError("write: no space left on device")

    client.load = load  # type: ignore[method-assign]
    assert folder.load(client, recipe, tmp_path, said.append) is None  # type: ignore[arg-type]
    assert re.search(
        r"\.tar could not be loaded \(write: no space left on device\); if the engine's disk is not full, remove it",
        said[-1],
    )


def test_an_archive_of_a_newer_engine_is_one_too() -> None:
    named = {
        "io.containerd.image.name": f"docker.io/{TAG}",
        "org.opencontainers.image.ref.name": TAG.rpartition(":")[2],
    }
    newer = archive(**{"index.json": {"manifests": [{"annotations": named}, {"digest": "sha256:0"}]}, "oci-layout": {}})
    assert folder.why_no_saved_image(io.BytesIO(newer), TAG) is None


@pytest.mark.parametrize(
    "content",
    [WHOLE[:700], WHOLE + b'{"errorDetail":{"message":"no space left on device"}}'],
    ids=["cut", "an error at its end"],
)
def test_an_answer_that_breaks_off_is_no_export(recipe: Recipe, tmp_path: Path, content: bytes) -> None:
    """An engine that fails in the middle has said before that all is well."""
    with pytest.raises(FolderError, match="what the engine gave is damaged"):
        export(recipe, tmp_path, Client(recipe, lambda: iter([content])))
    assert list(tmp_path.iterdir()) == []


def test_an_export_writes_through_no_link_and_into_no_pipe(recipe: Recipe, tmp_path: Path) -> None:
    place, mine = tmp_path / "images", tmp_path / "mine"
    place.mkdir()
    mine.write_text("keep")
    description = folder.description(place, recipe)
    description.symlink_to(mine)
    entry = export(recipe, place)
    assert mine.read_text() == "keep"
    assert loaded(recipe, place)[0] == "sha256:1"
    description.unlink()
    os.mkfifo(description)
    assert export(recipe, place) == entry
    assert loaded(recipe, place)[0] == "sha256:1"
    assert len(list(place.iterdir())) == 2


def test_what_a_killed_exporter_left_goes_and_what_another_one_writes_stays(recipe: Recipe, tmp_path: Path) -> None:
    left, held, other = (tmp_path / name for name in (f".{'a' * 32}.part", f".{'b' * 32}.part", ".rsync.part"))
    for path in (left, held, other):
        path.write_text("half")
    with open(held) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        export(recipe, tmp_path)
    assert [path.exists() for path in (left, held, other)] == [False, True, True]


def test_of_two_exporters_one_writes_the_image(recipe: Recipe, tmp_path: Path) -> None:
    quicker: list[folder.Exported] = []

    def chunks() -> Iterator[bytes]:
        quicker.append(export(recipe, tmp_path))
        yield archive(more=b"other bytes")

    slower: Any = Client(recipe, chunks)
    assert folder.export(slower, recipe, tmp_path) == (quicker[0], False)
    assert len(list(tmp_path.iterdir())) == 2


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


def test_a_description_that_the_disk_cannot_hold_leaves_no_image_that_nobody_knows(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.store, "write_bytes", full)
    with pytest.raises(FolderError, match="make room there"):
        export(recipe, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_a_sentence(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="could not be exported to .*file"):
        export(recipe, tmp_path / "file")
    assert loaded(recipe, tmp_path / "file")[0] is None
