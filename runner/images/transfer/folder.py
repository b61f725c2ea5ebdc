"""Built images in a folder that several machines see: one machine exports them, and the nodes load them without a registry.

An image is two files: <name>@<tag of its inputs>.json describes it, and <sha256>.tar is the output of `docker save`. The first is
written last, under another name, and renamed: an image is there whole or not at all. Whoever can write into the folder can put
anything into an image: checksums detect damage, not forgery. A file can only load the image that it is named for.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import posixpath
import re
import stat
import tarfile
import uuid
from collections.abc import Callable, Iterator
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from runner.errors import UserError, first_problem
from runner.images.docker_client import DockerError, Listing, asking, find_image, find_images, patient
from runner.images.transfer.registry import other_inputs
from runner.results import store
from runner.text import visible

if TYPE_CHECKING:
    from docker import DockerClient

    from runner.images.recipe import Recipe


# The names in a file of `docker save`, read before an engine loads it: an engine gives an image every name of such a file.
#
# Without a look, a file that says that it is one image could also take the name of another, or of a base image, on every node. The file
# may come from anybody: each read is bounded, and its members are passed over.

# A manifest is a line a layer.
_MOST_LIST_BYTES = 1 << 20
# A long name is a member of its own, which is read at once.
_MOST_NAME_BYTES = 64 << 10
# An image has some 130 layers at most, of four members each.
_MOST_MEMBERS = 10_000
_MOST_HEADER_BYTES = 16 << 20
# A whole archive ends with two empty blocks.
_END = bytes(2 * tarfile.BLOCKSIZE)


class _Image(BaseModel):
    names: list[str] | None = Field(None, alias="RepoTags")


class _Entry(BaseModel):
    annotations: dict[str, str] | None = None


class _Index(BaseModel):
    manifests: list[_Entry]


_MANIFEST = TypeAdapter(list[_Image])
_REPOSITORIES = TypeAdapter(dict[str, dict[str, str]])

# Engines with containerd's image store name images by the last one.
_LISTS = ("manifest.json", "repositories", "index.json")
_NAME, _REFERENCE = "io.containerd.image.name", "org.opencontainers.image.ref.name"


class _Bounded:
    """A file with a limit on its reads: a header can say that gigabytes of names follow."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, _MOST_HEADER_BYTES
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        self._left -= size
        if not 0 <= size <= _MOST_NAME_BYTES or self._left < 0:
            raise tarfile.ReadError("its headers are too long")
        return self._file.read(size)


def why_no_saved_image(file: BinaryIO, tag: str) -> str | None:
    """Why this is not a whole file of `docker save` of the image `tag` alone; None where it is one."""
    try:
        lists = _lists(file)
        if "manifest.json" not in lists:
            return "it is no file of `docker save`"
        names = [name for image in _MANIFEST.validate_json(lists["manifest.json"]) for name in image.names or [""]]
        if len(names) != 1:
            return f"it holds {len(names)} images or names of images instead of one"
        others = {*names, *_further_names(lists, tag)} - {tag, f"docker.io/{tag}"}
    except (tarfile.TarError, ValidationError, ValueError, OverflowError) as error:
        # A message of pydantic has many lines.
        reason = f" ({error})" if isinstance(error, tarfile.TarError) else ""
        return f"it is no file of `docker save`{reason}"
    if others:
        return f"it names {sorted(others)[0][:200]!r}, and not {tag} alone"
    return None if _ends(file) else "its end is missing"


def _lists(file: BinaryIO) -> dict[str, bytes]:
    """The files in the archive that say what its images are called. Raises TarError, also where one of them is there twice."""
    found: dict[str, bytes] = {}
    file.seek(0)
    # Another reader may take the first or the last of two, or follow a link.
    with tarfile.open(fileobj=_Bounded(file), mode="r:") as archive:  # type: ignore[call-overload]
        for member in _members(archive):
            name = posixpath.normpath(f"/{member.name}").lstrip("/")
            if name not in _LISTS:
                continue
            plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
            if name in found or not plain or member.size > _MOST_LIST_BYTES:
                raise tarfile.ReadError(f"{name} is there twice, or is no short file")
            file.seek(member.offset_data)
            found[name] = file.read(member.size)
    return found


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for _ in range(_MOST_MEMBERS):
        member = archive.next()
        if member is None:
            return
        yield member
    raise tarfile.ReadError(f"it has more than {_MOST_MEMBERS} members")


def _further_names(lists: dict[str, bytes], tag: str) -> Iterator[str]:
    """The images' names in the two other lists, in full."""
    repository, _, short = tag.rpartition(":")
    if "repositories" in lists:
        for name, tags in _REPOSITORIES.validate_json(lists["repositories"]).items():
            yield from (f"{name}:{each}" for each in tags)
    if "index.json" in lists:
        for entry in _Index.model_validate_json(lists["index.json"]).manifests:
            annotations = entry.annotations or {}
            if _NAME in annotations:
                yield annotations[_NAME]
            if _REFERENCE in annotations:
                reference = annotations[_REFERENCE]
                yield f"{repository}:{reference}" if reference == short else reference


def _ends(file: BinaryIO) -> bool:
    """True if the archive has its end: an engine that breaks off its answer has status 200 all the same."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - len(_END)))
    return file.read(len(_END)) == _END


# A description has five short fields.
_MOST_BYTES = 64 << 10
_CHUNK_BYTES = 4 << 20
# The name of an unfinished export.
_PART = re.compile(r"\.[0-9a-f]{32}\.part")
_OTHER_BASE = "another base image than the one here"


class FolderError(UserError):
    """A folder that an image cannot be exported to, or an image in it that cannot be used; the message says which, and what to do."""


class Exported(BaseModel):
    """The description of an image."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    image: str
    tag: str
    # The id of the base image that it was built on.
    base_id: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(gt=0, lt=2**63)


def description(folder: Path, recipe: Recipe) -> Path:
    """The file that describes the image of just these inputs, be it there or not."""
    return folder / f"{recipe.image.name}@{recipe.input_tag}.json"


def find(folder: Path, recipe: Recipe) -> Exported | None:
    """The image with these inputs in the folder; None if it has none. Raises FolderError for one that cannot be used."""
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


def base_here(images: Listing, recipe: Recipe, base_id: str | None) -> bool:
    """True if an image built on the base image with this id fits the one here. Without one here, every image does."""
    return (here := images.id_of(recipe.base)) is None or here == base_id


def export(client: DockerClient, recipe: Recipe, folder: Path) -> tuple[Exported, bool]:
    """Put a built image into the folder, and say whether it was not there yet. Raises FolderError and DockerError."""
    if there := _usable(folder, recipe):
        return there, False
    name, aside = recipe.image.name, folder / f".{uuid.uuid4().hex}.part"
    about = aside.with_name(f"{aside.name}.json")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_left(folder)
        with open(aside, "x+b") as file:
            _lock(file)
            base_id, sha256 = _save(client, recipe, file)
            if why := why_no_saved_image(file, recipe.tag):
                raise FolderError(f"{name} could not be exported: what the engine gave is damaged ({why}); try again")
            entry = Exported(
                image=name, tag=recipe.tag, base_id=base_id, sha256=sha256, bytes=file.seek(0, os.SEEK_END)
            )
            if there := _usable(folder, recipe):
                # Another exporter was quicker.
                return there, False
            # Under a name of its own first: what has the name already may be a link to elsewhere, and the disk may be full now.
            store.write_bytes(about, entry.model_dump_json(indent=2).encode() + b"\n")
            aside.replace(folder / f"{sha256}.tar")
            about.replace(description(folder, recipe))
    except OSError as error:
        why = f"{name} could not be exported to {folder} ({error.strerror})"
        raise FolderError(f"{why}; make room there, or name another folder with --to") from None
    finally:
        # Also after Ctrl-C: half an image is of no use.
        for path in (aside, about):
            with contextlib.suppress(OSError):
                path.unlink()
    return entry, True


def _remove_left(folder: Path) -> None:
    """Remove what killed exporters left: each held a lock on its file as long as it lived."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if _PART.fullmatch(path.name):
                # A disk without locks gives no lock to this one either, and the file stays.
                with open(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW), "r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()


def _lock(file: BufferedRandom) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _usable(folder: Path, recipe: Recipe) -> Exported | None:
    """The image in the folder, if it can be used: one that cannot is exported again."""
    try:
        return find(folder, recipe)
    except FolderError:
        return None


def _save(client: DockerClient, recipe: Recipe, file: BufferedRandom) -> tuple[str, str]:
    """Write the image into a file; returns the id of the image's base, and the sha256 of the file."""
    attempt, sha256 = f"{recipe.image.name} could not be exported", hashlib.sha256()
    with patient(client), asking(attempt):
        image = client.images.get(recipe.tag)
        chunks = iter(image.save(chunk_size=_CHUNK_BYTES, named=recipe.tag))
    # An error of the disk is no error of the engine.
    while chunk := _next(chunks, attempt):
        sha256.update(chunk)
        file.write(chunk)
    file.flush()
    os.fsync(file.fileno())
    return str(image.labels.get("dlbench.base_id")), sha256.hexdigest()


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
        if not base_here(find_images(client, recipe.base), recipe, found.base_id):
            say(f"{path} was built on {_OTHER_BASE}; {_again(recipe)}")
            return None
        say(f"loading {name} from {folder}: {found.bytes / 1e9:.2f} GB")
        with _opened(path) as file:
            if why := _damage(file, found):
                say(f"{path} is damaged: {why}; {_again(recipe)}")
                return None
            file.seek(0)
            _hand_over(client, file, path, recipe)
        return _loaded(client, recipe, path, say)
    except OSError as error:
        say(f"{error.filename or folder} cannot be read ({error.strerror}); {_again(recipe)}")
    except (FolderError, DockerError) as error:
        say(str(error))
    return None


def _damage(file: BufferedReader, found: Exported) -> str | None:
    if hashlib.file_digest(file, "sha256").hexdigest() != found.sha256:
        return "its sha256 is not its name"
    return why_no_saved_image(file, found.tag)


def _hand_over(client: DockerClient, file: BufferedReader, path: Path, recipe: Recipe) -> None:
    """Let the engine load the file. Raises FolderError where it does not."""
    try:
        with patient(client), asking():
            client.images.load(file)
    except DockerError as error:
        why = f"{path} could not be loaded ({error.said})"
        raise FolderError(f"{why}; if the engine's disk is not full, {_again(recipe)}") from None


def _loaded(client: DockerClient, recipe: Recipe, path: Path, say: Callable[[str], None]) -> str | None:
    """The id of what was loaded; None, and why, where that is another image than the file's description says."""
    image = find_image(client, recipe.tag)
    if image is None:
        say(f"{path} holds no {recipe.tag}; {_again(recipe)}")
        return None
    other = other_inputs(image.labels, recipe)
    if not base_here(find_images(client, recipe.base), recipe, image.labels.get("dlbench.base_id")):
        other.append(_OTHER_BASE)
    if not other:
        return str(image.id)
    say(f"{path} was built from {' and '.join(other)}; {_again(recipe)}")
    with asking(f"{recipe.tag} could not be removed"):
        client.images.remove(recipe.tag, noprune=False)
    return None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """A file to be read. Raises OSError where it is none: a pipe may never be written to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(22, "it is no file", str(path))
    with open(descriptor, "rb") as file:
        yield file
