"""The one writer of pins: an image's locks as of a date, and the digests of base images.

uv resolves for x86_64, and the seal says on which other architectures the lock holds (runner/catalog/architectures.py). An architecture
that requirements.in asks other packages for has a lock of its own, requirements.ARCHITECTURE.lock. Wheels only:
nothing is built while an image is, save what `source_builds` names, whose pins go into a second file, sources.lock. The date makes it
repeatable: what was uploaded later does not exist. A lock holds names, versions and hashes; no index, no host, no path of
the machine that made it.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import os
import re
import struct
import subprocess
import urllib.request
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import IO, TYPE_CHECKING

from packaging.utils import canonicalize_name

from runner.catalog.architectures import (
    ARCHITECTURES,
    SEALED_ARCHITECTURES,
    X86_64,
    Architecture,
    sealed,
    with_own_lock,
)
from runner.catalog.images import BASES, CatalogError, Image, read_bases, read_pins, requirements_digest
from runner.errors import ExitCode, UserError, naming
from runner.images import lock_facts
from runner.known_messages import is_of_the_host
from runner.paths import find_program
from runner.results import store

if TYPE_CHECKING:
    from docker import DockerClient


# Reads which machines the shared libraries of a wheel are for, from its index, by ranges: the wheels of all GPU images are 40 GB.

_BLOCK = 1 << 24
_TIMEOUT_S = 60


class _RemoteFile(io.RawIOBase):
    """A file behind an address, which is read by ranges of at least 64 KiB."""

    def __init__(self, url: str) -> None:
        self._url = url
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            self._size = int(answer.headers["Content-Length"])
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        request = urllib.request.Request(self._url, headers={"Range": f"bytes={self._at}-{end - 1}"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            if answer.status != 206:
                raise OSError(f"{self._url} is not given by ranges")
            try:
                data = answer.read()
            except http.client.HTTPException as error:
                # An index that ends in the middle of an answer; this exception is none of the system's.
                raise OSError(f"{self._url}: its answer was cut off: {error}") from None
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@functools.cache
def machines(url: str) -> frozenset[int]:
    """The machines (e_machine of ELF) that the shared libraries of a wheel are for. Raises OSError, zipfile.BadZipFile."""
    heads = (member.read(20) for member in _libraries(url))
    return frozenset(struct.unpack_from("<H", head, 18)[0] for head in heads if head[:4] == b"\x7fELF")


def _libraries(url: str) -> Iterator[IO[bytes]]:
    """Each file of a wheel that is named as a shared library, opened."""
    local = urllib.request.url2pathname(url[len("file://") :]) if url.startswith("file:") else None
    source: IO[bytes] = io.FileIO(local) if local else io.BufferedReader(_RemoteFile(url), _BLOCK)
    with source, zipfile.ZipFile(source) as wheel:
        for name in wheel.namelist():
            if ".so" in name.rpartition("/")[2]:
                with wheel.open(name) as member:
                    yield member


# Old source archives need pkg_resources to tell their requirements; newer setuptools lack it.
_BUILD_CONSTRAINTS = "setuptools<81\n"


class LockError(UserError):
    """A lock that could not be made; the message says why and what to do."""


class UnresolvableError(LockError):
    """Requirements that no set of packages fulfils."""


class NotAskedError(LockError):
    """The package index does not answer, or this machine has no room or no program to ask it."""

    exit_code = ExitCode.CANNOT_BEGIN


# uv exits with 1 where there is no solution, and with 2 where it could not ask.
_NO_SOLUTION = 1
_SILENT = "error sending request"


def make_lock(image: Image, day: date, say: Callable[[str], None]) -> Path:
    """Write the image's locks as of a day, and what follows from them into image.toml: all or none of it. The lock's path.

    Raises LockError.
    """
    with _all_or_none(image.folder):
        _make_locks(image, day, say)
    return image.lock_path


@contextlib.contextmanager
def _all_or_none(folder: Path) -> Iterator[None]:
    """Puts the files of a folder back as they were if the block fails: locks of two days would differ in more than the architecture."""
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    try:
        yield
    except BaseException:
        for path in folder.iterdir():
            if path.is_file() and path not in before:
                path.unlink()
        for path, content in before.items():
            if not path.is_file() or path.read_bytes() != content:
                store.write_bytes(path, content)
        raise


def _make_locks(image: Image, day: date, say: Callable[[str], None]) -> None:
    say(f"resolving {image.name} as of {day}")
    version = subprocess.run([_uv(), "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    requirements = image.folder / "requirements.in"
    wheels, sources = split_pins(resolve(image, requirements, day, say), image.source_builds)
    _write_lock(image.lock_path, lock_text(image, day, version, wheels))
    if sources:
        _write_lock(image.sources_path, lock_text(image, day, version, sources))
    else:
        image.sources_path.unlink(missing_ok=True)
    for path in image.other_locks:
        path.unlink()
        path.with_suffix(".seal").unlink(missing_ok=True)
    image = write_facts(image, day, say)
    for architecture in with_own_lock(image):
        say(f"resolving {image.name} for {architecture.name}")
        _make_own_lock(image.on(architecture.name), architecture, day, version, say)


def _make_own_lock(
    image: Image, architecture: Architecture, day: date, version: str, say: Callable[[str], None]
) -> None:
    """Write the lock of the image's architecture, and its seal. `version`: of uv. Raises LockError."""
    platform = ("--python-platform", architecture.uv)
    requirements, options = image.folder / "requirements.in", ("--generate-hashes",)
    try:
        # The same versions where both have them: what is measured on two machines should differ in nothing else.
        same = (*options, "--constraint", str(image.on("").lock_path))
        resolved = resolve(image, requirements, day, say, same, platform)
    except UnresolvableError:
        resolved = resolve(image, requirements, day, say, options, platform)
    wheels, _ = split_pins(resolved, image.source_builds)
    _write_lock(image.own_lock_path, lock_text(image, day, version, wheels, architecture))
    write_seal(image, sizes={}, elsewhere=_on(architecture, image, day, say, pylock(image, day, say)))


def resolve(
    image: Image,
    requirements: Path,
    day: date,
    say: Callable[[str], None],
    options: Sequence[str] = ("--generate-hashes",),
    platform: Sequence[str] = ("--python-platform", X86_64.uv),
) -> str:
    """The output of uv for these requirements, for the image's Python, as of a day. Raises LockError, UnresolvableError."""
    constraints = image.folder / "build-constraints.part"
    command = [
        *(_uv(), "pip", "compile", "--quiet", "--no-config", "--no-python-downloads", "--no-header", "--no-annotate"),
        *("--only-binary", ":all:", *platform, "--python-version", image.python),
        *(word for name in image.source_builds for word in ("--no-binary", name)),
        *("--build-constraints", str(constraints)),
        *("--exclude-newer", day.isoformat(), *_site_options(), *options, str(requirements)),
    ]
    with naming(constraints):
        constraints.write_text(_BUILD_CONSTRAINTS, encoding="utf-8")
    try:
        ended = _run(command)
        if ended.returncode and image.extra_index:
            say(f"once more with {image.extra_index}")
            ended = _run([*command, "--extra-index-url", image.extra_index, "--index-strategy", "unsafe-best-match"])
    finally:
        constraints.unlink()
    if ended.returncode:
        kind = UnresolvableError if ended.returncode == _NO_SOLUTION else LockError
        kind = NotAskedError if _SILENT in ended.stderr or is_of_the_host(ended.stderr) else kind
        raise kind(f"{requirements} cannot be resolved as of {day}:\n{ended.stderr.strip()}")
    return ended.stdout


def write_facts(image: Image, day: date, say: Callable[[str], None]) -> Image:
    """Write what the image's lock holds into image.toml, and the seal beside it. The image as it is then. Raises LockError."""
    toml = image.folder / "image.toml"
    pins = {pin.name: pin.version for path in image.locks for pin in read_pins(path)}
    pins_as_files = pylock(image, day, say)
    sizes = {pin: file.size for pin, file in lock_facts.files(pins_as_files, image.python).items()}
    size = lock_facts.download_gb(sizes)
    if size is None:
        say(f"{image.name}: the index does not say what the files weigh; download_gb stays")
    fields = lock_facts.locked_facts(image, pins, day) | ({} if size is None else {"download_gb": size})
    _rewrite(toml, lock_facts.with_fields(toml.read_text(encoding="utf-8"), fields))
    own = with_own_lock(image)
    elsewhere = [
        line
        for architecture in ARCHITECTURES.values()
        if architecture != X86_64 and architecture not in own
        for line in _on(architecture, image, day, say, pins_as_files)
    ]
    image = image if size is None else image.model_copy(update={"download_gb": size})
    write_seal(image, sizes, elsewhere)
    return image


def _on(architecture: Architecture, image: Image, day: date, say: Callable[[str], None], pylock: str) -> list[str]:
    """The lines of the seal that show whether the lock holds on an architecture. Raises LockError."""
    hashes = {f"{pin.name}=={pin.version}": pin.hashes for path in image.locks for pin in read_pins(path)}
    files = lock_facts.files(pylock, image.python, architecture)
    found = {pin: file for pin, file in files.items() if file.sha256 in hashes[pin]}
    # Wheels are read only where this can still hold.
    if len(found) == len(hashes):
        found = {pin: file for pin, file in found.items() if _is_for(architecture, file, say)}
    asked = functools.partial(_asked, image, day, say, architecture)
    names = {pin: (lock_facts.file_name(file.address), file.sha256) for pin, file in found.items()}
    return list(sealed(architecture, {pin: names.get(pin) for pin in hashes}, asked))


def _is_for(architecture: Architecture, file: lock_facts.LockedFile, say: Callable[[str], None]) -> bool:
    """False for a wheel that is tagged for any machine and holds libraries of another one, and for one that cannot be read."""
    if not file.address.endswith("-any.whl"):
        return True
    try:
        return machines(file.address) <= {architecture.elf}
    except (OSError, zipfile.BadZipFile) as error:
        name = lock_facts.file_name(file.address)
        say(f"{name} could not be read ({error}): it counts as no wheel for {architecture.name}")
        return False


def _asked(image: Image, day: date, say: Callable[[str], None], architecture: Architecture) -> list[str]:
    """The packages that requirements.in asks for on an architecture, at the versions of the lock. Raises LockError."""
    options = [word for path in image.locks for word in ("--constraint", str(path))]
    platform = ("--python-platform", architecture.uv)
    resolved = resolve(image, image.folder / "requirements.in", day, say, options, platform)
    return [canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", resolved, flags=re.M)]


def pylock(image: Image, day: date, say: Callable[[str], None]) -> str:
    """The image's locks as a pylock.toml (PEP 751): the address and the size of each file, for every machine. Raises LockError."""
    pins = image.folder / "pins.part"
    with naming(pins):
        pins.write_text("".join(path.read_text(encoding="utf-8") for path in image.locks), encoding="utf-8")
    try:
        return resolve(image, pins, day, say, ("--no-deps", "--format", "pylock.toml"), ("--universal",))
    finally:
        pins.unlink()


def split_pins(resolved: str, source_builds: Collection[str]) -> tuple[str, str]:
    """uv's pins in two: what is installed from wheels, and what is built. A pin begins at a line's start."""
    named = {canonicalize_name(name) for name in source_builds}
    parts: tuple[list[str], list[str]] = ([], [])
    for pin in re.split(r"^(?=\S)", resolved, flags=re.M):
        parts[canonicalize_name(re.split(r"[=\s;]", pin, maxsplit=1)[0]) in named].append(pin)
    return "".join(parts[0]), "".join(parts[1])


def _write_lock(path: Path, text: str) -> None:
    """Write a lock whole, once it has been read back. Raises LockError."""
    aside = path.with_suffix(".part")
    try:
        with naming(aside):
            aside.write_text(text, encoding="utf-8")
        read_pins(aside)
        aside.replace(path)
    except CatalogError as error:
        raise LockError(str(error)) from None
    finally:
        aside.unlink(missing_ok=True)


def write_seal(
    image: Image,
    sizes: Mapping[str, int | None] | None = None,
    elsewhere: Sequence[str] | None = None,
) -> None:
    """Write digests of requirements.in and of each pin beside the locks, and what they weigh, for `runner images check`.

    `elsewhere` has the lines of other architectures. Other fields stay as image.toml and the seal have them.
    """
    sizes = lock_facts.wheel_bytes(image) if sizes is None else sizes
    if elsewhere is None:
        before = image.seal_path.read_text(encoding="utf-8") if image.seal_path.is_file() else ""
        elsewhere = [line for line in before.splitlines() if line.startswith(SEALED_ARCHITECTURES)]
    pins = [pin for path in image.locks for pin in read_pins(path)]
    lines = [
        f"# Made with the lock of {image.name}; `runner images check` holds requirements.in and every pin against it.",
        f"requirements.in {requirements_digest(image.folder / 'requirements.in')}",
        lock_facts.sealed_size(image.download_gb),
        *(f"{pin.name}=={pin.version} {pin.seal}" for pin in pins),
        *lock_facts.sealed_wheels(sizes),
        *elsewhere,
    ]
    store.write_bytes(image.seal_path, ("\n".join(lines) + "\n").encode())


def pin_base(image: Image, client: DockerClient) -> str:
    """Ask the registry for the digests of the tags that the image stands on, and write them into bases.toml. Raises LockError.

    Returns the digest of the base image. An image of Julia's stands on Julia's as well.
    """
    names = [image.base, *([image.julia.partition("@")[0]] if image.julia else [])]
    digests = {name: _ask_digest(image, name, client) for name in names}
    path = image.folder.parent / BASES
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    comments = [line for line in text.splitlines() if line.startswith("#")]
    bases = read_bases(path.parent) | digests
    lines = [*comments, *(f'"{name}" = "{digest}"' for name, digest in sorted(bases.items()))]
    store.write_bytes(path, ("\n".join(lines) + "\n").encode())
    return digests[image.base]


def _ask_digest(image: Image, name: str, client: DockerClient) -> str:
    from runner.images.docker_client import DockerError, registry_digest

    try:
        return registry_digest(client, name)
    except DockerError as error:
        raise LockError(f"{image.name}: the registry of {name} does not tell its digest: {error.said}") from error


def pin_published(image: Image, reference: str) -> None:
    """Write registry/name@digest of the built image into image.toml."""
    toml = image.folder / "image.toml"
    text = re.sub(r"^published\s*=.*\n", "", toml.read_text(encoding="utf-8"), flags=re.M)
    _rewrite(toml, re.sub(r"^(base\s*=.*)$", rf'\1\npublished = "{reference}"', text, flags=re.M))


def lock_text(image: Image, day: date, uv_version: str, resolved: str, architecture: Architecture = X86_64) -> str:
    """The lock file's text: a header that says how to make it again, and uv's pins without its options and comments."""
    pins = [
        line
        for line in resolved.splitlines()
        if line.strip() and not line.lstrip().startswith("#") and not re.match(r"--?\w", line)
    ]
    header = (
        f"# Made by `runner images lock {image.name} --date {day}` with uv {uv_version} "
        f"for Python {image.python}, {architecture.uv}.\n"
        "# Do not edit: change requirements.in and make it again.\n"
    )
    return header + "\n".join(pins) + "\n"


def _uv() -> str:
    """The program that resolves. Raises NotAskedError."""
    if uv := find_program("uv"):
        return uv
    raise NotAskedError("locks are made by uv, which is not here; `pip install uv`")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _site_options() -> list[str]:
    """The site's own package sources, as pip knows them in the environment: uv does not read pip's settings."""
    options: list[str] = []
    for variable, option in (
        ("PIP_FIND_LINKS", "--find-links"),
        ("PIP_INDEX_URL", "--default-index"),
        ("PIP_EXTRA_INDEX_URL", "--extra-index-url"),
    ):
        for value in os.environ.get(variable, "").split():
            options += [option, value]
    return options


def _rewrite(path: Path, text: str) -> None:
    if text != path.read_text(encoding="utf-8"):
        store.write_bytes(path, text.encode())
