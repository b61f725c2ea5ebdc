"""Runs the cells of a prospect, from the leases of its GPUs to the exit code."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from runner.catalog import frameworks
from runner.engines.base import EngineError
from runner.machine import lease, nvml, telemetry, telemetry_gpu
from runner.paths import cache_folder
from runner.results.store import RunStore
from runner.run import progress, summary
from runner.run.attempt import Limits, Site
from runner.run.begin import Prospect
from runner.run.dispatch import Job
from runner.run.progress import say
from runner.run.schedule import CellRunner

# A cell that still runs after this long counts as hanging. This is far above what the preset needs on a slow machine.
_TIME_LIMITS = {"quick": 900.0, "standard": 3600.0, "full": 48 * 3600.0}

# So does a cell that prints nothing for this long. The longest silence ever met was a compilation of ten minutes.
_SILENCE_SECONDS = 1800.0


def execute(prospect: Prospect, run: RunStore, write_report: Callable[[Path], Path], resumed: bool = False) -> int:
    """Run the jobs that have not ended, store them, write the report; the exit code.

    `write_report` takes the run's folder and returns the report's path. `resumed`: another runner began this run.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(interruptible())
        # Nothing of the run is read before this: another runner may still be working on it.
        stack.enter_context(lease.alone(run.folder))
        if resumed:
            _clear_up(run)
        jobs = prospect.jobs_left(run)
        boards = prospect.boards(jobs)
        stack.enter_context(lease.hold(boards, run.run_id, say, prospect.options.wait))
        site = _site(prospect, run, stack.enter_context(telemetry.Monitor()))
        cool_down = prospect.options.cool_down and boards
        sampler = telemetry_gpu.GpuSampler(stack.enter_context(nvml.session())) if cool_down else None
        observer = stack.enter_context(progress.observer(prospect, jobs))
        cells = CellRunner(site, prospect.machine, observer, prospect.durations.seconds, sampler)
        interrupted = _run(cells, prospect, jobs)
        _store_lost(run, cells.lost)
    return summary.conclude(prospect, run, interrupted, write_report)


def _clear_up(run: RunStore) -> None:
    """Remove what a killed runner left half written in a run, and record which repeats are kept."""
    run.remove_parts()
    manifest = run.manifest()
    manifest["reused"] = [{"cell_id": cell, "repeat": repeat} for cell, repeat in sorted(run.finished())]
    manifest["resumed"] = [*manifest.get("resumed", []), datetime.now(UTC).isoformat(timespec="seconds")]
    run.write_manifest(manifest)


def _site(prospect: Prospect, run: RunStore, monitor: telemetry.Monitor) -> Site:
    options = prospect.options
    cache = cache_folder() / "data"
    cache.mkdir(parents=True, exist_ok=True)
    return Site(
        engine=prospect.engine,
        run=run,
        limits=Limits(options.timeout or _TIME_LIMITS[options.preset], _SILENCE_SECONDS),
        data=options.data.resolve() if options.data else None,
        cache=cache,
        monitor=monitor,
        profiled=_profiled(prospect),
    )


def _profiled(prospect: Prospect) -> frozenset[str]:
    """The frameworks to profile. Names the planned ones whose profiler the bench cannot read."""
    if not prospect.options.profile:
        return frozenset()
    with_profiler = frameworks.with_profiler()
    planned = {cell.framework for cell in prospect.plan.cells}
    if planned - with_profiler:
        say(f"no profile of {', '.join(sorted(planned - with_profiler))}: the bench reads no profiler of theirs")
    return with_profiler


def _run(cells: CellRunner, prospect: Prospect, jobs: Sequence[Job]) -> bool:
    """Prepare the images and run the jobs; True when the user interrupted them."""
    try:
        prospect.engine.sweep()
        needed = sorted({job.cell.image for job in jobs})
        ready, failed = cells.prepare([prospect.images[name] for name in needed])
        for job in jobs:
            if job.cell.image in failed:
                cells.fail(job, "engine", failed[job.cell.image])
        cells.run_jobs([job for job in jobs if job.cell.image in ready], ready)
    except KeyboardInterrupt:
        cells.stop()
        return True
    finally:
        with contextlib.suppress(EngineError):
            prospect.engine.sweep()
    return False


def _store_lost(run: RunStore, boards: Collection[str]) -> None:
    """Record the GPUs that fell off the bus."""
    if boards:
        manifest = run.manifest()
        run.write_manifest(manifest | {"devices_lost": sorted({*manifest.get("devices_lost", []), *boards})})


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP do what Ctrl-C does. A signal that nohup ignores stays ignored."""
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
