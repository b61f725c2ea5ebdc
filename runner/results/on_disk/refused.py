"""What of a table that was read is refused: what no run writes, and what cannot be of a repeat that ended well."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.results import validate
from runner.results.on_disk.layout import file_name
from runner.results.on_disk.packed import Packs, finished, packs_of
from runner.results.on_disk.table_file import read_file
from runner.results.on_disk.whole import StoreError
from runner.results.parquet.schema import SCHEMA_VERSION, TABLES
from runner.text import plural

if TYPE_CHECKING:
    import pyarrow as pa

# What tells one row of `parity` from another of its repeat.
CHECK = ("phase", "quantity", "tensor", "variant", "error", "bound", "passed")


def has_empty_windows(samples: pa.Table) -> bool:
    """Whether there is a window without steps or time. None has less."""
    import pyarrow.compute as pc

    return any(pc.min(samples[name]).as_py() == 0 for name in ("seconds", "steps"))


def refuse_empty_windows(folder: Path, parts: Mapping[Path, pa.Table]) -> None:
    """Raise StoreError where a repeat that ended well has a window without steps or time. That of one that failed may be why it did."""
    ended = finished(folder)
    for path, part in parts.items():
        for row in part.to_pylist() if has_empty_windows(part) else ():
            is_empty = 0 in (row["seconds"], row["steps"])
            if is_empty and ended.get((row["cell_id"], row["repeat"])) == "ok":
                has = f"window {row['index']} has steps {row['steps']} and seconds {row['seconds']:g}"
                raise StoreError(f"{path}: {has}, and neither is 0 where a cell ended well; remove or restore it")


def refuse_doubled_checks(folder: Path, parts: Mapping[Path, pa.Table]) -> None:
    """Raise StoreError where a repeat that ended well has a check twice: the runner fails a cell that prints one twice.

    Of an older release, which kept no phases, a quantity may be there once for each phase.
    """
    ended = finished(folder)
    for path, part in parts.items():
        counts = Counter(
            tuple(row.values())
            for row in part.to_pylist()
            if row["phase"] is not None and ended.get((row["cell_id"], row["repeat"])) == "ok"
        )
        if twice := counts.total() - len(counts):
            raise StoreError(
                f"{path}: it holds {plural(twice, 'row')} twice: each quantity is checked once; remove or restore it"
            )


def refuse_unproved(
    folder: Path, checks: pa.Table, packs: Packs, ended_well: Mapping[tuple[str, int], Mapping[str, Any]]
) -> None:
    """Raise StoreError where the checks of a repeat that ended well do not show what it owes."""
    from runner.results.plausible import checks as proved

    @functools.cache  # a pack holds many repeats
    def rows_of(path: Path) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read_file(path, "left_out", {}).to_pylist()
        return rows

    def left_out(key: tuple[str, int]) -> set[str]:
        path = packs.where("left_out", *key)
        if not path.is_file():
            # It may have been packed since the checks were read.
            path = packs_of(folder).where("left_out", *key)
        rows = rows_of(path) if path.is_file() else []
        return {row["what"] for row in rows if (row["cell_id"], row["repeat"]) == key}

    if fault := proved.fault(checks, ended_well, left_out):
        key, why = fault
        raise StoreError(
            f"{packs.where('parity', *key)}: {file_name(*key)} ended well, and {why}; restore the file, or remove "
            f"{packs.where('cells', *key).name} from cells and --resume measures again what it held"
        )


def other_runs(rows: pa.Table, run_id: str) -> set[str]:
    """The other runs that rows speak for."""
    return set(rows["run_id"].unique().to_pylist()) - {run_id, None}


def other_schemas(rows: pa.Table, table: str) -> set[int]:
    """The schemas of rows that this release does not know. Their columns may mean something else."""
    return set(rows["schema_version"].unique().to_pylist()) - {SCHEMA_VERSION, None} if table == "cells" else set()


def refuse(parts: Mapping[Path, pa.Table], table: str, run_id: str) -> None:
    """Raise StoreError for the first file of a run that holds what none of its own holds."""
    for path, part in parts.items():
        # A file from elsewhere would add to what another run measured.
        for other in other_runs(part, run_id):
            raise StoreError(f"{path} speaks for the run {other!r} and lies in {run_id!r}; remove or restore it")
        for version in other_schemas(part, table):
            raise StoreError(
                f"{path}: schema_version is {version}, not {SCHEMA_VERSION}; read it with the release that wrote it"
            )
        if fault := validate.of_table(part, table, TABLES[table]):
            raise StoreError(f"{path}: {fault}; remove or restore it")
