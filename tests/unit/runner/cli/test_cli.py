"""A run as a user meets it: real processes over toy cells that replay a recorded stream.

What may go wrong does: a cell hangs, crashes, floods, leaves a daemon; the runner is killed, interrupted, runs out of disk.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from reports.answers import left as of_runs
from reports.data import tables
from runner.catalog.images import PROJECT
from runner.machine import lease
from runner.results import store
from runner.text import length
from tests.fixtures.commands import runner
from tests.fixtures.json_documents import valid
from tests.fixtures.pages import whole
from tests.fixtures.toys import toy_variables
from tests.fixtures.waiting import wait_for
from tests.fixtures.warm import WarmProcess
from tests.unit.processes import end, marked

Start = Callable[..., subprocess.Popen[str]]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A line here for every toy cell that was started."""
    path = tmp_path / "started"
    path.touch()
    return path


@pytest.fixture
def start(tmp_path: Path, started: Path, own_cache: None) -> Iterator[Start]:
    """Start the runner over the toys, as a process; its results go to tmp_path/results."""
    processes = []

    def start(*options: str, toy: str = "", seconds: float = 0.05, **more: Any) -> subprocess.Popen[str]:
        environment = os.environ | toy_variables(tmp_path, toy, seconds)
        command = ["matrix", "--gpus", "none"]
        if "--workloads" not in options:
            command += ["--workloads", "cnn-cifar10,gru-imdb"]
        if "--repeats" not in options:
            command += ["--repeats", "1"]
        command += ["--out", str(tmp_path / "results"), *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        process = WarmProcess("tests.unit.toy_runner", command, environment, PROJECT, **pipes)
        processes.append(process)
        return process

    yield start
    end(processes)


@pytest.fixture
def run(start: Start) -> Run:
    def run(*options: str, **more: Any) -> subprocess.CompletedProcess[str]:
        process = start(*options, **more)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


def folder_of(tmp_path: Path) -> Path:
    (manifest,) = (tmp_path / "results").glob("*/run.json")
    return manifest.parent


def cells_of(tmp_path: Path) -> pd.DataFrame:
    cells = store.read([folder_of(tmp_path)], "cells").to_pandas()
    return cells[cells["status"] != "skipped"]


def processes_of(run_id: str) -> list[int]:
    """The processes that were started for a run, by the label in their environment."""
    return marked(f"DLBENCH_RUN={run_id}")


def program_of(pid: int) -> bytes:
    """The command line of a process; empty of one that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# --- a run from end to end


def test_a_run_stores_every_repeat_writes_a_report_and_exits_0(run: Run, tmp_path: Path, started: Path) -> None:
    ended = run("--repeats", "2", "--format", "json")
    assert ended.returncode == 0
    told = valid("matrix", ended.stdout)
    folder = folder_of(tmp_path)
    cells = cells_of(tmp_path)
    assert Counter(cells["status"]) == {"ok": 12}
    assert sorted(cells["repeat"].unique()) == [1, 2]
    assert len(started.read_text().splitlines()) == 12
    assert told["run_id"] == folder.name
    assert len([cell for cell in told["results"] if cell["status"] == "ok"]) == 12
    assert "<html" in (folder / "report.html").read_text()[:2000]
    manifest = json.loads((folder / "run.json").read_text())
    assert {cell["id"] for cell in manifest["plan"]} == set(cells["cell_id"])
    assert manifest["reused"] == []
    assert len(list((folder / "repeats").iterdir())) == 12
    assert not list(folder.rglob("*.part"))


@pytest.mark.parametrize(
    ("toy", "kind", "words"),
    [("crash", "crash", "SIGSEGV"), ("chatter", "protocol", "epoch 1 done"), ("flood", "protocol", "xxxxx")],
)
def test_a_cell_that_fails_is_a_row_with_its_samples_and_the_others_go_on(
    run: Run, tmp_path: Path, toy: str, kind: str, words: str
) -> None:
    ended = run("--images", "*", toy=toy)
    assert ended.returncode == 1
    cells = cells_of(tmp_path)
    failed = cells[cells["workload"] == "gru-imdb"]
    assert set(failed["status"]) == {"failed"}
    assert set(failed["error_kind"]) == {kind}
    assert failed["reason"].str.contains(words).all()
    assert set(cells[cells["workload"] == "cnn-cifar10"]["status"]) == {"ok"}
    samples = store.read([folder_of(tmp_path)], "samples").to_pandas()
    assert set(failed["cell_id"]) <= set(samples["cell_id"])
    assert "3 failed" in ended.stderr


def test_a_cell_that_hangs_is_ended_by_the_time_limit_and_leaves_no_process(run: Run, tmp_path: Path) -> None:
    begin = time.monotonic()
    ended = run("--timeout", "2", "--workloads", "gru-imdb", toy="hang,fork")
    assert time.monotonic() - begin < 100
    assert ended.returncode == 1
    cells = cells_of(tmp_path)
    assert set(cells["error_kind"]) == {"time-limit"}
    assert cells["reason"].str.contains("2 s").all()
    assert cells["log_tail"].str.contains("most recent call first").all(), "the stack of where it stood still"
    assert processes_of(folder_of(tmp_path).name) == []


def test_an_image_that_cannot_be_made_fails_its_cells_only(run: Run, tmp_path: Path) -> None:
    ended = run("--repeats", "2", toy="unready")
    assert ended.returncode == 1
    cells = cells_of(tmp_path)
    failed = cells[cells["image"] == "toy-b"]
    assert len(failed) == 4
    assert set(failed["error_kind"]) == {"engine"}
    assert failed["reason"].str.contains("the disk of toys is full").all()
    others = cells[cells["image"] != "toy-b"]
    assert (set(others["status"]), list(others["reason"].dropna())) == ({"ok"}, [])


@pytest.mark.slow
def test_an_image_that_was_made_anew_since_the_run_began_is_not_measured_beside_what_there_is(
    run: Run, tmp_path: Path
) -> None:
    words = ("--workloads", "gru-imdb", "--repeats", "2")
    assert run(*words).returncode == 0
    run_id, image_of = folder_of(tmp_path).name, dict(cells_of(tmp_path)[["cell_id", "image"]].itertuples(index=False))
    for cell in image_of:
        (folder_of(tmp_path) / "repeats" / f"{cell}.r2.parcel").unlink()
    ended = run(*words, "--resume", run_id, toy="remade")
    assert ended.returncode == 1
    assert (
        "toy-b: its image is sha256:toy-b-again now, and the repeats that this run has ran in sha256:toy-b"
        in ended.stderr
    )
    assert "not all was run; what had ended is kept. Go on with: " in ended.stderr
    assert Counter(cells_of(tmp_path)["image"]) == {"toy-a": 2, "toy-b": 1, "toy-c": 2}
    assert run(*words, "--resume", run_id).returncode == 0
    assert Counter(cells_of(tmp_path)["image_digest"]) == {f"sha256:toy-{name}": 2 for name in "abc"}


# --- a limit of time


@pytest.mark.slow
def test_a_run_of_some_seconds_leaves_the_rest_for_resume_and_fails_nothing(
    run: Run, tmp_path: Path, started: Path
) -> None:
    assert run("--images", "toy-a", seconds=2.0).returncode == 0, "so that the length of a cell is known"
    (known,) = (tmp_path / "results").iterdir()
    began = time.time()
    limited = run("--repeats", "2", "--minutes", "0.3", seconds=2.0)
    assert limited.returncode == 0, limited.stderr
    assert "0.3 min hold about " in limited.stderr
    (folder,) = {path.parent for path in (tmp_path / "results").glob("*/run.json")} - {known}
    ended = store.RunStore(folder).finished()
    manifest = json.loads((folder / "run.json").read_text())
    assert 1 <= len(ended) < 12
    assert len(manifest["plan"]) == 6, "the plan keeps what is not yet run"
    assert set(store.statuses(folder).values()) == {"ok"}
    image_of = {cell["id"]: cell["image"] for cell in manifest["plan"]}
    repeats = Counter(cell for cell, _ in ended)
    once = [cell for cell, count in repeats.items() if count == 1 and image_of[cell] != "toy-a"]
    assert len(once) <= 1 or set(repeats.values()) == {1}, (
        "further cells have all repeats, but for one that took too long"
    )
    # The time counts from when the options are read, a few seconds after the start on a busy machine.
    assert max(path.stat().st_mtime for path in folder.glob("repeats/*.parcel")) - began < 0.3 * 60 + 10
    assert f"{12 - len(ended)} repeats not yet run" in limited.stderr
    assert f"runner matrix --resume {folder.name}" in limited.stderr
    left = manifest["left"]
    assert left["repeats"] == 12 - len(ended)
    rest = f"about {length(left['seconds'])}"
    data = tables.load([folder])
    assert [entry.time for entry in of_runs.left(data.cells, data.runs)] == [f", {rest}"]
    planned = run("--resume", folder.name, "--repeats", "2", "--dry-run")
    assert f"{rest} of measuring" in " ".join(planned.stdout.split()), "the run, its report and its plan say one length"

    before = len(started.read_text().splitlines())
    assert run("--resume", folder.name, "--repeats", "2").returncode == 0
    assert len(started.read_text().splitlines()) - before == 12 - len(ended)
    assert len(store.RunStore(folder).finished()) == 12


def test_a_limit_in_which_no_cell_would_end_starts_none_and_says_so(run: Run, started: Path) -> None:
    ended = run("--minutes", "0.05")
    assert ended.returncode == 4
    assert "is too short for any cell; use a larger --minutes" in ended.stderr
    assert started.read_text() == ""


@pytest.mark.slow
def test_each_image_is_measured_before_the_next_is_fetched_and_what_that_took_is_kept(run: Run, tmp_path: Path) -> None:
    ended = run("--repeats", "2", toy="fetch", seconds=0.3)
    assert ended.returncode == 0
    lines = [line for line in ended.stderr.splitlines() if line.startswith("run ") or "is a toy" in line]
    steps = [line.split()[1] if line.startswith("run ") else line for line in lines]
    assert [line.strip() for line in steps[:9]] == [
        part for name in ("toy-a", "toy-b", "toy-c") for part in (f"{name} is a toy", name, name)
    ]
    assert len(steps) == 9 + 6
    prepared = json.loads((folder_of(tmp_path) / "run.json").read_text())["prepared"]
    assert [entry["image"] for entry in prepared] == ["toy-a", "toy-b", "toy-c"]
    assert all(0.3 <= entry["seconds"] < 10 and entry["bytes"] == 1000 for entry in prepared)


def test_the_report_is_there_while_the_run_goes_on(start: Start, tmp_path: Path) -> None:
    process = start(seconds=2.0)
    wait_for(lambda: list((tmp_path / "results").glob("*/report.html")))
    folder = folder_of(tmp_path)
    assert process.poll() is None
    assert len(store.RunStore(folder).finished()) == 1
    assert "5 not yet run" in whole(folder / "report.html")
    process.kill()
    _, err = process.communicate()
    assert str(folder / "report.html") in err.split("run  ")[0], "its path is told before the first cell"


# --- killed, interrupted, resumed


def test_a_killed_runner_leaves_no_process_and_resume_repeats_and_loses_nothing(
    start: Start, run: Run, tmp_path: Path, started: Path
) -> None:
    process = start("--repeats", "2", seconds=1.0)
    wait_for(lambda: len(list((tmp_path / "results").glob("*/repeats/*.parcel"))) >= 3)
    wait_for(lambda: processes_of(folder_of(tmp_path).name))
    process.kill()
    process.communicate()
    folder = folder_of(tmp_path)
    wait_for(lambda: not processes_of(folder.name))
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("repeats/*.parcel")}
    done = store.RunStore(folder).finished()
    assert 3 <= len(done) < 12

    ended = run("--resume", folder.name, "--repeats", "2")
    assert ended.returncode == 0
    cells = cells_of(tmp_path)
    assert Counter(zip(cells["cell_id"], cells["repeat"], strict=True)).most_common(1)[0][1] == 1
    assert Counter(cells["status"]) == {"ok": 12}
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "a finished one ran again"
    again = len(started.read_text().splitlines()) - 12
    assert again in (0, 1), "only the one that was running when it was killed may have begun twice"
    reused = json.loads((folder / "run.json").read_text())["reused"]
    assert {(entry["cell_id"], entry["repeat"]) for entry in reused} == set(done)
    assert not list((tmp_path / "cache" / "dlbench" / "scratch").iterdir())


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(it, marks=pytest.mark.slow) for it in (signal.SIGTERM, signal.SIGHUP))]
)
def test_an_interrupt_ends_the_cells_within_5_seconds_and_says_how_to_resume(
    start: Start, run: Run, tmp_path: Path, number: signal.Signals
) -> None:
    process = start(toy="fork", seconds=0.2)
    wait_for(lambda: (tmp_path / "results").glob("*/run.json") and list((tmp_path / "results").glob("*/run.json")))
    wait_for(lambda: processes_of(folder_of(tmp_path).name))
    wait_for(lambda: any(program_of(pid).startswith(b"sleep") for pid in processes_of(folder_of(tmp_path).name)))
    begin = time.monotonic()
    process.send_signal(number)
    wait_for(lambda: not processes_of(folder_of(tmp_path).name), 5)
    _, err = process.communicate(timeout=15)
    assert time.monotonic() - begin < 15
    assert process.returncode == 130
    assert "Traceback" not in err
    folder = folder_of(tmp_path)
    assert f"runner matrix --resume {folder.name} --results {tmp_path / 'results'}" in err
    assert set(cells_of(tmp_path)["status"]) <= {"ok"}, "an interrupted repeat is not a result"
    assert run("--resume", folder.name).returncode == 0
    assert Counter(cells_of(tmp_path)["status"]) == {"ok": 6}


def test_an_interrupt_ends_a_plan_under_an_engine_that_never_answers(tmp_path: Path) -> None:
    where = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(where))
        engine.listen()
        environment = os.environ | {"DOCKER_HOST": f"unix://{where}", "PYTHONPATH": str(PROJECT)}
        command = [sys.executable, "-m", "runner", "matrix", "--gpus", "none", "--engine", "docker"]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        engine.settimeout(60)
        asked, _ = engine.accept()
        with asked:
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=15)
        assert time.monotonic() - begin < 5
    assert process.returncode == 130
    assert "interrupted before a cell was started" in err


def test_a_run_that_is_complete_is_not_run_again(run: Run, tmp_path: Path, started: Path) -> None:
    assert run().returncode == 0
    before, folder = started.read_text(), folder_of(tmp_path)
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    again = run("--resume", folder.name)
    assert (again.returncode, started.read_text()) == (0, before)
    assert f"{folder.name} is complete: nothing is left to run, and nothing was changed" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == files
    assert json.loads((folder / "run.json").read_text())["reused"] == []


def test_an_option_that_is_not_the_runs_own_is_refused_beside_resume(run: Run, tmp_path: Path, started: Path) -> None:
    assert run("--workloads", "gru-imdb").returncode == 0
    before = started.read_text()
    other = run("--workloads", "cnn-cifar10", "--seed", "2", "--resume", folder_of(tmp_path).name)
    assert other.returncode == 2
    assert "--resume goes on with the options that the run began with: leave --workloads, --seed out" in other.stderr
    assert started.read_text() == before


def test_a_resumed_run_exits_as_its_worst_cell_even_when_that_ended_before(run: Run, tmp_path: Path) -> None:
    assert run(toy="crash").returncode == 1
    assert run("--resume", folder_of(tmp_path).name).returncode == 1


def test_a_second_runner_on_the_cpus_is_refused_by_name_where_it_does_not_wait(run: Run, started: Path) -> None:
    with lease.hold([lease.CPUS], "20260101-000000-aaaa", print):
        ended = run("--no-wait")
    assert ended.returncode == 4
    assert "the CPUs of this machine are held by another runner" in ended.stderr
    assert "run 20260101-000000-aaaa" in ended.stderr
    assert ended.stderr.rstrip().endswith("; wait for it, or stop it")
    assert started.read_text() == "", "no cell was measured beside the other runner's"


def test_the_minutes_of_a_resumed_run_end_its_waiting_and_no_wait_belongs_to_the_call(
    run: Run, tmp_path: Path, started: Path
) -> None:
    with lease.hold([lease.CPUS], "20260101-000000-aaaa", print):
        assert run("--no-wait", "--workloads", "gru-imdb").returncode == 4
    assert not list(tmp_path.glob("results/*/run.json")), "a refused start leaves no run"
    assert run("--workloads", "gru-imdb").returncode == 0
    for parcel in tmp_path.glob("results/*/repeats/*.parcel"):
        parcel.unlink()
    before = started.read_text()
    with lease.hold([lease.CPUS], "20260101-000000-aaaa", print):
        resume = ("--workloads", "gru-imdb", "--resume", folder_of(tmp_path).name)
        waited, refused = run(*resume, "--minutes", "0.02"), run(*resume, "--no-wait")
    assert (waited.returncode, refused.returncode) == (4, 4), waited.stderr + refused.stderr
    assert f"for the runner with process id {os.getpid()} and measured nothing; the CPUs" in waited.stderr
    assert "; wait for it, or stop it" in refused.stderr
    assert "leave --" not in refused.stderr
    assert started.read_text() == before


def test_a_run_goes_on_when_nobody_reads_what_it_prints(start: Start, tmp_path: Path) -> None:
    process = start("--images", "toy-a", "--workloads", "gru-imdb", stdout=subprocess.DEVNULL, seconds=0.2)
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.close()
    process.stderr = None
    assert process.wait(timeout=60) == 0
    assert Counter(cells_of(tmp_path)["status"]) == {"ok": 1}


def test_two_runners_do_not_work_on_one_run(start: Start, run: Run, tmp_path: Path, started: Path) -> None:
    process = start(seconds=3)
    wait_for(lambda: list((tmp_path / "results").glob("*/run.json")) and started.stat().st_size)
    folder = folder_of(tmp_path)
    part = folder / "repeats" / ".x.parcel.1.part"  # what the first one is writing
    part.parent.mkdir(exist_ok=True)
    part.touch()
    manifest = (folder / "run.json").read_bytes()
    second = run("--resume", folder.name)
    assert second.returncode == 4
    assert "another runner is working on" in second.stderr
    assert part.exists(), "the second runner removed a file of the first"
    assert (folder / "run.json").read_bytes() == manifest
    process.kill()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("code_sha256", "0" * 64, "the code of torch cnn-cifar10"),
        ("plan", [], "other cells"),
        ("schema_version", 99, "release"),
    ],
)
def test_a_run_that_is_not_the_same_matrix_any_more_is_not_resumed(
    run: Run, tmp_path: Path, started: Path, field: str, value: Any, words: str
) -> None:
    run()
    before = started.read_text()
    path = folder_of(tmp_path) / "run.json"
    manifest = json.loads(path.read_text())
    if field == "code_sha256":
        manifest["plan"][0][field] = value
    else:
        manifest[field] = value
    path.write_text(json.dumps(manifest))
    ended = run("--resume", folder_of(tmp_path).name)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert started.read_text() == before


def test_a_run_goes_on_where_more_cells_can_run_than_were_planned_and_measures_none_of_them(
    run: Run, tmp_path: Path, started: Path
) -> None:
    run()
    path = folder_of(tmp_path) / "run.json"
    manifest = json.loads(path.read_text())
    unplanned = manifest["plan"].pop()["id"]
    path.write_text(json.dumps(manifest))
    for stored in folder_of(tmp_path).glob(f"*/{unplanned}.r*"):
        stored.unlink()
    before = started.read_text()
    ended = run("--resume", folder_of(tmp_path).name)
    assert ended.returncode == 0, ended.stderr
    assert "1 cell can run today and could not then" in ended.stderr
    assert started.read_text() == before


def test_a_full_disk_is_told_in_a_sentence_and_what_was_stored_before_stays(
    start: Start, run: Run, tmp_path: Path
) -> None:
    """The size of files is limited while the runner runs, which fails as a full disk does."""
    process = start(seconds=1.0)
    wait_for(lambda: len(list((tmp_path / "results").glob("*/repeats/*.parcel"))) >= 1)
    subprocess.run(["prlimit", f"--pid={process.pid}", "--fsize=100"], check=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (1, 4)
    assert "Traceback" not in err
    assert "File too large" in err
    assert run("--resume", folder_of(tmp_path).name).returncode == 0
    assert Counter(cells_of(tmp_path)["status"]) == {"ok": 6}


def test_a_folder_that_cannot_hold_a_run_is_named_before_anything_starts(
    run: Run, tmp_path: Path, started: Path
) -> None:
    (tmp_path / "results").write_text("a file")
    ended = run()
    assert (ended.returncode, started.read_text()) == (2, "")
    assert f"--results: no run can be stored in {tmp_path / 'results'}" in ended.stderr


def test_a_report_is_made_of_the_newest_run_or_of_those_named(run: Run, tmp_path: Path) -> None:
    run()
    out, page = ["--out", str(tmp_path / "results")], tmp_path / "page.html"
    assert runner("report", "-o", str(page), *out).returncode == 0
    nowhere = runner("report", "-o", "/proc/nowhere/page.html", *out)
    assert (nowhere.returncode, "Traceback" in nowhere.stderr) == (2, False)
    assert folder_of(tmp_path).name in page.read_text()
    ended = runner("report", "nowhere", "-o", str(page), *out)
    assert ended.returncode == 2
    assert "is not a run" in ended.stderr
