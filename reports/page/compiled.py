"""The templates, compiled: kept beside Python's own compiled modules, since to compile them takes longer than to write a small page."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, BytecodeCache


def folder() -> Path:
    """The folder in which Python keeps the compiled modules of this folder."""
    return Path(cache_from_source(__file__)).parent


def keep(path: Path, data: bytes) -> None:
    """Write a file of `folder`. As with a module, nothing is kept where Python keeps nothing, or where this user may not write."""
    if sys.dont_write_bytecode:
        return
    aside = path.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.write_bytes(data)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


class Compiled(BytecodeCache):
    """A file a template. Each is made anew where its template changed, or one of `sources`, which say how templates are compiled."""

    def __init__(self, sources: Iterable[str]) -> None:
        # Python may be without its sources.
        known = [Path(source).read_bytes() for source in sources if Path(source).is_file()]
        self._digest = hashlib.sha256(b"\0".join([jinja2.__version__.encode(), *known])).hexdigest()[:16]

    def _path(self, bucket: Bucket) -> Path:
        return folder() / f"template-{bucket.key}-{self._digest}.{sys.implementation.cache_tag}.bin"

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError), open(self._path(bucket), "rb") as file:
            # It takes none that another Python made, or that is of another template.
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        keep(self._path(bucket), bucket.bytecode_to_string())
