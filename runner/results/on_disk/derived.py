"""The tables of a run, derived from its parcels: <run>/tables/<table>.parquet and index.json, which is written last.

The index names the parcels that the tables were made of and the SHA-256 of each table. It is signed with a key of this installation, so
that only tables that this installation made are read: a copied or edited table has no valid signature. Such tables are made anew from the
parcels (runner.admission.renew). The table `answers` is made of the others by the report's code, and named in the index later.

Where the folder of a run cannot be written, its tables lie in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import paths, trees
from runner.errors import ExitCode, UserError, code_of_fault, naming
from runner.results.on_disk.schema import (
    ANSWERS,
    SCHEMA_VERSION,
    TABLES,
    StoreError,
    arrow_schema,
    read_bytes,
    replace_bytes,
    sync_names,
)

if TYPE_CHECKING:
    import pyarrow as pa

INDEX = "index.json"

# The folder of a run's tables, with the run.
_OWN = "tables"

_MOST_SIGNATURES_BYTES = 1 << 30

# Of one table.
_MOST_TABLE_BYTES = 8 << 30

_KEY_BYTES = 32
_KEY_FILE = "tables.key"

# A folder that cannot be written, or where another thing has the name of a table.
_NOT_WRITABLE = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ELOOP,
)  # fmt: skip

# Another process holds the tables for less. Without the lock the digests still show which files belong together.
_LOCK_SECONDS = 10.0

_PARCEL = re.compile(r"(?P<cell>[A-Za-z0-9_-]+)\.r(?P<repeat>[1-9][0-9]{0,8})\.parcel")


@dataclass(frozen=True)
class ParcelFile:
    """A parcel of a run, as it lies there."""

    path: Path
    cell_id: str
    repeat: int
    # Tells it from a file that takes its place, so that a parcel is read once only.
    mark: str

    @functools.cached_property
    def sha256(self) -> str:
        from runner.results.parcel import MOST_BYTES

        return hashlib.sha256(read_bytes(self.path, MOST_BYTES)).hexdigest()


@dataclass(frozen=True)
class Index:
    """The inputs of a run's tables, and the rules that made them."""

    run_id: str
    # The digest of the rules by which the parcels were admitted.
    rules: str
    # Name of a parcel -> its SHA-256, and the mark that it had.
    parcels: Mapping[str, tuple[str, str]]
    # Table -> the SHA-256 of its file.
    tables: Mapping[str, str]


def parcel_name(cell_id: str, repeat: int) -> str:
    """The name of the parcel of a repeat."""
    return f"{cell_id}.r{repeat}.parcel"


def parcels_of(folder: Path) -> dict[str, ParcelFile]:
    """The parcels of a run by their names, in order."""
    found = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder / "repeats") as entries:
        for entry in entries:
            if name := _PARCEL.fullmatch(entry.name):
                try:
                    if entry.is_file():
                        mark = mark_of(entry)
                        found[entry.name] = ParcelFile(Path(entry.path), name["cell"], int(name["repeat"]), mark)
                    else:
                        trees.tell(f"{entry.path} is no file, and is passed over; remove it")
                except FileNotFoundError:
                    pass  # one that is removed meanwhile does not count
                except OSError as error:
                    trees.tell(f"{entry.path} cannot be read ({error.strerror}), and is passed over; remove it")
    return dict(sorted(found.items()))


def mark_of(path: os.DirEntry[str] | Path) -> str:
    """Tells a file from one that takes its place. Nobody but the kernel sets when an inode changed."""
    status = path.stat()
    return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}"


def read(folder: Path, run_id: str, tables: Iterable[str]) -> dict[str, pa.Table]:
    """Some tables of a run, of one index. Raises StoreError where this installation made none of the parcels that lie there."""
    for place in _fullest_first(folder):
        with _locked(place, fcntl.LOCK_SH):
            index = read_index(place)
            if index is not None and index.run_id == run_id and not removed_or_changed(folder, index):
                return {table: _table(place, table, index) for table in tables}
    raise StoreError(
        f"{folder}: its tables were not made here from the parcels that it has; `runner report {folder}` makes them, or says why it cannot"
    )


def places(folder: Path) -> tuple[Path, ...]:
    """The folders for a run's tables: with the run, or if that cannot be written, in the cache.

    A link in place of the first is not followed: it would lead out of the run.
    """
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
    own, cached = folder / _OWN, paths.cache_folder() / "tables" / name
    return (cached,) if own.is_symlink() else (own, cached)


def _fullest_first(folder: Path) -> list[Path]:
    """The places of a run's tables; first the one that was made of most parcels: the other is older."""
    counts = {place: len(index.parcels) if (index := read_index(place)) else -1 for place in places(folder)}
    return sorted(counts, key=counts.__getitem__, reverse=True)


def removed_or_changed(folder: Path, index: Index) -> list[str]:
    """The parcels that an index names and that are gone or others now. A new one, of a run that goes on, changes no row."""
    parcels = parcels_of(folder)
    return [name for name in index.parcels if name not in parcels or is_changed(parcels[name], index)]


def is_changed(parcel: ParcelFile, index: Index) -> bool:
    """True if a parcel that an index names has other content now."""
    sha256, mark = index.parcels[parcel.path.name]
    return parcel.mark != mark and parcel.sha256 != sha256


def read_index(place: Path) -> Index | None:
    """The index of some tables; None where there is none that this installation signed."""
    try:
        data = read_bytes(place / INDEX)
    except OSError:
        return None
    return _signed(data, _key())


# A command reads several tables of a run.
@functools.lru_cache(maxsize=8)
def _signed(data: bytes, key: bytes) -> Index | None:
    with contextlib.suppress(ValueError, RecursionError, KeyError, TypeError):
        document = json.loads(data)
        signature = document.pop("hmac")
        if hmac.compare_digest(signature, _signature(document, key)):
            parcels = {name: (sha256, mark) for name, (sha256, mark) in document["parcels"].items()}
            return Index(document["run_id"], document["rules"], parcels, document["tables"])
    return None


def _signature(document: Mapping[str, Any], key: bytes) -> str:
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(key, content, hashlib.sha256).hexdigest()


# The signatures of the parcels that this installation stored, beside run.json: a line has a parcel's name, its SHA-256 and the signature.
SIGNATURES = "signatures"


def sign(folder: Path, run_id: str, name: str, sha256: str) -> None:
    """Note that this installation stores this parcel in this run. It is done before: a parcel without a signature is not of here."""
    path = folder / SIGNATURES
    if path.is_symlink() or (path.exists() and not path.is_file()):
        # A cell put it there. Nobody may ever read a pipe.
        trees.remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A runner that was killed may have left half of a line.
    line = f"\n{name} {sha256} {_of_parcel(run_id, name, sha256, _key())}\n".encode()
    with naming(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        # With a buffer: on a full disk the system may take a part of the line, and call that no error.
        with open(descriptor, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def signed(folder: Path, run_id: str) -> dict[str, set[str]]:
    """Name of a parcel -> each SHA-256 with which this installation stored it in this run."""
    try:
        content = read_bytes(folder / SIGNATURES, _MOST_SIGNATURES_BYTES)
    except OSError:
        return {}
    key, found = _key(), dict[str, set[str]]()
    for line in content.decode("ascii", "replace").splitlines():
        words = line.split(" ")
        if len(words) == 3:
            name, sha256, signature = words
            if hmac.compare_digest(signature.encode(), _of_parcel(run_id, name, sha256, key).encode()):
                found.setdefault(name, set()).add(sha256)
    return found


def _of_parcel(run_id: str, name: str, sha256: str, key: bytes) -> str:
    return _signature({"run": run_id, "parcel": name, "sha256": sha256}, key)


def signed_index(folder: Path, run_id: str) -> Index | None:
    """The index of a run's tables; None where none is signed by this installation."""
    indices = (read_index(place) for place in _fullest_first(folder))
    return next((index for index in indices if index is not None and index.run_id == run_id), None)


def is_current(folder: Path, index: Index, parcels: Mapping[str, ParcelFile]) -> bool:
    """True if the tables are of exactly these parcels, and lie there as they were written."""
    same = {name: parcel.mark for name, parcel in parcels.items()} == {
        n: mark for n, (_, mark) in index.parcels.items()
    }
    return same and any(_has_tables(place, index) for place in places(folder))


def _has_tables(place: Path, index: Index) -> bool:
    with _locked(place, fcntl.LOCK_SH), contextlib.suppress(OSError):
        return read_index(place) == index and all(
            hashlib.sha256(read_bytes(place / f"{table}.parquet", _MOST_TABLE_BYTES)).hexdigest() == index.tables[table]
            for table in TABLES
        )
    return False


def read_tables(folder: Path, index: Index) -> dict[str, pa.Table] | None:
    """All tables of a run; None where one of them is not as this installation wrote it."""
    for place in places(folder):
        with _locked(place, fcntl.LOCK_SH), contextlib.suppress(StoreError):
            if read_index(place) == index:
                return {table: _table(place, table, index) for table in TABLES}
    return None


def _table(place: Path, table: str, index: Index) -> pa.Table:
    """Raises StoreError where the file is not the one that the index names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = place / f"{table}.parquet"
    with contextlib.suppress(OSError, pa.ArrowException):
        data = read_bytes(path, _MOST_TABLE_BYTES)
        if hashlib.sha256(data).hexdigest() == index.tables.get(table):
            with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
                stored = file.read(use_threads=False)
            # Another release may have had other columns.
            if stored.schema.equals(arrow_schema(table)):
                return stored
    raise StoreError(
        f"{path} is not the table that was written there; remove the folder {place}, and the next command makes it anew"
    )


def write(
    folder: Path, run_id: str, tables: Mapping[str, pa.Table], parcels: Mapping[str, tuple[str, str]], rules: str
) -> None:
    """Write all tables of a run, and the index of them last. Raises OSError."""
    files = {table: to_bytes(_in_order(tables[table])) for table in TABLES}
    digests = {table: hashlib.sha256(data).hexdigest() for table, data in files.items()}
    index = Index(run_id, rules, parcels, digests)
    first, *others = places(folder)
    try:
        _write(first, files, index)
    except OSError as error:
        if error.errno not in _NOT_WRITABLE or not others:
            raise
        _write(others[0], files, index)


def _in_order(table: pa.Table) -> pa.Table:
    """The rows by cell and repeat, and those of one repeat as they are."""
    # Only who writes tables needs them.
    import numpy as np

    from runner.results.rows import place_codes, taken

    codes, places = place_codes(table)
    ranks = np.empty(len(places), np.int64)
    ranks[sorted(range(len(places)), key=places.__getitem__)] = np.arange(len(places))
    return taken(table, np.argsort(ranks[codes], kind="stable"))


def _write(place: Path, tables: Mapping[str, bytes], index: Index) -> None:
    # A run that somebody moved away in mid-run must not have a second folder in its place: only the cache is made with all folders above.
    place.mkdir(parents=place.name != _OWN, exist_ok=True)
    with _locked(place, fcntl.LOCK_EX):
        for table, data in tables.items():
            replace_bytes(place / f"{table}.parquet", data)
        _write_index(place, index)
        # They were of other tables.
        (place / f"{ANSWERS}.parquet").unlink(missing_ok=True)


def _write_index(place: Path, index: Index) -> None:
    # As it will be read: JSON has no tuples.
    document = json.loads(json.dumps(asdict(index)))
    replace_bytes(place / INDEX, json.dumps(document | {"hmac": _signature(document, _key())}).encode())


def add(folder: Path, index: Index, table: str, rows: pa.Table) -> None:
    """Write a table that was made of those of this index, and name it there. If the tables are others by now, it is not written."""
    data = to_bytes(rows)
    for place in places(folder):
        with _locked(place, fcntl.LOCK_EX):
            now = read_index(place)
            if now is not None and (now.run_id, _made_of(now)) == (index.run_id, _made_of(index)):
                replace_bytes(place / f"{table}.parquet", data)
                _write_index(place, replace(now, tables={**now.tables, table: hashlib.sha256(data).hexdigest()}))


def _made_of(index: Index) -> dict[str, str]:
    """The digests of the tables that are made of parcels."""
    return {table: digest for table, digest in index.tables.items() if table in TABLES}


def to_bytes(rows: pa.Table) -> bytes:
    """A table as it is written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def table_of(table: str, rows: Sequence[Mapping[str, Any]], run_id: str, cell_id: str, repeat: int) -> pa.Table:
    """The rows of one repeat as Arrow has them. A column that is left out is null."""
    import pyarrow as pa

    schema = arrow_schema(table)
    if unknown := set().union(*rows) - set(schema.names):
        raise ValueError(f"{table} has no column {sorted(unknown)}")
    keys = {"run_id": run_id, "cell_id": cell_id, "repeat": repeat, "schema_version": SCHEMA_VERSION}
    columns = [
        [keys[field.name]] * len(rows) if field.name in keys else [row.get(field.name) for row in rows]
        for field in schema
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


@contextlib.contextmanager
def _locked(place: Path, kind: int) -> Iterator[None]:
    """Hold the tables in a folder for a while: whoever reads them sees those of one index. One that cannot be locked is read without."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        # There are no tables.
        yield
        return
    try:
        end = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < end:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:
                break
        yield
    finally:
        os.close(descriptor)


class NoKeyError(StoreError):
    """The cache folder holds no key and takes none: somebody put a file in its place, for example. No command was given wrongly."""

    exit_code = ExitCode.CANNOT_BEGIN


def make_key() -> None:
    """Make the key of this installation, if there is none: a disk that is full later keeps no run from being read. Raises StoreError."""
    _key()


def _key() -> bytes:
    """The key of this installation, which is made when it is needed first. Raises StoreError, or OSError where the machine is at fault.

    It lies with what the user made, since a cache is freed, or another one is taken, and the runs stay. Where that folder takes no
    file, as in a container without a home, it lies in the cache.
    """
    cached = paths.cache_folder() / _KEY_FILE
    with contextlib.suppress(UserError):
        own = paths.data_folder() / _KEY_FILE
        try:
            return _key_at(own, cached)
        except OSError as error:
            # Below a HOME in /proc or /sys no folder can be.
            if error.errno not in (*_NOT_WRITABLE, errno.ENOENT) or own.exists():
                raise
    try:
        return _key_at(cached)
    except OSError as error:
        # Another folder would help nobody where the key is: the runs of this installation are signed with it.
        if code_of_fault(error) is ExitCode.CANNOT_BEGIN and cached.exists():
            raise
        raise NoKeyError(
            f"{cached} cannot be used ({error.strerror}), and no run is read without it; set XDG_CACHE_HOME to a folder of yours"
        ) from None


def _key_at(path: Path, earlier: Path | None = None) -> bytes:
    """The key in a file: that of the earlier place, where this has none. Raises OSError."""
    with naming(path):
        # A cell without walls may have put there what is none; the run goes on.
        if not _is_key(path) and trees.remove(path) is None:
            trees.tell(f"{path} was no key: there is a new one, and the tables of runs are made anew")
        if (key := _read_key(path)) is not None:
            return key
        # An earlier release on the same machine goes on reading it where it is.
        return _new_key(path, _read_key(earlier) if earlier and _is_key(earlier) else None)


def _is_key(path: Path) -> bool:
    """False where something else has its name, a link too. One that is missing is made later."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    return stat.S_ISREG(status.st_mode) and status.st_size == _KEY_BYTES


def key_of(path: Path) -> bytes:
    """The key in a file that only this user reads; it is made when it is needed first. Raises OSError."""
    return _read_key(path) or _new_key(path)


def _read_key(path: Path) -> bytes | None:
    try:
        key = read_bytes(path, _KEY_BYTES)
    except FileNotFoundError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _new_key(path: Path, key: bytes | None = None) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key or secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        # Another process may have made one meanwhile, which stays.
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    # Without its key, no parcel would be of this installation.
    sync_names(path.parent)
    made = _read_key(path)
    if made is None:
        raise OSError(errno.EINVAL, "it is no key; remove it", str(path))
    return made
