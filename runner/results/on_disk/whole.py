"""Files that are read and written whole: a reader sees all of a file or none of it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UserError, naming
from runner.text import in_a_line

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# In characters: two paths and what is wrong.
_LONGEST_ERROR = 20_000

# Of the footer of a Parquet file: a text, and the parts of a list. The longest text is the manifest of a reference.
_MOST_TEXT, _MOST_PARTS = 16 << 20, 10_000

# A run.json holds the plan: some hundred bytes a cell.
MOST_MANIFEST_BYTES = 64 << 20


class StoreError(UserError):
    """A stored file that cannot be used; the message names it and says what to do.

    It is one line without escapes: the name of a folder may hold line breaks.
    """

    def __init__(self, message: str) -> None:
        super().__init__(in_a_line(message, _LONGEST_ERROR))


def read_bytes(path: Path, most: int = MOST_MANIFEST_BYTES) -> bytes:
    """The bytes of a file. Raises OSError where it has more than `most` bytes, or is no file: a pipe may never be written to."""
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


def other_kind(head: bytes, *, text: bool = False) -> str | None:
    """A clause on the kind of a file that is not what it was taken for, by its first bytes, and what to do; None if it is not known.

    `text`: it was taken for text, so that it is text says nothing.
    """
    if head.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS: `git lfs pull` gets the file that it stands for"
    if head.startswith(b"PK\x03\x04"):
        return "it is a zip file, or a spreadsheet"
    if head.lstrip()[:1] == b"<":
        return "it is a web page: what was saved is a login or an error, and not the file"
    if head and not text and not set(head) - set(range(32, 127)) - set(b"\t\r\n"):
        return "it is text"
    return None


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file that a user named, as replace_bytes does; a link, a pipe or a device stays what it is."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        with naming(path):
            path.write_bytes(data)
    else:
        replace_bytes(path, data)


def replace_bytes(path: Path, data: bytes) -> None:
    """Write a file aside, sync it, and rename it into place: a reader sees all of it or none.

    A link or a pipe of that name is replaced: the folder may come from elsewhere, and nothing is written outside of it.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with open(aside, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        sync_names(path.parent)


def sync_names(folder: Path) -> None:
    """Let the names of the files in a folder outlive a failure of power. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_parquet(data: bytes) -> pq.ParquetFile:
    """A Parquet file of unknown origin, with pyarrow's own limits. Raises pyarrow.ArrowException."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        pa.BufferReader(data),
        pre_buffer=False,
        page_checksum_verification=True,
        thrift_string_size_limit=_MOST_TEXT,
        thrift_container_size_limit=_MOST_PARTS,
    )
