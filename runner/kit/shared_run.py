"""A run as a bundle for people whom we never met: without names, and all that is needed to judge it again."""

from __future__ import annotations

import contextlib
import functools
import getpass
import hashlib
import hmac
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from runner.admission.renew import renew
from runner.errors import UserError, first_problem, fix_of
from runner.kit import results_folder
from runner.kit.steps import KitStep
from runner.machine.devices import Cpu, Gpu
from runner.paths import data_folder
from runner.plan.combination import Cell
from runner.results import store
from runner.results.on_disk import derived, image_names, isolation
from runner.results.parcel import MOST_BYTES, Parcel, decode, encode
from runner.results.untrusted import Hash, Name, Text, shown_as_it_is
from runner.results.validate import Frozen, Moment
from runner.text import plural

# The facts.json of a shared run: the machine without its name, and what was measured. The archive around it is a kit's.

_MOST_CELLS, _MOST_REPEATS = 5000, 1000

Bytes = Annotated[int, Field(ge=0, lt=2**63)]
# In the place of the name of a machine.
Pseudonym = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


@dataclass(frozen=True)
class CpuFacts(Cpu):
    """A processor as another machine tells it."""

    memory_bytes: Bytes
    machine_cpus: Annotated[int, Field(ge=1, le=100_000)] | None = None
    governor: Text | None = None
    energy_preference: Text | None = None
    turbo: Text | None = None


@dataclass(frozen=True)
class GpuFacts(Gpu):
    """A GPU as another machine tells it."""

    memory_bytes: Bytes | None


@dataclass(frozen=True)
class SharedStep(KitStep):
    """A repeat of a cell of any run: several images and GPUs may have one of the same words."""

    @property
    def name(self) -> str:
        return f"cell.{self.cell.id}.r{self.repeat}"


class SharedCell(Frozen):
    """A cell, the digest of the code that was planned for it, and its repeats that ended well."""

    cell: Cell
    code_sha256: Hash | None
    repeats: Annotated[
        tuple[Annotated[int, Field(ge=1, le=10_000)], ...], Field(min_length=1, max_length=_MOST_REPEATS)
    ]


class RunFacts(Frozen):
    """facts.json of a shared run."""

    run: Literal[1]
    created: Annotated[Moment, Field(pattern=r"^20")]
    runner_version: Text
    bench_sha256: Hash
    engine: Name
    preset: Text
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    # True if the user gave a folder of real data.
    data_given: bool
    machine: Pseudonym
    machine_cpus: Annotated[int, Field(ge=1, le=100_000)] | None
    gpus: Annotated[tuple[GpuFacts, ...], Field(max_length=64)]
    cpu: CpuFacts
    kernel: Text
    planned: Annotated[tuple[SharedCell, ...], Field(min_length=1, max_length=_MOST_CELLS)]

    @field_validator("gpus", "cpu", "kernel", "runner_version", "planned", mode="before")
    @classmethod
    def _can_be_shown(cls, value: Any) -> Any:
        return shown_as_it_is(value)

    @model_validator(mode="after")
    def _has_each_once(self) -> RunFacts:
        steps = [(step.cell.id, step.repeat) for step in self.steps()]
        if len(set(steps)) < len(steps):
            raise ValueError("planned: it has a repeat of a cell twice")
        return self

    def steps(self) -> Iterator[KitStep]:
        """The repeats, each of which has a parcel in the archive."""
        for shared in self.planned:
            for repeat in shared.repeats:
                yield SharedStep("cell", shared.cell, repeat)


# Pseudonyms in the place of all that names a machine, a person or a folder. Pure.
#
# A pseudonym is an HMAC with a salt that stays with the person who shares: the same GPU has the same pseudonym in all that they share,
# and nobody else can compute it from a serial number. A UUID becomes a UUID, so that every check of devices works as before.

_CONTENT = re.compile(r"(?:.*@)?(sha256:[0-9a-f]{64})")

_UUID = re.compile(rb"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])")
# An absolute path with a folder: from a slash that ends no word up to a character that no ordinary file name has.
_PATH = re.compile(rb"(?<![\w.:/<>-])/(?:[\w.+@~-]{1,255}/)+[\w.+@~-]*")
_PATH_SHOWN = b"/path"


@dataclass(frozen=True)
class Pseudonyms:
    """The pseudonyms of one salt."""

    salt: bytes

    def of(self, kind: str, name: str) -> str:
        """Sixteen hexadecimal digits in the place of a name."""
        return self._digest(f"{kind}\n{name}")[:16]

    def sha256(self, digest: str) -> str:
        """A digest in the place of one that somebody could try out."""
        return self._digest(f"digest\n{digest}")

    def text(self, text: str) -> str:
        """A text whose UUIDs and paths are replaced."""
        return self.content(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def content(self, content: bytes) -> bytes:
        """The same of bytes. A UUID becomes another of the same length."""
        content = _UUID.sub(lambda match: self._uuid(match[0].decode()).encode(), content)
        return _PATH.sub(_PATH_SHOWN, content) if b"/" in content else content

    def _uuid(self, uuid: str) -> str:
        # Some frameworks write it in capitals.
        digits = self.of("uuid", uuid.lower()) + self.of("uuid, second half", uuid.lower())
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _digest(self, text: str) -> str:
        return hmac.new(self.salt, text.encode(), hashlib.sha256).hexdigest()


def anonymous_gpu(gpu: Gpu, names: Pseudonyms) -> Gpu:
    """A GPU without what tells it from others of its model, but for its pseudonym and how it is set up."""
    near = tuple((names.text(board), distance) for board, distance in gpu.near)
    return replace(gpu, uuid=names.text(gpu.uuid), board=names.text(gpu.board), pci="", processes=(), near=near)


def anonymous_cell(cell: Cell, names: Pseudonyms) -> Cell:
    """A cell whose id says nothing of one GPU or of a folder."""
    # True if the image is of a catalog. An interpreter of the user's has the digest of its path in the place of a lock.
    lock = cell.lock_sha256 if (not cell.image.startswith("host-")) else names.sha256(cell.lock_sha256)
    return replace(cell, device_uuid=names.text(cell.device_uuid), lock_sha256=lock)


def anonymous_parcel(parcel: Parcel, cell: Cell, names: Pseudonyms) -> Parcel:
    """The parcel of an anonymous cell. Its tape keeps each piece and each time; its log goes."""
    return replace(
        parcel,
        cell_id=cell.id,
        attempt=None,
        node=names.of("machine", parcel.node) if parcel.node else None,
        image_digest=_digest(parcel, names),
        uuids=_each(names, parcel.uuids),
        boards=_each(names, parcel.boards),
        xids=tuple((names.text(board), number) for board, number in parcel.xids),
        fault=parcel.fault and names.text(parcel.fault),
        proved=_each(names, parcel.proved),
        unproved={names.text(uuid): names.text(reason) for uuid, reason in parcel.unproved.items()},
        foreign=("another process",) * len(parcel.foreign),
        tape=tuple((at, names.content(output)) for at, output in parcel.tape),
        log="",
        telemetry=_rows(parcel.telemetry, names),
    )


def _digest(parcel: Parcel, names: Pseudonyms) -> str | None:
    """The digest of an image, without the name of a registry."""
    if parcel.image_digest is None:
        return None
    content = _CONTENT.fullmatch(parcel.image_digest)
    # The digest of an image says nothing of a folder. Those of the other engines are made of an interpreter's path, too.
    if parcel.engine in isolation.CONTAINER_ENGINES and content:
        return content[1]
    return f"sha256:{names.sha256(parcel.image_digest)}"


def _each(names: Pseudonyms, texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(names.text, texts))


def _rows(rows: Iterable[Mapping[str, Any]], names: Pseudonyms) -> tuple[Mapping[str, Any], ...]:
    renamed = functools.cache(names.text)
    return tuple({**row, "device": renamed(row["device"])} for row in rows)


# The bundle of a run: an archive as a kit's, with what a third party needs to judge the run again, and without what names anybody.
#
# It holds each repeat that ended well, as the parcel that was stored: what the cell printed with the times at which it came, and
# telemetry. It holds no table: whoever reads it admits the parcels anew. A repeat that failed may have printed anything, so it stays
# here.

# A shorter name stands in ordinary words: `vm` is one of LLVM.
_LEAST_NAME = 4


class ShareError(UserError):
    """A run that cannot be shared; the message says why."""


@dataclass(frozen=True)
class Bundle:
    """The content of a bundle before it is written."""

    facts: RunFacts
    # Name in the archive -> content.
    files: Mapping[str, bytes]
    left_out: int

    @property
    def content(self) -> bytes:
        return results_folder.packed(self.files)

    def of_cells(self, cells: Sequence[SharedCell]) -> Bundle:
        """The bundle of some of its cells."""
        facts = self.facts.model_copy(update={"planned": tuple(cells)})
        names = {results_folder.path_of(Path(), step).as_posix() for step in facts.steps()}
        kept = {name: content for name, content in self.files.items() if name in names}
        return Bundle(facts, {results_folder.FACTS: _as_json(facts), **kept}, self.left_out)


def bundle_of(folder: Path, salt: bytes) -> Bundle:
    """The bundle of a stored run. Raises UserError."""
    run = store.RunStore(folder)
    manifest = run.manifest()
    renew(run)
    names, statuses = Pseudonyms(salt), store.statuses(folder)
    cells: list[SharedCell] = []
    files: dict[str, bytes] = {}
    for entry in manifest["plan"]:
        repeats = sorted(
            number for (cell, number), status in statuses.items() if cell == entry["id"] and status == "ok"
        )
        parcels = [_parcel(run, entry["id"], repeat) for repeat in repeats]
        # Nobody else has a foreign image, and its address may say whose it is.
        if not parcels or image_names.is_address(entry["image"]):
            continue
        old = Cell(**{field.name: entry[field.name] for field in fields(Cell) if field.name in entry})
        cell = anonymous_cell(old, names)
        cells.append(SharedCell(cell=cell, code_sha256=entry.get("code_sha256"), repeats=tuple(repeats)))
        for parcel in parcels:
            name = results_folder.path_of(Path(), SharedStep("cell", cell, parcel.repeat)).as_posix()
            files[name] = encode(anonymous_parcel(parcel, cell, names))
    if not cells:
        raise ShareError(
            f"{folder}: no repeat ended well in an image of the catalog or in an interpreter, so there is nothing to share"
        )
    if (size := sum(map(len, files.values()))) > results_folder.MOST_BYTES:
        raise ShareError(
            f"{folder}: its parcels have {size} bytes, and a bundle has at most {results_folder.MOST_BYTES}; share runs of fewer cells"
        )
    facts = _facts(manifest, tuple(cells), names)
    return Bundle(
        facts, {results_folder.FACTS: _as_json(facts), **files}, sum(each != "ok" for each in statuses.values())
    )


def _parcel(run: store.RunStore, cell_id: str, repeat: int) -> Parcel:
    path = run.folder / "repeats" / derived.parcel_name(cell_id, repeat)
    return decode(store.read_bytes(path, MOST_BYTES), str(path))


def _facts(manifest: Mapping[str, Any], cells: tuple[SharedCell, ...], names: Pseudonyms) -> RunFacts:
    """Raises ShareError where run.json has what no bundle may have."""
    host, options, devices = manifest["host"], manifest.get("options") or {}, _devices(manifest)
    known = {field.name for field in fields(Gpu)}
    try:
        gpus = [Gpu(**{name: value for name, value in entry.items() if name in known}) for entry in devices]
        return RunFacts.model_validate(
            {
                "run": 1,
                "created": manifest["created"],
                "runner_version": manifest["runner_version"],
                "bench_sha256": manifest["bench_sha256"],
                "engine": manifest["engine"],
                "preset": manifest["preset"],
                "seed": manifest["seed"],
                "data_given": bool(options.get("data")),
                "machine": _machine(manifest, names),
                "machine_cpus": host.get("machine_cpus"),
                "gpus": [asdict(anonymous_gpu(gpu, names)) for gpu in gpus],
                "cpu": {
                    "model": host["cpu_model"],
                    "cpus": list(range(host["cpu_count"])),
                    "memory_bytes": host["memory_bytes"],
                    "governor": host.get("cpu_governor"),
                    "energy_preference": host.get("cpu_energy_preference"),
                    "turbo": host.get("cpu_turbo"),
                },
                "kernel": host["kernel"],
                "planned": cells,
            }
        )
    except ValidationError as error:
        raise ShareError(f"run.json: {first_problem(error)}; nothing was written") from None
    except TypeError as error:
        raise ShareError(f"run.json: devices: {error}; nothing was written") from None


def _devices(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in manifest.get("devices") or () if "uuid" in entry]


def _machine(manifest: Mapping[str, Any], names: Pseudonyms) -> str:
    """The pseudonym of the machine that a run was measured on."""
    uuids = ",".join(sorted(str(entry["uuid"]) for entry in _devices(manifest)))
    return names.of("machine", str(manifest["host"].get("name") or uuids or manifest["run_id"]))


def own_pseudonym(manifest: Mapping[str, Any]) -> str | None:
    """The pseudonym under which this user shares the machine of a run; None before they shared any."""
    return _machine(manifest, Pseudonyms(own_salt())) if salt_path().is_file() else None


def _as_json(facts: RunFacts) -> bytes:
    return results_folder.document(facts.model_dump(mode="json"))


def shown(bundle: Bundle, salt_path: Path) -> Iterator[str]:
    """The content of a bundle for a person, a line each."""
    facts = bundle.facts
    repeats = sum(len(cell.repeats) for cell in facts.planned)
    left = f"; {plural(bundle.left_out, 'repeat')} that did not end well stay here" if bundle.left_out else ""
    size = sum(map(len, bundle.files.values())) / 1e6
    yield f"cells      {plural(len(facts.planned), 'cell')}, {plural(repeats, 'repeat')}, {size:.1f} MB{left}"
    yield f"measured   {facts.created}, {facts.engine}, kernel {facts.kernel}, bench {facts.bench_sha256[:12]}"
    yield f"CPU        {facts.cpu.model}, {plural(len(facts.cpu.cpus), 'CPU')}, {facts.cpu.memory_bytes / 2**30:.0f} GiB"
    for gpu in facts.gpus:
        yield f"GPU        {gpu.model}, driver {gpu.driver}, VBIOS {gpu.vbios}, called {gpu.uuid}"
    for image in sorted({cell.cell.image for cell in facts.planned}):
        yield f"image      {image}"
    yield f"machine    called {facts.machine}"
    yield "each repeat: all that the cell printed and when, its GPU's or CPU's telemetry, its exit code and its length"
    yield (
        "not in it: names of machines, nodes and users, folders, PCI addresses, logs, other people's processes. UUIDs are replaced by "
        f"pseudonyms; their salt stays in {salt_path}"
    )
    if words := _own_names(bundle):
        yield f"look at this before you share it: it holds the word {' and the word '.join(map(repr, words))}"


def _own_names(bundle: Bundle) -> list[str]:
    """The names of this machine and this user that stand in a bundle as words."""
    own = {platform.node().partition(".")[0]}
    with contextlib.suppress(KeyError, OSError):
        own.add(getpass.getuser())
    parts = [content for name, content in bundle.files.items() if name == results_folder.FACTS]
    parts += [
        output
        for name, content in bundle.files.items()
        if name != results_folder.FACTS
        for _, output in decode(content, name).tape
    ]
    # The user of most containers.
    words = sorted(word for word in own - {"root"} if len(word) >= _LEAST_NAME)
    return [word for word in words if any(re.search(rf"\b{re.escape(word)}\b".encode(), part) for part in parts)]


def salt_path() -> Path:
    return data_folder() / "share.salt"


def own_salt() -> bytes:
    """The salt of this user, made at its first use. Raises ShareError."""
    path = salt_path()
    try:
        return derived.key_of(path)
    except OSError as error:
        fix = fix_of(error, "remove it, and your machines get new pseudonyms, or set XDG_DATA_HOME")
        raise ShareError(f"{path} cannot be used ({error.strerror}); {fix}") from None
