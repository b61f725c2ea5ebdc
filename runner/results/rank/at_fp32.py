"""tf32, mixed precision and half types rest on fp32: their own bounds are so wide that mistakes hide in them, such as a wrong epsilon."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from bench import rules
from runner.results.cells import StoredCell, StoredRepeat

Cell = TypeVar("Cell", bound=StoredCell)


def rested(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, those of a wide precision with the cell at fp32 that their proof rests on: of the same adapter, image and device.

    Where the cell at fp32 of the same mode failed parity, no other mode's serves.
    """
    # A name in a results file may be any text; only those of workloads name a file.
    named, workloads = {cell.key.workload for cell in cells}, rules.workload_names()
    known = {name for name in named if name in workloads or rules.is_own(name)}
    networks = {cell.key.workload: "" for cell in cells} | {name: _network(name) for name in known}
    passed: dict[tuple[object, ...], str] = {}
    failed: dict[tuple[object, ...], str] = {}
    for full in (cell for cell in cells if cell.key.precision == "fp32"):
        name = f"{full.cell_id} of run {full.run_id}"
        for repeat in full.repeats:
            adapters = _adapters(full, repeat, networks[full.key.workload])
            if repeat.row.get("parity_passed") is False:
                failed |= {(*adapter, full.mode): name for adapter in adapters}
            # A refused repeat proves nothing, though its first tensors passed.
            elif repeat.status == "ok" and repeat.row.get("parity_passed") is True:
                passed |= dict.fromkeys(adapters, name)
    return [
        _resting(cell, network, passed, failed)
        if cell.key.precision in rules.WIDE and (network := networks[cell.key.workload])
        else cell
        for cell in cells
    ]


def _resting(
    cell: Cell, network: str, passed: Mapping[tuple[object, ...], str], failed: Mapping[tuple[object, ...], str]
) -> Cell:
    """The cell with what all of its good repeats rest on."""
    proof = ""
    for repeat in cell.repeats:
        adapters = list(_adapters(cell, repeat, network))
        if wrong := next((failed[key] for key in ((*adapter, cell.mode) for adapter in adapters) if key in failed), ""):
            return replace(cell, unproved=f"parity at fp32 failed, in {wrong}")
        proof = next((passed[adapter] for adapter in adapters if adapter in passed), "")
        if repeat.status == "ok" and not proof:
            return replace(cell, unproved=f"no parity at fp32 here: measure --precision fp32,{cell.key.precision}")
    return replace(cell, at_fp32=proof)


def _network(workload: str) -> str:
    """The workload whose network this one has; empty for operations, and for one that this checkout does not declare.

    Whoever shows the workload says what is wrong with a file that cannot be read.
    """
    with contextlib.suppress(ValueError, OSError, KeyError):
        if rules.workload_declaration(workload)["task"] != "operators":
            return str(rules.network_of(workload))
    return ""


def _adapters(cell: StoredCell, repeat: StoredRepeat, network: str) -> Iterator[tuple[object, ...]]:
    """An adapter in an image on a device: by the digest of its code, and by that of all sources, as workloads may share a network.

    The image is that of its digest or, within a run, that of its lock: each node may have made it for itself.
    """
    row, place = repeat.row, (network, cell.image, cell.framework, cell.key.device_kind, cell.key.device_model)
    of_run = "run", cell.run_id, row.get("lock_sha256")
    for image in (of_run, ("digest", digest)) if (digest := row.get("image_digest")) else (of_run,):
        yield from ((*place, image, code) for name in ("code_sha256", "bench_sha256") if (code := row.get(name)))
