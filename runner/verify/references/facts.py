"""The facts of a measured cell beside its times. They decide whether two cells may be compared, and may explain a gap."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from bench import identity, rules
from runner.machine.devices import bare_uuid
from runner.results.cells import StoredCell, machine_of
from runner.results.on_disk import roles
from runner.results.validate import Frozen

Text = Annotated[str, Field(max_length=300)]
# In the range of a column of whole numbers: JSON's own have no limit, and a larger one is no double.
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Scalars = Annotated[
    dict[Text, bool | Annotated[int, Field(gt=-(2**63), lt=2**64)] | Finite | Text | None], Field(max_length=200)
]


def of_other_code(cells: Collection[tuple[str, str, str | None]]) -> list[str]:
    """Those of these (framework, workload, code digest) whose code is not this release's, as text, each once."""
    names, workloads = set(rules.framework_names()), set(rules.workload_names())
    known = {(framework, workload) for framework, workload, _ in cells if framework in names and workload in workloads}
    today = identity.code_digests(known)
    return list(
        dict.fromkeys(f"{each} {workload}" for each, workload, code in cells if code != today.get((each, workload)))
    )


class Facts(Frozen):
    """One cell's facts. None, an empty map and a key that a map lacks: the fact was not recorded."""

    # the computation: cells are compared only where all of this is equal
    workload: Text
    framework: Text
    mode: Text
    precision: Text
    preset: Text
    batch: Whole
    devices: Whole
    device_kind: Text
    scaling: Text = ""  # of several devices: weak, where the batch is that of each, or strong
    variant: Text
    # the machine
    device_model: Text
    compute_capability: Text | None
    device_memory_bytes: Whole | None
    cpu_model: Text | None
    cpu_count: Whole | None  # those that the cell may use
    machine_cpus: Whole | None  # those of the whole machine, where the probe ran
    host: Scalars = Field(default={})  # the machine's other states; references saved before have none
    device: Scalars  # the GPU as the runner's host saw it: power limit, PCIe, ECC, MIG, clocks
    # the software
    framework_version: Text | None
    python_version: Text | None
    cuda_version: Text | None
    cudnn_version: Text | None
    driver_version: Text | None
    data_source: Text | None
    bench_sha256: Text | None
    # of the sources that the cell ran (bench/identity.py); references saved before there was such a digest have none
    code_sha256: Text | None = None
    data_sha256: Text | None = None  # of the observations and labels; references saved before have none
    settings: Scalars  # as the framework itself reads them back
    versions: Scalars = Field(default={})  # of other packages, such as NumPy; references saved before have none
    # where it came from
    image: Text
    engine: Text
    lock_sha256: Text | None

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the fields that older references lack where they are empty: those references keep their digests."""
        fields: dict[str, Any] = dump(self)
        return {
            name: value
            for name, value in fields.items()
            if value or name not in ("scaling", "code_sha256", "data_sha256", "host", "versions")
        }

    @property
    def name(self) -> str:
        """The cell for a person."""
        mode = "" if self.mode == "default" else f" {self.mode}"
        return f"{self.framework}{mode} {self.workload} {self.precision}"


# These fields of the host's entry name the one device, and say nothing about another of its model, or are facts of their own.
_NOT_OF_DEVICE = {
    *roles.with_role("identity", "provenance", of=roles.DEVICE_ROLES),
    *("free_bytes", "memory_bytes", "driver"),
}
# The other states of the machine are facts of their own.
_OF_HOST = set(roles.with_role("state", of=roles.HOST_ROLES)) - Facts.model_fields.keys()


def facts_of(cell: StoredCell, manifest: Mapping[str, Any], machine_cpus: int | None) -> Facts:
    """The facts of a stored cell. Texts are cut to what a reference keeps."""
    environment, row = cell.environment, cell.row
    host, device = _map(environment.get("host")), _map(environment.get("device"))
    machine, of_host = machine_of(row, manifest), _host_device(cell, manifest)
    facts: dict[str, Any] = {name: _maybe(row.get(name)) for name in Facts.model_fields}
    facts |= {name: _text(getattr(cell, name)) for name in ("image", "framework", "mode", "engine")}
    facts |= {name: _text(value) if isinstance(value, str) else value for name, value in vars(cell.key).items()}
    # These are not named as the columns of the row and the fields of the key are, or are written in another way.
    facts |= {
        "variant": _text(cell.variant[0]),
        "device_memory_bytes": _whole(device.get("memory_bytes")),
        "cpu_model": _maybe(host.get("cpu_model")),
        "cpu_count": _whole(host.get("cpu_count")),
        "machine_cpus": machine_cpus or _whole(machine.get("machine_cpus")),
        "host": _scalars(machine, machine.keys() - _OF_HOST),
        "device": _scalars(of_host, _NOT_OF_DEVICE),
        "driver_version": facts["driver_version"] or _maybe(of_host.get("driver")),
        "data_source": _maybe(row.get("data_source")),
        "settings": _scalars(_map(environment.get("settings")), {"variant", "variant_reason"}),
        "versions": _scalars(cell.versions, set()),
    }
    return Facts(**facts)


def _host_device(cell: StoredCell, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The manifest's entry of the GPU that the cell ran on; empty for a CPU."""
    uuids = cell.row.get("device_uuids")
    used = {bare_uuid(str(uuid)) for uuid in (uuids if uuids is not None else ())}
    devices: list[dict[str, Any]] = manifest.get("devices") or []
    for entry in devices:
        if bare_uuid(str(entry.get("uuid", ""))) in used:
            processes = entry.get("processes")
            return entry | {"foreign_processes": len(processes)} if isinstance(processes, (list, tuple)) else entry
    return {}


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return str(value)[:300]


def _maybe(value: object) -> str | None:
    return None if value is None or value == "" else _text(value)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _scalars(entries: Mapping[str, Any], without: set[str]) -> dict[str, Any]:
    """The entries that are plain values, at most 200."""
    kept = {
        _text(name): _text(value) if isinstance(value, str) else value
        for name, value in entries.items()
        if name not in without and (value is None or isinstance(value, (bool, int, float, str)))
    }
    finite = {name: v for name, v in kept.items() if not (isinstance(v, float) and not math.isfinite(v))}
    return dict(list(finite.items())[:200])


@dataclass(frozen=True)
class DifferentFact:
    """A fact in which a cell and its reference differ."""

    name: str
    measured: object
    reference: object

    def __str__(self) -> str:
        return f"{self.name} {_short(self.name, self.measured)} (reference {_short(self.name, self.reference)})"


def _short(name: str, value: object) -> str:
    """The words for a value, a sha256 cut to its first digits."""
    text = str(roles.shown(name, value))
    return text[:12] if len(text) == 64 else text
