"""The Parquet tables of a run, as they lie on disk:
results/<run id>/{cells,samples,metrics,parity,telemetry,...}/<cell id>.r<repeat>.parquet.

One file a table for each repeat of a cell, written aside, synced and renamed the moment that repeat ends: a killed run loses
none that ended. `cells` is renamed last, so a repeat counts as ended exactly when its `cells` file is there. Beside the tables lie
run.json (the options, the plan, what was left out, and on which machine), events/<name>.jsonl (each event as the cell
printed it) and logs/<name>.log (the end of its standard error).

In a run over nodes, many repeats of a node are put together into a pack later: <node>.p<number>.parquet in each table
(runner/results/parquet/packs.py). A pack counts when its `cells` file is there. What it holds is read from it alone.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import trees
from runner.results import derived, validate
from runner.results.on_disk.kept import Kept as Kept
from runner.results.on_disk.layout import file_name as file_name
from runner.results.on_disk.layout import files_of_cells as files_of_cells
from runner.results.on_disk.layout import is_pack as is_pack
from runner.results.on_disk.layout import run_folder as run_folder
from runner.results.on_disk.layout import singles_of as singles_of
from runner.results.on_disk.packed import Packs as Packs
from runner.results.on_disk.packed import finished, settled, strange
from runner.results.on_disk.packed import packs_of as packs_of
from runner.results.on_disk.refused import (
    CHECK,
    has_empty_windows,
    other_runs,
    other_schemas,
    refuse,
    refuse_doubled_checks,
    refuse_empty_windows,
    refuse_unproved,
)
from runner.results.on_disk.table_file import read_columns as read_columns
from runner.results.on_disk.table_file import read_file as read_file
from runner.results.on_disk.table_file import to_bytes
from runner.results.on_disk.whole import StoreError as StoreError
from runner.results.on_disk.whole import read_bytes as read_bytes
from runner.results.on_disk.whole import write_bytes as write_bytes
from runner.results.parquet.schema import SCHEMA_VERSION as SCHEMA_VERSION
from runner.results.parquet.schema import TABLES as TABLES
from runner.results.parquet.schema import arrow_schema as arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


# The schema of the runs that keep parcels.
WITH_PARCELS = 2

# The tables of which every release wrote a file for each repeat, be it one without rows. The others came later.
ALWAYS = ("samples", "metrics", "parity")


class RunStore:
    """One run's folder. Rows are dicts with the columns of TABLES; a column that is left out is null."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_id = folder.name

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_bytes(self.folder / "run.json", json.dumps(manifest, indent=2, sort_keys=True).encode())

    def manifest(self) -> dict[str, Any]:
        path = self.folder / "run.json"
        try:
            manifest = json.loads(read_bytes(path))
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"{self.folder} is not a run: it has no run.json; name a folder that `runner matrix` made"
            ) from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read ({error.strerror}); restore it, or leave this run out") from None
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{path} is not JSON ({error}); restore it, or leave this run out") from None
        if not isinstance(manifest, dict) or type(manifest.get("schema_version")) is not int:
            raise StoreError(
                f"{path}: schema_version is no whole number, so no release wrote this; restore it, or leave this run out"
            )
        if manifest["schema_version"] not in (SCHEMA_VERSION, WITH_PARCELS):
            raise StoreError(f"{path}: schema_version is not {SCHEMA_VERSION}; read it with the release that wrote it")
        if wrong := validate.of_manifest(manifest):
            raise StoreError(f"{path}: {wrong}; restore it, or leave this run out")
        return manifest

    def write_repeat(self, cell_id: str, repeat: int, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Store one ended repeat. `tables` must hold its one `cells` row; it is renamed into place last."""
        if len(tables["cells"]) != 1:
            raise ValueError("a repeat has exactly one row in cells")
        for table in [name for name in TABLES if name != "cells"] + ["cells"]:
            rows = [dict(row, run_id=self.run_id, cell_id=cell_id, repeat=repeat) for row in tables.get(table, [])]
            self._write_table(table, file_name(cell_id, repeat), rows)

    def events_path(self, cell_id: str, repeat: int) -> Path:
        """Where the lines of a repeat's cell are kept as they came."""
        return self.folder / "events" / f"{file_name(cell_id, repeat)}.jsonl"

    def write_skipped(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Store the planned combinations that were left out: cells rows with status skipped and a reason."""
        rows = [dict(row, run_id=self.run_id, repeat=0, status="skipped") for row in rows]
        self._write_table("cells", "skipped", rows)

    def _write_table(self, table: str, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        import pyarrow as pa

        schema = arrow_schema(table)
        unknown = {column for row in rows for column in row} - set(schema.names)
        if unknown:
            raise ValueError(f"{table} has no column {sorted(unknown)}")
        if table == "cells":
            rows = [dict(row, schema_version=SCHEMA_VERSION) for row in rows]
        write_bytes(self.folder / table / f"{name}.parquet", to_bytes(pa.Table.from_pylist(list(rows), schema=schema)))

    def finished(self) -> dict[tuple[str, int], str]:
        """(cell id, repeat) -> status, of every repeat that has ended. Raises StoreError."""
        if _version(self.folder) == WITH_PARCELS:
            rows = derived.read(self.folder, _run_id(self.folder), "cells").to_pylist()
            return {(row["cell_id"], row["repeat"]): row["status"] for row in rows}
        return finished(self.folder)

    def remove_parts(self) -> None:
        """Remove the aside files that a killed runner left."""
        for path in trees.files(self.folder):
            if path.name.startswith(".") and path.suffix == ".part":
                path.unlink(missing_ok=True)


def manifests_of(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The run.json of some runs. Raises StoreError, also where two folders hold the same run: every window of a copy would count twice."""
    manifests = [RunStore(folder).manifest() for folder in folders]
    folder_of: dict[str, Path] = {}
    for folder, manifest in zip(folders, manifests, strict=True):
        if (other := folder_of.setdefault(manifest["run_id"], folder)) != folder:
            raise StoreError(f"{other} and {folder} hold the same run, {manifest['run_id']}; name or keep one of them")
    return manifests


def _version(folder: Path) -> object:
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
        return json.loads(read_bytes(folder / "run.json")).get("schema_version")
    return None


def _skipped(run: RunStore) -> pa.Table:
    """The planned combinations that were left out, as rows of cells."""
    import pyarrow as pa

    manifest = run.manifest()
    keys = {"run_id": manifest["run_id"], "repeat": 0, "status": "skipped", "schema_version": WITH_PARCELS}
    rows = [{"cell_id": f"skipped-{at}", **skip, **keys} for at, skip in enumerate(manifest.get("skips", []))]
    return pa.Table.from_pylist(rows, schema=arrow_schema("cells"))


def _run_id(folder: Path) -> str:
    """The run that a folder holds. A person may have given the folder another name."""
    try:
        return str(json.loads(read_bytes(folder / "run.json"))["run_id"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return folder.name


def read(folders: Iterable[Path], table: str, kept: Kept | None = None, cells: pa.Table | None = None) -> pa.Table:
    """One table of some runs with the columns of TABLES; no rows where there are none. `kept` is what was read before.

    `cells` are those of the same runs, where they were read before: the checks of a repeat are held against what it owes.
    Raises StoreError where a file is no such table, holds what no run writes, or speaks for another run.
    """
    import pyarrow as pa

    schema = arrow_schema(table)
    whole = [pa.Table.from_batches([], schema=schema)]
    for folder in folders:
        if _version(folder) == WITH_PARCELS:
            whole.append(derived.read(folder, _run_id(folder), table))
            if table == "cells":
                whole.append(_skipped(RunStore(folder)))
            continue
        # Read first: what ends meanwhile has checks that are not read.
        ended_well = _ended_well(folder, cells) if table == "parity" else {}
        parts, packs = settled(folder, functools.partial(_parts, folder, table, kept))
        whole.append(pa.concat_tables([whole[0], *parts.values()]))
        # A run may have thousands of files: they are searched one by one only where there is a fault.
        run_id = _run_id(folder) if parts else ""
        if (
            other_runs(whole[-1], run_id)
            or other_schemas(whole[-1], table)
            or validate.of_table(whole[-1], table, TABLES[table])
        ):
            refuse(parts, table, run_id)
        for path, part in parts.items():
            if table == "cells" and not len(part) and path.stem != "skipped":
                raise StoreError(
                    f"{path} holds no repeat; restore it, or remove it and --resume measures that cell again"
                )
            if other := strange(path, part, packs):
                raise StoreError(f"{path} holds rows of {other}, which are not its own; remove or restore it")
        if table == "samples" and has_empty_windows(whole[-1]):
            refuse_empty_windows(folder, parts)
        if table == "parity" and validate.doubled(whole[-1], CHECK):
            refuse_doubled_checks(folder, parts)
        if ended_well:
            refuse_unproved(folder, whole[-1], packs, ended_well)
    return pa.concat_tables(whole)


def _ended_well(folder: Path, cells: pa.Table | None) -> dict[tuple[str, int], Mapping[str, Any]]:
    """The repeats of a run that ended well, and their rows with what decides which checks they owe."""
    run_id = _run_id(folder)
    rows = (read([folder], "cells") if cells is None else cells).select(
        [*validate.KEYS, "status", "workload", "preset"]
    )
    return {
        (row["cell_id"], row["repeat"]): row
        for row in rows.to_pylist()
        if row["status"] == "ok" and row["run_id"] == run_id
    }


def _parts(folder: Path, table: str, kept: Kept | None) -> tuple[dict[Path, pa.Table], Packs]:
    """A table of one run, file by file, and what its packs hold."""
    empty: dict[bytes, pa.Table] = {}
    # In this order: a repeat has files of the other tables before it has one of `cells`, and what is packed meanwhile is found in its pack.
    ended, singles = singles_of(folder / "cells"), singles_of(folder / table)
    packs = packs_of(folder)
    if table in ALWAYS:
        lost = {path.name for path in packs.others(ended) if path.stem != "skipped"} - {path.name for path in singles}
        for name in sorted(lost):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder / table / name))
    # A pack has a file of each table, be it one without rows: a reader must not go on without one that is lost.
    paths = [*(packs.path(table, pack) for pack in packs.names), *packs.others(singles)]
    if kept is not None:
        return kept.parts(folder, table, paths), packs
    return {path: read_file(path, table, empty) for path in paths}, packs
