"""Reads the archive of a kit. It comes from another machine, so the content is untrusted: names, sizes, digests and fields are checked."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from runner.engines.slots import LOG_TAIL_BYTES
from runner.errors import first_problem
from runner.kit.pack import FILES, MANIFEST, VERSION
from runner.machine.devices import Cpu, Gpu, Process, Refused
from runner.results import store
from runner.results.parcel import MOST_ROWS, MOST_TELEMETRY_BYTES
from runner.results.untrusted import Hash, Name, Seconds, Text, UntrustedError, document, telemetry_rows

# Of the whole archive when it is unpacked, of one file of it, and of the number of its files.
MOST_BYTES = 512 * 2**20
MOST_FILE_BYTES = 65 * 2**20
MOST_FILES = 20_000
_MOST_FACTS_BYTES = 16 * 2**20
# Of the telemetry of all steps: two days of a GPU and its CPU.
_MOST_ROWS = 2_000_000
# Of a sentence about a step, in characters.
_MOST_REASON = 400

# A small archive unpacks to little, and holds few rows: what costs much is long. What a cell prints packs to a quarter, and a row of
# telemetry to some twenty bytes; every archive may have the least of both.
_UNPACKS_TO, _LEAST_UNPACKED_BYTES = 20, 16 * 2**20
_BYTES_OF_A_ROW, _LEAST_ROWS = 8, 20_000

_FILE = "|".join(map(re.escape, FILES))
_NAME = re.compile(rf"facts\.json|manifest\.json|steps/[a-z][a-z0-9_.-]{{0,150}}/(?:{_FILE})")


def _is_a_moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


class ArchiveError(UntrustedError):
    """An archive that cannot be imported; the message names it and says why."""


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
    def key(self) -> tuple[str, str, str, str, int]:
        return self.kind, self.framework, self.workload, self.precision, self.repeat


class Users(_Frozen):
    """The users of the GPU, as NVML showed them."""

    proved: Annotated[tuple[Text, ...], Field(max_length=64)]
    reasons: Annotated[dict[Text, Text], Field(max_length=64)]
    foreign: Annotated[tuple[Process, ...], Field(max_length=16)]


class StepRecord(PlannedStep):
    """How a step ended."""

    code: Annotated[int, Field(ge=0, le=255)]
    out_of_memory: bool
    ended_by: tuple[Literal["time-limit"], Text] | None
    started_unix: Seconds
    wall_seconds: Seconds
    uuids: Annotated[tuple[Text, ...], Field(max_length=64)]
    xids: Annotated[tuple[tuple[Text, Annotated[int, Field(ge=0, lt=2**31)]], ...], Field(max_length=1000)]
    lost: Text | None
    fault: Text | None
    row_seconds: Annotated[float, Field(gt=0, le=1e6)]
    users: Users
    jit_cache_grew_bytes: Annotated[int, Field(ge=0, lt=2**63)] | None


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

    kit: Literal[1]
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
class ReadStep:
    """A step with the bytes that it left."""

    record: StepRecord
    output: bytes
    telemetry: tuple[dict[str, Any], ...]
    log: str


@dataclass(frozen=True)
class Archive:
    """An archive whose every field was checked."""

    path: Path
    sha256: str
    # A sentence for each step that was left out, because a field of it is wrong.
    dropped: tuple[str, ...]
    # Of facts.json, which the first start writes: all archives of one measurement have the same.
    facts_sha256: str
    facts: KitFacts
    steps: tuple[ReadStep, ...]


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
    """The archive of a kit, without the steps that cannot be read. Raises ArchiveError where nothing of it can be."""
    try:
        content = store.read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read ({error.strerror}); name the archive of a kit") from None
    try:
        files = _files(content)
        facts = _facts(files)
        steps, dropped = _steps(files, facts, min(_MOST_ROWS, _LEAST_ROWS + len(content) // _BYTES_OF_A_ROW))
        if len({step.record.key for step in steps}) < len(steps):
            raise ArchiveError("it holds a step twice")
        if dropped and not steps:
            raise ArchiveError(dropped[0])
    except UntrustedError as error:
        raise ArchiveError(f"{path}: {error}; copy it again from the machine that it was made on") from None
    facts_sha256 = hashlib.sha256(files["facts.json"]).hexdigest()
    return Archive(path, hashlib.sha256(content).hexdigest(), tuple(dropped), facts_sha256, facts, steps)


def _steps(files: dict[str, bytes], facts: KitFacts, most_rows: int) -> tuple[tuple[ReadStep, ...], list[str]]:
    """The steps, and a sentence for each that is not as a kit writes it."""
    steps, dropped, rows = [], [], 0
    for name in sorted({name.split("/")[1] for name in files if "/" in name}):
        rows += files.get(f"steps/{name}/telemetry.jsonl", b"").count(b"\n")
        step = (
            _step_or_reason(files, name, facts)
            if rows <= most_rows
            else f"the telemetry of all steps has more than {most_rows} rows, and an archive of this size holds no more"
        )
        if isinstance(step, ReadStep):
            steps.append(step)
        else:
            dropped.append(f"steps/{name}: {step[:_MOST_REASON]}")
    return tuple(steps), dropped


def _step_or_reason(files: dict[str, bytes], name: str, facts: KitFacts) -> ReadStep | str:
    try:
        step = _step(files, name)
        _check_step(step, facts)
    except UntrustedError as error:
        return str(error)
    return step


def _check_step(step: ReadStep, facts: KitFacts) -> None:
    """Raises ArchiveError where a step does not belong to the facts."""
    record = step.record
    if record.key not in {planned.key for planned in facts.planned}:
        raise ArchiveError(f"it holds a step that was not planned ({record.kind} {record.workload})")
    if record.uuids != ((facts.device_uuid,) if facts.device_kind == "cuda" else ()):
        raise ArchiveError("a step was given another device than facts.json names")
    devices = {"cpu", *(gpu.board for gpu in facts.gpus)}
    for device in {row["device"] for row in step.telemetry} - devices:
        raise ArchiveError(f"its telemetry is of {device[:100]!r}, which facts.json does not name")


def _files(content: bytes) -> dict[str, bytes]:
    """Name -> content of every file, each with the digest that the manifest says. Raises ArchiveError."""
    try:
        files = _unpacked(content)
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, RecursionError) as error:
        raise ArchiveError(f"it is damaged, or no .tar.gz ({str(error)[:200]})") from None
    manifest = document(files.pop(MANIFEST, b"null"), MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise ArchiveError(f"it has no {MANIFEST}, so it is not the archive of a kit")
    if manifest.get("kit") != VERSION:
        raise ArchiveError(f"{MANIFEST}: kit is not {VERSION}; import it with the release that the kit was made with")
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    for name in sorted({*digests, *map(str, manifest["files"])}):
        if digests.get(name) != manifest["files"].get(name):
            raise ArchiveError(f"{name[:200]!r} is not what {MANIFEST} says")
    return files


def _unpacked(content: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    most = min(MOST_BYTES, _LEAST_UNPACKED_BYTES + _UNPACKS_TO * len(content))
    stream = _Bounded(gzip.GzipFile(fileobj=io.BytesIO(content)), most)
    with tarfile.open(fileobj=stream, mode="r|", errorlevel=1) as archive:
        for member in archive:
            if not _NAME.fullmatch(member.name):
                raise ArchiveError(f"{member.name[:200]!r} is not a file of a kit's archive")
            # A sparse file claims bytes that are not in the archive.
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                raise ArchiveError(f"{member.name!r} is not a plain file")
            if member.name in files or len(files) >= MOST_FILES or member.size > MOST_FILE_BYTES:
                raise ArchiveError(f"{member.name!r} is there twice, too large, or one too many")
            file = archive.extractfile(member)
            files[member.name] = file.read() if file else b""
    return files


def _facts(files: dict[str, bytes]) -> KitFacts:
    if len(files.get("facts.json", b"")) > _MOST_FACTS_BYTES:
        raise ArchiveError("facts.json is too large")
    try:
        return KitFacts.model_validate(document(files.get("facts.json", b""), "facts.json"))
    except ValidationError as error:
        raise ArchiveError(f"facts.json: {first_problem(error)[:_MOST_REASON]}") from None


def _step(files: dict[str, bytes], name: str) -> ReadStep:
    missing = [file for file in FILES if f"steps/{name}/{file}" not in files]
    if missing:
        raise ArchiveError(f"it has no {missing[0]}")
    record, output, telemetry, log = (files[f"steps/{name}/{file}"] for file in FILES)
    try:
        read_record = StepRecord.model_validate(document(record, "step.json"))
    except ValidationError as error:
        raise ArchiveError(f"step.json: {first_problem(error)}") from None
    if len(telemetry) > MOST_TELEMETRY_BYTES:
        raise ArchiveError(f"telemetry.jsonl has more than {MOST_TELEMETRY_BYTES} bytes")
    return ReadStep(read_record, output, telemetry_rows(telemetry, "telemetry.jsonl", MOST_ROWS), _text(log))


def _text(log: bytes) -> str:
    return log[-LOG_TAIL_BYTES:].decode("utf-8", "replace")
