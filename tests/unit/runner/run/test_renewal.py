"""When the report is written while a run goes on."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reports.answers import plain
from reports.data import tables
from reports.page import render
from runner.admission.renew import renew
from runner.cli.report import Reporter, report_path, write_renewed, write_report_beside
from runner.errors import ExitCode
from runner.results import store
from runner.results.on_disk import derived
from runner.results.store import RunStore, StoreError
from runner.run import execution, summary
from runner.run.execution import Meanwhile, Renewal
from tests.fixtures import measured, stored, synthetic
from tests.fixtures.nodes import parcel_of
from tests.fixtures.plans import make_cell


class Written:
    """Counts the reports of both kinds; the clock is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: float = 0.0) -> None:
        self.now, self.takes = 1000.0, takes
        self.between = self.beside = 0
        self.cells: Any = SimpleNamespace(outcomes=[])
        monkeypatch.setattr(execution.time, "monotonic", lambda: self.now)  # type: ignore[attr-defined]
        self.remembered, self.lines = 0, ["so far: nothing"]
        self.renewal = Renewal(self.cells, Path("run"), Meanwhile(self._write, self._start), self._remember)

    def _remember(self) -> None:
        assert self.remembered == self.between + self.beside, "before the report, which says it"
        self.remembered += 1

    def _write(self, folder: Path) -> list[str]:
        self.between += 1
        self.now += self.takes
        return self.lines

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        self.beside += 1
        command = [sys.executable, "-c", "input()\nprint('so far: from beside')"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def after(self, seconds: float, busy: bool = False) -> tuple[int, int]:
        """A cell ends so many seconds later: the numbers of reports between cells and beside them."""
        self.now += seconds
        self.cells.outcomes.append("a cell")
        self.renewal.renew(busy)
        return self.between, self.beside


def test_the_first_cell_is_in_a_report_at_once_and_later_ones_after_twenty_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = Written(monkeypatch)
    written.renewal.renew(False)
    assert written.between == 0, "nothing has ended yet"
    assert [written.after(seconds) for seconds in (0, 19, 2, 5)] == [(1, 0), (1, 0), (2, 0), (2, 0)]
    written.now += 100
    written.renewal.renew(False)
    written.renewal.renew(False)
    assert written.between == 3, "not again where nothing has ended since"


def test_a_report_that_takes_long_is_written_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(monkeypatch, takes=6.0)
    assert [written.after(seconds)[0] for seconds in (0, 60, 59, 2)] == [1, 1, 1, 2]


def test_beside_gpu_cells_one_process_at_a_time_writes_it_and_the_end_waits_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = Written(monkeypatch)
    assert written.after(0, busy=True) == (0, 1)
    process = written.renewal._process
    assert process is not None
    assert process.stdin is not None
    assert written.after(100, busy=True) == (0, 1), "the first is still writing"
    process.stdin.close()
    process.wait()
    # It took a hundred seconds: more than a twentieth of the time is too much beside GPU cells, too.
    assert [written.after(seconds, busy=True) for seconds in (0, 1999, 2)] == [(0, 1), (0, 1), (0, 2)]
    last = written.renewal._process
    assert last is not None
    assert last.stdin is not None
    last.stdin.close()
    written.renewal.__exit__()
    assert last.returncode is not None


def test_a_fault_of_the_page_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(monkeypatch)

    def fails(folder: Path) -> list[str]:
        raise ValueError("a fault of the page")

    written.renewal.write = written.renewal.write._replace(here=fails)
    assert written.after(0) == (0, 0)


def test_the_process_writes_the_report_of_a_run_with_time_that_nobody_wants(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=6)
    process = write_report_beside(folder)
    policy = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[38]
    assert policy == "5", "SCHED_IDLE"
    # Beside other tests nobody may leave it time for minutes.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(process.pid, os.SCHED_OTHER, os.sched_param(0))
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "<html" in report_path(folder).read_text()[:2000]
    assert said.decode().splitlines() == write_renewed(folder)


def test_what_two_frameworks_have_shown_is_said_when_it_is_new(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = Written(monkeypatch)
    said = []
    for line in ("so far: a takes 1.2 times as long", "so far: a takes 1.35 times as long", "so far: a is open"):
        written.lines = [line]
        written.after(100)
        said.append(capsys.readouterr().err)
    assert said == ["so far: a takes 1.2 times as long\n", "", "so far: a is open\n"], "a number alone is not new"
    written.after(100, busy=True)
    process = written.renewal._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    process.wait()
    written.after(0, busy=True)
    assert capsys.readouterr().err == "so far: from beside\n"


def test_a_network_of_which_one_framework_has_ended_says_nothing_yet(tmp_path: Path) -> None:
    cell = make_cell(image="torch-2.13.0-cpu")
    alone = stored.measured(tmp_path / "alone", [parcel_of(cell, 1)], [cell])
    renew(alone)
    assert write_renewed(alone.folder) == []
    lines = write_renewed(synthetic.make_run(tmp_path / "several", windows=8))
    assert 0 < len(lines) <= plain._MOST_SO_FAR
    assert lines[0].startswith("so far: CNN on CIFAR-10")


@pytest.mark.parametrize(("repeats", "count"), [((1, 1), 1), ((2, 1), 0), ((1, 2), 0), ((2, 2), 1)])
def test_of_two_frameworks_of_which_one_was_repeated_nothing_is_said(repeats: tuple[int, int], count: int) -> None:
    random = np.random.default_rng(1)
    drawn = [[np.exp(random.normal(level, 0.01, 40)) for _ in range(many)] for level, many in enumerate(repeats)]
    lines = plain.so_far(measured.tables({"run": {("torch", "cnn"): drawn[0], ("jax", "cnn"): drawn[1]}}))
    assert len(lines) == count


def test_a_fault_of_the_page_at_the_end_is_a_sentence_and_no_failed_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunStore(synthetic.make_run(tmp_path / "run", windows=8))
    plan: Any = SimpleNamespace(skips=())
    prospect: Any = SimpleNamespace(jobs_left=lambda run: [], plan=plan, expectations=lambda jobs: {})

    def broken(folder: Path) -> Path:
        raise ValueError("invalid literal for int() with base 10: '²'")

    code = summary.conclude(prospect, run, "", broken, show_answer=lambda folder: None)
    assert code.code == ExitCode.FOUND, "one cell of the synthetic run failed"
    said = capsys.readouterr().err
    assert "a fault of the runner kept the answer from being shown (ValueError: invalid literal" in said
    assert f"results  {run.folder}" in said


def test_the_answer_at_the_end_rests_on_what_was_read_for_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = synthetic.make_run(tmp_path / "run", windows=8)
    loads, load = [], tables.load
    monkeypatch.setattr(tables, "load", lambda *given: loads.append(given) or load(*given))
    reporter = Reporter()
    reporter.write(folder)
    reporter.show(folder)
    shown = capsys.readouterr().err
    assert len(loads) == 1
    assert "PyTorch 2.13.0" in shown
    # Later the run may hold more.
    reporter.show(folder)
    assert (capsys.readouterr().err, len(loads)) == (shown, 2)


def test_the_end_counts_repeats_and_their_cells() -> None:
    ended = {("a", 1): "ok", ("a", 2): "ok", ("b", 1): "ok", ("b", 2): "failed", ("c", 1): "failed"}
    assert summary.ended_well(ended) == "3 repeats of 2 cells"
    assert summary.ended_well({("c", 1): "failed"}) == "0 repeats"


def of_a_pipe(path: Path, elsewhere: Path) -> None:
    os.mkfifo(path)


def of_a_link(path: Path, elsewhere: Path) -> None:
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("made", [of_a_pipe, of_a_link])
def test_a_report_takes_the_place_of_a_pipe_or_a_link_that_a_cell_made(
    tmp_path: Path, made: Callable[[Path, Path], None]
) -> None:
    """Nobody may ever read the pipe, and the link leads out of the run."""
    run, elsewhere = synthetic.make_run(tmp_path / "run", windows=6), tmp_path / "elsewhere"
    report_path(run).unlink(missing_ok=True)
    made(report_path(run), elsewhere)
    write_renewed(run)
    assert report_path(run).lstat().st_size > 10_000
    assert not elsewhere.exists()


def test_a_run_that_is_moved_away_while_its_report_is_made_gets_no_second_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever puts it back, as the end of the run says, would else put it into the other one."""
    run, kept = synthetic.make_run(tmp_path / "run", windows=6), tmp_path / "kept"
    every = store.tables_of([run], tuple(store.TABLES))
    page = render.page

    def move_and_write(*words: Any) -> str:
        run.rename(kept)
        return page(*words)

    monkeypatch.setattr(render, "page", move_and_write)
    with pytest.raises(StoreError, match="it has no run.json"):
        write_renewed(run)
    with pytest.raises(FileNotFoundError):
        derived.write(run, "run", every, {}, "rules")
    assert (run.exists(), kept.exists()) == (False, True)
