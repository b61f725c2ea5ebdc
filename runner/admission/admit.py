"""Makes the rows of a parcel: the one way in for a measured repeat, wherever it was measured."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runner import known_messages, text
from runner.admission import record
from runner.admission.judges import Evidence, HostFacts, judge
from runner.catalog import architectures, images
from runner.machine import processes
from runner.messages import of_gpus
from runner.plan.combination import Cell
from runner.results import store
from runner.results.on_disk import other_work
from runner.results.parcel import Parcel, encode
from runner.results.plausible import windows


@dataclass(frozen=True)
class Admitted:
    """A repeat that went through all judges, and the rows that are stored of it."""

    status: str  # ok | failed
    reason: str | None
    tables: Mapping[str, list[dict[str, Any]]]

    @property
    def disturbed(self) -> str:
        """The work of others beside a cell of a CPU, where that was much, in few words."""
        (row,) = self.tables["cells"]
        if row.get("other_cpus") is None:
            return ""
        work = other_work.of_rows([row], row["device_kind"], json.loads(row.get("environment_json") or "{}"))
        return f"other work used {work.cpus:.2g} of its {text.plural(work.of_the_cell, 'CPU')}" if work else ""


def admit(parcel: Parcel, cell: Cell, host: HostFacts, observe: Callable[[Any], None] | None = None) -> Admitted:
    """Judge a parcel and make its rows. `observe` gets each event of its output."""
    if parcel.never_ran:
        return _never_ran(parcel, cell)
    recorder = record.Recorder(observe)
    for at, piece in parcel.tape:
        recorder.feed(piece, at)
    recorder.close()
    recorder.row["started_unix"] = parcel.started_unix
    rows = record.on_the_cells_clock(parcel.telemetry, recorder.row["started_unix"])
    samples = recorder.rows["samples"]
    failure = judge(Evidence(parcel, cell, host, recorder, rows))
    status, (kind, reason) = ("failed", failure) if failure else ("ok", (None, None))
    if failure and parcel.xids:
        kind, reason = "xid", f"{of_gpus.xids(parcel.xids)}; the cell: {reason}"
    if samples:
        # The host counts what it has the windows of.
        recorder.row |= {"noise": windows.noise(samples), "steps": recorder.steps()}
    if parcel.fault:
        recorder.rows["left_out"].append({"what": "telemetry, in part", "reason": parcel.fault})
    tables = recorder.tables(
        cell,
        (status, kind, reason),
        **_whence(parcel),
        seed=cell.seed_of(parcel.repeat),
        given_uuids=list(parcel.uuids),
        jit_cache_grew_bytes=parcel.jit_cache_grew_bytes,
        log_tail=parcel.log,
        exit_code=parcel.code,
        wall_seconds=parcel.wall_seconds,
        device_proof=processes.gpu_proof(parcel.uuids, parcel.proved, parcel.unproved),
        version_proof=images.version_proof(host.image, recorder.environment, cell.image),
        foreign_processes=list(parcel.foreign) if parcel.uuids else None,
        isolation_json=parcel.isolation and json.dumps(parcel.isolation, separators=(",", ":")),
        hint=_hint(parcel, kind, reason),
        **record.telemetry_summary(rows, samples, parcel.row_seconds),
    )
    return Admitted(status, reason, tables | {"telemetry": rows})


def _never_ran(parcel: Parcel, cell: Cell) -> Admitted:
    """Of a cell that no process ran of, there is a reason only."""
    kind, reason = parcel.ended_by or ("engine", "it never ran")
    outcome = {"status": "failed", "error_kind": kind, "reason": reason}
    row = cell.row(parcel.repeat) | _whence(parcel) | outcome
    return Admitted("failed", reason, {"cells": [row | {"hint": known_messages.hint(kind, reason)}]})


def _whence(parcel: Parcel) -> dict[str, Any]:
    """The columns that say where it was measured, and in what."""
    return {name: getattr(parcel, name) for name in ("engine", "node", "attempt", "image_digest")}


def _hint(parcel: Parcel, kind: str | None, reason: str | None) -> str | None:
    if parcel.xids:
        return of_gpus.xid(parcel.xids[0][1])[1]
    return known_messages.hint(kind, reason, parcel.log) if kind else None


def store_parcel(
    run: store.RunStore, parcel: Parcel, cell: Cell, host: HostFacts, observe: Callable[[Any], None] | None = None
) -> Admitted:
    """Admit a parcel, and add it to a run with its rows."""
    admitted = admit(parcel, cell, host, observe)
    run.add(encode(parcel), cell.id, parcel.repeat, admitted.tables)
    return admitted


def image_of(cell: Cell) -> images.Image | None:
    """The image of a cell; None where it is none of this checkout's catalog: an interpreter of a user."""
    image = _catalog().get(cell.image)
    each = (image.on(architecture) for architecture in architectures.ARCHITECTURES) if image else ()
    return next((image for image in each if image.lock_sha256 == cell.lock_sha256), None)


@functools.cache
def _catalog() -> Mapping[str, images.Image]:
    return images.load_catalog()
