"""What a person sees while the matrix runs: a bar with the time left and a line per running cell, or plain lines in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from runner.run.begin import Prospect
from runner.run.dispatch import Job
from runner.run.schedule import Observer, Outcome
from runner.text import visible


def say(sentence: str) -> None:
    """Print for a person: standard output is for scripts."""
    print(sentence, file=sys.stderr, flush=True)


def announce(prospect: Prospect) -> None:
    """The lines that a run begins with."""
    if not prospect.machine.gpus:
        say(f"no GPU ({prospect.machine.why_no_gpu}): running the CPU images")
    for refused in prospect.machine.refused:
        say(f"not used: {refused.reason}")
    say(prospect.why_engine)
    say(
        f"{len(prospect.plan.cells)} cells x {prospect.options.repeats} repeats, "
        f"{len(prospect.plan.skips)} left out (--dry-run says why), "
        f"about {minutes(prospect.expected_seconds(prospect.jobs))} once the images are ready "
        f"[{time.strftime('%H:%M:%S')}]"
    )


@contextlib.contextmanager
def observer(prospect: Prospect, jobs: Sequence[Job]) -> Iterator[Observer]:
    """A live display on a terminal, plain lines elsewhere."""
    lanes = max(1, len(set(prospect.boards(jobs))))
    expected = prospect.expected_seconds(jobs) * lanes / max(1, len(jobs))
    remaining = Remaining(len(jobs), expected, lanes)
    console = Console(stderr=True)
    if not console.is_terminal:
        yield PlainObserver(remaining)
        return
    live = LiveObserver(console, len(jobs), remaining)
    with live.progress:
        yield live


def minutes(seconds: float) -> str:
    """An estimated length of time, rounded: more digits would promise too much."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Remaining:
    """The time left: from the mean length of the jobs that have ended, or the expected length before one has ended."""

    def __init__(self, jobs: int, expected_seconds: float, lanes: int) -> None:
        self._left, self._expected, self._lanes = jobs, expected_seconds, max(1, lanes)
        self._spent: list[float] = []

    def ended(self, seconds: float) -> None:
        self._left -= 1
        if seconds > 0:
            self._spent.append(seconds)

    def text(self) -> str:
        seconds = sum(self._spent) / len(self._spent) if self._spent else self._expected
        return f"about {minutes(self._left * seconds / self._lanes)} left"


def result_line(outcome: Outcome) -> str:
    """One ended job in a line."""
    mark = "ok  " if outcome.status == "ok" else "FAIL"
    line = f"{mark} {outcome.job.cell.label} · repeat {outcome.job.repeat} · {outcome.wall_seconds:.1f} s"
    return line + (f"\n     {one_line(outcome.reason)}" if outcome.reason else "")


def one_line(text: str, longest: int = 400) -> str:
    """Untrusted text as one line without control characters."""
    return " ".join(visible(text, longest).split("\n"))


def image_line(image: str, line: str, longest: int = 400) -> str:
    """A line about an image, with its name in front once."""
    return one_line(line if line.startswith(image) else f"{image}: {line}", longest)


class PlainObserver:
    """Lines for a log: what starts, what ends."""

    def __init__(self, remaining: Remaining) -> None:
        self._remaining = remaining

    def preparing(self, image: str, line: str) -> None:
        say(f"     {image_line(image, line)}")

    def started(self, job: Job) -> None:
        say(f"run  {job.cell.label} · repeat {job.repeat}")

    def printed(self, job: Job, event: Mapping[str, Any]) -> None:
        pass

    def ended(self, outcome: Outcome) -> None:
        self._remaining.ended(outcome.wall_seconds)
        say(f"{result_line(outcome)} ({self._remaining.text()})")


class LiveObserver:
    """A live display on a terminal."""

    def __init__(self, console: Console, jobs: int, remaining: Remaining) -> None:
        self._remaining = remaining
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._all = self.progress.add_task("matrix", total=jobs, note=remaining.text())
        self._tasks: dict[Job, TaskID] = {}
        self._shown = 0.0

    def preparing(self, image: str, line: str) -> None:
        if time.monotonic() - self._shown > 0.1:
            self._shown = time.monotonic()
            self.progress.update(self._all, note=escape(image_line(image, line, 80)))

    def started(self, job: Job) -> None:
        # A job that is tried again has a task already.
        if (before := self._tasks.pop(job, None)) is not None:
            self.progress.remove_task(before)
        title = escape(f"{job.cell.workload} · {job.cell.framework} · {job.cell.image}")
        self._tasks[job] = self.progress.add_task(title, total=None, note="starting")
        self.progress.update(self._all, note=self._remaining.text())

    def printed(self, job: Job, event: Mapping[str, Any]) -> None:
        task = self._tasks[job]
        if event["event"] == "phase" and event["state"] == "begin":
            self.progress.update(task, note=event["name"])
        elif event["event"] == "plan":
            self.progress.update(task, total=event["windows"])
        elif event["event"] == "operation" or (event["event"] == "sample" and event["stage"] == "steady"):
            self.progress.advance(task)

    def ended(self, outcome: Outcome) -> None:
        task = self._tasks.pop(outcome.job, None)
        if task is not None:
            self.progress.remove_task(task)
        self._remaining.ended(outcome.wall_seconds)
        self.progress.console.print(escape(result_line(outcome)), highlight=False)
        self.progress.update(self._all, advance=1, note=self._remaining.text())
