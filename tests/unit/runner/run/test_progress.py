"""What a person reads when a run begins."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from bench import rules
from runner.engines.process.process import NOT_WALLED_IN
from runner.plan.plan import Plan
from runner.results.store import RunStore
from runner.run import progress
from runner.run.budget import Forecast
from runner.run.dispatch import Job, Span
from runner.run.progress import (
    PHASES,
    LiveObserver,
    PlainObserver,
    Remaining,
    announce,
    image_line,
    limit,
    not_yet_run,
)
from runner.run.schedule import Outcome
from runner.run.summary import go_on_with
from tests.fixtures.plans import make_cell


@pytest.mark.parametrize(
    ("cells", "repeats", "words"), [(1, 1, "1 cell x 1 repeat on 1 GPU, "), (2, 3, "2 cells x 3 repeats on 1 GPU, ")]
)
def test_one_cell_and_one_repeat_are_not_several(
    cells: int, repeats: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    announce(announced(cells, repeats))
    assert capsys.readouterr().err.startswith(words)


def test_a_run_without_a_remark_begins_with_one_line_that_says_what_where_and_how_long(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prospect = announced(2, 3)
    prospect.machine = SimpleNamespace(gpus=(), why_no_gpu="no driver", refused=(), notes=(NOT_WALLED_IN,))
    prospect.why_engine = "engine venv: docker is not used: it does not answer; podman is not used: no such program"
    announce(prospect)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(
        "2 cells x 3 repeats on the CPU (no GPU: no driver), engine venv without containers: cells can "
    )
    prospect.machine.notes = ("other programs use 1.8 of 2 CPUs", NOT_WALLED_IN)
    announce(prospect)
    assert capsys.readouterr().err.splitlines()[0] == "other programs use 1.8 of 2 CPUs"


def announced(cells: int, repeats: int) -> Any:
    return SimpleNamespace(
        machine=SimpleNamespace(gpus=("a GPU",), refused=(), notes=()),
        why_engine="engine venv",
        plan=Plan((make_cell(),) * cells, ()),
        repeats=repeats,
        jobs=[],
        expected_seconds=lambda jobs: 1.0,
    )


def test_a_run_says_once_what_runner_is_where_path_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "bin" / "runner"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", str(tmp_path))
    announce(announced(1, 1))
    assert capsys.readouterr().err.endswith(f"; in a command `runner` is {script}\n")
    monkeypatch.setenv("PATH", str(script.parent))
    announce(announced(1, 1))
    assert "in a command" not in capsys.readouterr().err


def test_what_is_left_is_counted_in_one_way() -> None:
    cells = [make_cell(seed=number) for number in range(3)]
    jobs = [Job(cell, repeat) for cell in cells for repeat in (1, 2)]
    begun = {cells[0].id}
    assert not_yet_run(jobs[1:], begun) == "5 repeats not yet run (2 cells without any repeat)"
    assert not_yet_run(jobs[-1:], {cell.id for cell in cells}) == "1 repeat not yet run"
    held = Forecast(steps=(), spans=(Span(jobs[2], (), 0.0, 1.0),), left=(jobs[1], *jobs[3:]))
    assert limit(held, 10, begun).endswith("; left for --resume: 4 repeats not yet run (1 cell without any repeat)")


def test_where_nothing_is_left_more_minutes_are_not_asked_for() -> None:
    assert limit(Forecast((), (), ()), 10) == "nothing is left to measure"
    left = Forecast(steps=(), spans=(), left=(Job(make_cell(), 1),))
    assert limit(left, 525600) == "525600 min is too short for any cell; use a larger --minutes"
    assert limit(left, 7.1667).startswith("7 min is too short")
    assert limit(left, 0.3).startswith("0.3 min is too short")


def test_a_run_that_goes_on_says_how_long_the_rest_takes(capsys: pytest.CaptureFixture[str]) -> None:
    cells = tuple(make_cell(seed=number) for number in range(2))
    prospect: Any = SimpleNamespace(
        machine=SimpleNamespace(gpus=(), why_no_gpu="none here", refused=(), notes=()),
        why_engine="engine venv: as asked",
        plan=Plan(cells, ()),
        repeats=1,
        jobs=[Job(cell, 1) for cell in cells],
        expected_seconds=lambda jobs: 10.0 * len(jobs),
    )
    announce(prospect, prospect.jobs[:1])
    assert "about 10 s for the rest" in capsys.readouterr().err
    announce(prospect)
    assert "about 20 s of measuring" in capsys.readouterr().err


def test_a_line_of_an_image_is_cut_between_words() -> None:
    assert image_line("torch-1-cpu", "installing 24 packages and more", 34) == "torch-1-cpu: installing 24 …"
    assert image_line("torch-1-cpu", "installing 24 packages", 80) == "torch-1-cpu: installing 24 packages"


def takes_30(jobs: Sequence[Job]) -> float:
    return 30.0 * len(jobs)


def sample(seconds: float, stage: str = "steady") -> dict[str, Any]:
    return {"event": "sample", "stage": stage, "seconds": seconds, "steps": 10}


def test_a_finished_line_has_the_step_time_of_the_measured_windows(capsys: pytest.CaptureFixture[str]) -> None:
    observer, job = PlainObserver(Remaining([], takes_30, 1)), Job(make_cell(), 1)
    observer.started(job)
    observer.printed(job, sample(9.0))
    # It is tried again: what was measured before counts no more.
    observer.started(job)
    for event in (sample(5.0, "warm-up"), sample(0.12), sample(0.14), sample(0.13)):
        observer.printed(job, event)
    observer.ended(Outcome(job, "ok", None, 27.1))
    assert "gru-imdb fp32 · 13.0 ms/step · repeat 1 · 27.1 s (about 0 s left)" in capsys.readouterr().err
    observer.started(job)
    observer.printed(job, sample(15.7))
    observer.ended(Outcome(job, "ok", None, 27.1))
    assert " · 1\u2009570 ms/step · " in capsys.readouterr().err, "as the table writes it"
    observer.started(job)
    observer.ended(Outcome(job, "ok", None, 27.1, "other work used 1.2 of its 2 CPUs"))
    assert " · 27.1 s · disturbed: other work used 1.2 of its 2 CPUs (" in capsys.readouterr().err
    observer.started(job)
    observer.ended(Outcome(job, "failed", "crash: it ended", 1.0))
    assert "ms/step" not in capsys.readouterr().err


def test_the_cells_of_an_image_that_cannot_be_made_have_one_line_together(capsys: pytest.CaptureFixture[str]) -> None:
    observer = PlainObserver(Remaining([], takes_30, 1))
    cells = [make_cell(), make_cell(workload="cnn-cifar10"), make_cell(image="jax-0.10.2-cpu")]
    for cell, reason in [(cells[0], "no disk"), (cells[1], "no disk"), (cells[1], "no index"), (cells[2], "no disk")]:
        observer.ended(Outcome(Job(cell, 1), "failed", reason, 0.0))
    first, other = cells[0].image, cells[2].image
    lines = [line.replace(" (about 0 s left)", "").strip() for line in capsys.readouterr().err.splitlines()]
    heads = [f"FAIL {image} · cells of it cannot begin" for image in (first, first, other)]
    assert lines == [heads[0], "no disk", heads[1], "no index", heads[2], "no disk"]
    # A cell that began has a line of its own.
    job = Job(cells[0], 1)
    observer.started(job)
    observer.ended(Outcome(job, "failed", "no disk", 1.0))
    assert f"FAIL {job.cell.label} · repeat 1 · 1.0 s" in capsys.readouterr().err


def test_an_installer_has_one_line_an_image_and_then_one_from_time_to_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    observer = PlainObserver(Remaining([], takes_30, 1))
    for image in ("torch-1-cpu", "jax-1-cpu"):
        for number in range(99):
            observer.preparing(image, f"Collecting wheel-{number}")
    now[0] += 21.0
    observer.preparing("jax-1-cpu", "Collecting wheel-99")
    lines = [line.strip() for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "torch-1-cpu: Collecting wheel-0",
        "jax-1-cpu: Collecting wheel-0",
        "jax-1-cpu: Collecting wheel-99",
    ]


def test_the_time_left_moves_while_a_cell_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    jobs, each = [Job(make_cell(), repeat) for repeat in (1, 2)], [30.0]
    remaining, job = Remaining(jobs, lambda left: each[0] * len(left), 1), jobs[0]
    assert str(remaining) == "about 60 s left"
    remaining.started(job)
    now[0] += 20.0
    assert str(remaining) == "about 40 s left"
    now[0] += 100.0
    assert str(remaining) == "about 30 s left", "the job is about to end, and the next is still to come"
    # The estimates learn what it took.
    each[0] = 120.0
    remaining.ended(job)
    assert str(remaining) == "about 2 min left"


def test_a_repeat_beyond_the_planned_ones_counts_from_its_start_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    planned, beyond = Job(make_cell(), 1), Job(make_cell(), 2)
    remaining = Remaining([planned], lambda left: 30.0 * len(left), 1)
    live = LiveObserver(Console(file=io.StringIO(), force_terminal=True), 1, remaining)
    for job in (planned, beyond):
        assert str(remaining) == ("about 30 s left" if job is planned else "about 0 s left")
        live.started(job)
        assert str(remaining) == "about 30 s left"
        # One that is tried again is the same job.
        live.started(job)
        now[0] += 100.0
        live.ended(Outcome(job, "ok", None, 100.0))
    whole = live.progress.tasks[0]
    assert (whole.completed, whole.total) == (2, 2)


def test_a_planned_repeat_that_gets_another_number_is_no_further_one() -> None:
    remaining = Remaining([Job(make_cell(), 1), Job(make_cell(seed=2), 1)], lambda left: 30.0 * len(left), 1)
    remaining.started(Job(make_cell(), 4))
    remaining.ended(Job(make_cell(), 4))
    assert str(remaining) == "about 30 s left"
    assert remaining.beyond == 0


def test_the_time_left_is_added_up_in_a_hundredth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, sums = [100.0], [0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def slow(jobs: Sequence[Job]) -> float:
        if len(jobs) > 1:
            sums[0] += 1
            now[0] += 0.5
        return 10.0 * len(jobs)

    jobs = [Job(make_cell(), repeat) for repeat in range(1, 21)]
    remaining = Remaining(jobs, slow, 1)
    for job in jobs[:18]:
        remaining.started(job)
        now[0] += 10.0
        remaining.ended(job)
    assert str(remaining) == "about 20 s left"
    assert sums == [1 + 4], "at the beginning, and every fifty seconds of a hundred and eighty"


def test_every_phase_of_a_cell_has_words() -> None:
    assert set(progress.PHASES) == set(rules.PHASES)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_the_running_cells_are_whole_at_the_width_of_a_terminal(width: int) -> None:
    names = [
        ("onnxruntime-training-1.19.2-cpu", "onnxruntime_training", "densenet121-chestxray"),
        ("tensorflow-2.21.0-cpu", "keras_tensorflow", "gru-imdb"),
        ("torch-2.13.0-cpu", "torch", "cnn-cifar10"),
    ]
    jobs = [
        Job(make_cell(image=image, framework=framework, workload=workload), 1) for image, framework, workload in names
    ]
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    live = LiveObserver(console, 360, Remaining(jobs, takes_30, 1))

    def shown() -> list[str]:
        with console.capture() as captured:
            console.print(live.progress.get_renderable())
        lines = [line.rstrip() for line in captured.get().splitlines()]
        assert max(map(len, lines)) <= width
        return lines

    live.preparing("torch-2.13.0-cpu", "[torch] " + 20 * "downloading ")
    (line,) = shown()
    assert "0/360 0:00:00 torch-2.13.0-cpu: [torch] " in line
    for job in jobs:
        live.started(job)
        live.printed(job, {"event": "plan", "windows": 1000})
    assert "about 1 min left" in shown()[0] or "about 90 s left" in shown()[0]
    for name, words in PHASES.items():
        for job in jobs:
            live.printed(job, {"event": "phase", "state": "begin", "name": name})
        text = "\n".join(shown())
        assert "…" not in text
        assert text.count(words) == text.count("0/1000") == len(jobs)
        assert [text.count(f"{job.cell.workload} · {job.cell.image}") for job in jobs] == [1] * len(jobs)
        # The image's name says the others.
        assert "tensorflow-2.21.0-cpu · keras_tensorflow" in text
        assert text.count("onnxruntime") == 1


def test_the_command_that_goes_on_with_a_renamed_run_names_its_folder(tmp_path: Path) -> None:
    run = RunStore(tmp_path / "20261123-000000-ab12")
    run.write_manifest({"run_id": run.run_id})
    run.folder.rename(tmp_path / "my monday")
    again = RunStore(tmp_path / "my monday")
    assert again.run_id == run.run_id
    assert go_on_with(again) == f"runner matrix --resume 'my monday' --results {tmp_path}"
