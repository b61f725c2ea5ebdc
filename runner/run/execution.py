"""Runs the cells of a prospect, from the leases of its GPUs to the exit code."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from runner import known_messages, text, trees
from runner.admission.renew import renew
from runner.catalog import frameworks
from runner.engines.base import ReadyImage
from runner.engines.process import installed
from runner.errors import CannotBeginError, ExitCode, HostFaultError
from runner.machine import clocks, lease, nvml, telemetry
from runner.machine.devices import Gpu
from runner.plan.durations import Preparation
from runner.plan.plan import Cell
from runner.results import rows, store
from runner.results.on_disk.derived import parcel_name
from runner.results.on_disk.isolation import CONTAINER_ENGINES
from runner.results.parcel import Parcel
from runner.run import progress, summary
from runner.run.attempt import AttemptContext, Limits
from runner.run.budget import Agenda, without
from runner.run.dispatch import Job
from runner.run.open_pairs import OpenPairs
from runner.run.options import Options
from runner.run.progress import say
from runner.run.prospect import Prospect
from runner.run.schedule import CellRunner

# A cell that still runs after this long counts as hanging. This is far above what the preset needs on a slow machine.
_TIME_LIMITS = {"quick": 900.0, "standard": 3600.0, "full": 48 * 3600.0}

# So does a cell that prints nothing for this long. The longest silence ever met was a compilation of ten minutes.
_SILENCE_SECONDS = 1800.0

# The driver compiled TensorFlow 2.15 for a Hopper in half an hour (tensorflow#62320).
_COMPILING_SECONDS = 2400.0

# The report is written again not more often than this, and writing it takes at most a twentieth of the time, also beside GPU cells.
_RENEW_SECONDS = 20.0
_RENEW_RATIO = 20.0
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)*")


def open_gpus(engine: str, gpus: Sequence[Gpu], run_id: str) -> None:
    """Raises CannotBeginError where the CUDA driver answers and does not open a GPU, or opens another: its cells would get no further."""
    # A container may open what a process of its host may not.
    for gpu in gpus if engine not in CONTAINER_ENGINES else ():
        uuids, reason = installed.opened(sys.executable, gpu.uuid)
        if reason.startswith("cu"):
            raise CannotBeginError(f"{gpu.model} cannot be opened: {reason}; then say --resume {run_id}")
        if uuids and uuids != [gpu.uuid]:
            opens = f"the driver shows {gpu.uuid}, and CUDA opens {', '.join(uuids)} instead"
            raise CannotBeginError(f"{opens}; restart the machine, then say --resume {run_id}")


@contextlib.contextmanager
def held(
    devices: Sequence[str], run: store.RunStore, wait: bool, resumed: bool, ends_at: float = math.inf
) -> Iterator[None]:
    """Hold the devices of a run. A new run that does not get them leaves no folder. Raises LeaseError."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lease.hold(devices, run.run_id, say, wait, ends_at))
        except lease.LeaseError:
            if not resumed:
                trees.remove(run.folder)
            raise
        yield


def execute(
    prospect: Prospect,
    run: store.RunStore,
    write_report: Callable[[Path], Path],
    resumed: bool = False,
    ends_at: float = math.inf,
    meanwhile: Meanwhile | None = None,
    show_answer: Callable[[Path], None] | None = None,
    minutes: float | None = None,
) -> summary.Conclusion:
    """Run the jobs that have not ended, store them, and write the report.

    `write_report` takes the run's folder and returns the report's path. `resumed`: another runner began this run.
    No job starts that would not end before `ends_at`, in seconds of time.monotonic(). With `meanwhile`, the report is also written while
    the run goes on, and what it says of two frameworks is told. `show_answer` prints the answer at the end. `minutes`: what the user gave.
    Waiting for another runner counts, and ends with them: that raises LeaseError.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(interruptible())
        # Nothing of the run is read before this: another runner may still be working on it.
        stack.enter_context(lease.alone(run.folder))
        if resumed:
            clear_up(run)
        jobs = prospect.jobs_left(run)
        boards = prospect.boards(jobs)
        stack.enter_context(held(prospect.leased(jobs), run, prospect.options.wait, resumed, ends_at))
        open_gpus(prospect.engine.name, prospect.machine.gpus if boards else (), run.run_id)
        stack.enter_context(_clocks(prospect, run, boards))
        monitor = stack.enter_context(telemetry.Monitor())
        site = attempt_context(prospect, run, monitor, planned_code(run))
        cool_down = prospect.options.cool_down and boards
        sampler = telemetry.GpuSampler(stack.enter_context(nvml.session())) if cool_down else None
        observer = stack.enter_context(progress.observer(prospect, jobs, ends_at))
        durations = prospect.durations
        cells = CellRunner(site, prospect.machine, observer, durations.seconds, sampler, learn=durations.learn)
        cells.fits = lambda cell: durations.seconds(cell) <= ends_at - time.monotonic()
        if meanwhile is not None:
            remember = partial(_remember, prospect, run, jobs, cells)
            here = partial(_write_renewed, run, meanwhile.here)
            cells.renew = stack.enter_context(Renewal(cells, run.folder, meanwhile._replace(here=here), remember))
        ended = _run(cells, prospect, jobs, ends_at)
        _store_lost(run, cells.lost)
    for reason in dict.fromkeys(() if ended else cells.due.values()):
        say(f"this machine failed under some repeats: {reason}")
    measured = len(cells.outcomes)
    concluded = summary.conclude(prospect, run, ended, write_report, minutes, measured, show_answer)
    code = exit_code(concluded.code, bool(ended), cells.no_device, [outcome.status for outcome in cells.outcomes])
    return concluded._replace(code=code)


def exit_code(code: ExitCode, interrupted: bool, no_gpu: bool, statuses: Collection[str]) -> ExitCode:
    """`code`, but that of a run that could not begin where no GPU was opened: a container tells it with its first cell."""
    return ExitCode.CANNOT_BEGIN if no_gpu and not interrupted and "ok" not in statuses else code


class Meanwhile(NamedTuple):
    """Two ways to write the report of a run that goes on, from its folder. Both tell what two frameworks have shown by now, in lines."""

    here: Callable[[Path], Sequence[str]]
    # Starts a process that writes it beside GPU cells, with CPU time that nobody else wants, and prints the lines.
    beside: Callable[[Path], subprocess.Popen[bytes]]


@dataclass
class Renewal:
    """Writes the report while a run goes on, and says what it shows: after the first cell that ends, then from time to time.

    Between two cells this process writes it. Beside GPU cells, which may never leave a pause, another process does.
    """

    cells: CellRunner
    folder: Path
    write: Meanwhile
    # Stores how long the rest of the run takes: the report says it.
    remember: Callable[[], None]
    _shown: int = 0
    _again_at: float = 0.0
    # The process that writes it beside GPU cells, and its start.
    _process: subprocess.Popen[bytes] | None = None
    _began: float = 0.0
    # The lines that were said last, without their numbers: a ratio changes with each repeat.
    _said: frozenset[str] = frozenset()

    def __enter__(self) -> Callable[[bool], None]:
        return self.renew

    def __exit__(self, *_: object) -> None:
        # The report at the end must be the last one.
        if self._process is not None:
            self._process.wait()

    def renew(self, busy: bool) -> None:
        """Write the report if it is time. `busy`: a GPU cell runs; it is never called beside a CPU cell."""
        if self._is_writing():
            return
        began, ended = time.monotonic(), len(self.cells.outcomes)
        if ended == self._shown or began < self._again_at:
            return
        # A fault of the page must not end the measurement. The end writes it again, and tells.
        with contextlib.suppress(Exception):
            self.remember()
            if busy:
                self._process, self._began = self.write.beside(self.folder), began
            else:
                self._say(self.write.here(self.folder))
        self._shown = ended
        self._space_since(began)

    def _is_writing(self) -> bool:
        """True if the process beside GPU cells still writes. Once it has ended, its time counts as that of any other report."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        if self._process.stdout is not None:
            self._say(self._process.stdout.read().decode(errors="replace").splitlines())
        self._process = None
        self._space_since(self._began)
        return False

    def _say(self, lines: Sequence[str]) -> None:
        """Say what is new."""
        without_numbers = [_NUMBER.sub("", line) for line in lines]
        for line, words in zip(lines, without_numbers, strict=True):
            if words not in self._said:
                say(line)
        self._said = frozenset(without_numbers)

    def _space_since(self, began: float) -> None:
        """The next report comes no sooner than the one that began then allows."""
        now = time.monotonic()
        self._again_at = max(self._again_at, now + max(_RENEW_SECONDS, _RENEW_RATIO * (now - began)))


@contextlib.contextmanager
def _clocks(prospect: Prospect, run: store.RunStore, boards: Sequence[str]) -> Iterator[None]:
    """Set back what a killed runner left locked, and lock the clocks within the block where the user wants that."""
    for sentence in clocks.undo(boards):
        say(sentence)
    megahertz = prospect.options.lock_clocks
    if not megahertz or not boards:
        if megahertz:
            say("--lock-clocks: no cell that is left runs on a GPU, so no clock is locked")
        yield
        return
    with clocks.locked(boards, megahertz, say) as held:
        manifest = run.manifest()
        for entry in manifest.get("devices") or ():
            entry["locked_sm_megahertz"] = megahertz if entry.get("board") in held else None
        run.write_manifest(manifest)
        yield


def _write_renewed(run: store.RunStore, write_report: Callable[[Path], Sequence[str]], folder: Path) -> Sequence[str]:
    """Write the report with what has ended meanwhile."""
    renew(run)
    return write_report(folder)


def _remember(prospect: Prospect, run: store.RunStore, jobs: Sequence[Job], cells: CellRunner) -> None:
    """Store how long those of these jobs take that have not ended."""
    summary.store_expectations(prospect, run, without(jobs, {outcome.job for outcome in cells.outcomes}))


def clear_up(run: store.RunStore) -> None:
    """Remove what a killed runner left half written in a run, and record which repeats are kept."""
    run.remove_parts()
    # Before anything is measured: a repeat that was removed may be measured again, and then has another parcel.
    renew(run)
    if again := store.due_again(run.folder):
        for cell, repeat in again:
            (run.folder / "repeats" / parcel_name(cell, repeat)).unlink()
        say(f"{text.plural(len(again), 'repeat')} failed by a fault of the machine and will be measured again")
        renew(run)
    manifest = run.manifest()
    manifest["reused"] = [{"cell_id": cell, "repeat": repeat} for cell, repeat in sorted(run.finished())]
    manifest["resumed"] = [*manifest.get("resumed", []), datetime.now(UTC).isoformat(timespec="seconds")]
    run.write_manifest(manifest)


def attempt_context(
    prospect: Prospect,
    run: store.RunStore,
    monitor: telemetry.Monitor,
    code: Mapping[tuple[str, str], str],
    keep: Callable[[Job, Parcel], None] | None = None,
) -> AttemptContext:
    """The context that all attempts of a run on this machine share; `code` and `keep` as in AttemptContext."""
    options = prospect.options
    return AttemptContext(
        engine=prospect.engine,
        run=run,
        limits=limits_of(options),
        data=options.data.resolve() if options.data else None,
        monitor=monitor,
        profiled=profiled(prospect),
        code=code,
        keep=keep,
    )


def planned_code(run: store.RunStore) -> dict[tuple[str, str], str]:
    """(framework, workload) -> the digest of the code that the cells of a run were planned with."""
    return {(cell["framework"], cell["workload"]): cell["code_sha256"] for cell in run.manifest()["plan"]}


def limits_of(options: Options) -> Limits:
    """When a cell of these options counts as hanging. A limit that the user gave is meant as it stands."""
    limits = Limits(options.timeout or _TIME_LIMITS[options.preset], _SILENCE_SECONDS)
    return limits if options.timeout else replace(limits, compiling=_COMPILING_SECONDS)


def profiled(prospect: Prospect) -> frozenset[str]:
    """The frameworks to profile. Names the planned ones whose profiler the bench cannot read."""
    if not prospect.options.profile:
        return frozenset()
    with_profiler = frameworks.with_profiler()
    planned = {cell.framework for cell in prospect.plan.cells}
    if planned - with_profiler:
        say(f"no profile of {', '.join(sorted(planned - with_profiler))}: the bench reads no profiler of theirs")
    return with_profiler


def _run(cells: CellRunner, prospect: Prospect, jobs: Sequence[Job], ends_at: float) -> str:
    """Prepare the images and run the jobs; why not all had their turn: an interrupt, or the machine. Empty if all had."""
    try:
        prospect.engine.sweep()
        _take_steps(cells, prospect, jobs, ends_at)
    except KeyboardInterrupt:
        cells.stop()
        return summary.INTERRUPTED
    except HostFaultError as error:
        cells.stop()
        return str(error)
    finally:
        cells.sweep()
        if cells.hung:
            say("the engine does not answer, so its cells may go on; the next runner ends them when it answers")
    return ""


def _take_steps(cells: CellRunner, prospect: Prospect, jobs: Sequence[Job], ends_at: float) -> None:
    """Prepare an image, measure its cells, prepare the next: nothing is prepared beside a measurement."""
    agenda = _agenda(prospect, cells.site.run, limited=not math.isinf(ends_at))
    waiting = list(jobs)
    ready: dict[str, ReadyImage] = {}
    done = _repeats_of(prospect, cells.site.run)
    before = _digests(cells.site.run)
    while step := agenda.next_step(waiting, frozenset(ready), ends_at - time.monotonic(), done):
        failed: list[Job] = []
        remade: list[Job] = []
        for name in dict.fromkeys(job.cell.image for job in step.jobs if job.cell.image not in ready):
            if step.why:
                say(f"     {name} comes next: {step.why}")
            prepared, why = _prepare(cells, prospect, name, agenda.cost(name, agenda.unready(ready)))
            if prepared and (then := _others(before.get(name, set()), prepared[name].digest)):
                say(
                    f"{name}: its image is {prepared[name].digest} now, and the repeats that this run has ran in {' or '.join(then)}: "
                    "its base, its environment or the engine is another one, so the rest would not be the same cells. They are skipped; "
                    "start a new run, or bring that image back"
                )
                remade += [job for job in waiting if job.cell.image == name]
                continue
            ready |= prepared
            for job in waiting:
                if job.cell.image == name and why is not None:
                    if known_messages.is_of_the_host(why):
                        cells.due[job] = why
                    else:
                        cells.fail(job, "engine", why)
                    failed.append(job)
        cells.run_jobs([job for job in step.jobs if job.cell.image in ready], ready)
        # A job that was taken and did not fit any more is left for --resume. One beyond the planned repeats is not.
        waiting = without(waiting, {*step.jobs, *failed, *remade})
        if not cells.has_gpus():
            # No image is made for a GPU that is gone: --resume goes on with its cells.
            waiting = [job for job in waiting if job.cell.device_kind != "cuda"]
        for job in step.jobs:
            done.setdefault(job.cell, set()).add(job.repeat)


def _digests(run: store.RunStore) -> dict[str, set[str]]:
    """Image -> its digests in the repeats that a run has and that are well: what failed may be why somebody made it anew."""
    digests: dict[str, set[str]] = {}
    if run.finished():
        renew(run)
        for row in rows.rows_of(store.read([run.folder], "cells").select(["image", "image_digest", "status"])):
            if row["image_digest"] and row["status"] == "ok":
                digests.setdefault(row["image"], set()).add(row["image_digest"])
    return digests


def _others(before: set[str], now: str) -> list[str]:
    """The digests that show that an image is another one; none where one of them is its own.

    An image that was built and one that was pulled are called by their id and by a registry's digest, which cannot be compared.
    """
    return [] if now in before else sorted(digest for digest in before if ("@" in digest) == ("@" in now))


def _agenda(prospect: Prospect, run: store.RunStore, limited: bool) -> Agenda:
    """The facts that the steps of the run depend on.

    Only a run whose time is limited adds repeats to the planned ones, where time is left. A user who gives a number of repeats has a
    reason, such as a comparison with another run: no repeat is added.
    """
    agenda = prospect.agenda()
    if not limited or prospect.options.repeats is not None:
        return agenda
    return replace(
        agenda, unsettled=OpenPairs(run, [cell for group in agenda.groups for cell in group], agenda.repeats)
    )


def _repeats_of(prospect: Prospect, run: store.RunStore) -> dict[Cell, set[int]]:
    """The numbers of the repeats that each cell has had."""
    of_id = {cell.id: cell for cell in prospect.plan.cells}
    done: dict[Cell, set[int]] = {}
    for cell, repeat in run.finished():
        if cell in of_id:
            done.setdefault(of_id[cell], set()).add(repeat)
    return done


def _prepare(cells: CellRunner, prospect: Prospect, name: str, cost: int) -> tuple[dict[str, ReadyImage], str | None]:
    """Prepare one image: it by its name, or why it is not ready. How long that took is kept for later estimates."""
    began = time.monotonic()
    ready, failed = cells.prepare([prospect.images[name]])
    if cost and ready:
        took = Preparation(name, cost, time.monotonic() - began)
        prospect.durations.prepared.append(took)
        run = cells.site.run
        manifest = run.manifest()
        run.write_manifest(manifest | {"prepared": [*manifest.get("prepared", []), asdict(took)]})
    return ready, failed.get(name)


def _store_lost(run: store.RunStore, boards: Collection[str]) -> None:
    """Record the GPUs that fell off the bus."""
    if boards:
        manifest = run.manifest()
        run.write_manifest(manifest | {"devices_lost": sorted({*manifest.get("devices_lost", []), *boards})})


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within the block Ctrl-C raises KeyboardInterrupt wherever it comes, and SIGTERM and SIGHUP do what it does.

    A signal that nohup ignores stays ignored. SIGUSR1 does the same in a job of Slurm's: `sbatch --signal=B:USR1@120` sends it before the
    job ends.
    """
    slurm = "SLURM_JOB_ID" in os.environ
    numbers = [signal.SIGTERM, signal.SIGHUP, *([signal.SIGUSR1] if slurm else [])]
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    interrupt = _end_with_slurm if slurm else signal.default_int_handler
    previous = {number: signal.signal(number, interrupt) for number in numbers}
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        previous[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _end_with_slurm(number: int, _: object) -> None:
    """Do what Ctrl-C does, and say why."""
    # A print could come in the middle of another one.
    os.write(2, f"{signal.Signals(number).name}: Slurm ends this job soon, so the run ends now\n".encode())
    raise KeyboardInterrupt
