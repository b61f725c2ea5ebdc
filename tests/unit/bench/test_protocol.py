"""The line protocol: what fits passes unchanged, whatever does not is refused with the reason and the line."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.protocol import EVENTS, MAX_LINE_BYTES, VERSION, ProtocolError, parse

MEMORY = {"event": "memory", "t": 1.5, "v": VERSION, "host_peak_bytes": 3, "device_peak_bytes": None}


def line(**changes: object) -> bytes:
    return json.dumps({**MEMORY, **changes}).encode()


def test_an_event_that_fits_is_returned_as_it_is() -> None:
    assert parse(line()) == MEMORY


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (line()[:-5], "not a JSON object"),
        (b"[1, 2]", "not a JSON object"),
        (b"\xff\xfe", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (line(host_peak_bytes="3"), "memory.host_peak_bytes has a wrong type"),
        (line(host_peak_bytes=True), "memory.host_peak_bytes has a wrong type"),
        (line(host_peak_bytes=-1), "memory.host_peak_bytes has a wrong type"),
        (line(t=float("nan")), "NaN"),
        (line().replace(b"1.5", b"1e999"), "memory.t has a wrong type"),
        (line(surprise=1), "unknown field 'surprise'"),
        (b'{"event": "memory", "t": 0, "v": 1}', "lacks the field"),
        (line(event="weather"), "unknown event 'weather'"),
        (line(event=["memory"]), "unknown event"),
        (line(v=2), "protocol version 2"),
        (b" " * (MAX_LINE_BYTES + 1), "a line of more than"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_with_the_reason(bad: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason.replace("(", r"\(")) as caught:
        parse(bad)
    assert len(str(caught.value)) < 2000, "the quoted line is cut"


def test_markup_in_a_string_is_data_like_any_other() -> None:
    event = {"event": "error", "t": 0, "v": VERSION, "kind": "bug", "message": "<script>", "traceback": ""}
    assert parse(json.dumps(event).encode())["message"] == "<script>"


@given(st.binary(max_size=300))
def test_no_bytes_make_parse_fail_otherwise(data: bytes) -> None:
    try:
        parse(data)
    except ProtocolError:
        pass


@given(
    st.dictionaries(
        st.sampled_from(["event", "t", "v", *EVENTS["phase"]]), st.sampled_from([*EVENTS, 1, -1, None, "end"])
    )
)
def test_no_object_makes_parse_fail_otherwise(event: dict[str, object]) -> None:
    try:
        assert parse(json.dumps(event).encode()) == event
    except ProtocolError:
        pass


def test_what_libraries_print_goes_to_standard_error_even_from_c() -> None:
    code = """
import ctypes, os, sys
from bench.protocol import Emitter
emitter = Emitter()
print("from Python")
sys.stdout.flush()
os.write(1, b"from a file descriptor\\n")
ctypes.CDLL(None).puts(b"from C"); ctypes.CDLL(None).fflush(None)
emitter.emit("memory", host_peak_bytes=1, device_peak_bytes=None)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (only,) = ended.stdout.splitlines()
    assert parse(only.encode())["host_peak_bytes"] == 1
    assert all(text in ended.stderr for text in ("from Python", "from a file descriptor", "from C"))


def test_time_counts_from_the_start_of_the_process() -> None:
    code = "import time; time.sleep(0.5); from bench.protocol import Emitter; e = Emitter(); print(e.now(), file=__import__('sys').stderr)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.45 < float(ended.stderr) < 60
