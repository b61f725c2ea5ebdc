"""What was read of runs before: a report that is written many times reads only files that are new."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from runner.results.on_disk.table_file import read_file

if TYPE_CHECKING:
    import pyarrow as pa


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
