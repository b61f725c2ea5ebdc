"""Makes the tables of a run agree with its parcels. A run from elsewhere is admitted anew: its own tables are never read."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import rules
from runner import known_messages, trees
from runner.paths import PROJECT
from runner.results.on_disk import derived, schema
from runner.results.on_disk.derived import parcel_name
from runner.results.store import TABLES, RunStore, StoreError, read_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from runner.plan.combination import Cell

# The code that decides the rows of a parcel. A workload or framework that is declared otherwise judges what is measured from then on.
_RULES = (
    "bench/collectives.py",
    "bench/protocol.py",
    "bench/rules.py",
    "bench/workloads/ops.py",
    "runner/admission",
    "runner/catalog",
    "runner/known_messages.py",
    "runner/machine",
    "runner/messages",
    "runner/plan/combination.py",
    "runner/results",
)


@functools.cache
def rules_digest() -> str:
    """The digest of the code that makes rows of parcels. Rows that other code made are made anew."""
    whole = hashlib.sha256()
    for place in _RULES:
        path = PROJECT / place
        sources = (file for file in trees.files(path) if file.suffix in (".py", ".csv")) if path.is_dir() else [path]
        for source in sorted(sources):
            whole.update(f"{source.relative_to(PROJECT)} {hashlib.sha256(source.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def renew(run: RunStore) -> bool:
    """Admit the parcels of a run that are new here, and write its tables if anything changed: True if it did.

    Raises StoreError, which names the parcel that cannot be admitted, or was changed after it was measured here.
    """
    manifest = run.manifest()
    import pyarrow as pa

    parcels, index = _planned_of(run, manifest), derived.signed_index(run.folder, manifest["run_id"])
    if index is not None:
        _refuse_changed(parcels, index)
        if index.rules == rules_digest() and derived.is_current(run.folder, index, parcels):
            return False
    tables = _known(run, parcels, index)
    have = {(row["cell_id"], row["repeat"]) for row in tables["cells"].select(["cell_id", "repeat"]).to_pylist()}
    new = [_admitted(run, manifest, one) for one in parcels.values() if (one.cell_id, one.repeat) not in have]
    whole = {
        table: pa.concat_tables([rows, *(repeat[table] for repeat in new if table in repeat)]).combine_chunks()
        for table, rows in tables.items()
    }
    whole["cells"] = _with_origins(run, manifest, parcels, _beside_each_other(whole, manifest))
    digests = {name: (parcel.sha256, parcel.mark) for name, parcel in parcels.items()}
    derived.write(run.folder, manifest["run_id"], whole, digests, rules_digest())
    return True


def _with_origins(
    run: RunStore, manifest: Mapping[str, Any], parcels: Mapping[str, derived.ParcelFile], cells: pa.Table
) -> pa.Table:
    """The rows of cells with the origin of each parcel."""
    import pyarrow as pa

    from runner.results.on_disk.parcel_origin import origin_of

    signed = derived.signed(run.folder, manifest["run_id"])
    imported = (manifest.get("imported") or {}).get("parcels") or {}
    places = zip(cells["cell_id"].to_pylist(), cells["repeat"].to_pylist(), strict=True)
    names = [parcel_name(*place) for place in places]
    origins = [origin_of(name, parcels[name].sha256, signed, imported) for name in names]
    return cells.set_column(cells.schema.get_field_index("origin"), "origin", pa.array(origins, pa.string()))


def _beside_each_other(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> pa.Table:
    """The rows of cells; those that cannot be beside another one have failed."""
    import pyarrow as pa

    from runner.admission.sets import together

    cells = tables["cells"]
    if not (reasons := together(tables, manifest)):
        return cells
    rows = cells.to_pylist()
    for row in rows:
        if row["status"] == "ok" and (why := reasons.get((row["cell_id"], row["repeat"]))):
            row |= {
                "status": "failed",
                "error_kind": "implausible",
                "reason": why,
                "hint": known_messages.hint("implausible"),
            }
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in cells.schema]
    return pa.Table.from_arrays(columns, schema=cells.schema)


def _planned_of(run: RunStore, manifest: Mapping[str, Any]) -> dict[str, derived.ParcelFile]:
    """The parcels of the cells that are planned. Another was put there: it has no row, and is told once."""
    planned, parcels = {entry["id"] for entry in manifest["plan"]}, run.parcels()
    for parcel in parcels.values():
        if parcel.cell_id not in planned:
            trees.tell(
                f"{parcel.path} is of a cell that run.json does not plan, and is passed over; remove it, or restore run.json"
            )
    return {name: parcel for name, parcel in parcels.items() if parcel.cell_id in planned}


def _refuse_changed(parcels: Mapping[str, derived.ParcelFile], index: derived.Index) -> None:
    for name, parcel in parcels.items():
        if name in index.parcels and derived.is_changed(parcel, index):
            raise StoreError(
                f"{parcel.path} was changed after it was measured here; restore it, or remove it and --resume measures its repeat again"
            )


def _known(
    run: RunStore, parcels: Mapping[str, derived.ParcelFile], index: derived.Index | None
) -> dict[str, pa.Table]:
    """The rows that need not be made anew: those of the tables, and those that this process admitted since."""
    import pyarrow as pa

    from runner.admission.sets import BESIDE
    from runner.results.rows import of_places

    stored = derived.read_tables(run.folder, index) if index is not None and index.rules == rules_digest() else None
    own = {name for name, sha256 in dict(run.admitted).items() if name in parcels and parcels[name].sha256 == sha256}
    old = {name for name in (index.parcels if index is not None and stored else ()) if name in parcels} - own
    if stored:
        # A repeat that could not be beside another one is admitted anew: the other may be gone.
        told = stored["cells"].select(["cell_id", "repeat", "reason"]).to_pylist()
        old -= {parcel_name(row["cell_id"], row["repeat"]) for row in told if (row["reason"] or "").startswith(BESIDE)}
    return {
        table: pa.concat_tables(
            [
                of_places(rows, {(parcels[name].cell_id, parcels[name].repeat) for name in names})
                for rows, names in (
                    (stored[table] if stored else schema.no_rows(table), old),
                    (run.rows(table), own),
                )
            ]
        )
        for table in TABLES
    }


def _admitted(run: RunStore, manifest: Mapping[str, Any], file: derived.ParcelFile) -> dict[str, pa.Table]:
    """The rows of a parcel. Raises StoreError."""
    # A run whose tables are current needs none of this.
    from runner.admission.admit import admit, image_of
    from runner.admission.judges import HostFacts
    from runner.results.parcel import MOST_BYTES, ParcelError, decode

    try:
        parcel = decode(read_bytes(file.path, MOST_BYTES), str(file.path))
    except OSError as error:
        raise StoreError(
            f"{file.path} cannot be read ({error.strerror}); restore it, or remove it and --resume measures its repeat again"
        ) from None
    except ParcelError as error:
        raise StoreError(f"{error}; remove it, and --resume measures its repeat again") from None
    if (parcel.cell_id, parcel.repeat) != (file.cell_id, file.repeat):
        raise StoreError(f"{file.path} is of the cell {parcel.cell_id}, repeat {parcel.repeat}; remove it")
    cell, code = _planned(run.folder, manifest, file)
    options = manifest.get("options") or {}
    host = HostFacts(
        image=image_of(cell),
        code_sha256=code,
        data_given=bool(options.get("data")),
    )
    tables = admit(parcel, cell, host).tables
    return {
        table: derived.table_of(table, rows, manifest["run_id"], file.cell_id, file.repeat)
        for table, rows in tables.items()
        if rows
    }


def _planned(folder: Path, manifest: Mapping[str, Any], file: derived.ParcelFile) -> tuple[Cell, str | None]:
    """The cell of a parcel as run.json has it, and the digest of the code that was planned. Raises StoreError."""
    from runner.plan.combination import Cell

    entry = next(entry for entry in manifest["plan"] if entry["id"] == file.cell_id)
    try:
        cell = Cell(**{field.name: entry[field.name] for field in fields(Cell) if field.name in entry})
    except TypeError:
        cell = None
    if cell is None or cell.id != file.cell_id:
        raise StoreError(f"{folder / 'run.json'}: the cell {file.cell_id} is not what its id says; restore run.json")
    try:
        rules.workload_declaration(cell.workload)
        rules.framework_declaration(cell.framework)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{file.path}: this checkout cannot judge {cell.framework} {cell.workload} ({error}); "
            "read the run with the release that measured it"
        ) from None
    return cell, entry.get("code_sha256")
