"""The bundle of a run: an archive as a kit's, with what a third party needs to judge the run again, and without what names anybody.

It holds each repeat that ended well, as the parcel that was stored: what the cell printed with the times at which it came, and telemetry.
It holds no table: whoever reads it admits the parcels anew. A repeat that failed may have printed anything, so it stays here.
"""

from __future__ import annotations

import contextlib
import getpass
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runner.admission.renew import renew
from runner.errors import UserError, first_problem, fix_of
from runner.kit import pack
from runner.kit.contribution.anonymous import Pseudonyms, anonymous_cell, anonymous_gpu, anonymous_parcel
from runner.kit.contribution.run_facts import RunFacts, SharedCell, SharedStep
from runner.machine.devices import Gpu
from runner.paths import data_folder
from runner.plan.combination import Cell
from runner.results import store
from runner.results.on_disk import derived
from runner.results.on_disk.image_names import is_address
from runner.results.parcel import MOST_BYTES, Parcel, decode, encode
from runner.text import plural

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
        return pack.packed(self.files)

    def of_cells(self, cells: Sequence[SharedCell]) -> Bundle:
        """The bundle of some of its cells."""
        facts = self.facts.model_copy(update={"planned": tuple(cells)})
        names = {pack.path_of(Path(), step).as_posix() for step in facts.steps()}
        kept = {name: content for name, content in self.files.items() if name in names}
        return Bundle(facts, {pack.FACTS: _as_json(facts), **kept}, self.left_out)


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
        if not parcels or is_address(entry["image"]):
            continue
        old = Cell(**{field.name: entry[field.name] for field in fields(Cell) if field.name in entry})
        cell = anonymous_cell(old, names)
        cells.append(SharedCell(cell=cell, code_sha256=entry.get("code_sha256"), repeats=tuple(repeats)))
        for parcel in parcels:
            name = pack.path_of(Path(), SharedStep("cell", cell, parcel.repeat)).as_posix()
            files[name] = encode(anonymous_parcel(parcel, cell, names))
    if not cells:
        raise ShareError(
            f"{folder}: no repeat ended well in an image of the catalog or in an interpreter, so there is nothing to share"
        )
    if (size := sum(map(len, files.values()))) > pack.MOST_BYTES:
        raise ShareError(
            f"{folder}: its parcels have {size} bytes, and a bundle has at most {pack.MOST_BYTES}; share runs of fewer cells"
        )
    facts = _facts(manifest, tuple(cells), names)
    return Bundle(facts, {pack.FACTS: _as_json(facts), **files}, sum(each != "ok" for each in statuses.values()))


def _parcel(run: store.RunStore, cell_id: str, repeat: int) -> Parcel:
    path = run.folder / "repeats" / store.parcel_name(cell_id, repeat)
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
    return pack.document(facts.model_dump(mode="json"))


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
    parts = [content for name, content in bundle.files.items() if name == pack.FACTS]
    parts += [
        output
        for name, content in bundle.files.items()
        if name != pack.FACTS
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
