"""A run as it lies on disk: results/<run id>/{run.json,repeats/<cell id>.r<repeat>.parcel,tables/<table>.parquet}.

run.json has the options, the plan, what was left out, and on which machine. A repeat has ended exactly when its parcel is there, which is
written aside, synced and renamed: a killed run loses none that ended (runner.results.parcel). The tables are derived from the parcels:
runner.admission.renew makes them, and whoever reads them reads only those that this installation made (runner.results.on_disk.derived).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import rules
from runner import known_messages, trees
from runner.errors import ExitCode
from runner.results.on_disk import derived
from runner.results.on_disk.schema import SCHEMA_VERSION as SCHEMA_VERSION
from runner.results.on_disk.schema import TABLES as TABLES
from runner.results.on_disk.schema import StoreError as StoreError
from runner.results.on_disk.schema import arrow_schema, no_rows, of_rows, other_kind
from runner.results.on_disk.schema import read_bytes as read_bytes
from runner.results.on_disk.schema import replace_bytes as replace_bytes
from runner.results.on_disk.schema import write_bytes as write_bytes

if TYPE_CHECKING:
    import pyarrow as pa

# The clock of no run says an earlier year: the project began in this one.
_FIRST_YEAR = 2026

# A repeat takes 150 kB as tables of its own, and a tenth of that in a piece with others.
_MOST_LATEST = 256


# Bytes of a file that tell its kind.
_HEAD = 200


class GoneError(StoreError):
    """The folder of a run that was moved or removed while the run went on: not all of it was run."""

    exit_code = ExitCode.FOUND


class RunStore:
    """One run's folder. Rows are dicts with the columns of TABLES; a column that is left out is null."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Name of a parcel -> its SHA-256, of those that this process admitted.
        self.admitted: dict[str, str] = {}
        # Table -> the rows of these: many repeats in one piece, and each of the latest alone.
        self._pieces: dict[str, list[pa.Table]] = {table: [] for table in TABLES}
        self._latest: dict[str, list[pa.Table]] = {table: [] for table in TABLES}
        self._lock = threading.Lock()
        # True once this process has seen or written its run.json.
        self._is_run = False

    @functools.cached_property
    def run_id(self) -> str:
        """The id that run.json has, or that it will have: a person may have given the folder another name."""
        try:
            return str(json.loads(read_bytes(self.folder / "run.json"))["run_id"])
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            return self.folder.name

    def network_folder(self, workload: str) -> Path:
        """The folder that holds the files of a person's own network, and nothing else: its cells see it and cannot write it."""
        return self.folder / "networks" / workload

    def word(self, workload: str) -> str:
        """The word by which --workloads takes a workload of this run: of a person's own network the copy that the run keeps."""
        return str(self.network_folder(workload)) if rules.is_own(workload) else workload

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        replace_bytes(self.folder / "run.json", json.dumps(manifest, indent=2, sort_keys=True).encode())
        self._is_run = True

    def manifest(self) -> dict[str, Any]:
        path, content = self.folder / "run.json", b""
        try:
            content = read_bytes(path)
            manifest = json.loads(content)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"{self.folder} is not a run: it has no run.json; name a folder that `runner matrix` made"
            ) from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read ({error.strerror}); restore it, or leave this run out") from None
        except (ValueError, RecursionError) as error:
            why = other_kind(content[:_HEAD], text=True) or str(error)
            raise StoreError(f"{path} is not JSON ({why}); restore it, or leave this run out") from None
        if not isinstance(manifest, dict) or type(manifest.get("schema_version")) is not int:
            raise StoreError(
                f"{path}: schema_version is no whole number, so no release wrote this; restore it, or leave this run out"
            )
        if manifest["schema_version"] != SCHEMA_VERSION:
            raise StoreError(
                f"{path}: schema_version is {manifest['schema_version']} and not {SCHEMA_VERSION}; read it with the release that wrote it, "
                "or leave this run out"
            )
        # It needs pydantic, which the machine that a kit measures may lack.
        from runner.results import validate

        if wrong := validate.of_manifest(manifest):
            raise StoreError(f"{path}: {wrong}; restore it, or leave this run out")
        self._is_run = True
        return manifest

    def refuse_gone(self) -> None:
        """Raises GoneError where somebody moved or removed the run: what were stored now would belong to none."""
        if self._is_run and not (self.folder / "run.json").is_file():
            raise GoneError(
                f"{self.folder} has no run.json any more: it was moved or removed in mid-run; put it back, then say --resume {self.run_id}"
            )

    def add(self, parcel: bytes, cell_id: str, repeat: int, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Store the parcel of one ended repeat. The rows that were made of it are kept until the tables are written."""
        if len(rows["cells"]) != 1:
            raise ValueError("a repeat has exactly one row in cells")
        name = derived.parcel_name(cell_id, repeat)
        tables = {
            table: derived.table_of(table, some, self.run_id, cell_id, repeat) for table, some in rows.items() if some
        }
        path = self.folder / "repeats" / name
        if path.is_dir():
            # A cell put it there.
            trees.remove(path)
        sha256 = hashlib.sha256(parcel).hexdigest()
        derived.sign(self.folder, self.run_id, name, sha256)
        replace_bytes(path, parcel)
        with self._lock:
            self.admitted[name] = sha256
            for table, part in tables.items():
                self._latest[table].append(part)
            if len(self._latest["cells"]) == _MOST_LATEST:
                self._pieces = {table: [*self._pieces[table], *_in_one(self._latest[table])] for table in TABLES}
                self._latest = {table: [] for table in TABLES}

    def rows(self, table: str) -> pa.Table:
        """The rows of a table of those repeats that this process admitted, in their order."""
        import pyarrow as pa

        with self._lock:
            return pa.concat_tables([no_rows(table), *self._pieces[table], *self._latest[table]])

    def parcels(self) -> dict[str, derived.ParcelFile]:
        """The parcels by their names."""
        return derived.parcels_of(self.folder)

    def finished(self) -> set[tuple[str, int]]:
        """(cell id, repeat) of every repeat that has ended."""
        return {(parcel.cell_id, parcel.repeat) for parcel in self.parcels().values()}

    def remove_parts(self) -> None:
        """Remove the aside files that a killed runner left."""
        for path in trees.files(self.folder):
            if path.name.startswith(".") and path.suffix == ".part":
                path.unlink(missing_ok=True)


def _in_one(parts: Sequence[pa.Table]) -> list[pa.Table]:
    import pyarrow as pa

    return [pa.concat_tables(parts).combine_chunks()] if parts else []


def unset_clock(seconds: float) -> str | None:
    """The date of a clock that was never set, of seconds since 1970: this project began later, and no parcel is of a later century. None
    for any other clock, and for 0.

    A board without a battery begins at 1970, or at its firmware's date.
    """
    from runner.results.parcel import MOST_UNIX

    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when:%Y-%m-%d}" if seconds and (when.year < _FIRST_YEAR or seconds > MOST_UNIX) else None


def created(folder: Path) -> float:
    """When a run was made, by the clock of its machine: seconds since 1970. 0 where its run.json does not say it."""
    with contextlib.suppress(OSError, ValueError, OverflowError, AttributeError):
        said = re.search(rb'"created": *"([^"]*)"', read_bytes(folder / "run.json"))
        return datetime.fromisoformat(said.group(1).decode()).timestamp()  # type: ignore[union-attr]
    return 0.0


def runs_below(out: Path) -> list[Path]:
    """The folders of the runs that lie directly in a folder, oldest first. Their names say nothing: people rename runs."""
    return sorted((path.parent for path in out.glob("*/run.json")), key=lambda folder: (created(folder), folder.name))


# The name of the newest run, where a run is asked for.
LATEST = "latest"


def run_folder(name: str, out: Path) -> Path:
    """The folder of a run that is given by its id below `out`, or by its folder; of LATEST the newest one."""
    if name == LATEST and not (out / name).is_dir() and (runs := runs_below(out)):
        return runs[-1]
    return out / name if (out / name).is_dir() else Path(name)


def manifests_of(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The run.json of some runs. Raises StoreError, also where two folders hold the same run: every window of a copy would count twice."""
    manifests = [RunStore(folder).manifest() for folder in folders]
    folder_of: dict[str, Path] = {}
    for folder, manifest in zip(folders, manifests, strict=True):
        refuse_a_copy(folder, manifest, folder_of.setdefault(manifest["run_id"], folder))
    return manifests


def refuse_a_copy(folder: Path, manifest: Mapping[str, Any], first: Path) -> None:
    """Raise StoreError where another folder is the first one with this run."""
    if first != folder:
        raise StoreError(f"{first} and {folder} hold the same run, {manifest['run_id']}; name or keep one of them")


def read(folders: Iterable[Path], table: str) -> pa.Table:
    """One table of some runs, as tables_of has it. Raises StoreError."""
    return tables_of(folders, (table,))[table]


def tables_of(folders: Iterable[Path], names: Sequence[str]) -> dict[str, pa.Table]:
    """Some tables of some runs with the columns of TABLES. A repeat that ends meanwhile is in all tables of its run, or in none.

    Raises StoreError where this installation did not make them of the run's parcels.
    """
    manifests = [(folder, RunStore(folder).manifest()) for folder in folders]
    return joined(
        [tables_of_run(folder, manifest, names) for folder, manifest in manifests], [m for _, m in manifests], names
    )


def joined(
    runs: Sequence[Mapping[str, pa.Table]], manifests: Iterable[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, pa.Table]:
    """The tables of some runs as one each, with the planned combinations that were left out."""
    import pyarrow as pa

    tables = {name: pa.concat_tables([no_rows(name), *(run[name] for run in runs)]) for name in names}
    if "cells" in tables:
        tables["cells"] = pa.concat_tables([tables["cells"], _skipped(manifests)])
    return tables


def tables_of_run(folder: Path, manifest: Mapping[str, Any], names: Sequence[str]) -> dict[str, pa.Table]:
    """Some tables of one run as they are stored. Raises StoreError."""
    try:
        return derived.read(folder, manifest["run_id"], names)
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder} cannot be read ({error.strerror}); restore it, or leave this run out"
        ) from None


def _skipped(manifests: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The planned combinations of some runs that were left out, as rows of cells."""
    keys = {"repeat": 0, "status": "skipped", "schema_version": SCHEMA_VERSION}
    rows = [
        {"cell_id": f"skipped-{at}", **skip, **keys, "run_id": manifest["run_id"]}
        for manifest in manifests
        for at, skip in enumerate(manifest.get("skips", []))
    ]
    return of_rows(arrow_schema("cells"), rows)


def statuses(folder: Path) -> dict[tuple[str, int], str]:
    """(cell id, repeat) -> status, of every repeat that the tables of a run hold. Raises StoreError."""
    rows = read([folder], "cells").select(["cell_id", "repeat", "status"]).to_pylist()
    return {(row["cell_id"], row["repeat"]): row["status"] for row in rows if row["status"] != "skipped"}


def due_again(folder: Path) -> set[tuple[str, int]]:
    """(cell id, repeat) of every stored repeat that failed by a fault of its machine: it is due again. None where the run has no tables
    yet."""
    columns = ["cell_id", "repeat", "status", "error_kind", "exit_code", "reason", "log_tail"]
    try:
        cells = read([folder], "cells").select(columns)
    except StoreError:
        return set()
    return {
        (row["cell_id"], row["repeat"])
        for row in cells.to_pylist()
        if row["status"] == "failed"
        and known_messages.due_again(row["error_kind"], row["exit_code"], row["reason"], row["log_tail"])
    }
