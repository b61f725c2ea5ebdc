"""A repeat that travelled has the rows of one that did not; and what no agent sends is refused, never stored."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.nodes.wire import messages, repeats
from runner.nodes.wire.frames import Decoder, Frame, FrameError, encode
from runner.nodes.wire.repeats import Measured, judged, packed
from runner.results import store
from runner.results.plausible import work
from runner.results.store import TABLES, RunStore, read
from runner.run.attempt import Ended, store_repeat
from tests.fixtures.nodes import attempt_of, ended


@pytest.fixture(autouse=True)
def no_limit_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay is faster than any CPU computes it."""
    monkeypatch.setattr(work, "most_operations", lambda *_: None)


def sent(repeat: Ended) -> tuple[messages.Ended, bytes]:
    """A repeat as it comes out of the pipe."""
    (frame,) = Decoder().feed(encode(packed(attempt_of(repeat.job.cell, 1, 1), repeat)))
    message = messages.from_agent(frame)
    assert isinstance(message, messages.Ended)
    return message, frame.body


def measured(repeat: Ended) -> Measured:
    return Measured(repeat.job, attempt_of(repeat.job.cell, 1, 1), "n1", "toy", "sha256:toy", repeat.uuids, ())


def code_of(repeat: Ended) -> dict[tuple[str, str], str]:
    cell = repeat.job.cell
    return {(cell.framework, cell.workload): repeat.recorder.row["code_sha256"]}


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    return [row | {"run_id": "", "node": None, "attempt": None} for row in read([folder], table).to_pylist()]


def test_a_repeat_that_travelled_has_the_rows_of_one_that_did_not(tmp_path: Path) -> None:
    repeat = ended(tmp_path)
    here, there = RunStore(tmp_path / "here"), RunStore(tmp_path / "there")
    assert store_repeat(here, repeat) == ("ok", None)
    seen: list[Any] = []
    assert judged(there, measured(repeat), *sent(repeat), code_of(repeat), False, seen.append) == ("ok", None)
    for table in TABLES:
        assert rows(here.folder, table) == rows(there.folder, table), table
    assert rows(there.folder, "telemetry")
    name = store.file_name(repeat.job.cell.id, 1)
    assert (there.folder / "events" / f"{name}.jsonl").read_bytes() == b"".join(chunk for _, chunk in repeat.tape)
    assert len(seen) == len(repeat.tape)
    (row,) = read([there.folder], "cells").to_pylist()
    assert (row["node"], row["attempt"]) == ("n1", measured(repeat).attempt)


def test_the_driver_itself_judges_what_the_cell_printed(tmp_path: Path) -> None:
    """A node that calls a repeat good has no say: its events decide, by the clock at which they came."""
    repeat = ended(tmp_path)
    run = RunStore(tmp_path / "run")
    status, reason = judged(run, measured(repeat), *sent(repeat), {("torch", "gru-imdb"): "0" * 64}, False)
    assert status == "failed"
    assert "it ran a bench with the digest" in str(reason)
    slow = replace(repeat, tape=tuple((at * 50, chunk) for at, chunk in repeat.tape))
    status, reason = judged(run, measured(repeat), *sent(slow), code_of(repeat), False)
    assert status == "failed"
    assert "arrived here over" in str(reason)
    torn = replace(repeat, tape=(*repeat.tape[:5], (200.0, b"no JSON\n")))
    assert judged(run, measured(repeat), *sent(torn), {}, False)[0] == "failed"


def test_other_devices_than_were_given_are_refused(tmp_path: Path) -> None:
    repeat = ended(tmp_path)
    message, body = sent(repeat)
    run = RunStore(tmp_path / "run")
    for wrong in (replace(measured(repeat), uuids=("GPU-1",)), replace(measured(repeat), boards=("GPU-1",))):
        with pytest.raises(FrameError, match="other devices"):
            judged(run, wrong, message, body, {}, False)
    repeat.recording.rows.append({"device": "GPU-9", "unix": 1.7e9})
    with pytest.raises(FrameError, match="'GPU-9', which it was not given"):
        judged(run, measured(repeat), *sent(repeat), {}, False)
    assert not list(run.folder.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda tape: ((tape[1][0], tape[0][1]), (tape[0][0], tape[1][1]), *tape[2:]), "go back"),
        (lambda tape: ((float("nan"), tape[0][1]), *tape[1:]), "go back"),
    ],
)
def test_times_that_no_clock_shows_are_refused(change: Any, why: str, tmp_path: Path) -> None:
    repeat = ended(tmp_path)
    message, body = sent(replace(repeat, tape=change(repeat.tape)))
    with pytest.raises(FrameError, match=why):
        repeats.unpacked(message, body)


def test_a_body_that_is_changed_anywhere_is_stored_or_refused_and_nothing_else(tmp_path: Path) -> None:
    repeat = ended(tmp_path)
    message, body = sent(repeat)
    draw = random.Random(1)
    refused = 0
    for _ in range(40):
        changed = bytearray(body)
        for _ in range(draw.choice((1, 3, 30))):
            # The first part is the largest; the times and the telemetry are to be met as well.
            at = draw.choice((draw.randrange(len(body)), draw.randrange(message.sizes[0], len(body))))
            changed[at] = draw.randrange(256)
        run = RunStore(tmp_path / "run")
        try:
            judged(run, measured(repeat), message, bytes(changed), code_of(repeat), False)
        except FrameError:
            refused += 1
        else:
            assert len(read([run.folder], "cells")) == 1
    assert 5 < refused < 40


def test_long_telemetry_is_thinned_until_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repeat = ended(tmp_path)
    monkeypatch.setattr(repeats, "_MOST_TELEMETRY_BYTES", 700)
    message, body = sent(repeat)
    _, _, kept = repeats.unpacked(message, body)
    assert 2 < len(kept) < 30
    assert message.row_seconds > repeat.recording.step


def test_a_body_where_none_belongs_is_refused() -> None:
    with pytest.raises(FrameError, match="has 3 bytes beside its header, and 0 belong to it"):
        messages.from_agent(Frame({"kind": "beat"}, b"abc"))


def test_a_repeat_in_millions_of_pieces_is_refused_at_once(tmp_path: Path) -> None:
    """Each piece was a byte, inside all bounds, and the driver's thread took them one by one for a minute."""
    repeat = ended(tmp_path)
    count = 11_500_000
    pieces = repeats._PIECE.pack(1, 1.0) * count
    header = dict(packed(attempt_of(repeat.job.cell, 1, 1), repeat).header) | {"sizes": [count, len(pieces), 0, 0]}
    body = bytes(count) + pieces
    message = messages.from_agent(Frame(header, body))
    assert isinstance(message, messages.Ended)
    begin = time.process_time()
    with pytest.raises(FrameError, match="more output, pieces of it, log or telemetry than any agent keeps"):
        judged(RunStore(tmp_path / "there"), measured(repeat), message, body, code_of(repeat), False)
    assert time.process_time() - begin < 1.0
