"""A Parquet file whose footer or pages lie is read as it was written, or refused in a sentence, and takes no memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runner.results import store
from runner.results.parquet import pages
from runner.verify.references.measured import reference_of
from runner.verify.references.saved import SavedError, read, to_bytes
from tests.fixtures import parquet_lies as lies
from tests.fixtures import synthetic
from tests.fixtures.parquet_lies import Field, Struct

Change = Callable[[Struct], object]


@pytest.fixture(params=["as it is stored", "as a release before stored it"])
def samples(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A stored table of 44 rows."""
    run = synthetic.make_run(tmp_path / "run", windows=40)
    path = min((run / "samples").glob("*.parquet"))
    if request.param != "as it is stored":
        # With statistics, and compressed.
        pq.write_table(pq.read_table(path), path, compression="zstd")
    return path


def rows(value: int) -> Change:
    return lambda footer: setattr(footer[lies.ROWS], "value", value)


def rows_of_groups(value: int) -> Change:
    return lambda footer: [setattr(group[lies.GROUP_ROWS], "value", value) for group in footer[lies.GROUPS].value[1]]


def in_chunks(place: int, value: Callable[[int], int]) -> Change:
    def change(footer: Struct) -> None:
        for chunk in lies.chunks(footer):
            if place in chunk:
                chunk[place].value = value(chunk[place].value)

    return change


def several(*changes: Change) -> Change:
    return lambda footer: [change(footer) for change in changes]


def other_columns(count: int) -> Change:
    """A group of rows with so many columns that say nothing."""
    empty = {2: Field(6, 0)}
    return lambda footer: setattr(
        footer[lies.GROUPS].value[1][0][lies.GROUP_COLUMNS], "value", (12, [empty] * count)
    )  # fmt: skip


def statistics(footer: Struct) -> None:
    """The least and greatest value are others, and all values are null."""
    for chunk in lies.chunks(footer):
        for field in chunk[lies.STATISTICS].value.values() if lies.STATISTICS in chunk else ():
            if field.kind in (6, 8):
                field.value = 10**9 if field.kind == 6 else b"\xff" * 8


def elsewhere(footer: Struct) -> None:
    """The columns lie in another file."""
    for group in footer[lies.GROUPS].value[1]:
        for chunk in group[lies.GROUP_COLUMNS].value[1]:
            chunk[lies.CHUNK_FILE] = Field(8, b"/etc/passwd")


def other_names(footer: Struct) -> None:
    for chunk in lies.chunks(footer):
        chunk[lies.PATH].value[1][0] = b"other"


def without_nulls(footer: Struct) -> None:
    """Its columns have no nulls, and the counts of their nulls are there."""
    for element in footer[lies.SCHEMA].value[1]:
        if lies.REPETITION in element:
            element[lies.REPETITION].value = 0


# What the footer says -> words of the sentence; "" where the file is read as it was written.
LIES: dict[str, tuple[Change, str]] = {
    "more rows": (rows(45), "its footer says 45 rows, and its groups of rows have 44"),
    "fewer rows than none": (rows(-1), "its footer says -1 rows"),
    "groups with fewer rows": (rows_of_groups(1), "its footer says 44 rows, and its groups of rows have 1"),
    "one row everywhere": (several(rows(1), rows_of_groups(1)), "run_id has 44 values in 1 rows"),
    "no rows": (several(rows(0), rows_of_groups(0)), "run_id has 44 values in 0 rows"),
    "too many rows": (several(rows(2**62), rows_of_groups(2**62)), "it has more than 201000 rows"),
    "one value": (
        several(rows(1), rows_of_groups(1), in_chunks(lies.VALUES, lambda _: 1)),
        "the pages of run_id have 44 values, and the footer says 1",
    ),
    "fewer values than none": (in_chunks(lies.VALUES, lambda _: -5), "run_id has -5 values in 44 rows"),
    "many values": (in_chunks(lies.VALUES, lambda _: 2**40), "values in 44 rows"),
    "nothing unpacked": (in_chunks(lies.UNPACKED, lambda _: 0), ""),
    "much unpacked": (in_chunks(lies.UNPACKED, lambda _: 2**60), ""),
    "nothing packed": (in_chunks(lies.PACKED, lambda _: 0), "has no (size|header)"),
    "more packed than there is": (in_chunks(lies.PACKED, lambda _: 2**50), "lie outside the file"),
    "pages before the file": (in_chunks(lies.DATA_AT, lambda _: -8), "lie outside the file"),
    "a dictionary elsewhere": (in_chunks(lies.DICTIONARY_AT, lambda at: at + 3), "has no header that can be read"),
    "other names of columns": (other_names, ""),
    "other statistics": (statistics, ""),
    "another file": (elsewhere, ""),
    # These ended the process.
    "columns without nulls": (without_nulls, "Definition level histogram size mismatch"),
    "more columns than the schema": (other_columns(10), "other columns than its schema"),
    "fewer columns than the schema": (other_columns(1), "other columns than its schema"),
    "very many columns": (other_columns(300_000), "its footer has .* bytes, and at most"),
}


@pytest.mark.parametrize(("change", "words"), LIES.values(), ids=LIES)
def test_a_footer_that_lies_is_refused_or_changes_nothing(samples: Path, change: Change, words: str) -> None:
    run = samples.parents[1]
    before = store.read([run], "samples")
    lies.lie(samples, change)
    if not words:
        assert store.read([run], "samples").equals(before)
        return
    with pytest.raises(store.StoreError, match=rf"{samples} cannot be read as a samples table \(.*{words}"):
        store.read([run], "samples")


def test_the_footer_of_a_file_is_written_back_as_it_was(samples: Path) -> None:
    data = samples.read_bytes()
    assert lies.with_footer(data, lies.footer(data)) == data


def filled(path: Path, texts: list[str], **options: Any) -> None:
    """The table with these texts in a column, in as many rows."""
    one = pq.read_table(path).take([0] * len(texts))
    at = one.schema.get_field_index("stage")
    one = one.set_column(at, one.schema.field(at), pa.array(texts))
    pq.write_table(one, path, compression="zstd", use_dictionary=False, write_statistics=False, **options)


def pages_unpack_to_much(path: Path) -> None:
    filled(path, [chr(97 + at) * (8 << 20) for at in range(13)])
    lies.lie(path, in_chunks(lies.UNPACKED, lambda _: 100))


def texts_are_made_of_one_another(path: Path) -> None:
    filled(path, ["y" * 50_000] * 6000, column_encoding={"stage": "DELTA_BYTE_ARRAY"})


def a_dictionary_says_billions(path: Path) -> None:
    """Its length is a longer number, so all that lies behind it moves."""
    data = path.read_bytes()
    (chunk,) = [each for each in lies.chunks(lies.footer(data)) if each[lies.PATH].value[1][0] == b"stage"]
    begin = chunk[lies.DICTIONARY_AT].value
    reader = lies.Reader(data, begin)
    header = reader.struct()
    header[lies.DICTIONARY_PAGE].value[1].value = 2**31 - 1
    new = lies.written(header)
    more = len(new) - (reader.at - begin)
    data = data[:begin] + new + data[reader.at :]

    def moved(footer: Struct) -> None:
        for chunk in lies.chunks(footer):
            for place in (lies.DATA_AT, lies.DICTIONARY_AT):
                if place in chunk and chunk[place].value > begin:
                    chunk[place].value += more
            if chunk[lies.PATH].value[1][0] == b"stage":
                chunk[lies.PACKED].value += more

    footer = lies.footer(data)
    moved(footer)
    path.write_bytes(lies.with_footer(data, footer))


@pytest.mark.parametrize(
    ("bomb", "words"),
    [
        (pages_unpack_to_much, "its columns have more than"),
        (texts_are_made_of_one_another, "stage is encoded as DELTA_BYTE_ARRAY"),
        (a_dictionary_says_billions, "the dictionary of stage says 2147483647 values"),
    ],
)
def test_a_small_file_that_unpacks_to_much_is_refused_before_it_takes_memory(
    samples: Path, bomb: Callable[[Path], None], words: str
) -> None:
    bomb(samples)
    assert samples.stat().st_size < 100_000
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(store.StoreError, match=words):
            store.read([samples.parents[1]], "samples")
    finally:
        pa.set_memory_pool(usual)
    assert pool.max_memory() < 1 << 20


def test_a_reference_whose_footer_lies_is_refused(tmp_path: Path) -> None:
    run = synthetic.make_run(tmp_path / "run", windows=8)
    path = tmp_path / "lab.reference.parquet"
    for change, words in (
        (rows_of_groups(1), "its groups of rows have 1"),
        (other_columns(10), "other columns than its schema"),
        (other_columns(300_000), "its footer has .* bytes, and at most"),
    ):
        path.write_bytes(to_bytes(reference_of([run], "lab", "0.1.0").reference))
        lies.lie(path, change)
        with pytest.raises(SavedError, match=words):
            read(path)


def test_long_texts_in_a_footer_do_not_count_and_all_else_does(samples: Path) -> None:
    """The manifest of a reference is such a text."""
    table = pq.read_table(samples)
    pq.write_table(table.replace_schema_metadata({b"manifest": b"x" * 2_000_000}), samples)
    pages.check_footer(samples.read_bytes())
    # pyarrow takes the last of two.
    data = samples.read_bytes()
    footer = lies.written(lies.footer(data))[:-1] + bytes([9]) + lies.number(lies.GROUPS) + bytes([0x0C, 0])
    twice = data[:-8] + footer + len(footer).to_bytes(4, "little") + data[-4:]
    with pytest.raises(pages.LieError, match="its footer has"):
        pages.check_footer(twice)


@pytest.mark.parametrize("at", range(0, 60, 3))
def test_a_page_whose_header_is_damaged_is_refused_or_read_as_it_is(samples: Path, at: int) -> None:
    data = bytearray(samples.read_bytes())
    data[4 + at] ^= 0xFF
    samples.write_bytes(data)
    with contextlib.suppress(store.StoreError):
        store.read([samples.parents[1]], "samples")


@pytest.mark.parametrize("table", ["cells", "samples", "telemetry"])
def test_what_is_matched_is_read_as_what_is_read_field_by_field(
    tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = synthetic.make_run(tmp_path / "run", windows=40)
    data = min((run / table).glob("*.r1.parquet")).read_bytes()
    random = np.random.default_rng(20)
    with pq.ParquetFile(pa.BufferReader(data)) as file:

        def read_in(damaged: bytes) -> object:
            try:
                return pages.columns(damaged, file, file.schema_arrow.names)
            except pages.LieError as lie:
                return str(lie)

        matched = [read_in(data)]
        assert isinstance(matched[0], list)
        damaged = [bytes(_with_another_byte(data, random)) for _ in range(400)]
        matched += map(read_in, damaged)
        monkeypatch.setattr(pages, "_PAGES", ())
        monkeypatch.setattr(pages, "_chunk", lambda data, at: None)
        monkeypatch.setattr(pages, "_schema", lambda data, begin: None)
        assert matched == [read_in(one) for one in [data, *damaged]]
    assert len({str(one) for one in matched}) > 10


def _with_another_byte(data: bytes, random: np.random.Generator) -> bytearray:
    """A file with one or two other bytes: in its footer, or anywhere."""
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    damaged = bytearray(data)
    for begin in random.choice((0, footer), random.integers(1, 3)):
        damaged[random.integers(begin, len(data) - 8)] = random.choice(
            (0x00, 0x15, 0x16, 0x26, 0x80, random.integers(256))
        )
    return damaged
