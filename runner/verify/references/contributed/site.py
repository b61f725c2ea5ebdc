"""An index as files: a page, a list of its devices, and the cells of each device and workload. Written here, and read here again.

Whoever reads an index got it from somebody else: every file is bounded, and every field is checked.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError, field_validator

from runner.errors import UserError, first_problem
from runner.kit.shared_run import Pseudonym, own_pseudonym
from runner.results.gpu_facts import bare_model
from runner.results.store import RunStore, read_bytes, write_bytes
from runner.results.untrusted import Text, UntrustedError, document, shown_as_it_is
from runner.results.validate import Frozen
from runner.text import in_a_line
from runner.verify.outliers import known_spread
from runner.verify.references import CELLS, LIST, is_address
from runner.verify.references.comparability import FEWEST_KNOWN, IDENTITY
from runner.verify.references.contributed.derived_rows import BundleRow, slug
from runner.verify.references.facts import Facts
from runner.verify.references.published import DownloadError, download
from runner.verify.references.saved import INDEX, Reference, SavedCell, Seconds

if TYPE_CHECKING:
    from reports.page.render import DeviceRow


# The cells of a collection, each with a machine of each contributor and how far these differ. Pure.

# The facts of a cell of the index, beside the computation and the device: what must be equal for two machines to be of one spread.
_SOFTWARE = ("image", "framework_version", "cuda_version", "code_sha256", "data_sha256")


@dataclass(frozen=True)
class IndexMachine:
    """One machine in a cell: its sessions, by the day. Of a machine with several GPUs one counts: they share its host."""

    name: str
    # (when, seconds a step of each repeat), oldest first.
    sessions: tuple[tuple[str, tuple[float, ...]], ...]

    @cached_property
    def log_seconds(self) -> float:
        """The mean over its sessions of their repeats' mean log time."""
        return fmean(fmean(map(math.log, repeats)) for _, repeats in self.sessions)

    @property
    def seconds(self) -> float:
        return math.exp(self.log_seconds)


@dataclass(frozen=True)
class IndexCell:
    """One computation on one device model with one software, on one machine of each contributor that brought it."""

    facts: Facts
    machines: tuple[IndexMachine, ...]

    @cached_property
    def id(self) -> str:
        return cell_id(self.facts)

    @cached_property
    def logs(self) -> tuple[float, ...]:
        return tuple(machine.log_seconds for machine in self.machines)

    @property
    def seconds(self) -> float:
        """The median of its machines, seconds a step."""
        return math.exp(median(self.logs))

    @cached_property
    def spread(self) -> float | None:
        """How much its machines differ: the standard deviation of their log step times. None of fewer than FEWEST_KNOWN."""
        return float(known_spread(self.logs)) if len(self.logs) >= FEWEST_KNOWN else None


def reference_of(cell: IndexCell, runner_version: str) -> Reference:
    """A cell of an index as a reference, whose sessions are its machines, each by its newest day.

    An index has the median of a repeat and not its windows, so the fields are not checked as those of a saved one.
    """
    sessions = [machine.sessions[-1] for machine in cell.machines]
    saved = SavedCell.model_construct(
        facts=cell.facts,
        repeats=tuple((seconds,) for _, repeats in sessions for seconds in repeats),
        session_of=tuple(at for at, (_, repeats) in enumerate(sessions) for _ in repeats),
    )
    return Reference.model_construct(
        name=f"{INDEX}{cell.id}",
        created=max(created for created, _ in sessions),
        run_ids=tuple(machine.name for machine in cell.machines),
        runner_version=runner_version,
        cells=(saved,),
    )


def cell_id(facts: Facts) -> str:
    """Twelve hexadecimal digits by which a cell of an index is linked to. They follow from what is measured, so a link stays."""
    content = [getattr(facts, name) for name in (*IDENTITY, *_SOFTWARE)] + [
        bare_model(facts.device_model),
        _size(facts),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def _size(facts: Facts) -> int | None:
    """The size that parts two devices of one name: GiB of a GPU's memory, or the CPUs of a machine."""
    if facts.device_kind == "cpu":
        return facts.machine_cpus
    return facts.device_memory_bytes and round(facts.device_memory_bytes / 2**30)


def index_of(rows: Iterable[BundleRow]) -> list[IndexCell]:
    """The cells of some rows, in an order that people read them in."""
    groups: dict[str, list[BundleRow]] = {}
    for row in rows:
        groups.setdefault(cell_id(row.facts), []).append(row)
    cells = [_cell(group) for group in groups.values()]
    return sorted(
        cells, key=lambda cell: (bare_model(cell.facts.device_model), cell.facts.workload, cell.facts.name, cell.id)
    )


def _cell(rows: Sequence[BundleRow]) -> IndexCell:
    machines: dict[str, dict[str, list[BundleRow]]] = {}
    for row in rows:
        machines.setdefault(row.contributor, {}).setdefault(row.machine, []).append(row)
    return IndexCell(_usual(rows), tuple(map(_middle, sorted(machines.items()))))


def _usual(rows: Sequence[BundleRow]) -> Facts:
    """The facts that most accounts share, of the newest of equals. They say what a cell may be compared with, so one account that dates its
    bundle the latest must not choose them."""
    newest = {row.contributor: row.facts for row in sorted(rows, key=lambda row: (row.created, row.machine))}
    each = [(facts, _entries(facts)) for facts in newest.values()]
    shared = Counter(entry for _, entries in each for entry in entries)
    return max(reversed(each), key=lambda one: sum(shared[entry] for entry in one[1]))[0]


def _entries(facts: Facts) -> set[tuple[object, ...]]:
    """Each fact that was recorded, with its value."""
    plain = {(name, value) for name, value in facts if not isinstance(value, dict)}
    return plain.union(
        *({(name, *entry) for entry in value.items()} for name, value in facts if isinstance(value, dict))
    )


def _middle(contributor: tuple[str, Mapping[str, Sequence[BundleRow]]]) -> IndexMachine:
    """The one machine of a contributor that counts: the middle of those that he brought. Many would give him many votes on the norm."""
    made = sorted(
        (_machine(*machine) for machine in contributor[1].items()), key=lambda one: (one.log_seconds, one.name)
    )
    return made[(len(made) - 1) // 2]


def _machine(name: str, rows: Sequence[BundleRow]) -> IndexMachine:
    first = min(row.device for row in rows)
    own = sorted((row.created, row.repeats) for row in rows if row.device == first)
    return IndexMachine(name, tuple(own))


SCHEMA = 1

# A file of cells is a script that hands over one text, so that the page can load it from disk as well.
_BEFORE, _AFTER = "cells(", ");\n"
_FILE = re.compile(rf"\A{re.escape(_BEFORE)}(\".*\"){re.escape(_AFTER)}\Z", re.DOTALL)

_MOST_BYTES = 64 << 20
_MOST_DEVICES, _MOST_WORKLOADS, _MOST_CELLS, _MOST_MACHINES = 10_000, 1000, 20_000, 20_000


class SiteError(UserError):
    """An index that cannot be read; the message names it and says why."""


class _Device(Frozen):
    name: Text
    slug: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,99}$")]
    machines: Annotated[int, Field(ge=0, le=10**9)]
    # Workload's name in addresses -> its cells and machines.
    workloads: Annotated[dict[Text, tuple[int, int]], Field(max_length=_MOST_WORKLOADS)]


class _List(Frozen):
    schema_: Annotated[int, Field(alias="schema", ge=SCHEMA, le=SCHEMA)]
    devices: Annotated[tuple[_Device, ...], Field(max_length=_MOST_DEVICES)]


_When = Annotated[str, Field(pattern=r"^20[0-9-]{8}T[0-9:]{8}(\+00:00|Z)$")]
_Session = tuple[_When, Annotated[tuple[Seconds, ...], Field(min_length=1, max_length=1000)]]


class _Machine(Frozen):
    name: Pseudonym
    sessions: Annotated[tuple[_Session, ...], Field(min_length=1, max_length=1000)]


class _Cell(Frozen):
    id: Text
    facts: Facts
    machines: Annotated[tuple[_Machine, ...], Field(min_length=1, max_length=_MOST_MACHINES)]
    # For the page. A reader computes them from the machines.
    seconds: Seconds
    fastest: Seconds
    slowest: Seconds
    spread: Annotated[float, Field(ge=0, lt=100, allow_inf_nan=False)] | None


class _Cells(Frozen):
    schema_: Annotated[int, Field(alias="schema", ge=SCHEMA, le=SCHEMA)]
    device: Text
    device_slug: Text
    workload: Text
    workload_slug: Text
    cells: Annotated[tuple[_Cell, ...], Field(max_length=_MOST_CELLS)]

    @field_validator("device", "workload", "cells", mode="before")
    @classmethod
    def _can_be_shown(cls, value: Any) -> Any:
        return shown_as_it_is(value)


def files_of(cells: Sequence[IndexCell], licence: str = "") -> Iterator[tuple[str, bytes]]:
    """(name, content) of each file of an index. The page and the list of devices come last."""
    # A reader of an index needs none of the page's libraries.
    from reports.page.render import references_page

    groups: dict[tuple[str, str], list[IndexCell]] = {}
    for cell in cells:
        facts = cell.facts
        groups.setdefault((slug(bare_model(facts.device_model)), slug(facts.workload)), []).append(cell)
    for (device, workload), some in groups.items():
        content = {
            "schema": SCHEMA,
            "device": some[0].facts.device_model,
            "device_slug": device,
            "workload": some[0].facts.workload,
            "workload_slug": workload,
            "cells": list(map(_as_json, some)),
        }
        yield f"{CELLS}/{device}/{workload}.js", _as_script(content)
    rows = _devices(groups)
    yield "index.html", references_page(rows, licence).encode()
    devices = [
        {"name": row.name, "slug": row.slug, "machines": row.machines, "workloads": dict(row.workloads)} for row in rows
    ]
    yield LIST, json.dumps({"schema": SCHEMA, "devices": devices}, separators=(",", ":")).encode()


def _as_script(content: Any) -> bytes:
    return f"{_BEFORE}{json.dumps(json.dumps(content, separators=(',', ':')))}{_AFTER}".encode()


def _text_in(script: bytes) -> bytes:
    """The JSON that such a script hands over. Raises ValueError."""
    match = _FILE.match(script.decode("utf-8"))
    if match is None:
        raise ValueError("it is no file of cells")
    return str(json.loads(match[1])).encode("utf-8")


def _as_json(cell: IndexCell) -> dict[str, Any]:
    times = [machine.seconds for machine in cell.machines]
    return {
        "id": cell.id,
        "facts": cell.facts.model_dump(),
        "machines": [{"name": machine.name, "sessions": machine.sessions} for machine in cell.machines],
        "seconds": cell.seconds,
        "fastest": min(times),
        "slowest": max(times),
        "spread": cell.spread,
    }


def _devices(groups: Mapping[tuple[str, str], Sequence[IndexCell]]) -> list[DeviceRow]:
    from reports.page.render import DeviceRow

    devices: dict[str, dict[str, Sequence[IndexCell]]] = {}
    for (device, workload), cells in groups.items():
        devices.setdefault(device, {})[workload] = cells
    return [
        DeviceRow(
            slug=device,
            name=next(iter(workloads.values()))[0].facts.device_model,
            machines=_machines(cell for cells in workloads.values() for cell in cells),
            cells=sum(map(len, workloads.values())),
            workloads={workload: (len(cells), _machines(cells)) for workload, cells in sorted(workloads.items())},
        )
        for device, workloads in sorted(devices.items())
    ]


def _machines(cells: Any) -> int:
    return len({machine.name for cell in cells for machine in cell.machines})


def write(cells: Sequence[IndexCell], folder: Path, licence: str = "") -> int:
    """Write an index; the bytes of its page."""
    size = 0
    for name, content in files_of(cells, licence):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
        size = len(content) if name == "index.html" else size
    return size


@dataclass(frozen=True)
class IndexSite:
    """An index in a folder, or at an address."""

    place: str

    @property
    def devices(self) -> tuple[_Device, ...]:
        """Raises SiteError."""
        try:
            return _List.model_validate(shown_as_it_is(document(self._read(LIST), LIST))).devices
        except (ValidationError, UntrustedError, ValueError) as error:
            raise self._broken(LIST, error) from None

    def cells(self, device_model: str, workload: str) -> list[IndexCell]:
        """The cells of a device model and a workload; none where the index has none. Raises SiteError."""
        device, name = slug(bare_model(device_model)), slug(workload)
        if not any(each.slug == device and name in each.workloads for each in self.devices):
            return []
        file = f"{CELLS}/{device}/{name}.js"
        try:
            content = _Cells.model_validate(document(_text_in(self._read(file)), file))
        except (ValidationError, UntrustedError, ValueError) as error:
            raise self._broken(file, error) from None
        made = [
            IndexCell(one.facts, tuple(IndexMachine(each.name, each.sessions) for each in one.machines))
            for one in content.cells
        ]
        if wrong := next(
            (one for one, cell in zip(content.cells, made, strict=True) if one.id != cell_id(cell.facts)), None
        ):
            raise self._broken(file, ValueError(f"cell {wrong.id[:20]} is not what its id says"))
        return made

    def _broken(self, file: str, error: Exception) -> SiteError:
        why = first_problem(error) if isinstance(error, ValidationError) else str(error)
        return SiteError(f"{self.place}: {file}: {in_a_line(why, 300)}; it is no index that this release reads")

    def _read(self, file: str) -> bytes:
        """Raises SiteError."""
        try:
            if not is_address(self.place):
                return read_bytes(Path(self.place) / file, _MOST_BYTES)
            return download(f"{self.place.rstrip('/')}/{file}", _MOST_BYTES)
        except (OSError, ValueError, DownloadError) as error:
            why = str(error)
            if not isinstance(error, DownloadError):
                why = f"cannot be read ({in_a_line(getattr(error, 'strerror', None) or why, 300)})"
            advice = "name the folder or the address of an index"
            raise SiteError(f"--references {self.place}: {file} {why}; {advice}") from None


# The references of an index for some runs: the cells of their device models and workloads, and no others.

_MOST_NAMED = 12


def references_for(folders: Sequence[Path], site: IndexSite) -> list[Reference]:
    """The cells of an index that may fit those of some runs, without the machines of these runs. Raises UserError."""
    manifests = [RunStore(folder).manifest() for folder in folders]
    plans = [entry for manifest in manifests for entry in manifest["plan"]]
    pairs = dict.fromkeys((str(entry.get("device_model")), str(entry["workload"])) for entry in plans)
    own = {own_pseudonym(manifest) for manifest in manifests}
    there = [_without(cell, own) for model, workload in pairs for cell in site.cells(model, workload)]
    return [reference_of(cell, "") for cell in there if cell.machines]


def _without(cell: IndexCell, own: Collection[str | None]) -> IndexCell:
    """A machine beside itself would say that it is normal."""
    return replace(cell, machines=tuple(machine for machine in cell.machines if machine.name not in own))


def what_it_has(folders: Sequence[Path], site: IndexSite) -> str:
    """The machines that an index would need for some runs, in a sentence; empty where it has their device models. Raises UserError."""
    models = {str(entry.get("device_model")) for folder in folders for entry in RunStore(folder).manifest()["plan"]}
    there = {device.slug: device.name for device in site.devices}
    missing = sorted(in_a_line(model, 100) for model in models if slug(bare_model(model)) not in there)
    if not missing:
        return ""
    named = ", ".join(sorted(there.values())[:_MOST_NAMED]) or "none"
    more = f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else ""
    return f"the index has no machine with {' and none with '.join(missing)}; it has: {named}{more}"
