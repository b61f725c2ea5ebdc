"""Mixed precision and half types rest on fp32: their own bounds are so wide that mistakes hide in them, such as a wrong epsilon."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from bench import rules
from runner.results.cells import StoredCell

Cell = TypeVar("Cell", bound=StoredCell)


def rested(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, those of mixed precision with the cell at fp32 that their proof rests on: of the same adapter, image and device.

    Where the cell at fp32 of the same mode failed parity, no other mode's serves.
    """
    # A name in a results file may be any text; only those of workloads name a file.
    known = {cell.key.workload for cell in cells} & set(rules.workload_names())
    networks = {cell.key.workload: "" for cell in cells} | {name: _network(name) for name in known}
    adapters = [tuple(_adapters(cell, networks[cell.key.workload])) for cell in cells]
    passed: dict[tuple[object, ...], str] = {}
    failed: dict[tuple[object, ...], str] = {}
    for cell, own in zip(cells, adapters, strict=True):
        name = f"{cell.cell_id} of run {cell.run_id}"
        if cell.key.precision == "fp32" and cell.parity_passed is False:
            failed |= {(*adapter, cell.mode): name for adapter in own}
        elif cell.key.precision == "fp32" and any(
            repeat.status == "ok" and repeat.row.get("parity_passed") is True for repeat in cell.repeats
        ):
            passed |= dict.fromkeys(own, name)
    return [
        _resting(cell, own, passed, failed)
        if cell.key.precision in rules.WIDE and networks[cell.key.workload]
        else cell
        for cell, own in zip(cells, adapters, strict=True)
    ]


def _resting(
    cell: Cell,
    adapters: Sequence[tuple[object, ...]],
    passed: Mapping[tuple[object, ...], str],
    failed: Mapping[tuple[object, ...], str],
) -> Cell:
    if wrong := next((failed[key] for key in ((*adapter, cell.mode) for adapter in adapters) if key in failed), ""):
        return replace(cell, unproved=f"parity at fp32 failed, in {wrong}")
    proof = next((passed[adapter] for adapter in adapters if adapter in passed), "")
    missing = f"no parity at fp32 here: measure --precision fp32,{cell.key.precision}"
    return replace(cell, at_fp32=proof, unproved="" if proof else missing)


def _network(workload: str) -> str:
    """The workload whose network this one has; empty for operations, and for one that this checkout does not declare.

    Whoever shows the workload says what is wrong with a file that cannot be read.
    """
    with contextlib.suppress(ValueError, OSError, KeyError):
        if rules.workload_declaration(workload)["task"] != "operators":
            return str(rules.network_of(workload))
    return ""


def _adapters(cell: StoredCell, network: str) -> Iterator[tuple[object, ...]]:
    """An adapter in an image on a device: by the digest of its code, and by that of all sources, as workloads may share a network.

    The image is that of its digest or, within a run, that of its lock: each node may have made it for itself.
    """
    place = network, cell.image, cell.framework, cell.key.device_kind, cell.key.device_model
    for row in [repeat.row for repeat in cell.repeats]:
        of_run = "run", cell.run_id, row.get("lock_sha256")
        for image in (of_run, ("digest", digest)) if (digest := row.get("image_digest")) else (of_run,):
            yield from ((*place, image, code) for name in ("code_sha256", "bench_sha256") if (code := row.get(name)))
