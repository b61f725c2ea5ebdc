"""One attempt at a cell: what the watchdog says of one that hangs, lies, fills the disk or ends well; in real processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import trees
from runner.admission.record import Recorder
from runner.engines import cell_cache
from runner.engines.base import Exit
from runner.engines.process.process import LocalRunning
from runner.known_messages import due_again
from runner.plan.plan import Cell
from runner.results.parcel import Parcel
from runner.run import attempt as attempts
from runner.run.attempt import Attempt, AttemptContext, Limits
from runner.run.dispatch import Job
from tests.fixtures.attempts import (
    CELL,
    HANG,
    RECORDED,
    REPLAY,
    SLOT,
    matrix,
    prepared,
    row_of,
    run_in,
    watched,
)
from tests.fixtures.events import at_pace
from tests.fixtures.waiting import wait_for


@pytest.mark.parametrize(
    ("limits", "kind", "words"),
    [
        (Limits(1, 60), "time-limit", "it had not ended after 1 s"),
        (Limits(60, 1), "hang", "it had printed nothing for 1 s"),
    ],
)
def test_a_cell_that_stands_still_is_ended_and_its_stack_kept(
    site: Callable[..., AttemptContext], tmp_path: Path, limits: Limits, kind: str, words: str
) -> None:
    here = site(HANG, limits)
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    begin = time.monotonic()
    stands_still = (tmp_path / "recorded.here").exists
    status, reason, _ = watched(attempt, here.engine.prepare(None, print), lambda: wait_for(stands_still))  # type: ignore[arg-type]
    assert time.monotonic() - begin < 50
    row = row_of(tmp_path)
    assert (status, row["error_kind"]) == ("failed", kind)
    assert words in reason
    assert "in stands_still" in row["log_tail"]
    assert "stack" in row["hint"]


def test_a_cell_has_an_end_of_its_own_that_comes_long_after_the_watchdog_s(site: Callable[..., AttemptContext]) -> None:
    here = site(REPLAY, Limits(1000, 60, compiling=500))
    watched(Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None), here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert here.engine.slot == replace(SLOT, seconds=3600)  # type: ignore[attr-defined]
    longest = Attempt(site(REPLAY, Limits(1e9, 60)), Job(CELL, 1), SLOT, (), lambda event: None)
    assert longest._most_seconds() < 2**31


@pytest.mark.parametrize("variable", ["DLBENCH_CACHE", "TMPDIR"])
def test_a_cell_that_keeps_more_than_it_may_is_ended_by_name_on_a_disk_with_room(
    site: Callable[..., AttemptContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setattr(cell_cache, "MOST_BYTES", 8 << 20)
    monkeypatch.setattr(attempts, "_COUNT_AFTER_BYTES", 1 << 20)
    here = site(
        f"import os, time\nwith open(os.environ['{variable}'] + '/big', 'wb') as file: file.write(bytes(16 << 20))\n"
        "time.sleep(60)"
    )
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, reason, _ = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert (status, row_of(tmp_path)["error_kind"]) == ("failed", "disk")
    assert reason.startswith(f"the cells of {CELL.image} had put 0.0 GB there, into ")
    assert not list((tmp_path / "xdg" / "dlbench" / "scratch").iterdir())
    # The next cell has the room again.
    after = site(REPLAY)
    assert (
        watched(Attempt(after, Job(CELL, 2), SLOT, (), lambda event: None), after.engine.prepare(None, print))[0]
        == "ok"
    )  # type: ignore[arg-type]


def test_no_file_of_a_cell_keeps_the_right_to_run_as_its_owner(site: Callable[..., AttemptContext]) -> None:
    here = site(
        "import os, shutil\nmine = os.environ['DLBENCH_CACHE'] + '/below'\nos.mkdir(mine)\n"
        "shutil.copy('/bin/sh', mine + '/sh')\nos.chmod(mine + '/sh', 0o6755)\nos.chmod(mine, 0o2755)\n" + REPLAY
    )
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    assert watched(attempt, here.engine.prepare(None, print))[0] == "ok"  # type: ignore[arg-type]
    below = cell_cache.folder_of("host", CELL.image, "sha256:0") / "below"
    assert [oct(path.stat().st_mode & 0o7777) for path in (below, below / "sh")] == ["0o755", "0o755"]


def test_a_cell_of_another_bench_is_ended_and_says_which(site: Callable[..., AttemptContext], tmp_path: Path) -> None:
    events = [json.loads(line) for line in RECORDED.splitlines()]
    (ran,) = [event["code_sha256"] for event in events if event["event"] == "environment"]
    for planned, expected in ((ran, "ok"), ("f" * 64, "failed")):
        here = replace(site(f"{REPLAY}; sys.stdout.flush()"), code={(CELL.framework, CELL.workload): planned})
        here = replace(here, run=run_in(tmp_path / planned[:4]))
        attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
        watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
        row = row_of(tmp_path / planned[:4])
        assert row["status"] == expected
    assert row["error_kind"] == "protocol"
    assert row["reason"].startswith(
        f"it ran a bench with the digest {ran[:12]}, and the one that was planned has ffffffffffff"
    )


def test_a_cell_on_a_disk_that_was_full_before_it_began_goes_on(
    site: Callable[..., AttemptContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_cache.Room, "of", lambda folder: cell_cache.Room(1 << 20, 100))
    here = site(f"import time; time.sleep(0.5); {REPLAY}")
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    assert watched(attempt, here.engine.prepare(None, print))[0] == "ok"  # type: ignore[arg-type]


def test_of_several_cells_on_a_disk_that_runs_full_one_that_wrote_nothing_goes_on(
    site: Callable[..., AttemptContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = site(f"import time; time.sleep(0.5); {REPLAY}")
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    rooms = iter([cell_cache.Room(8 << 30, None)])
    monkeypatch.setattr(cell_cache.Room, "of", lambda folder: next(rooms, cell_cache.Room(1 << 20, None)))
    monkeypatch.setattr(attempts, "_LIVE", {object()})
    assert watched(attempt, here.engine.prepare(None, print))[0] == "ok"  # type: ignore[arg-type]


def test_a_cell_that_says_it_measured_longer_than_it_lived_is_no_result(
    site: Callable[..., AttemptContext], tmp_path: Path
) -> None:
    here = site(REPLAY)
    (tmp_path / "recorded").write_text(at_pace(RECORDED, 60.0))
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, reason, _ = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert (status, row_of(tmp_path)["error_kind"]) == ("failed", "implausible")
    assert "and its process lived for" in reason


def test_a_cell_that_ends_well_has_its_telemetry_beside_it(site: Callable[..., AttemptContext], tmp_path: Path) -> None:
    here = site(f"import time; time.sleep(1.5); {REPLAY}")
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    assert watched(attempt, here.engine.prepare(None, print))[0] == "ok"  # type: ignore[arg-type]
    rows = run_in(tmp_path).rows("telemetry").to_pandas()
    assert set(rows.device) == {"cpu"}
    assert rows.memory_bytes.max() > 1 << 20
    assert run_in(tmp_path).rows("cells").to_pandas().jit_cache_grew_bytes.isna().all()
    assert run_in(tmp_path).rows("cells").to_pandas().hint.isna().all()


def test_what_does_not_fit_is_not_started_and_the_lengths_are_learned(site: Callable[..., AttemptContext]) -> None:
    here = site(REPLAY)
    running = matrix(here)
    long, short = replace(CELL, seed=2), CELL
    learned: list[tuple[Cell, float]] = []
    running.fits = lambda cell: cell != long
    running.learn = lambda cell, seconds: learned.append((cell, seconds))
    running.run_jobs([Job(long, 1), Job(short, 1)], prepared(here))
    assert [outcome.job for outcome in running.outcomes] == [Job(short, 1)]
    assert [cell for cell, seconds in learned if 0 < seconds < 100] == [short]


def test_a_cell_killed_by_a_signal_that_nobody_explains_is_a_crash(
    site: Callable[..., AttemptContext], tmp_path: Path
) -> None:
    here = site("import os; os.kill(os.getpid(), 11)")
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    row = row_of(tmp_path)
    assert row["error_kind"] == "crash"
    assert "SIGSEGV" in row["reason"]
    assert "Segmentation fault" in row["log_tail"], "faulthandler wrote the stack"
    assert "native code" in row["hint"]


# What mpiexec prints on standard output when it has lost a process, and how it ends.
BANNER = "\n=================================\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        ("os.kill(os.getpid(), 9)", "crash", "exit code 137 (SIGKILL) before its `end`"),
        (
            "time.sleep(0.5); sys.stderr.write('rank 1 is gone'); sys.exit(9)",
            "crash",
            "exit code 9 before its `end`: rank 1 is gone",
        ),
        ("time.sleep(60)", "protocol", "its output broke the protocol: not a JSON object"),
        ("", "protocol", "its output broke the protocol: not a JSON object"),
    ],
)
def test_what_a_launcher_prints_of_a_lost_process_is_not_what_ended_it(
    end: str, kind: str, words: str, site: Callable[..., AttemptContext], tmp_path: Path
) -> None:
    here = site(f"import os, sys, time; sys.stdout.write({BANNER!r}); sys.stdout.flush(); {end}")
    began = time.monotonic()
    watched(Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None), here.engine.prepare(None, print))  # type: ignore[arg-type]
    row = row_of(tmp_path)
    assert row["error_kind"] == kind
    assert words in row["reason"]
    assert "BAD TERMINATION" in row["reason"] or "begins: ''" in row["reason"]
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("script", ["import no_such_package", "import sys; sys.exit(3)"])
def test_a_cell_whose_environment_has_lost_files_is_due_again(
    script: str, site: Callable[..., AttemptContext], tmp_path: Path
) -> None:
    here = site(script)
    here.engine.lost = "its environment has lost 2 files, such as a/b.py: it is made again when it is needed next"  # type: ignore[attr-defined]
    watched(Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None), here.engine.prepare(None, print))  # type: ignore[arg-type]
    row = row_of(tmp_path)
    assert row["error_kind"] == "engine"
    assert "has lost 2 files, such as a/b.py" in row["reason"]
    assert "--resume measures it again" in row["hint"]
    assert due_again(row["error_kind"], row["exit_code"], row["reason"], row["log_tail"])


@pytest.mark.parametrize("moved", [-1e9, -60.0, 60.0, 1e9])
def test_a_cell_that_says_it_began_at_another_time_gets_the_time_that_this_host_saw(
    site: Callable[..., AttemptContext], tmp_path: Path, moved: float
) -> None:
    """Else it would choose the part of its telemetry that its energy and heat are taken from."""
    here, before = site(REPLAY), time.time()
    events = [json.loads(line) for line in RECORDED.splitlines()]
    for event in events:
        if event["event"] == "environment":
            event["clock"]["unix_at_zero"] = before + moved
    (tmp_path / "recorded").write_text("".join(json.dumps(event) + "\n" for event in events))
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status, _, wall = watched(attempt, here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert status == "ok"
    assert before - 0.1 <= row_of(tmp_path)["started_unix"] <= before + wall + 1.0


def test_a_cell_that_began_when_it_says_keeps_its_own_time(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.arrivals.note({"event": "memory", "t": 3.0}, at=14.5)
    recorder.row["started_unix"] = 1001.25
    # The engine was called at 10, the process began at 11.5 at the latest.
    assert attempts._started(recorder, 10.0, 990.0) == 1001.25
    # It printed nothing: it began when its engine was called.
    assert attempts._started(Recorder(), 10.0, 990.0) == 1000.0


def test_a_cell_that_cannot_be_written_down_any_more_is_ended_and_not_left_running(
    site: Callable[..., AttemptContext], tmp_path: Path
) -> None:
    here = site("import sys, time; sys.stdout.write(open(sys.argv[1]).read()); sys.stdout.flush(); time.sleep(60)")
    started: list[LocalRunning] = []
    start = here.engine.start

    def remembered(*arguments: Any) -> LocalRunning:
        started.append(start(*arguments))  # type: ignore[arg-type]
        return started[-1]

    here.engine.start = remembered  # type: ignore[method-assign]

    def broken(event: Any) -> None:
        raise OSError(5, "Input/output error")

    attempt = Attempt(here, Job(CELL, 1), SLOT, (), broken)
    with pytest.raises(OSError, match="Input/output error"):
        attempt.run(here.engine.prepare(None, print))  # type: ignore[arg-type]
    assert started[0].pid() is None, "the cell goes on, and nobody reads it"


def test_a_cell_that_ended_well_while_the_runner_stood_still_is_ok(
    site: Callable[..., AttemptContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after Ctrl-Z, a debugger, or a laptop that slept: the limit is over when the watchdog looks again."""
    monkeypatch.setattr(attempts, "_GAP_SECONDS", 0.5)
    monkeypatch.setattr(attempts, "_DUMP_SECONDS", 0.1)
    here = site(f"import time; time.sleep(1.5); {REPLAY}", Limits(1, 1))
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    # The thread reads what the cell prints, as a runner that goes on does.
    ended = watched(attempt, here.engine.prepare(None, print), lambda: time.sleep(1.4))  # type: ignore[arg-type]
    assert ended[:2] == ("ok", None)


def test_a_cell_that_lingers_after_its_end_is_a_hang(site: Callable[..., AttemptContext], tmp_path: Path) -> None:
    here = site(f"import time; {REPLAY}; sys.stdout.flush(); time.sleep(60)", Limits(1, 60))
    attempt = Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None)
    status = watched(attempt, here.engine.prepare(None, print))[0]  # type: ignore[arg-type]
    assert (status, row_of(tmp_path)["error_kind"]) == ("failed", "time-limit")


@pytest.mark.parametrize("place", ["cache", "scratch"])
def test_a_cell_that_leaves_a_deep_tree_keeps_its_row_and_the_next_one_is_measured(
    site: Callable[..., AttemptContext], tmp_path: Path, place: str
) -> None:
    variable = {"cache": "DLBENCH_CACHE", "scratch": "TMPDIR"}[place]
    here = site(
        f"import os\nbefore = os.getcwd()\nos.chdir(os.environ['{variable}'])\n"
        "for _ in range(1500):\n  os.mkdir('d'); os.chdir('d')\n"
        "open('program', 'w').close(); os.chmod('program', 0o4755)\n" + REPLAY
    )
    running = matrix(here)
    for seed in (1, 2):
        # The second one finds a cache that is deep already.
        running.run_jobs([Job(replace(CELL, seed=seed), 1)], prepared(here))
        here.engine.script = REPLAY  # type: ignore[attr-defined]
    assert [outcome.status for outcome in running.outcomes] == ["ok", "ok"]
    cache = cell_cache.folder_of("host", CELL.image, "sha256:0")
    assert [status.st_mode for _, status in trees.below(cache) if status.st_mode & 0o6000] == []
    assert not list((tmp_path / "xdg" / "dlbench" / "scratch").iterdir())


def test_what_a_cell_prints_byte_by_byte_travels_line_by_line(site: Callable[..., AttemptContext]) -> None:
    """Each piece takes its time along: a cell could make a message that is larger than any may be."""
    kept: list[Parcel] = []
    script = (
        "import os, sys, time\n"
        "for byte in open(sys.argv[1], 'rb').read(3000): os.write(1, bytes([byte])); time.sleep(0.0001)\n"
    )
    here = replace(site(script), keep=lambda job, parcel: kept.append(parcel))
    Attempt(here, Job(CELL, 1), SLOT, (), lambda event: None).run(here.engine.prepare(None, print))  # type: ignore[arg-type]
    pieces = [piece for _, piece in kept[0].tape]
    assert b"".join(pieces) == RECORDED.encode()[:3000]
    assert all(b"\n" in piece for piece in pieces[:-1])


def test_a_cell_that_waits_for_children_that_were_killed_for_memory_is_named_so(
    site: Callable[..., AttemptContext], tmp_path: Path
) -> None:
    attempt = Attempt(site(REPLAY), Job(CELL, 1), SLOT, (), lambda event: None)
    for out_of_memory, ended_by in ((False, ("time-limit", "it had not ended")), (True, None)):
        attempt._ended_by = ("time-limit", "it had not ended")
        attempt._settle(Exit(137, out_of_memory, ""), Recorder(), tmp_path / "cache")
        assert attempt._ended_by == ended_by
