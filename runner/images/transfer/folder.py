"""Built images in a folder that several machines see: one machine exports them, and the nodes load them without a registry.

An image is two files: <name>@<tag of its inputs>.json says what it is, and <sha256>.tar is what `docker save` gives. The first is
written last, under another name, and renamed: an image is there whole or not at all. Whoever can write into the folder can put
anything into an image: the sums find damage, and no forger.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.errors import UserError, first_problem
from runner.images.docker_client import DockerError, asking, find_image, find_images
from runner.images.transfer.registry import other_inputs
from runner.results import store
from runner.text import visible

if TYPE_CHECKING:
    from docker import DockerClient

    from runner.images.recipe import Recipe

# A description has four short fields.
_MOST_BYTES = 64 << 10
_CHUNK_BYTES = 4 << 20


class FolderError(UserError):
    """A folder that an image cannot be exported to, or an image in it that cannot be used; the message says which, and what to do."""


class Exported(BaseModel):
    """What the description of an image says."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    image: str
    tag: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(gt=0, lt=2**63)


def description(folder: Path, recipe: Recipe) -> Path:
    """The file that describes the image of just these inputs, be it there or not."""
    return folder / f"{recipe.image.name}@{recipe.input_tag}.json"


def find(folder: Path, recipe: Recipe) -> Exported | None:
    """What the folder has of the image with these inputs; None where it has none. Raises FolderError for one that cannot be used."""
    path = description(folder, recipe)
    try:
        found = Exported.model_validate_json(store.read_bytes(path, _MOST_BYTES))
        with _opened(folder / f"{found.sha256}.tar") as file:
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError as error:
        if error.filename == str(path):
            return None
        raise FolderError(f"{path}: its file {error.filename} is not there; {_again(recipe)}") from None
    except OSError as error:
        raise FolderError(f"{error.filename or path} cannot be read ({error.strerror}); {_again(recipe)}") from None
    except ValidationError as error:
        raise FolderError(f"{path}: {first_problem(error)}; {_again(recipe)}") from None
    if (found.image, found.tag) != (recipe.image.name, recipe.tag):
        said = visible(f"{found.image}, {found.tag}", 200)
        raise FolderError(f"{path} describes another image ({said}); {_again(recipe)}")
    if size != found.bytes:
        raise FolderError(f"{folder / found.sha256}.tar has {size} bytes and not {found.bytes}; {_again(recipe)}")
    return found


def _again(recipe: Recipe) -> str:
    """How a broken image in a folder is put right."""
    return f"remove it, and export it again: `runner images export {recipe.image.name} --to FOLDER`"


def export(client: DockerClient, recipe: Recipe, folder: Path) -> tuple[Exported, bool]:
    """Put a built image into the folder, and say whether it was not there yet. Raises FolderError and DockerError."""
    if there := _usable(folder, recipe):
        return there, False
    aside = folder / f".{uuid.uuid4().hex}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sha256, size = _save(client, recipe, aside)
        aside.replace(folder / f"{sha256}.tar")
        entry = Exported(image=recipe.image.name, tag=recipe.tag, sha256=sha256, bytes=size)
        store.write_bytes(description(folder, recipe), entry.model_dump_json(indent=2).encode() + b"\n")
    except OSError as error:
        why = f"{recipe.image.name} could not be exported to {folder} ({error.strerror})"
        raise FolderError(f"{why}; make room there, or name another folder with --to") from None
    finally:
        # Also after Ctrl-C: half an image is of no use.
        with contextlib.suppress(OSError):
            aside.unlink()
    return entry, True


def _usable(folder: Path, recipe: Recipe) -> Exported | None:
    """The image in the folder, if it can be used: one that cannot is exported again."""
    try:
        return find(folder, recipe)
    except FolderError:
        return None


def _save(client: DockerClient, recipe: Recipe, path: Path) -> tuple[str, int]:
    """Write the image to a file; returns its sha256 and its bytes."""
    attempt, sha256 = f"{recipe.image.name} could not be exported", hashlib.sha256()
    with open(path, "xb") as file:
        with asking(attempt):
            chunks = iter(client.images.get(recipe.tag).save(chunk_size=_CHUNK_BYTES, named=recipe.tag))
        # What the disk says is no error of the engine.
        while chunk := _next(chunks, attempt):
            sha256.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        return sha256.hexdigest(), file.tell()


def _next(chunks: Iterator[bytes], attempt: str) -> bytes:
    with asking(attempt):
        return next(chunks, b"")


def load(client: DockerClient, recipe: Recipe, folder: Path, say: Callable[[str], None]) -> str | None:
    """Load the image with these inputs from the folder, and return its id; None, and why, where another source must be asked."""
    name = recipe.image.name
    try:
        found = find(folder, recipe)
        if found is None:
            say(f"{folder} has no {name} of these inputs ({description(folder, recipe).name})")
            return None
        path = folder / f"{found.sha256}.tar"
        say(f"loading {name} from {folder}: {found.bytes / 1e9:.2f} GB")
        with _opened(path) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != found.sha256:
                say(f"{path} is damaged: its sha256 is not its name; {_again(recipe)}")
                return None
            file.seek(0)
            with asking(f"{path} could not be loaded"):
                client.images.load(file)
        return _loaded(client, recipe, path, say)
    except OSError as error:
        say(f"{error.filename or folder} cannot be read ({error.strerror}); {_again(recipe)}")
    except (FolderError, DockerError) as error:
        say(str(error))
    return None


def _loaded(client: DockerClient, recipe: Recipe, path: Path, say: Callable[[str], None]) -> str | None:
    """The id of what was loaded; None, and why, where that is another image than the file's description says."""
    image = find_image(client, recipe.tag)
    if image is None:
        say(f"{path} holds no {recipe.tag}; {_again(recipe)}")
        return None
    other = other_inputs(image.labels, recipe)
    base_id = find_images(client, recipe.base).id_of(recipe.base)
    if base_id is not None and image.labels.get("dlbench.base_id") != base_id:
        other.append("another base image than the one here")
    if not other:
        return str(image.id)
    say(f"{path} was built from {' and '.join(other)}")
    with asking(f"{recipe.tag} could not be removed"):
        client.images.remove(recipe.tag, noprune=False)
    return None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """A file to be read. Raises OSError where it is none: a pipe may never be written to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(22, "it is no file", str(path))
        yield file
