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

import errno
import functools
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runner.errors import UserError
from runner.results import validate
from runner.results.parquet import bounded
from runner.results.parquet.schema import SCHEMA_VERSION as SCHEMA_VERSION
from runner.results.parquet.schema import TABLES as TABLES
from runner.results.parquet.schema import arrow_schema as arrow_schema
from runner.text import in_a_line, plural

if TYPE_CHECKING:
    import pyarrow as pa

# In characters: two paths and what is wrong.
_LONGEST_ERROR = 20_000

# The stem of the files of many repeats together.
_PACK = re.compile(r".+\.p[1-9][0-9]*")

# The tables of which every release wrote a file for each repeat, be it one without rows. The others came later.
ALWAYS = ("samples", "metrics", "parity")

# What tells one row of `parity` from another of its repeat.
CHECK = ("phase", "quantity", "tensor", "variant", "error", "bound", "passed")

# A runner may put files together while they are read: so often they are looked for again.
_MOST_LOOKS = 5

Found = TypeVar("Found")


class StoreError(UserError):
    """A stored file that cannot be used; the message names it and says what to do.

    It is one line without escapes: the name of a folder may hold line breaks.
    """

    def __init__(self, message: str) -> None:
        super().__init__(in_a_line(message, _LONGEST_ERROR))


def run_folder(name: str, out: Path) -> Path:
    """The folder of a run that is given by its id below `out`, or by its folder."""
    return out / name if (out / name).is_dir() else Path(name)


def file_name(cell_id: str, repeat: int) -> str:
    """The stem of every file of one repeat of a cell."""
    return f"{cell_id}.r{repeat}"


def is_pack(path: Path) -> bool:
    """Whether a file of a table is one of many repeats together."""
    return _PACK.fullmatch(path.stem) is not None


# A run.json holds the plan: some hundred bytes a cell.
MOST_MANIFEST_BYTES = 64 << 20
# The most rows and bytes of one repeat's table, as it lies on disk and in memory. runner.run.record keeps at most 200 000 events of 64 MiB
# of a cell; the runner adds its keys, and some rows of its own.
_MOST_ROWS, _MOST_TABLE_BYTES = 201_000, 96 << 20
# Longer tables are compressed.
_MANY_ROWS = 1000
# Telemetry of days on sixteen GPUs.
_MOST_TELEMETRY_ROWS, _MOST_TELEMETRY_BYTES = 1_000_000, 192 << 20


def read_bytes(path: Path, most: int = MOST_MANIFEST_BYTES) -> bytes:
    """What a file holds. Raises OSError where it has more than `most` bytes, or is no file: a pipe may never be written to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        if status.st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
        # Most files are small: one call reads one.
        data = os.read(descriptor, min(most, status.st_size))
        if len(data) == status.st_size:
            return data
        with open(descriptor, "rb", closefd=False) as file:
            return data + file.read(most - len(data))
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file aside, sync it, and rename it into place: a reader sees all of it or none."""
    # /dev/stdout must stay what it is.
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        # A full disk names no file.
        error.filename = error.filename or str(path)
        raise
    finally:
        aside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
        if manifest["schema_version"] != SCHEMA_VERSION:
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
        return _settled(self.folder, self._finished)

    def _finished(self) -> dict[tuple[str, int], str]:
        # In this order: what is packed meanwhile is found in its pack.
        singles, packs = singles_of(self.folder / "cells"), packs_of(self.folder)
        ended: dict[tuple[str, int], str] = {}
        for path in [*(packs.path("cells", pack) for pack in packs.names), *packs.others(singles)]:
            for cell, repeat, status in _ended(path):
                ended[cell, repeat] = status
        return ended

    def remove_parts(self) -> None:
        """Remove the aside files that a killed runner left."""
        for path in self.folder.rglob(".*.part"):
            path.unlink(missing_ok=True)


def manifests_of(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The run.json of some runs. Raises StoreError, also where two folders hold the same run: every window of a copy would count twice."""
    manifests = [RunStore(folder).manifest() for folder in folders]
    folder_of: dict[str, Path] = {}
    for folder, manifest in zip(folders, manifests, strict=True):
        if (other := folder_of.setdefault(manifest["run_id"], folder)) != folder:
            raise StoreError(f"{other} and {folder} hold the same run, {manifest['run_id']}; name or keep one of them")
    return manifests


def _run_id(folder: Path) -> str:
    """The run that a folder holds. A person may have given the folder another name."""
    try:
        return str(json.loads(read_bytes(folder / "run.json"))["run_id"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return folder.name


def to_bytes(rows: pa.Table) -> bytes:
    """A table as the store writes it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    # A compressed column takes three times as long to read, and of a few rows it is no smaller.
    many = len(rows) > _MANY_ROWS
    pq.write_table(
        rows,
        sink,
        compression="zstd" if many else "none",
        use_dictionary=len(rows) > 1,
        write_statistics=many,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue().to_pybytes())


class Kept:
    """What was read of some runs before: only files that are new or others are read again. A run's report is written many times.

    Of each table its files are kept as one table: so many small ones would take ten times the memory.
    """

    def __init__(self) -> None:
        # (folder, table) -> path -> (what the file was, its first row, its rows); and the rows of all of them.
        self._files: dict[tuple[Path, str], dict[Path, tuple[tuple[int, ...], int, int]]] = {}
        self._rows: dict[tuple[Path, str], pa.Table | None] = {}

    def parts(self, folder: Path, table: str, paths: Iterable[Path]) -> dict[Path, pa.Table]:
        """These files of a table of a run. Raises as read_file does."""
        import pyarrow as pa

        before, rows = self._files.get((folder, table), {}), self._rows.get((folder, table))
        empty: dict[bytes, pa.Table] = {}
        parts, states = {}, {}
        for path in paths:
            # First: a file that becomes another one meanwhile is read again the next time.
            states[path] = _state(path)
            state, begin, count = before.get(path, ((), 0, 0))
            if rows is not None and state == states[path]:
                parts[path] = rows.slice(begin, count)
            else:
                parts[path] = read_file(path, table, empty)
        files, begin = {}, 0
        for path, part in parts.items():
            files[path] = states[path], begin, len(part)
            begin += len(part)
        self._files[folder, table] = files
        self._rows[folder, table] = pa.concat_tables(parts.values()).combine_chunks() if parts else None
        return parts


def _state(path: Path) -> tuple[int, ...]:
    """What tells a file from one that takes its place."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read(folders: Iterable[Path], table: str, kept: Kept | None = None, cells: pa.Table | None = None) -> pa.Table:
    """One table of some runs with the columns of TABLES; no rows where there are none. `kept` is what was read before.

    `cells` are those of the same runs, where they were read before: the checks of a repeat are held against what it owes.
    Raises StoreError where a file is no such table, holds what no run writes, or speaks for another run.
    """
    import pyarrow as pa

    schema = arrow_schema(table)
    whole = [pa.Table.from_batches([], schema=schema)]
    for folder in folders:
        # Read first: what ends meanwhile has checks that are not read.
        ended_well = _ended_well(folder, cells) if table == "parity" else {}
        parts, packs = _settled(folder, functools.partial(_parts, folder, table, kept))
        whole.append(pa.concat_tables([whole[0], *parts.values()]))
        # A run may have thousands of files: they are searched one by one only where there is a fault.
        run_id = _run_id(folder) if parts else ""
        if (
            _others(whole[-1], run_id)
            or _other_schemas(whole[-1], table)
            or validate.of_table(whole[-1], table, TABLES[table])
        ):
            _refuse(parts, table, run_id)
        for path, part in parts.items():
            if table == "cells" and not len(part) and path.stem != "skipped":
                raise StoreError(
                    f"{path} holds no repeat; restore it, or remove it and --resume measures that cell again"
                )
            if other := strange(path, part, packs):
                raise StoreError(f"{path} holds rows of {other}, which are not its own; remove or restore it")
        if table == "samples" and _has_empty_windows(whole[-1]):
            _refuse_empty_windows(folder, parts)
        if table == "parity" and validate.doubled(whole[-1], CHECK):
            _refuse_doubled_checks(folder, parts)
        if ended_well:
            _refuse_unproved(whole[-1], packs, ended_well)
    return pa.concat_tables(whole)


def _has_empty_windows(samples: pa.Table) -> bool:
    """Whether there is a window without steps or time. None has less."""
    import pyarrow.compute as pc

    return any(pc.min(samples[name]).as_py() == 0 for name in ("seconds", "steps"))


def _refuse_empty_windows(folder: Path, parts: Mapping[Path, pa.Table]) -> None:
    """Raise StoreError where a repeat that ended well has a window without steps or time. That of one that failed may be why it did."""
    ended = RunStore(folder).finished()
    for path, part in parts.items():
        for row in part.to_pylist() if _has_empty_windows(part) else ():
            is_empty = 0 in (row["seconds"], row["steps"])
            if is_empty and ended.get((row["cell_id"], row["repeat"])) == "ok":
                has = f"window {row['index']} has steps {row['steps']} and seconds {row['seconds']:g}"
                raise StoreError(f"{path}: {has}, and neither is 0 where a cell ended well; remove or restore it")


def _refuse_doubled_checks(folder: Path, parts: Mapping[Path, pa.Table]) -> None:
    """Raise StoreError where a repeat that ended well has a check twice: the runner fails a cell that prints one twice.

    Of an older release, which kept no phases, a quantity may be there once for each phase.
    """
    ended = RunStore(folder).finished()
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


def _refuse_unproved(checks: pa.Table, packs: Packs, ended_well: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
    """Raise StoreError where the checks of a repeat that ended well do not show what it owes."""
    from runner.results.plausible import checks as proved

    def left_out(key: tuple[str, int]) -> set[str]:
        path = packs.where("left_out", *key)
        rows = read_file(path, "left_out", {}).to_pylist() if path.is_file() else []
        return {row["what"] for row in rows if (row["cell_id"], row["repeat"]) == key}

    if fault := proved.fault(checks, ended_well, left_out):
        key, why = fault
        raise StoreError(
            f"{packs.where('parity', *key)}: {file_name(*key)} ended well, and {why}; restore the file, or remove "
            f"{packs.where('cells', *key).name} from cells and --resume measures again what it held"
        )


def _settled(folder: Path, look: Callable[[], Found]) -> Found:
    """What `look` finds in a run whose files a runner may put together meanwhile. Raises StoreError where one is gone each time."""
    for _ in range(_MOST_LOOKS):
        try:
            return look()
        except FileNotFoundError as error:
            gone = error
    name = Path(gone.filename).name
    raise StoreError(
        f"{folder}: {gone.filename} was there and is gone; restore it, or read the run again when nothing works on it, "
        f"or remove {name} from cells and --resume measures again what it held"
    )


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


def files_of_cells(folder: Path) -> list[Path]:
    """The files with the rows of the repeats of a run, packed or not. While files are put together a repeat may be in two of them."""
    return [path for path in sorted((folder / "cells").glob("*.parquet")) if path.stem != "skipped"]


def singles_of(folder: Path) -> list[Path]:
    """The files of a table that are no packs."""
    return [path for path in sorted(folder.glob("*.parquet")) if not is_pack(path)]


@dataclass(frozen=True)
class Packs:
    """The packs of a run that count, and which of them has a repeat: by the stem that the repeat's own files had."""

    folder: Path
    names: Sequence[str]
    pack_of: Mapping[str, str]

    def path(self, table: str, pack: str) -> Path:
        return self.folder / table / f"{pack}.parquet"

    def others(self, paths: Iterable[Path]) -> list[Path]:
        """Those of some repeats' files that are in no pack."""
        return [path for path in paths if path.stem not in self.pack_of]

    def where(self, table: str, cell_id: str, repeat: int) -> Path:
        """The file that holds a table of a repeat, if the repeat has rows in it."""
        name = file_name(cell_id, repeat)
        return self.path(table, self.pack_of.get(name, name))


def packs_of(folder: Path) -> Packs:
    """The packs of the run in a folder. Raises StoreError, and FileNotFoundError where one is removed meanwhile."""
    pack_of: dict[str, str] = {}
    paths = sorted(path for path in (folder / "cells").glob("*.p[0-9]*.parquet") if is_pack(path))
    for path in paths:
        for cell, repeat, _ in _ended(path):
            # Either of the two could be the true one.
            if (other := pack_of.setdefault(file_name(cell, repeat), path.stem)) != path.stem:
                other_path = path.with_name(f"{other}.parquet")
                raise StoreError(f"{other_path} and {path} hold the same repeat {repeat} of {cell}; remove one of them")
    return Packs(folder, tuple(path.stem for path in paths), pack_of)


def _ended(path: Path) -> list[tuple[str, int, str]]:
    """(cell id, repeat, status) of the repeats in a file of cells. The skipped combinations are none. Raises StoreError."""
    import pyarrow as pa

    if path.stem == "skipped":
        return []
    try:
        rows = read_columns(path, ["cell_id", "repeat", "status"]).to_pylist()
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        why = f"it cannot be read as a cells table ({error})"
        raise StoreError(f"{path}: {why}; restore it, or remove it and --resume measures that cell again") from None
    keys = [(row["cell_id"], row["repeat"], row["status"]) for row in rows]
    if len({key[:2] for key in keys}) < len(keys) or any(None in key[:2] for key in keys):
        raise StoreError(f"{path} holds a repeat twice, or one without a name; remove or restore it")
    return keys


def strange(path: Path, part: pa.Table, packs: Packs) -> str:
    """A repeat whose rows are in a file that is not its own; empty where there is none."""
    if not len(part) or path.stem == "skipped":
        return ""
    if is_pack(path):
        cells, repeats = part["cell_id"], part["repeat"]
        firsts = validate.first_of_each(part, ("cell_id", "repeat"))
        names = (file_name(cells[place].as_py(), repeats[place].as_py()) for place in map(int, firsts))
        return next((name for name in names if packs.pack_of.get(name) != path.stem), "")
    for cell in part["cell_id"].unique().to_pylist():
        for repeat in part["repeat"].unique().to_pylist():
            if file_name(cell, repeat) != path.stem:
                return file_name(cell, repeat)
    return ""


def _others(rows: pa.Table, run_id: str) -> set[str]:
    """The other runs that rows speak for."""
    return set(rows["run_id"].unique().to_pylist()) - {run_id, None}


def _other_schemas(rows: pa.Table, table: str) -> set[int]:
    """The schemas of rows that this release does not know. Their columns may mean something else."""
    return set(rows["schema_version"].unique().to_pylist()) - {SCHEMA_VERSION, None} if table == "cells" else set()


def _refuse(parts: Mapping[Path, pa.Table], table: str, run_id: str) -> None:
    """Raise StoreError for the first file of a run that holds what none of its own holds."""
    for path, part in parts.items():
        # A file from elsewhere would add to what another run measured.
        for other in _others(part, run_id):
            raise StoreError(f"{path} speaks for the run {other!r} and lies in {run_id!r}; remove or restore it")
        for version in _other_schemas(part, table):
            raise StoreError(
                f"{path}: schema_version is {version}, not {SCHEMA_VERSION}; read it with the release that wrote it"
            )
        if fault := validate.of_table(part, table, TABLES[table]):
            raise StoreError(f"{path}: {fault}; remove or restore it")


def read_columns(path: Path, names: Collection[str], optional: bool = False) -> pa.Table:
    """These columns of one file; with `optional`, those of them that it has. Raises pyarrow.ArrowException or OSError."""
    most_rows, most_bytes = limits(path)
    return bounded.columns(read_bytes(path, most_bytes), names, optional, most_rows, most_bytes)


def limits(path: Path) -> tuple[int, int]:
    """The most rows and bytes that a run writes into a file. A repeat has one row in cells; the skipped ones lie in a file of their own.

    A pack is no larger than the tables of one repeat may be.
    """
    if path.parent.name == "telemetry":
        return _MOST_TELEMETRY_ROWS, _MOST_TELEMETRY_BYTES
    alone = path.parent.name == "cells" and path.stem != "skipped" and not is_pack(path)
    return 1 if alone else _MOST_ROWS, _MOST_TABLE_BYTES


def _as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def read_file(path: Path, table: str, empty: dict[bytes, pa.Table]) -> pa.Table:
    """One file with the columns of a table: null where the release that wrote it had no such column.

    Raises StoreError, and FileNotFoundError where it is not there.

    `empty` are the files without a row that were read before, by what they hold: of most tables a run has hundreds that are the same.
    """
    import pyarrow as pa

    schema = arrow_schema(table)
    try:
        most_rows, most_bytes = limits(path)
        data = read_bytes(path, most_bytes)
        if data in empty:
            return empty[data]
        stored = bounded.columns(data, schema.names, True, most_rows, most_bytes)
        if not len(stored) and stored.schema.equals(schema):
            empty[data] = stored
        if stored.schema.equals(schema):
            return stored
        there = set(stored.column_names)
        columns = [
            _as_type(stored[field.name], field.type) if field.name in there else pa.nulls(len(stored), field.type)
            for field in schema
        ]
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} cannot be read as a {table} table ({error}); remove or restore it") from None
    return pa.Table.from_arrays(columns, schema=schema)
