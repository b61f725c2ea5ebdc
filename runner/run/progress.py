"""The display while the matrix runs: a bar with the time left and a line per running cell, or plain lines in a log."""

from __future__ import annotations

import contextlib
import math
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.engines.process.process import NOT_WALLED_IN
from runner.paths import own_command
from runner.run.budget import Forecast
from runner.run.dispatch import Job
from runner.run.prospect import Prospect
from runner.run.schedule import Observer, Outcome
from runner.text import length, number, plural, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID


def say(sentence: str) -> None:
    """Print for a person: standard output is for scripts."""
    print(sentence, file=sys.stderr, flush=True)


def not_yet_run(left: Collection[Job], begun: Collection[str]) -> str:
    """How many repeats are left, and how many cells have none; `begun` are the ids of the cells that have one."""
    cells = len({job.cell.id for job in left} - set(begun))
    return f"{plural(len(left), 'repeat')} not yet run" + (
        f" ({plural(cells, 'cell')} without any repeat)" if cells else ""
    )


def announce(prospect: Prospect, left: Sequence[Job] | None = None, why_skipped: str = "") -> None:
    """The lines that a run begins with. `left`: the jobs of a run that goes on. `why_skipped`: the option that says it."""
    for refused in prospect.machine.refused:
        say(f"not used: {refused.reason}")
    for note in prospect.machine.notes:
        if note != NOT_WALLED_IN:
            say(note)
    skipped = f", {len(prospect.plan.skips)} skipped{f' ({why_skipped} says why)' if why_skipped else ''}"
    say(
        f"{plural(len(prospect.plan.cells), 'cell')} x {plural(prospect.repeats, 'repeat')} {_where(prospect)}"
        f"{skipped if prospect.plan.skips else ''}, "
        f"about {length(prospect.expected_seconds(prospect.jobs if left is None else left))} "
        f"{'of measuring' if left is None else 'for the rest'} "
        f"[{time.strftime('%H:%M:%S')}]"
        + (f"; in a command `runner` is {own}" if (own := own_command()) != "runner" else "")
    )


def _where(prospect: Prospect) -> str:
    """The devices and the engine of a run. Why it is not another engine, --dry-run and the doctor say."""
    machine, engine = prospect.machine, prospect.why_engine.partition(":")[0]
    devices = plural(len(machine.gpus), "GPU") if machine.gpus else f"the CPU (no GPU: {machine.why_no_gpu})"
    walls = " without containers: cells can read and write what you can" if NOT_WALLED_IN in machine.notes else ""
    return f"on {devices}, {engine}{walls}"


def limit(held: Forecast, given: float, ended: Collection[str] = (), further: bool = False) -> str:
    """The cells that fit into these minutes by the estimates, and the others, as a sentence.

    `ended`: the ids of the cells that have a repeat already. `further`: pairs whose order is open get further
    repeats. Nobody knows before which pairs these are.
    """
    cells = dict.fromkeys(span.job.cell for span in held.spans)
    if not cells and not held.left:
        return "nothing is left to measure"
    if not cells:
        return f"{plain(given)} min is too short for any cell; use a larger --minutes"
    images = sum(step.image is not None for step, _ in held.steps)
    begun = {*ended, *(cell.id for cell in cells)}
    return (
        f"{plain(given)} min hold about {plural(len(held.spans), 'repeat')} of {plural(len(cells), 'cell')} "
        f"of {plural(len({cell.framework for cell in cells}), 'framework')}"
        + (f", with {plural(images, 'image')} to prepare" if images else "")
        + ("; what is open by then is repeated before other frameworks" if further and len(cells) > 1 else "")
        + (f"; left for --resume: {not_yet_run(held.left, begun)}" if held.left else "")
    )


@contextlib.contextmanager
def observer(prospect: Prospect, jobs: Sequence[Job], ends_at: float) -> Iterator[Observer]:
    """A live display on a terminal, plain lines elsewhere. `ends_at`: when the run's time is over, by time.monotonic()."""
    # Only a run draws: a plan, a verdict and --help answer without Rich's bars.
    from rich.console import Console

    remaining = Remaining(jobs, prospect.expected_seconds, prospect.lanes(jobs), ends_at)
    console = Console(stderr=True)
    if not console.is_terminal:
        yield PlainObserver(remaining)
        return
    live = LiveObserver(console, len(jobs), remaining)
    with live.progress:
        yield live


def plain(given: float) -> str:
    """A number of minutes as a person says it: of many whole ones, and without an exponent."""
    return f"{given:.0f}" if given >= 3 else f"{given:.2g}" if given >= 1e-4 else "less than 0.0001"


# The phases of a cell, as a person reads them.
PHASES = {
    "import": "importing the framework",
    "data": "loading data",
    "build": "building the network",
    "parity": "checking what it computes",
    "compile": "compiling",
    "warm-up": "warming up",
    "train": "measuring",
    "evaluate": "evaluating",
    "proof": "checking what was measured",
    "profile": "profiling",
}

# In a log, an image that is being prepared has a line at most this often. Its whole log lies in the cache, under build-logs.
_PREPARING_SECONDS = 20.0


class StepTimes:
    """The step time of each running job: the time of its measured windows over their steps, as reports have it."""

    def __init__(self) -> None:
        # seconds and steps so far
        self._taken: dict[Job, tuple[float, int]] = {}

    def started(self, job: Job) -> None:
        # A job that is tried again begins anew.
        self._taken[job] = 0.0, 0

    def printed(self, job: Job, event: Mapping[str, Any]) -> None:
        if event["event"] == "sample" and event["stage"] == "steady" and event["steps"]:
            seconds, steps = self._taken.get(job, (0.0, 0))
            self._taken[job] = seconds + event["seconds"], steps + event["steps"]

    def ended(self, job: Job) -> float | None:
        """Seconds a step; None where none was measured."""
        seconds, steps = self._taken.pop(job, (0.0, 0))
        return seconds / steps if steps else None


_ESTIMATE_RATIO = 100.0


class Remaining:
    """The time left: the estimate of the jobs that have not ended, less what those that run have taken by now.

    It is the estimate that the run's folder holds, too. The time left is no longer than the run's own time, which is over at `ends_at`
    by time.monotonic().
    """

    def __init__(
        self, jobs: Sequence[Job], estimate: Callable[[Sequence[Job]], float], lanes: int, ends_at: float = math.inf
    ) -> None:
        self._left, self._estimate, self._lanes = dict.fromkeys(jobs), estimate, max(1, lanes)
        self._ends_at = ends_at
        self._seconds = estimate(jobs)
        self._again_at = 0.0
        # How many jobs have begun beyond those that were planned.
        self.beyond = 0
        # When each running job began, and what it is expected to take.
        self._running: dict[Job, tuple[float, float]] = {}

    def started(self, job: Job) -> None:
        expected = self._estimate([job])
        if job not in self._left:
            # A waiting repeat of its cell may have got another number. Otherwise it is one more.
            waiting = (other for other in self._left if other.cell == job.cell and other not in self._running)
            if (other := next(waiting, None)) is not None:
                del self._left[other]
            else:
                self.beyond += 1
                self._seconds += expected / self._lanes
            self._left[job] = None
        self._running[job] = time.monotonic(), expected

    def ended(self, job: Job) -> None:
        self._left.pop(job, None)
        _, expected = self._running.pop(job, (0.0, 0.0))
        began = time.monotonic()
        if began < self._again_at:
            self._seconds -= expected / self._lanes
            return
        # The estimates have learned from it. To add up a thousand jobs takes a tenth of a second: it is done in a hundredth of the time.
        self._seconds = self._estimate(list(self._left))
        self._again_at = began + _ESTIMATE_RATIO * (time.monotonic() - began)

    def __str__(self) -> str:
        now = time.monotonic()
        # A job that takes longer than was expected is about to end.
        gone = sum(min(seconds, now - began) for began, seconds in list(self._running.values()))
        left = min(max(0.0, self._seconds - gone / self._lanes), max(0.0, self._ends_at - now))
        return f"about {length(left)} left"


class Lines:
    """The lines of ended jobs. Jobs of one image that could not begin, for one reason, have one line together."""

    def __init__(self) -> None:
        self._steps = StepTimes()
        self._began: set[Job] = set()
        self._said: set[tuple[str, str]] = set()

    def started(self, job: Job) -> None:
        self._began.add(job)
        self._steps.started(job)

    def printed(self, job: Job, event: Mapping[str, Any]) -> None:
        self._steps.printed(job, event)

    def ended(self, outcome: Outcome) -> str | None:
        """The line of an ended job; None where another job's line holds for it, too."""
        job, reason = outcome.job, outcome.reason
        if job in self._began or not reason:
            return result_line(outcome, self._steps.ended(job))
        group = (job.cell.image, reason)
        if group in self._said:
            return None
        self._said.add(group)
        return f"FAIL {job.cell.image} · cells of it cannot begin\n     {one_line(reason)}"


def result_line(outcome: Outcome, step_seconds: float | None = None) -> str:
    """One ended job in a line, with its step time."""
    mark = "ok  " if outcome.status == "ok" else "FAIL"
    step = f" · {number(1e3 * step_seconds)} ms/step" if step_seconds is not None and outcome.status == "ok" else ""
    line = f"{mark} {outcome.job.cell.label}{step} · repeat {outcome.job.repeat} · {outcome.wall_seconds:.1f} s"
    line += f" · disturbed: {outcome.disturbed}" if outcome.disturbed else ""
    return line + (f"\n     {one_line(outcome.reason)}" if outcome.reason else "")


def one_line(text: str, longest: int = 400) -> str:
    """Untrusted text as one line without control characters."""
    return " ".join(visible(text, longest).split("\n"))


def image_line(image: str, line: str, longest: int = 400) -> str:
    """A line about an image, with its name in front once; it is cut between two words."""
    line = one_line(line if line.startswith(image) else f"{image}: {line}")
    return line if len(line) <= longest else textwrap.shorten(line, longest, placeholder=" …")


class PlainObserver:
    """Lines for a log: what starts, what ends."""

    def __init__(self, remaining: Remaining) -> None:
        self._remaining = remaining
        self._lines = Lines()
        # The image that is being prepared, and when its last line was printed.
        self._prepared = ("", 0.0)

    def preparing(self, image: str, line: str) -> None:
        now = time.monotonic()
        if image != self._prepared[0] or now - self._prepared[1] >= _PREPARING_SECONDS:
            self._prepared = (image, now)
            say(f"     {image_line(image, line)}")

    def started(self, job: Job) -> None:
        self._prepared = ("", 0.0)
        self._lines.started(job)
        self._remaining.started(job)
        say(f"run  {job.cell.label} · repeat {job.repeat}")

    def printed(self, job: Job, event: Mapping[str, Any]) -> None:
        self._lines.printed(job, event)

    def ended(self, outcome: Outcome) -> None:
        self._remaining.ended(outcome.job)
        if line := self._lines.ended(outcome):
            say(f"{line} ({self._remaining})")


def title(job: Job) -> str:
    """A running job in few words: its workload and its image, with the framework where the image's name does not say it."""
    said = job.cell.image.startswith(f"{job.cell.framework.replace('_', '-')}-")
    return " · ".join([job.cell.workload, job.cell.image, *([] if said else [job.cell.framework])])


# The characters of a bar, and of all that stands behind it at most: the windows, the time, the longest phase, and the spaces between.
_BAR = 24
_BEHIND = len("1000/1000") + len("0:00:00") + max(map(len, PHASES.values())) + 3


def _display(console: Console) -> Progress:
    """The running cells, a line each: with a bar where there is room, without one, or in two lines. Only names and notes are cut."""
    # See `observer`.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    count, elapsed = MofNCompleteColumn(), TimeElapsedColumn(Column(no_wrap=True))

    class Display(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            tasks = self.tasks
            longest = max((len(task.description) for task in tasks), default=0)
            room = console.width - longest - _BEHIND
            if room > _BAR:
                yield self.make_tasks_table(tasks)
                return
            for task in tasks:
                facts = f"{count.render(task).plain.strip()} {elapsed.render(task).plain} {task.fields['note']}"
                # The first line is of the whole run: its name is short, and its note may be cut.
                if room > 0 or task is tasks[0]:
                    yield _cut(f"{task.description:{longest if room > 0 else 0}} {facts}")
                else:
                    yield _cut(task.description)
                    yield _cut(f"  {facts}")

    def _cut(line: str) -> Text:
        return Text(line, no_wrap=True, overflow="ellipsis")

    return Display(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=_BAR),
        count,
        elapsed,
        TextColumn(
            "{task.fields[note]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
        ),
        console=console,
        expand=True,
    )


class LiveObserver:
    """A live display on a terminal."""

    def __init__(self, console: Console, jobs: int, remaining: Remaining) -> None:
        self._remaining = remaining
        self._lines = Lines()
        self.progress = _display(console)
        self._all = self.progress.add_task("matrix", total=jobs, note=remaining)
        self._planned = jobs
        self._tasks: dict[Job, TaskID] = {}
        self._shown = 0.0

    def preparing(self, image: str, line: str) -> None:
        if time.monotonic() - self._shown > 0.1:
            self._shown = time.monotonic()
            self.progress.update(self._all, note=image_line(image, line))

    def started(self, job: Job) -> None:
        # A job that is tried again has a task already.
        if (before := self._tasks.pop(job, None)) is not None:
            self.progress.remove_task(before)
        self._tasks[job] = self.progress.add_task(title(job), total=None, note="starting")
        self._lines.started(job)
        self._remaining.started(job)
        # The column prints it anew whenever it is drawn, so the time left moves while a cell runs.
        self.progress.update(self._all, note=self._remaining, total=self._planned + self._remaining.beyond)

    def printed(self, job: Job, event: Mapping[str, Any]) -> None:
        self._lines.printed(job, event)
        task = self._tasks[job]
        if event["event"] == "phase" and event["state"] == "begin":
            self.progress.update(task, note=PHASES.get(event["name"], event["name"]))
        elif event["event"] == "plan":
            self.progress.update(task, total=event["windows"])
        elif event["event"] == "operation" or (event["event"] == "sample" and event["stage"] == "steady"):
            self.progress.advance(task)

    def ended(self, outcome: Outcome) -> None:
        task = self._tasks.pop(outcome.job, None)
        if task is not None:
            self.progress.remove_task(task)
        self._remaining.ended(outcome.job)
        if line := self._lines.ended(outcome):
            self.progress.console.print(line, highlight=False, markup=False)
        self.progress.update(self._all, advance=1, note=self._remaining)
