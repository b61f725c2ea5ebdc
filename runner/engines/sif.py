"""SIF files, Apptainer's own form of an image: made of an image of Docker or Podman, or of a file of `runner images export`.

A SIF is one file of the name <image>@<tag of its inputs>+<id of the image it was made of>.sif. It is written under another name and
renamed: it is there whole or not at all. Whoever can write into the folder can put anything into an image.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from runner import paths, trees
from runner.engines.cell_cache import private_folder
from runner.engines.process.venv import alone
from runner.errors import BadFileError, EngineError, naming, system_fault
from runner.images.transfer import folder as exports
from runner.results.on_disk.image_names import SIF

if TYPE_CHECKING:
    from docker import DockerClient

    from runner.images.recipe import Recipe


# Tested with 1.4.5. Older releases lack options that are used here.
_SINCE = "1.4.0"

# In the user's cache folder.
_FOLDER = "sifs"

# The end of a SIF's name has the id of the image that it was made of.
_ID = re.compile(r"\+([0-9a-f]{64})\.sif$")

# gzip, the default, takes three times the CPU time.
_COMPRESSION = "-comp zstd -Xcompression-level 3"

# The last lines of Apptainer say why it made no SIF.
_SHOWN_LINES = 5


def version() -> str:
    """The version of the Apptainer on PATH. Raises EngineError where there is none, or one that is too old."""
    program = shutil.which("apptainer")
    if program is None:
        raise EngineError(
            f"there is no apptainer on PATH; install the package apptainer, {_SINCE} or later (apptainer.org/docs/admin), "
            "or load your cluster's module of it"
        )
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    said = (answer.stdout.split() or [""])[-1]
    try:
        is_old = Version(said.split("-")[0]) < Version(_SINCE)
    except InvalidVersion:
        raise EngineError(f"{program} does not say its version ({(answer.stdout + answer.stderr)[:200]!r})") from None
    if is_old:
        raise EngineError(f"{program} is Apptainer {said}; cells need {_SINCE} or later")
    return said


def own_folder() -> Path:
    """The folder of the SIFs that this user's runs made. Raises EngineError."""
    return private_folder(_FOLDER)


def find(folder: Path, recipe: Recipe, image_id: str | None = None) -> Path | None:
    """The newest SIF of these inputs in a folder, or the one made of the image with this id; None where it has none."""
    sifs = [path for path in folder.glob(f"{recipe.image.name}@{recipe.input_tag}+*.sif") if _ID.search(path.name)]
    if image_id is not None:
        sifs = [path for path in sifs if image_of(path) == image_id]
    return max(sifs, key=lambda path: path.stat().st_mtime, default=None)


def of_other_inputs(folder: Path, name: str) -> list[Path]:
    """The SIFs of the image of this name in a folder where none is of today's inputs."""
    return sorted(path for path in folder.glob(f"{name}@*.sif") if _ID.search(path.name))


def stale(recipes: Mapping[str, Callable[[], Recipe]], every: bool) -> Iterator[tuple[Path, str]]:
    """(SIF, what it is) of those that this user's runs made of these images with other inputs than today's.

    every: also those of images that are not among these. A SIF that a cell runs from may be removed: its process holds it open.
    """
    tags: dict[str, str] = {}
    # A folder that no run made is not made to look into it.
    for path in sorted(own_folder().glob("*.sif")) if (paths.cache_folder() / _FOLDER).exists() else ():
        name, _, rest = path.name.partition("@")
        if not _ID.search(rest):
            continue
        if name in recipes:
            tags[name] = tags.get(name) or recipes[name]().input_tag
            if not rest.startswith(f"{tags[name]}+"):
                yield path, f"{name} of other inputs, {path.stat().st_size / 1e9:.1f} GB"
        elif every:
            yield path, f"an image that the catalog does not have, {path.stat().st_size / 1e9:.1f} GB"


def image_of(sif: Path) -> str:
    """The id of the image that a SIF was made of, by its name."""
    match = _ID.search(sif.name)
    assert match is not None, sif
    return f"sha256:{match[1]}"


def export(client: DockerClient, recipe: Recipe, image_id: str, folder: Path, say: Callable[[str], None]) -> Path:
    """Put a built image into a folder as a SIF, unless it is there. Raises EngineError and FolderError."""
    with _alone(folder, recipe, say):
        if there := find(folder, recipe, image_id):
            return there
        with _beside(folder, recipe) as work:
            entry, _ = exports.export(client, recipe, Path(work))
            return _make(Path(work) / f"{entry.sha256}.tar", recipe, image_id, folder, say)


def unpack(archives: Path, recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Path | None:
    """Make a SIF of the image with these inputs in a folder of exported images; None where it has none. Raises EngineError."""
    exported = exports.find(archives, recipe)
    if exported is None:
        return None
    archive = archives / f"{exported.sha256}.tar"
    with _alone(folder, recipe, say):
        image_id = _id_in(archive)
        return find(folder, recipe, image_id) or _make(archive, recipe, image_id, folder, say)


@contextlib.contextmanager
def _alone(folder: Path, recipe: Recipe, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of an image in a folder, and remove what a killed runner left there of it, which may be gigabytes."""
    with alone(folder / f"{recipe.image.name}@{recipe.input_tag}", say):
        for left in folder.glob(f"{_unfinished(recipe)}*"):
            trees.remove(left)
        yield


def _unfinished(recipe: Recipe) -> str:
    """The beginning of the name of a folder in which a SIF is made."""
    return f".{recipe.image.name}@{recipe.input_tag}-"


def _beside(folder: Path, recipe: Recipe) -> tempfile.TemporaryDirectory[str]:
    """A folder for files of gigabytes, on the disk that the SIF will be on: /tmp may be small."""
    return tempfile.TemporaryDirectory(prefix=_unfinished(recipe), dir=folder)


def _id_in(archive: Path) -> str:
    """The id of the image in a file of `docker save`. Raises EngineError."""
    try:
        with naming(archive), tarfile.open(archive) as tar:
            manifest = tar.extractfile("manifest.json")
            config = str(json.load(manifest)[0]["Config"]) if manifest else ""
    except OSError as error:
        raise EngineError(system_fault(error)) from error
    except (tarfile.TarError, ValueError, LookupError, TypeError):
        config = ""
    if not (match := re.search(r"[0-9a-f]{64}", config)):
        raise EngineError(f"{archive} is no file of `docker save`; remove it, and export the image again")
    return f"sha256:{match[0]}"


def _make(archive: Path, recipe: Recipe, image_id: str, folder: Path, say: Callable[[str], None]) -> Path:
    """Make a SIF of a file of `docker save`. Raises EngineError."""
    final = folder / f"{recipe.image.name}@{recipe.input_tag}+{image_id.removeprefix('sha256:')}.sif"
    say(f"{recipe.image.name}: making a SIF for Apptainer, a minute for each gigabyte")
    with _beside(folder, recipe) as work:
        made = Path(work) / "image.sif"
        # Apptainer's messages are in its standard error. Its cache would keep a second copy of each layer.
        command = ["apptainer", "--quiet", "build", "--disable-cache", "--mksquashfs-args", _COMPRESSION]
        command += [str(made), f"docker-archive:{archive.resolve()}"]
        environment = os.environ | {"APPTAINER_TMPDIR": work}
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
        )
        if ended.returncode != 0:
            last = "\n".join(f"  {line}" for line in ended.stderr.strip().splitlines()[-_SHOWN_LINES:])
            raise EngineError(f"{recipe.image.name}: Apptainer made no SIF in {folder}\n{last}")
        with naming(final):
            made.chmod(0o644)
            made.replace(final)
    return final


# A SIF of no catalog: it is pinned by the digest of its file, and shown the bench, read-only.

# The place of the bench in the container. Nothing else lies there, so nothing else can be imported from it.
FOLDER = "/dlbench"
BIND = f"{paths.BENCH.resolve()}:{FOLDER}/{paths.BENCH.name}:ro"

# How a SIF begins, after the line that starts it as a program.
_MAGIC, _AT = b"SIF_MAGIC", 32


def path_of(address: str) -> Path:
    """The file of an address."""
    return Path(address.removeprefix(SIF)).expanduser().absolute()


def pin(address: str) -> str:
    """The digest of a SIF. Raises EngineError where the file is none: BadFileError."""
    path = path_of(address)
    if path.exists() and not path.is_file():
        raise BadFileError(f"{path} is no file; name a file that `apptainer build` made")
    try:
        # A file of gigabytes is read once, unless it changes.
        return _digest(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise BadFileError(
            f"{path} cannot be read ({error.strerror}); name a file that `apptainer build` made"
        ) from None


@functools.cache
def _digest(path: Path, _changed: int) -> str:
    with path.open("rb") as file:
        if file.read(_AT + len(_MAGIC))[_AT:] != _MAGIC:
            raise BadFileError(f"{path} is no SIF; `apptainer build FILE.sif SOURCE` makes one")
        file.seek(0)
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
