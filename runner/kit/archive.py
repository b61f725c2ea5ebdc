"""Reads the archive of a kit, or of a shared run. It comes from another machine, so the content is untrusted: names, sizes, digests and
fields are checked."""

from __future__ import annotations

import gzip
import hashlib
import io
import posixpath
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import Field, ValidationError, field_validator

from runner.errors import first_problem
from runner.kit.results_folder import FACTS, MANIFEST, VERSION, path_of
from runner.kit.shared_run import CpuFacts, GpuFacts, RunFacts
from runner.kit.steps import KitStep
from runner.machine.devices import Refused
from runner.plan.combination import Skip
from runner.results import parcel, store
from runner.results.untrusted import Hash, Text, UntrustedError, document, shown_as_it_is
from runner.results.validate import Frozen, Moment

# Of the whole archive when it is unpacked, and of the number of its files.
MOST_BYTES = 512 * 2**20
MOST_FILES = 20_000
# Of a file that is no parcel: facts.json and the manifest have entries for MOST_FILES at most.
_MOST_JSON_BYTES = 16 * 2**20

# A small archive unpacks to little: a parcel is packed already. Every archive may have the least, and the least of a file that is no
# parcel, which is the plan of some thousand steps.
_UNPACKS_TO, _LEAST_UNPACKED_BYTES, _LEAST_JSON_BYTES = 20, 16 * 2**20, 2 * 2**20

# The values that an option of a kit may have.
_MOST_OF_AN_OPTION = 1000

# An archive that somebody unpacked and packed again may have its files in one folder, and `./` before their names. The manifest's digests
# say what they are.
_NAME = re.compile(
    r"(?:\./)?([^/.][^/]{0,150}/)??"
    rf"({re.escape(FACTS)}|{re.escape(MANIFEST)}|steps/[a-z][a-z0-9_.@-]{{0,250}}{re.escape(parcel.ENDING)})"
)


class ArchiveError(UntrustedError):
    """An archive that cannot be imported; the message names it and says why."""


class OtherReleaseError(ArchiveError):
    """An archive of a kit of another release, whose files have another form."""


_FileName = Annotated[str, Field(pattern=r"^[^/.\x00-\x1f][^/\x00-\x1f]{0,99}$")]
_FileText = Annotated[str, Field(max_length=1 << 20, pattern=r"^[\x00-\xff]*$")]


class Packages(Frozen):
    """The packages of the interpreter that was measured."""

    python: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+", max_length=60)]
    path: Annotated[str, Field(max_length=4096)]
    installed: Annotated[tuple[Text, ...], Field(max_length=20_000)]
    machine: Text = ""  # its architecture; older kits do not say it


class KitFacts(Frozen):
    """facts.json: the machine, the interpreter, and what was to be done."""

    kit: Literal[4]
    bench_sha256: Hash
    # Empty: the CPU was measured.
    device_uuid: Text
    packages: Packages
    created: Annotated[Moment, Field(pattern=r"^20")]
    python: Annotated[str, Field(max_length=4096)]
    options: Annotated[dict[Text, Any], Field(max_length=100)]
    gpus: Annotated[tuple[GpuFacts, ...], Field(max_length=64)]
    refused: Annotated[tuple[Refused, ...], Field(max_length=64)]
    cpu: CpuFacts
    kernel: Text
    planned: Annotated[tuple[KitStep, ...], Field(min_length=1, max_length=MOST_FILES)]
    skips: Annotated[tuple[Skip, ...], Field(max_length=MOST_FILES)]
    # Networks of a person's own: name -> file -> its text, a character a byte. It is read here and never run.
    networks: Annotated[
        dict[Text, dict[_FileName, _FileText]], Field(max_length=_MOST_OF_AN_OPTION, default_factory=dict)
    ]

    @field_validator("options", "gpus", "refused", "cpu", "planned", "skips", mode="before")
    @classmethod
    def _can_be_shown(cls, value: Any) -> Any:
        return shown_as_it_is(value)

    @field_validator("options")
    @classmethod
    def _is_flat(cls, options: dict[str, Any]) -> dict[str, Any]:
        """A value that lies deeper can neither be written nor be shown."""
        for name, value in options.items():
            values = value if isinstance(value, list) else [value]
            if len(values) > _MOST_OF_AN_OPTION or any(isinstance(each, list | dict) for each in values):
                raise ValueError(f"{name} has neither a value nor a short list of values")
        return options

    def steps(self) -> Iterator[KitStep]:
        """The steps that were planned, each of which may have a parcel in the archive."""
        yield from self.planned


@dataclass(frozen=True)
class Archive:
    """An archive whose facts were checked, and whose files are those of its manifest."""

    path: Path
    # Of the file, in bytes.
    size: int
    sha256: str
    # Of facts.json, which the first start writes: all archives of one measurement have the same.
    facts_sha256: str
    facts: KitFacts | RunFacts
    # The parcel of each step that was done.
    steps: Mapping[KitStep, bytes]


class _Bounded(io.RawIOBase):
    """A stream that ends with an error after so many bytes: tar headers may claim any size."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        chunk: bytes = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(chunk)
        if self._left < 0:
            raise ArchiveError(f"it unpacks to more than {self._most} bytes, and no kit makes such an archive")
        return chunk


def read(path: Path) -> Archive:
    """The archive of a kit. Raises ArchiveError."""
    try:
        content = store.read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read ({error.strerror}); name the archive of a kit") from None
    try:
        files = _files(content)
        facts_content = files.pop(FACTS, b"")
        facts = _facts(document(facts_content, FACTS))
        planned = {path_of(Path(), step).as_posix(): step for step in facts.steps()}
        if strangers := sorted(set(files) - set(planned)):
            raise ArchiveError(f"{strangers[0][:200]} is of a step that was not planned")
    except OtherReleaseError as error:
        raise ArchiveError(f"{path}: {error}") from None
    except (UntrustedError, ValidationError) as error:
        why = f"{FACTS}: {first_problem(error)[:400]}" if isinstance(error, ValidationError) else error
        raise ArchiveError(f"{path}: {why}; copy it again from the machine that it was made on") from None
    digest, facts_digest = (hashlib.sha256(each).hexdigest() for each in (content, facts_content))
    return Archive(
        path, len(content), digest, facts_digest, facts, {planned[name]: files[name] for name in sorted(files)}
    )


def _facts(content: Any) -> KitFacts | RunFacts:
    """Raises ValidationError."""
    shared = isinstance(content, dict) and "run" in content
    return RunFacts.model_validate(content) if shared else KitFacts.model_validate(content)


def _files(content: bytes) -> dict[str, bytes]:
    """Name -> content of every file, each with the digest that the manifest says. Raises UntrustedError."""
    try:
        files = _unpacked(content)
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, RecursionError) as error:
        raise ArchiveError(f"it is damaged, or it is no .tar.gz file ({str(error)[:200]})") from None
    manifest = document(files.pop(MANIFEST, b"null"), MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise ArchiveError(f"it has no {MANIFEST}, so no kit made it")
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    for name in sorted({*digests, *map(str, manifest["files"])}):
        if digests.get(name) != manifest["files"].get(name):
            raise ArchiveError(f"{name[:200]!r} has another digest than {MANIFEST} names")
    return files


def _check_version(manifest: Any) -> None:
    if not isinstance(manifest, dict) or manifest.get("kit") != VERSION:
        raise OtherReleaseError(
            f"{MANIFEST}: kit is not {VERSION}; import it with the release that the kit was made with"
        )


def _unpacked(content: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    most = min(MOST_BYTES, _LEAST_UNPACKED_BYTES + _UNPACKS_TO * len(content))
    most_json = min(_MOST_JSON_BYTES, _LEAST_JSON_BYTES + _UNPACKS_TO * len(content))
    # A browser may have unpacked it already.
    packed = content[:2] == b"\x1f\x8b"
    stream = _Bounded(gzip.GzipFile(fileobj=io.BytesIO(content)) if packed else io.BytesIO(content), most)
    folders = set()
    with tarfile.open(fileobj=stream, mode="r|", errorlevel=1) as archive:
        for member in archive:
            if member.isdir() or posixpath.basename(member.name).startswith("._"):
                continue
            named = _NAME.fullmatch(member.name)
            folders.add(named[1] if named else None)
            if named is None or len(folders) > 1:
                raise ArchiveError(f"{member.name[:200]!r} is not a file of a kit's archive")
            name = named[2]
            # A sparse file claims bytes that are not in the archive.
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                raise ArchiveError(f"{name!r} is not a plain file")
            if name in files:
                raise ArchiveError(f"it has two files {name!r}")
            if len(files) >= MOST_FILES:
                raise ArchiveError(f"it has more than {MOST_FILES} files")
            largest = parcel.MOST_BYTES if name.endswith(parcel.ENDING) else most_json
            if member.size > largest:
                raise ArchiveError(f"{name!r} has more than {largest} bytes")
            file = archive.extractfile(member)
            files[name] = file.read() if file else b""
            # It comes first. The other files of another release have other names.
            if name == MANIFEST:
                _check_version(document(files[name], MANIFEST))
    return files
