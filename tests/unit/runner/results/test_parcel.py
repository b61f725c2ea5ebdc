"""A parcel is read as it was written, and one from a stranger is refused with its name and the field."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.protocol import MAX_LINE_BYTES
from runner.results import parcel as parcels
from runner.results.parcel import Parcel, ParcelError, decode, encode
from runner.results.untrusted import document
from tests.fixtures.waiting import within
from tests.unit.strangers import mutated

WHOLE = Parcel(
    cell_id="0123456789abcdef",
    repeat=2,
    engine="docker",
    data_given=True,
    attempt="0123456789abcdef.r2.0011aabb-7",
    node="node-1",
    image_digest="sha256:0",
    uuids=("GPU-1",),
    boards=("GPU-1",),
    cpus=8,
    code=137,
    out_of_memory=True,
    ended_by=("hang", "it had printed nothing for 60 s and was stopped"),
    started_unix=1795223026.25,
    wall_seconds=20.5,
    began=1.0,
    still=((2.0, 3.5),),
    jit_cache_grew_bytes=0,
    xids=(("GPU-1", 79),),
    fault="KeyError: 'é'",
    row_seconds=0.2,
    proved=("GPU-1",),
    unproved={"GPU-2": "the driver does not say who computes on it"},
    foreign=("train.py (process 7 of ann, 1.0 GB)",),
    isolation={
        "engine": "Podman Engine 4.3.1",
        "rootless": True,
        "limits": {
            "network": ["none", "none"],
            "memory": [1 << 30, 0],
            "CPUs": ["0", None],
            "read-only root": [True, True],
        },
    },
    tape=((1.5, b'{"event": "phase"}\n'), (2.25, b"\xff\x00 no text\n"), (2.25, "half a line: é\u2028".encode())),
    log="Traceback …\n",
    telemetry=({"device": "GPU-1", "unix": 1795223027.0, "power_watts": 70.5, "throttle_reasons": 4},),
)


def lines_of(parcel: Parcel) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(encode(parcel)).split(b"\n")[:-1]]


def packed(lines: list[Any]) -> bytes:
    return gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def test_a_parcel_is_read_as_it_was_written() -> None:
    assert decode(encode(WHOLE), "x") == WHOLE
    never_ran = Parcel("0123456789abcdef", 1, "docker", ended_by=("engine", "no such image"))
    assert decode(encode(never_ran), "x") == never_ran
    assert never_ran.never_ran
    assert not WHOLE.never_ran


def test_the_whole_parcel_has_every_field() -> None:
    """Otherwise the round trip would show nothing of the field that it lacks."""
    empty = Parcel("0", 1, "host")
    assert [each.name for each in fields(Parcel) if getattr(WHOLE, each.name) == getattr(empty, each.name)] == []


@given(st.lists(st.binary(max_size=40)), st.floats(0, 1e9))
def test_every_byte_that_a_cell_prints_is_kept(pieces: list[bytes], at: float) -> None:
    parcel = replace(WHOLE, tape=tuple((at, piece) for piece in pieces))
    assert decode(encode(parcel), "x").tape == parcel.tape


def test_the_short_way_for_a_piece_takes_no_other_line_and_makes_nothing_else_of_it() -> None:
    written = gzip.decompress(encode(replace(WHOLE, tape=tuple((1.5 * at, repr(at).encode()) for at in range(9)))))
    lines = written.splitlines(keepends=True)[1:-2]
    assert [parcels._piece_as_written(line) for line in lines] == [(1.5 * at, repr(at).encode()) for at in range(9)]
    taken = 0
    for number in range(6000):
        chance = random.Random(number)
        line = mutated(chance.choice(lines)[:-1], chance) + b"\n"
        if (piece := parcels._piece_as_written(line)) is not None:
            taken += 1
            assert piece == parcels._piece(document(line, "a line"))
    assert 100 < taken < 3000


@given(st.text())
def test_every_text_of_a_log_is_kept(text: str) -> None:
    assert decode(encode(replace(WHOLE, log=text)), "x").log == text.encode("utf-8", "replace").decode("utf-8")


def test_the_same_parcel_is_the_same_bytes() -> None:
    assert encode(WHOLE) == encode(replace(WHOLE))


def test_zcat_shows_what_a_parcel_holds() -> None:
    header, first, second, third, log, row = lines_of(WHOLE)
    assert header["parcel"] == 1
    assert header["ended_by"] == ["hang", "it had printed nothing for 60 s and was stopped"]
    assert first == {"at": 1.5, "output": '{"event": "phase"}\n'}
    assert second["base64"] == "/wAgbm8gdGV4dAo="
    assert third == {"at": 2.25, "output": "half a line: é\u2028"}
    assert log == {"log": "Traceback …\n"}
    assert row == {"device": "GPU-1", "unix": 1795223027.0, "power_watts": 70.5, "throttle_reasons": 4}


def test_a_parcel_is_made_with_the_standard_library_alone() -> None:
    script = (
        "import sys; sys.modules.update(dict.fromkeys(['pydantic', 'pyarrow', 'numpy']));"
        "from runner.results.parcel import Parcel, encode; encode(Parcel('0', 1, 'host'))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


WRONG_HEADERS: list[tuple[str, Any]] = [
    ("cell_id", "../../etc"),
    ("cell_id", 1),
    ("repeat", 0),
    ("repeat", True),
    ("repeat", 10_001),
    ("engine", "Docker\n"),
    ("attempt", "0.r1"),
    ("node", "-a"),
    ("node", "a\x1b[2J"),
    ("image_digest", "a b"),
    ("uuids", ["x"] * 65),
    ("uuids", "GPU-1"),
    ("uuids", [1]),
    ("boards", ["x" * 301]),
    ("cpus", -1),
    ("data_given", 1),
    ("code", 256),
    ("code", -1),
    ("code", 1.0),
    ("out_of_memory", None),
    ("ended_by", ["ok", "it ended well"]),
    ("ended_by", ["hang"]),
    ("ended_by", ["hang", "x" * 20_001]),
    ("started_unix", -1),
    ("started_unix", 1e11),
    ("wall_seconds", "1"),
    ("wall_seconds", True),
    ("began", 1e13),
    ("still", [[1, 2, 3]]),
    ("still", [[1, 2]] * 1001),
    ("jit_cache_grew_bytes", 2**63 - 1.0),
    ("jit_cache_grew_bytes", -1),
    ("xids", [["GPU-1", 2**31]]),
    ("xids", [["GPU-1", 1]] * 1001),
    ("fault", "x" * 2001),
    ("row_seconds", 0),
    ("proved", ["x"] * 65),
    ("unproved", []),
    ("unproved", {"x": 1}),
    ("unproved", {str(number): "" for number in range(65)}),
    ("foreign", ["x"] * 17),
    ("isolation", {"engine": "Docker Engine 28.0", "limits": {}}),
    ("isolation", {"engine": "x" * 301, "rootless": False, "limits": {}}),
    ("isolation", {"engine": "", "rootless": 1, "limits": {}}),
    ("isolation", {"engine": "", "rootless": False, "limits": {"memory": [1]}}),
    ("isolation", {"engine": "", "rootless": False, "limits": {"memory": [1, {}]}}),
    ("isolation", {"engine": "", "rootless": False, "limits": {str(number): [1, 1] for number in range(33)}}),
]


@pytest.mark.parametrize(("field", "value"), WRONG_HEADERS, ids=lambda each: repr(each)[:30])
def test_a_field_that_no_runner_writes_is_refused_by_name(field: str, value: Any) -> None:
    header, *rest = lines_of(WHOLE)
    with pytest.raises(ParcelError, match=rf"^a\.parcel is no parcel .*: {field}: it must be "):
        decode(packed([header | {field: value}, *rest]), "a.parcel")


def test_every_field_of_the_header_is_tried_with_a_wrong_value() -> None:
    assert {field for field, _ in WRONG_HEADERS} == {*lines_of(WHOLE)[0]} - {"parcel"}


LOG = {"log": ""}
PIECE = {"at": 1.0, "output": "x\n"}
ROW = {"device": "cpu", "unix": 1.0}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "log: it is missing"),
        ([PIECE], "log: it is missing"),
        ([LOG, LOG], "telemetry has a row that is no sample of a device"),
        ([{"log": 1}], "log: it must be a text"),
        ([{"log": "x" * 16_385}], "log: it must be a text"),
        ([{"at": 1.0}, LOG], "tape: a line is no piece"),
        ([PIECE | {"more": 1}, LOG], "tape: a line is no piece"),
        ([{"at": 1.0, "output": 1}, LOG], "output: it must be a text"),
        ([{"at": 1.0, "base64": "%"}, LOG], "base64: it is none"),
        ([{"at": "1", "output": ""}, LOG], "at: it must be a number"),
        ([{"at": 1e300, "output": ""}, LOG], "at: it must be a number"),
        ([PIECE | {"at": 2.0}, PIECE, LOG], "tape: its times go back"),
        ([PIECE | {"at": None}, PIECE, LOG], "tape: only some of the pieces have a time"),
        ([LOG, ROW | {"evil": 1}], "telemetry has a row"),
        ([LOG, ROW | {"power_watts": 1e300}], "telemetry: input should be"),
        ([LOG, ROW | {"power_watts": "70"}], "telemetry: input should be"),
        ([LOG, PIECE], "telemetry has a row"),
        ([7, LOG], "log: it is missing"),
    ],
    ids=lambda each: repr(each)[:40],
)
def test_lines_that_no_runner_writes_are_refused(lines: list[Any], why: str) -> None:
    header = lines_of(WHOLE)[0]
    with pytest.raises(ParcelError, match=rf"^a\.parcel is no parcel.*{why}"):
        decode(packed([header, *lines]), "a.parcel")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda header: header | {"parcel": 2}, "parcel: its version is not 1"),
        (lambda header: header | {"more": 1}, "more: there is no such field"),
        (lambda header: {name: value for name, value in header.items() if name != "code"}, "code: it is missing"),
        (lambda header: [header], "its first line is no header"),
        (lambda header: {}, "its first line is no header"),
    ],
)
def test_a_header_with_other_fields_is_refused(change: Callable[[Any], Any], why: str) -> None:
    header, *rest = lines_of(WHOLE)
    with pytest.raises(ParcelError, match=why):
        decode(packed([change(header), *rest]), "a.parcel")


def test_a_parcel_of_before_engines_were_asked_what_they_apply_is_read() -> None:
    header, *rest = lines_of(WHOLE)
    del header["isolation"]
    assert decode(packed([header, *rest]), "a.parcel") == replace(WHOLE, isolation=None)


@pytest.mark.parametrize("text", [b"{", b"NaN", b'"\\ud800"', b"1e999", b"9" * 30, b"[" * 100_000, b"\xff"])
def test_a_line_that_is_no_document_of_ours_is_refused(text: bytes) -> None:
    with pytest.raises(ParcelError, match="its header is not JSON"):
        decode(gzip.compress(text + b"\n" + b'{"log":""}\n'), "a.parcel")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: content + b"\0",
        lambda content: content + content,
        lambda content: content[:-8] + b"\0\0\0\0" + content[-4:],
        lambda content: b"PK" + content,
        lambda content: gzip.compress(gzip.decompress(content)[:-1]),
    ],
)
def test_a_damaged_parcel_is_refused(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ParcelError, match=r"^a\.parcel is no parcel: (it is damaged|its last line has no end)[^;]*$"):
        decode(damage(encode(WHOLE)), "a.parcel")


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "MOST_UNPACKED_BYTES", 1 << 20)
    bomb = gzip.compress(bytes(1 << 28), 9)

    def refused() -> None:
        with pytest.raises(ParcelError, match="it unpacks to more than any that a runner writes"):
            decode(bomb, "a.parcel")

    # To unpack all of it takes more than half a second.
    within(0.2, refused)


def test_more_pieces_output_or_telemetry_than_a_cell_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encode(replace(WHOLE, tape=((1.0, b"0123456789"),) * 3))
    assert len(decode(content, "x").tape) == 3
    for name, most, why in (
        ("MOST_PIECES", 2, "more than 2 pieces"),
        ("_MOST_OUTPUT_BYTES", 29, "more than 29 bytes"),
        ("MOST_TELEMETRY_BYTES", 10, "more than 10 bytes"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(parcels, name, most)
            with pytest.raises(ParcelError, match=why):
                decode(content, "x")


# A process of its own shows the memory that a reader takes, in multiples of the most that a parcel unpacks to. It is an eighth of a real
# one's: that a limit holds is seen at any size.
BOMBS = """
import gzip, sys, time
from runner.results import parcel, untrusted
def memory(what):
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith(what))) * 1024
parcel.MOST_UNPACKED_BYTES //= 8
parcel.MOST_TELEMETRY_BYTES //= 8
at_first = memory("VmRSS")
most, (header, log, *_) = parcel.MOST_UNPACKED_BYTES, gzip.decompress(sys.stdin.buffer.read()).splitlines(keepends=True)
body = {
    "header": lambda: b'{"a":[' + b"{}," * (most // 3 - 9) + b"{}]}" + b"\\n",
    "line": lambda: header + b'{"a":[' + b"{}," * (most // 3 - 999) + b"{}]}" + b"\\n",
    "empty lines": lambda: (header + b"\\n" * most)[:most],
    "empty rows": lambda: header + log + b"\\n" * (parcel.MOST_TELEMETRY_BYTES - 9),
    "one row": lambda: header + log + b'{"a":[' + b"{}," * (parcel.MOST_TELEMETRY_BYTES // 3 - 9) + b"{}]}" + b"\\n",
    "telemetry": lambda: header + log + b"\\r" * most,
}[sys.argv[1]]()[:most - 1] + b"\\n"
packed = gzip.compress(body, 1)
del body
began = time.process_time()
try:
    parcel.decode(packed, "a.parcel")
except parcel.ParcelError as error:
    print(error)
seconds = time.process_time() - began
# getrusage counts what the process that started this one had.
print(seconds, (memory("VmHWM") - at_first) / most)
"""


@pytest.mark.parametrize(
    ("bomb", "why"),
    [
        ("header", "its header has more than 1048576 bytes"),
        ("line", "line 2 has more than 2621504 bytes"),
        ("empty lines", "line 2 is not JSON"),
        ("empty rows", "telemetry has more than 200000 rows"),
        ("one row", "telemetry has a row of more than 8192 bytes"),
        ("telemetry", "telemetry: it has more than 6291456 bytes"),
    ],
)
def test_a_small_file_takes_neither_much_memory_nor_much_time(bomb: str, why: str) -> None:
    """To parse so many bytes of JSON takes 25 times the memory, and two seconds. To make the bomb takes twice its size."""
    content = encode(replace(WHOLE, tape=(), telemetry=()))
    done = subprocess.run([sys.executable, "-c", BOMBS, bomb], input=content, capture_output=True, check=True)
    said, measured = done.stdout.decode().splitlines()
    seconds, memory = map(float, measured.split())
    assert said.startswith(f"a.parcel is no parcel that a runner writes: {why}")
    assert seconds < 1
    assert memory < 5


def test_the_largest_output_of_a_cell_fits_into_a_parcel() -> None:
    """Text that doubles in JSON, and bytes that are no text: the bounds of a line and of what is unpacked hold both.

    The last piece of a cell that floods is the longest: nearly a line that is too long, and a read of 1 MiB.
    """
    longest = MAX_LINE_BYTES + (1 << 20)
    pieces, rest = divmod(parcels.MAX_TOTAL_BYTES + (1 << 20), longest)
    parcel = replace(WHOLE, tape=((1.0, b'"' * rest), *[(1234567.123456789, b'"' * longest)] * pieces))
    content = encode(parcel)
    assert decode(content, "x") == parcel
    # Room is left for the most pieces and rows.
    left = parcels.MOST_UNPACKED_BYTES - len(gzip.decompress(content))
    assert left > 64 * (parcels.MOST_PIECES - len(parcel.tape)) + parcels.MOST_TELEMETRY_BYTES
    no_text = replace(WHOLE, tape=((1234567.123456789, b"\0" * longest),))
    assert decode(encode(no_text), "x") == no_text


def test_the_longest_header_and_log_are_read() -> None:
    """Characters that JSON writes as six."""
    parcel = replace(
        WHOLE,
        ended_by=("hang", "\x01" * parcels.MOST_REASON),
        fault="\x01" * parcels.MOST_FAULT,
        still=((1234567.123456789, 1234567.123456789),) * parcels.MOST_STILL,
        xids=(("GPU-11111111-1111-1111-1111-111111111111", 2**31 - 1),) * parcels.MOST_XIDS,
        unproved={f"{number:02}" + "\x01" * 298: "\x01" * 300 for number in range(64)},
        foreign=("\x01" * 300,) * 16,
        log="\x01" * parcels.MOST_LOG,
    )
    assert decode(encode(parcel), "x") == parcel


def test_the_bytes_of_telemetry_are_those_of_its_lines() -> None:
    without = len(gzip.decompress(encode(replace(WHOLE, telemetry=()))))
    assert parcels.telemetry_bytes(WHOLE.telemetry) == len(gzip.decompress(encode(WHOLE))) - without
