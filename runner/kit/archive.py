"""Reads the archive of a kit. It comes from another machine, so the content is untrusted: names, sizes, digests and fields are checked."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from runner.engines.slots import LOG_TAIL_BYTES
from runner.errors import first_problem
from runner.kit.pack import MANIFEST, VERSION, path_of
from runner.kit.steps import MOST_OUTPUT_BYTES, KitStep
from runner.machine.devices import Cpu, Gpu, Refused
from runner.results import parcel, store
from runner.results.parcel import ENDING
from runner.results.untrusted import Hash, Name, Seconds, Text, UntrustedError, document

# Of the whole archive when it is unpacked, and of the number of its files.
MOST_BYTES = 512 * 2**20
MOST_FILES = 20_000
# Of a file that is no parcel: facts.json and the manifest have entries for MOST_FILES at most.
_MOST_JSON_BYTES = 16 * 2**20
# Of a sentence about a step, in characters.
_MOST_REASON = 400

# A small archive unpacks to little: a parcel is packed already. Every archive may have the least.
_UNPACKS_TO, _LEAST_UNPACKED_BYTES = 20, 16 * 2**20

_NAME = re.compile(rf"facts\.json|manifest\.json|steps/[a-z][a-z0-9_.-]{{0,150}}(?:\.json|{re.escape(ENDING)})")


def _is_a_moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


class ArchiveError(UntrustedError):
    """An archive that cannot be imported; the message names it and says why."""


class OtherReleaseError(ArchiveError):
    """An archive of a kit of another release, whose files have another form."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedStep(_Frozen):
    """A step as facts.json has it."""

    kind: Literal["check", "cell", "events"]
    framework: Name
    workload: Name
    precision: Name
    repeat: Annotated[int, Field(ge=1, le=100)]

    @property
    def step(self) -> KitStep:
        return KitStep(self.kind, self.framework, self.workload, self.precision, self.repeat)


class StepEnd(_Frozen):
    """How a step that is no cell ended."""

    code: Annotated[int, Field(ge=0, le=255)]
    # Why the kit stopped it.
    stopped: Text | None
    output: Annotated[str, Field(max_length=MOST_OUTPUT_BYTES)]
    log: Annotated[str, Field(max_length=LOG_TAIL_BYTES)]


class LeftOutStep(_Frozen):
    """A combination that the device or the framework cannot do."""

    framework: Name
    workload: Name
    precision: Name
    reason: Annotated[str, Field(max_length=1000)]


class InstalledFramework(_Frozen):
    framework: Name
    version: Annotated[str, Field(min_length=1, max_length=100)]
    device_kinds: Annotated[tuple[Name, ...], Field(max_length=10)] | None


class Packages(_Frozen):
    """The packages of the interpreter that was measured."""

    python: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+", max_length=60)]
    path: Annotated[str, Field(max_length=4096)]
    installed: Annotated[tuple[Text, ...], Field(max_length=20_000)]


_Bytes = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True)
class _Cpu(Cpu):
    memory_bytes: _Bytes


@dataclass(frozen=True)
class _Gpu(Gpu):
    memory_bytes: _Bytes | None


class KitFacts(_Frozen):
    """facts.json: the machine, the interpreter, and what was to be done."""

    kit: Literal[2]
    bench_sha256: Hash
    device_kind: Literal["cpu", "cuda"]
    device_uuid: Text
    packages: Packages
    created: Annotated[
        str, Field(pattern=r"^20\d{2}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\+00:00$"), AfterValidator(_is_a_moment)
    ]
    python: Annotated[str, Field(max_length=4096)]
    frameworks: Annotated[tuple[InstalledFramework, ...], Field(min_length=1, max_length=200)]
    gpus: Annotated[tuple[_Gpu, ...], Field(max_length=64)]
    refused: Annotated[tuple[Refused, ...], Field(max_length=64)]
    cpu: _Cpu
    kernel: Text
    planned: Annotated[tuple[PlannedStep, ...], Field(min_length=1, max_length=MOST_FILES)]
    left_out: Annotated[tuple[LeftOutStep, ...], Field(max_length=MOST_FILES)]


class CheckVerdict(BaseModel):
    """The output of `python -m bench check`, as far as it is shown."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    failed: Annotated[tuple[Text, ...], Field(max_length=10_000)]
    worst: Annotated[float, Field(ge=0)]
    compared: Annotated[int, Field(ge=0, lt=2**31)]


class EventWindow(_Frozen):
    """One window by the clock and by CUDA's events."""

    steps: Annotated[int, Field(ge=1, lt=2**31)]
    clock_seconds: Seconds
    event_seconds: Seconds


class EventWindows(_Frozen):
    windows: Annotated[tuple[EventWindow, ...], Field(min_length=1, max_length=1000)]


@dataclass(frozen=True)
class Archive:
    """An archive whose facts were checked, and whose files are those of its manifest."""

    path: Path
    # Of the file, in bytes.
    size: int
    sha256: str
    # Of facts.json, which the first start writes: all archives of one measurement have the same.
    facts_sha256: str
    facts: KitFacts
    # The file of each step that was done: a parcel of a cell, a document of another step.
    steps: Mapping[PlannedStep, bytes]


class _Bounded(io.RawIOBase):
    """A stream that ends with an error after so many bytes: tar headers may claim any size."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        chunk: bytes = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(chunk)
        if self._left < 0:
            raise ArchiveError(f"it unpacks to more than {self._most} bytes, and no kit's archive of its size does")
        return chunk


def read(path: Path) -> Archive:
    """The archive of a kit. Raises ArchiveError."""
    try:
        content = store.read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read ({error.strerror}); name the archive of a kit") from None
    try:
        files = _files(content)
        facts = _facts(files)
        steps = _steps(files, facts)
    except OtherReleaseError as error:
        raise ArchiveError(f"{path}: {error}") from None
    except UntrustedError as error:
        raise ArchiveError(f"{path}: {error}; copy it again from the machine that it was made on") from None
    facts_sha256 = hashlib.sha256(files["facts.json"]).hexdigest()
    return Archive(path, len(content), hashlib.sha256(content).hexdigest(), facts_sha256, facts, steps)


def _steps(files: Mapping[str, bytes], facts: KitFacts) -> dict[PlannedStep, bytes]:
    """The files of the steps, in the order of their names. Raises ArchiveError."""
    planned = {path_of(Path(), step.step).as_posix(): step for step in facts.planned}
    if strangers := sorted(set(files) - {"facts.json", *planned}):
        raise ArchiveError(f"it holds a step that was not planned ({strangers[0][:200]})")
    return {planned[name]: files[name] for name in sorted(files) if name != "facts.json"}


def ended(content: bytes) -> StepEnd:
    """The file of a step that is no cell. Raises ArchiveError."""
    try:
        return StepEnd.model_validate(document(content, "it"))
    except UntrustedError as error:
        raise ArchiveError(str(error)) from None
    except ValidationError as error:
        raise ArchiveError(first_problem(error)[:_MOST_REASON]) from None


def _files(content: bytes) -> dict[str, bytes]:
    """Name -> content of every file, each with the digest that the manifest says. Raises ArchiveError."""
    try:
        files = _unpacked(content)
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, RecursionError) as error:
        raise ArchiveError(f"it is damaged, or no .tar.gz ({str(error)[:200]})") from None
    manifest = document(files.pop(MANIFEST, b"null"), MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise ArchiveError(f"it has no {MANIFEST}, so it is not the archive of a kit")
    _check_version(manifest)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    for name in sorted({*digests, *map(str, manifest["files"])}):
        if digests.get(name) != manifest["files"].get(name):
            raise ArchiveError(f"{name[:200]!r} is not what {MANIFEST} says")
    return files


def _check_version(manifest: Any) -> None:
    if not isinstance(manifest, dict) or manifest.get("kit") != VERSION:
        raise OtherReleaseError(
            f"{MANIFEST}: kit is not {VERSION}; import it with the release that the kit was made with"
        )


def _unpacked(content: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    most = min(MOST_BYTES, _LEAST_UNPACKED_BYTES + _UNPACKS_TO * len(content))
    stream = _Bounded(gzip.GzipFile(fileobj=io.BytesIO(content)), most)
    with tarfile.open(fileobj=stream, mode="r|", errorlevel=1) as archive:
        for member in archive:
            if not _NAME.fullmatch(member.name):
                # Another release's archive has other names.
                if MANIFEST in files:
                    _check_version(document(files[MANIFEST], MANIFEST))
                raise ArchiveError(f"{member.name[:200]!r} is not a file of a kit's archive")
            # A sparse file claims bytes that are not in the archive.
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                raise ArchiveError(f"{member.name!r} is not a plain file")
            most = parcel.MOST_BYTES if member.name.endswith(ENDING) else _MOST_JSON_BYTES
            if member.name in files or len(files) >= MOST_FILES or member.size > most:
                raise ArchiveError(f"{member.name!r} is there twice, too large, or one too many")
            file = archive.extractfile(member)
            files[member.name] = file.read() if file else b""
    return files


def _facts(files: dict[str, bytes]) -> KitFacts:
    try:
        return KitFacts.model_validate(document(files.get("facts.json", b""), "facts.json"))
    except ValidationError as error:
        raise ArchiveError(f"facts.json: {first_problem(error)[:_MOST_REASON]}") from None
