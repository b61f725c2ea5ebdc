"""The table `answers` of a run: a row for each of its cells, written beside the tables that are made of parcels, and named in their index.

Other tables, or other code of the report, make it old: the next command that reads the run writes it anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.answers.answer_rows import rows_of
from reports.data import tables as stored_runs
from reports.data.model import Tables
from reports.data.tables import ANSWER
from runner.results.on_disk import derived
from runner.results.on_disk.schema import ANSWERS, arrow_schema, of_rows
from runner.results.store import RunStore, StoreError

if TYPE_CHECKING:
    import pyarrow as pa

_CODE = b"code"
# The tables that the figures of the rows are made of. The times of tokens are metrics, and their floor comes from single operations.
NEEDED = (*ANSWER, "metrics", "operations")


def answers_of(folder: Path) -> pa.Table:
    """The table of a run, whose other tables agree with its parcels. It is written where it is missing or old. Raises StoreError."""
    stored = _current(folder)
    return as_arrow(rows_of(load_and_keep(folder))) if stored is None else stored


def load_and_keep(folder: Path, needed: Collection[str] = NEEDED) -> Tables:
    """Load a run, and write its answers. A folder that cannot be written keeps none, and nothing else suffers."""
    index = derived.signed_index(folder, RunStore(folder).run_id)
    tables = stored_runs.load([folder], needed)
    if index is not None:
        with contextlib.suppress(OSError):
            derived.add(folder, index, ANSWERS, as_arrow(rows_of(tables)))
    return tables


def _current(folder: Path) -> pa.Table | None:
    """The stored table; None where it is missing or old."""
    with contextlib.suppress(StoreError):
        stored = derived.read(folder, RunStore(folder).run_id, (ANSWERS,))[ANSWERS]
        if stored.schema.metadata.get(_CODE) == code_digest():
            return stored
    return None


def as_arrow(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows as Arrow has them."""
    schema = arrow_schema(ANSWERS)
    return of_rows(schema.with_metadata({**schema.metadata, _CODE: code_digest()}), rows)


@functools.cache
def code_digest() -> bytes:
    """The digest of the code that makes the rows of stored cells."""
    halls = Path(__file__).parents[1]
    sources = [path for hall in ("answers", "data") for path in (halls / hall).glob("*.py")]
    whole = hashlib.sha256()
    for path in sorted([*sources, halls / "wording.py", halls / "specifications.py"]):
        whole.update(path.read_bytes())
    return whole.hexdigest().encode()
