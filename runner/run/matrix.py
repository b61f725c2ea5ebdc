"""The command `runner matrix`: from what was asked to stored results, a report and an exit code."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.protocol import source_digest
from runner.catalog import frameworks, workloads
from runner.catalog.images import CatalogError, Image, load_catalog, select_images
from runner.engines import choose
from runner.engines.base import Engine, EngineError
from runner.engines.process.host import HostEngine
from runner.engines.process.process import cache_folder
from runner.machine import detect, lease, nvml, telemetry
from runner.machine.devices import Machine
from runner.plan import duration
from runner.plan.disk import Room
from runner.plan.duration import Expectation
from runner.plan.plan import Plan, PlanError
from runner.plan.plan import plan as make_plan
from runner.results import store
from runner.run import dispatch, progress, schedule
from runner.run.attempt import Limits, Site
from runner.run.dispatch import Job
from runner.run.options import Options, UsageError, stored_options

OK, SOME_FAILED, COULD_NOT_START = 0, 1, 2


# A cell that is still running after this long is taken to hang. Far above what the preset needs on a slow machine.
_TIME_LIMITS = {"quick": 900.0, "standard": 3600.0, "full": 48 * 3600.0}

# So is one that has said nothing for this long. The longest silence that was met is a compilation of ten minutes.
_SILENCE_SECONDS = 1800.0


@dataclass(frozen=True)
class Prospect:
    """What would be run: the plan with all that it was made from."""

    options: Options
    machine: Machine
    engine: Engine
    why_engine: str
    images: dict[str, Image]
    workloads: dict[str, workloads.Workload]
    plan: Plan
    expectation: Expectation

    @property
    def jobs(self) -> list[Job]:
        return dispatch.blocks(self.plan.cells, self.options.repeats, self.options.seed)

    def expected_seconds(self, jobs: Sequence[Job]) -> float:
        """A rough length of these jobs on this machine: GPU cells side by side, then the CPU's one after another."""
        total = 0.0
        for kind in ("cuda", "cpu"):
            of_kind = [job for job in jobs if job.cell.device_kind == kind]
            spans = dispatch.simulate(of_kind, dispatch.places(self.machine, kind), self.expectation.seconds)
            total += max((span.end for span in spans), default=0.0)
        return total

    def fetch_bytes(self) -> int:
        """What must be fetched or built before the first cell."""
        return sum(self.engine.cost(self.images[name]) for name in sorted({cell.image for cell in self.plan.cells}))


def look_ahead(options: Options) -> Prospect:
    """Find the machine, the engine and the plan. Raises one of USER_ERRORS."""
    known = workloads.load_workloads()
    machine = detect.detect(options.gpus, options.share)
    engine, why, there = _engine(options, machine)
    if machine.refused and engine.sweep():  # what a killed runner left was using a GPU
        machine = detect.detect(options.gpus, options.share)
    chosen = select_images(there, options.images) if options.images else list(there.values())
    declared = frameworks.load_frameworks()
    modes = {name: tuple(each.modes) for name, each in declared.items()}
    parallel = {name for name, each in declared.items() if each.parallel}
    unfit = Room(engine).unfit
    amp = {name: each.amp for name, each in declared.items()}
    made = make_plan(options, chosen, known, workloads.adapters(), modes, machine, unfit, parallel, amp)
    expectation = Expectation(known, duration.seen(options.out))
    return Prospect(options, machine, engine, why, {image.name: image for image in chosen}, known, made, expectation)


def _engine(options: Options, machine: Machine) -> tuple[Engine, str, dict[str, Image]]:
    """The engine, why it is that one, and the images there are for it."""
    if options.python and options.engine != "host":
        raise UsageError(
            f"--python: engine {options.engine} does not measure an interpreter; say --engine host as well"
        )
    if options.engine == "host":
        engine, why = choose("host", [], python=options.python)
        assert isinstance(engine, HostEngine)
        return engine, why, engine.images(bool(machine.gpus))
    catalog = load_catalog()
    named = select_images(catalog, options.images or ["*"])
    likely = [image for image in named if (image.accelerator == "cuda") == bool(machine.gpus)]
    engine, why = choose(options.engine, likely, bool(machine.gpus), options.base_image)
    return engine, why, catalog


def start(options: Options, argv: Sequence[str]) -> tuple[Prospect, store.RunStore, dict[str, Any]]:
    """Plan a new run and make its folder. Raises UsageError when nothing can be run."""
    prospect = look_ahead(options)
    if not prospect.plan.cells:
        reasons = "\n".join(dict.fromkeys(f"  {skip.image}: {skip.reason}" for skip in prospect.plan.skips))
        raise UsageError(f"nothing of what was asked can run here:\n{reasons or '  no image was chosen'}")
    now = datetime.now(UTC)
    cpu = prospect.machine.cpu
    run = _new_run(options.out, now)
    manifest = {
        "schema_version": store.SCHEMA_VERSION,
        "run_id": run.run_id,
        "created": now.isoformat(timespec="seconds"),
        "argv": list(argv),
        "options": options.model_dump(mode="json"),
        "seed": options.seed,
        "preset": options.preset,
        "repeats": options.repeats,
        "engine": prospect.engine.name,
        "devices": [asdict(gpu) for gpu in prospect.machine.gpus],
        "devices_refused": [asdict(each) for each in prospect.machine.refused],
        "host": {
            "cpu_model": cpu.model,
            "cpu_count": len(cpu.cpus),
            "memory_bytes": cpu.memory_bytes,
            "kernel": prospect.machine.kernel,
        },
        "plan": [cell.as_dict() for cell in prospect.plan.cells],
        "skipped": len(prospect.plan.skips),
        "bench_sha256": source_digest(workloads.BENCH),
        "runner_version": runner_version(),
        "reused": [],
    }
    run.write_manifest(manifest)
    run.write_skipped(
        [asdict(skip) | {"cell_id": f"skipped-{number}"} for number, skip in enumerate(prospect.plan.skips)]
    )
    return prospect, run, manifest


def _new_run(out: Path, now: datetime) -> store.RunStore:
    """A folder of its own, whoever else starts a run into a shared folder in the same second. Raises UsageError."""
    while True:
        folder = out / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not out.is_dir():
                raise UsageError(f"--out: {out} is not a folder; name another") from None
        except OSError as error:
            raise UsageError(f"--out: no run can be stored in {out} ({error.strerror}); name another folder") from None
        else:
            return store.RunStore(folder)


def resume(name: str, out: Path) -> tuple[Prospect, store.RunStore, dict[str, Any]]:
    """Take up a run that was interrupted, with the options it had. Raises UsageError when it is not the same matrix any more."""
    folder = out / name if (out / name).is_dir() else Path(name)
    run = store.RunStore(folder.resolve())
    manifest = run.manifest()
    if manifest["bench_sha256"] != source_digest(workloads.BENCH):
        raise UsageError(
            f"--resume {name}: the bench has changed since that run began, so its results could not stand beside new ones; "
            "start a new run, or check out the bench it began with"
        )
    options = stored_options(manifest.get("options"))
    if options.data and not options.data.is_dir():
        raise UsageError(f"--resume {name}: its data sets were in {options.data}, which is gone; put them back there")
    prospect = look_ahead(options)
    planned = {cell["id"] for cell in manifest["plan"]}
    if planned != {cell.id for cell in prospect.plan.cells}:
        raise UsageError(
            f"--resume {name}: today's plan has other cells (a lock, an image or a device has changed); start a new run"
        )
    print(f"going on with {run.run_id} and the options it began with; other options are not read", file=sys.stderr)
    return prospect, run, manifest


def execute(prospect: Prospect, run: store.RunStore, resumed: bool = False) -> int:
    """Run what is left of a run; store, report, and return the exit code. `resumed`: it was begun before."""
    options = prospect.options
    cache = cache_folder() / "data"
    cache.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(interruptible())
        stack.enter_context(lease.alone(run.folder))  # before anything is looked at: its runner may still be at work
        ended = run.finished()
        if resumed:
            _take_up(run, ended)
        jobs = [job for job in prospect.jobs if (job.cell.id, job.repeat) not in ended]
        boards = [gpu.board for gpu in prospect.machine.gpus] if needs_gpus(jobs) else []
        stack.enter_context(lease.hold(boards, run.run_id, say, options.wait))
        site = Site(
            engine=prospect.engine,
            run=run,
            limits=Limits(options.timeout or _TIME_LIMITS[options.preset], _SILENCE_SECONDS),
            data=options.data.resolve() if options.data else None,
            cache=cache,
            monitor=stack.enter_context(telemetry.Monitor()),
            profiled=_profiled(prospect),
        )
        cool = None
        if options.cool_down and boards:
            cool = telemetry.GpuSampler(stack.enter_context(nvml.session()))
        observer = stack.enter_context(_observer(prospect, jobs))
        matrix = schedule.Matrix(site, prospect.machine, observer, prospect.expectation.seconds, cool)
        interrupted = _run(matrix, prospect, jobs)
        if matrix.lost:
            manifest = run.manifest()
            run.write_manifest(manifest | {"devices_lost": sorted({*manifest.get("devices_lost", []), *matrix.lost})})
    return _finish(prospect, run, interrupted)


def _take_up(run: store.RunStore, ended: Collection[tuple[str, int]]) -> None:
    """Clear up what a killed runner left in a run, and write down what of it is kept."""
    run.remove_parts()
    manifest = run.manifest()
    manifest["reused"] = [{"cell_id": cell, "repeat": repeat} for cell, repeat in sorted(ended)]
    manifest["resumed"] = [*manifest.get("resumed", []), datetime.now(UTC).isoformat(timespec="seconds")]
    run.write_manifest(manifest)


def _profiled(prospect: Prospect) -> frozenset[str]:
    """The frameworks to profile; says which of the planned ones cannot be."""
    if not prospect.options.profile:
        return frozenset()
    can = frameworks.with_profiler()
    planned = {cell.framework for cell in prospect.plan.cells}
    if planned - can:
        say(f"no profile of {', '.join(sorted(planned - can))}: the bench reads no profiler of theirs")
    return can


def needs_gpus(jobs: Sequence[Job]) -> bool:
    """Whether any of these jobs takes a GPU."""
    return any(job.cell.device_kind == "cuda" for job in jobs)


def say(sentence: str) -> None:
    """Tell the user, beside what a script reads."""
    print(sentence, file=sys.stderr, flush=True)


def _run(matrix: schedule.Matrix, prospect: Prospect, jobs: Sequence[Job]) -> bool:
    """Prepare the images and run the jobs; True when it was interrupted."""
    try:
        prospect.engine.sweep()
        needed = sorted({job.cell.image for job in jobs})
        ready, failed = matrix.prepare([prospect.images[name] for name in needed])
        for job in jobs:
            if job.cell.image in failed:
                matrix.fail(job, "engine", failed[job.cell.image])
        matrix.run_jobs([job for job in jobs if job.cell.image in ready], ready)
    except KeyboardInterrupt:
        matrix.stop()
        return True
    finally:
        with contextlib.suppress(EngineError):
            prospect.engine.sweep()
    return False


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within the block a signal that asks the runner to end, or tells that its terminal is gone, does what Ctrl-C does."""
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, signal.default_int_handler) for number in numbers}  # nohup's is kept
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _finish(prospect: Prospect, run: store.RunStore, interrupted: bool) -> int:
    from reports.page.render import render

    ended = run.finished()
    missing = [job for job in prospect.jobs if (job.cell.id, job.repeat) not in ended]
    failed = sum(status != "ok" for status in ended.values())
    report = run.folder / "report.html"
    if ended:
        render([run.folder], report, source_digest(workloads.BENCH))
    print(f"{len(ended) - failed} ok, {failed} failed, {len(missing)} not run, "
          f"{len(prospect.plan.skips)} left out as planned", file=sys.stderr)  # fmt: skip
    print(f"results  {run.folder}", file=sys.stderr)
    if ended:
        print(f"report   {report}", file=sys.stderr)
    if missing:
        how = "interrupted" if interrupted else "not all was run"
        print(f"{how}; what had ended is kept. Go on with: runner matrix --resume {run.run_id}"
              + ("" if prospect.options.out == Path("results") else f" --out {prospect.options.out}"), file=sys.stderr)  # fmt: skip
    return SOME_FAILED if failed or missing else OK


def summary(run: store.RunStore, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The run for a script: every stored repeat with its median step time in seconds (None where nothing was measured)."""
    cells = store.read([run.folder], "cells")
    samples = store.read([run.folder], "samples")
    steady = samples[samples["stage"] == "steady"]
    medians = (steady["seconds"] / steady["steps"]).groupby([steady["cell_id"], steady["repeat"]]).median().to_dict()
    columns = ["cell_id", "repeat", "image", "framework", "mode", "workload", "precision", "device_model", "status", "error_kind",
               "reason", "parity_passed", "image_digest"]  # fmt: skip
    rows = json.loads(cells[columns].to_json(orient="records"))
    for row in rows:
        row["median_step_seconds"] = medians.get((row["cell_id"], row["repeat"]))
    return {"run_id": run.run_id, "folder": str(run.folder), "report": str(run.folder / "report.html"),
            "planned": len(manifest["plan"]) * manifest["repeats"], "cells": rows}  # fmt: skip


@contextlib.contextmanager
def _observer(prospect: Prospect, jobs: Sequence[Job]) -> Iterator[schedule.Observer]:
    from rich.console import Console

    lanes = max(1, len({gpu.board for gpu in prospect.machine.gpus})) if needs_gpus(jobs) else 1
    expected = prospect.expected_seconds(jobs) * lanes / max(1, len(jobs))
    remaining = progress.Remaining(len(jobs), expected, lanes)
    console = Console(stderr=True)
    if not console.is_terminal:
        yield progress.PlainObserver(remaining)
        return
    live = progress.LiveObserver(console, len(jobs), remaining)
    with live.progress:
        yield live


def runner_version() -> str:
    try:
        return version("dlbench-matrix")
    except PackageNotFoundError:
        return "not installed"


# What a user can cause, told as a sentence and not as a traceback.
USER_ERRORS = (
    UsageError,
    CatalogError,
    PlanError,
    workloads.WorkloadError,
    frameworks.FrameworkError,
    detect.HardwareError,
    EngineError,
    store.StoreError,
    lease.LeaseError,
)


def say_where(prospect: Prospect) -> None:
    """The lines that a run begins with."""
    if not prospect.machine.gpus:
        print(f"no GPU ({prospect.machine.why_no_gpu}): running the CPU images", file=sys.stderr)
    for refused in prospect.machine.refused:
        print(f"not used: {refused.reason}", file=sys.stderr)
    cells, left_out = prospect.plan.cells, prospect.plan.skips
    print(prospect.why_engine, file=sys.stderr)
    print(f"{len(cells)} cells x {prospect.options.repeats} repeats, {len(left_out)} left out (--dry-run tells why), "
          f"about {progress.minutes(prospect.expected_seconds(prospect.jobs))} once the images are ready "
          f"[{time.strftime('%H:%M:%S')}]", file=sys.stderr)  # fmt: skip


__all__ = ["Options", "UsageError", "execute", "look_ahead", "resume", "say_where", "start", "summary"]
