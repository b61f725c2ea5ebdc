"""What stands before the first cell: look ahead (machine, engine, images, plan), then start a new run or resume an old one."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench import identity
from runner.catalog import frameworks, workloads
from runner.catalog.images import Image, select_images
from runner.engines import choose
from runner.engines.base import Engine, Settings
from runner.machine import detect
from runner.machine.devices import Machine
from runner.plan.disk import DiskSpace
from runner.plan.durations import Durations, earlier_seconds
from runner.plan.plan import Cell, Plan
from runner.plan.plan import plan as make_plan
from runner.results import store
from runner.run import dispatch
from runner.run.dispatch import Job
from runner.run.options import Options, UsageError, stored_options


@dataclass(frozen=True)
class Prospect:
    """What would be run: the plan with all that it was made from."""

    options: Options
    machine: Machine
    engine: Engine
    why_engine: str
    images: dict[str, Image]
    plan: Plan
    durations: Durations

    @property
    def jobs(self) -> list[Job]:
        return dispatch.blocks(self.plan.cells, self.options.repeats, self.options.seed)

    def jobs_left(self, run: store.RunStore) -> list[Job]:
        """The jobs that have not ended in this run."""
        ended = run.finished()
        return [job for job in self.jobs if job.key not in ended]

    def boards(self, jobs: Sequence[Job]) -> list[str]:
        """The GPUs that the runner holds for these jobs: none where all of them run on the CPU."""
        return [gpu.board for gpu in self.machine.gpus] if any(job.cell.device_kind == "cuda" for job in jobs) else []

    def expected_seconds(self, jobs: Sequence[Job]) -> float:
        """A rough length of these jobs on this machine: GPU cells side by side, then the CPU's one after another."""
        total = 0.0
        for kind in ("cuda", "cpu"):
            of_kind = [job for job in jobs if job.cell.device_kind == kind]
            spans = dispatch.simulate(of_kind, dispatch.places(self.machine, kind), self.durations.seconds)
            total += max((span.end for span in spans), default=0.0)
        return total

    def fetch_bytes(self) -> int:
        """What must be fetched or built before the first cell."""
        return sum(self.engine.cost(self.images[name]) for name in sorted({cell.image for cell in self.plan.cells}))


def look_ahead(options: Options) -> Prospect:
    """Find the machine, the engine and the plan. Raises UserError."""
    specifications = workloads.load_workloads()
    machine = detect.detect(options.gpus, options.share)
    settings = Settings(options.base_image, options.python)
    engine, why = choose(options.engine, settings, options.images, bool(machine.gpus), options.frameworks)
    # A cell that a killed runner left may use a GPU. If the sweep ends one, look again.
    if machine.refused and engine.sweep():
        machine = detect.detect(options.gpus, options.share)
    chosen = select_images(engine.images(bool(machine.gpus)), options.images or ["*"])
    plan = make_plan(options, chosen, specifications, frameworks.load_frameworks(), machine, DiskSpace(engine).unfit)
    return Prospect(
        options=options,
        machine=machine,
        engine=engine,
        why_engine=why,
        images={image.name: image for image in chosen},
        plan=plan,
        durations=Durations(specifications, earlier_seconds(options.out)),
    )


def start(options: Options, argv: Sequence[str]) -> tuple[Prospect, store.RunStore]:
    """Plan a new run and make its folder. Raises UsageError when nothing can be run."""
    prospect = look_ahead(options)
    if not prospect.plan.cells:
        reasons = "\n".join(dict.fromkeys(f"  {skip.image}: {skip.reason}" for skip in prospect.plan.skips))
        raise UsageError(f"none of these cells can run here:\n{reasons or '  no image was chosen'}")
    code = _code_digests(prospect.plan.cells)
    now = datetime.now(UTC)
    run = _new_run(options.out, now)
    cpu = prospect.machine.cpu
    run.write_manifest(
        {
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
            "devices_refused": [asdict(device) for device in prospect.machine.refused],
            "host": {
                "cpu_model": cpu.model,
                "cpu_count": len(cpu.cpus),
                "memory_bytes": cpu.memory_bytes,
                "kernel": prospect.machine.kernel,
            },
            "plan": [
                cell.as_dict() | {"code_sha256": code[cell.framework, cell.workload]} for cell in prospect.plan.cells
            ],
            "skipped": len(prospect.plan.skips),
            "bench_sha256": identity.source_digest(),
            "runner_version": runner_version(),
            "reused": [],
        }
    )
    run.write_skipped(
        [asdict(skip) | {"cell_id": f"skipped-{number}"} for number, skip in enumerate(prospect.plan.skips)]
    )
    return prospect, run


def _code_digests(cells: Iterable[Cell]) -> dict[tuple[str, str], str]:
    """(framework, workload) -> the digest of the sources that its cells run, as they are in this checkout."""
    return dict(identity.code_digests({(cell.framework, cell.workload) for cell in cells}))


def _changed_code(manifest: Mapping[str, Any], cells: Iterable[Cell]) -> list[str]:
    """The frameworks and workloads of a run whose code is another than when it began."""
    today = _code_digests(cells)
    pairs = ((entry["framework"], entry["workload"], entry.get("code_sha256")) for entry in manifest["plan"])
    return sorted(
        {f"{framework} {workload}" for framework, workload, code in pairs if today.get((framework, workload)) != code}
    )


def _new_run(out: Path, now: datetime) -> store.RunStore:
    """A folder of its own, even where others start runs into the same folder in the same second. Raises UsageError."""
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


def resume(name: str, out: Path) -> tuple[Prospect, store.RunStore]:
    """Go on with a run that was interrupted, with the options that it began with. Raises UsageError where its plan has changed."""
    run = store.RunStore(store.run_folder(name, out).resolve())
    manifest = run.manifest()
    options = stored_options(run.folder / "run.json", manifest.get("options"))
    if options.data and not options.data.is_dir():
        raise UsageError(f"--resume {name}: its data sets were in {options.data}, which is gone; put them back there")
    prospect = look_ahead(options)
    planned = {cell["id"] for cell in manifest["plan"]}
    if planned != {cell.id for cell in prospect.plan.cells}:
        raise UsageError(
            f"--resume {name}: today's plan has other cells (a lock, an image or a device has changed); start a new run"
        )
    if not any("code_sha256" in entry for entry in manifest["plan"]):
        raise UsageError(
            f"--resume {name}: it began with a release that did not record the code of its cells, so nobody knows whether "
            "it is today's; start a new run"
        )
    if changed := _changed_code(manifest, prospect.plan.cells):
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise UsageError(
            f"--resume {name}: the code of {', '.join(changed[:3])}{more} has changed since that run began, so its results could "
            "not stand beside new ones; start a new run, or check out the code that it began with"
        )
    print(f"going on with {run.run_id} and the options it began with; other options are not read", file=sys.stderr)
    return prospect, run


def runner_version() -> str:
    try:
        return version("dlbench-matrix")
    except PackageNotFoundError:
        return "not installed"
