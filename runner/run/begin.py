"""The steps before the first cell: look ahead (machine, engine, images, plan), then start a new run or resume an old one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import secrets
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.version import Version

from bench import identity
from runner import paths, trees
from runner.catalog import addresses, frameworks, own_networks, workloads
from runner.catalog.architectures import for_machine, kernel_machine
from runner.catalog.images import Image, load_catalog, select_images
from runner.engines import cell_cache, choose
from runner.engines.base import Engine, Settings
from runner.errors import CannotBeginError, ExitCode, UserError, code_of_fault
from runner.machine import detect, lease
from runner.machine.devices import Machine
from runner.plan.durations import TOO_LARGE, Durations, earlier_preparations, earlier_seconds, fitting
from runner.plan.plan import Cell, Plan
from runner.plan.plan import plan as make_plan
from runner.results import store
from runner.results.on_disk.derived import make_key
from runner.results.on_disk.image_names import is_address
from runner.results.parcel import MOST_UNIX
from runner.run import budget
from runner.run.options import Options, UsageError, stored_options
from runner.run.prospect import Prospect
from runner.text import plural, visible


def look_ahead(options: Options, minutes: float | None = None) -> Prospect:
    """Find the machine, the engine and the plan. Raises UserError.

    The engine `auto` depends on what is planned, and with `minutes` on what they hold.
    """
    if (now := datetime.now(UTC)).timestamp() > MOST_UNIX:
        raise CannotBeginError(
            f"the clock of this machine says {now:%Y-%m-%d}, and no run of then is read again: set it"
        )
    look = detect.Disturbances()
    machine = detect.detect(options.gpus, options.share)
    if machine.broken:
        raise CannotBeginError(
            f"no GPU can be used: {machine.why_no_gpu}; then the same command measures it. --gpus none measures the CPU"
        )
    if minutes is not None and "precisions" not in options.model_fields_set:
        options = options.model_copy(update={"precisions": (*options.precisions, *_tensor_core_precision(machine))})
    # One machine builds its missing images once. Each of a thousand nodes would do it for itself.
    one_machine = options.nodes is None or options.nodes.startswith("local:")
    settings = Settings(
        options.base_image,
        options.python,
        options.images_from,
        options.build or one_machine,
        None if options.against == "none" else options.against,
        addresses.addresses(options.images),
    )
    # It reads hundreds of files: once for both plans.
    earlier = earlier_seconds(options.out)

    def planned(engine: Engine) -> list[Image]:
        prospect = _prospect(options, machine, engine, "", earlier, lambda _: None)
        held = budget.forecast(prospect.agenda(), prospect.jobs, minutes).spans if minutes else ()
        cells = [span.job.cell for span in held] or prospect.plan.cells
        return [prospect.images[name] for name in dict.fromkeys(cell.image for cell in cells)]

    engine, why = choose(options.engine, settings, planned, bool(machine.gpus))
    # A cell that a killed runner left may use a GPU. If the sweep ends one, look again.
    if machine.refused and engine.sweep():
        machine = detect.detect(options.gpus, options.share)
    machine = replace(machine, notes=(*machine.notes, *engine.notes(bool(machine.gpus))))
    _check(options, machine)

    # An engine looks for files and programs: once for each image, and not for each of its cells.
    reasons: dict[str, str | None] = {}

    def unfit(image: Image) -> str | None:
        if image.name not in reasons:
            reasons[image.name] = engine.unfit(image) or engine.unobtainable(image)
        return reasons[image.name]

    prospect = _prospect(options, machine, engine, why, earlier, unfit)
    machine = replace(machine, notes=(*machine.notes, *look.notes(machine.cpu.cpus, minutes)))
    return replace(prospect, machine=machine, plan=fitting(prospect.plan, prospect.images, engine))


def _tensor_core_precision(machine: Machine) -> list[str]:
    """The mixed precision that the machine's GPUs are bought for: bfloat16 came with 8.0, float16 with 7.0. None without such a GPU."""
    newest = max((Version(gpu.compute_capability) for gpu in machine.gpus), default=Version("0"))
    return ["amp-bf16"] if newest >= Version("8.0") else ["amp-fp16"] if newest >= Version("7.0") else []


def _prospect(
    options: Options,
    machine: Machine,
    engine: Engine,
    why: str,
    earlier: Mapping[tuple[object, ...], float],
    unfit: Callable[[Image], str | None],
) -> Prospect:
    """The plan for an engine that cannot run the images for which `unfit` gives a reason. `earlier`: how long cells took before."""
    own = own_networks.own_networks(options.workloads)
    specifications = workloads.load_workloads() | {network.name: network for network in own.values()}
    offered = engine.images(bool(machine.gpus))
    if options.catalog:
        offered = load_catalog(options.catalog) | {name: offered[name] for name in offered if is_address(name)}
    here = kernel_machine()
    chosen = [for_machine(image, here) for image in select_images(offered, options.images or ["*"])]
    named = [own[word].name if word in own else word for word in options.workloads]
    request = options.model_copy(update={"workloads": tuple(dict.fromkeys(named))})
    plan = make_plan(request, chosen, specifications, frameworks.load_frameworks(), machine, unfit)
    return Prospect(
        options=options,
        machine=machine,
        engine=engine,
        why_engine=why,
        images={image.name: image for image in chosen},
        plan=plan,
        durations=Durations(
            specifications, earlier, earlier_preparations(options.out, engine.name), cores=machine.cpu.count
        ),
    )


def _check(options: Options, machine: Machine) -> None:
    """Raise UsageError for an option that would do nothing here: ignored, it would promise what was not done."""
    if options.scaling == "strong" and options.devices == (1,):
        raise UsageError(
            "--scaling strong is for cells with several devices: say --devices as well, such as --devices 1,2"
        )
    if options.each_gpu and options.devices != (1,):
        raise UsageError("--each-gpu runs each cell on one GPU: leave it or --devices out")
    wanted = {
        "--each-gpu": options.each_gpu,
        "--lock-clocks": options.lock_clocks is not None,
        "--share": options.share,
        "--cool-down": options.cool_down,
    }
    for option in (option for option, given in wanted.items() if given and not machine.gpus):
        error = UsageError if options.gpus == "none" else CannotBeginError
        raise error(f"{option}: no GPU can be used here ({machine.why_no_gpu}); leave the option out")


def refuse_nothing(prospect: Prospect) -> None:
    """Raise CannotBeginError, with the reasons, where nothing can be run."""
    if not prospect.plan.cells:
        # Only this needs it.
        from runner.run.outlook import grouped

        # A reason of few images is that of what the user named; of many that of the machine.
        reasons = "\n".join(f"  {words}" for _, words in reversed(grouped(prospect.plan.skips)))
        images = prospect.images.values()
        bad = images and all(isinstance(image, addresses.ForeignImage) and image.is_bad_file for image in images)
        error = UserError if bad else CannotBeginError
        raise error(f"none of these cells can run here:\n{reasons or '  no image was chosen'}")
    refuse_fewer(prospect.options.least_gpus, prospect.machine)
    if prospect.options.least_gpus:
        refuse_cpu_only(prospect, f"--least-gpus {prospect.options.least_gpus}")


def refuse_cpu_only(prospect: Prospect, option: str) -> None:
    """Raise CannotBeginError where an option asks for GPUs and no planned cell uses one."""
    if not any(cell.device_kind == "cuda" for cell in prospect.plan.cells):
        # The engine notes a build without CUDA.
        builds = [note for note in prospect.machine.notes if "on the CPU, since" in note]
        reasons = [*dict.fromkeys([*builds, *(skip.reason for skip in prospect.plan.skips)])]
        raise CannotBeginError(f"{option}: no planned cell uses a GPU{''.join(f'; {why}' for why in reasons[:3])}")


def refuse_fewer(least: int, machine: Machine) -> None:
    """Raise CannotBeginError where a machine has fewer GPUs to use than --least-gpus says."""
    if len(machine.gpus) < least:
        why = "; ".join(gpu.reason for gpu in machine.refused) or machine.why_no_gpu or "the driver knows no other"
        raise CannotBeginError(f"--least-gpus {least}: {plural(len(machine.gpus), 'GPU')} can be used here: {why}")


# Finds what would be run: look_ahead, or what looks at several nodes.
Look = Callable[[Options, float | None], Prospect]


def start(
    options: Options, argv: Sequence[str], minutes: float | None = None, look: Look = look_ahead
) -> tuple[Prospect, store.RunStore]:
    """Plan a new run and make its folder. Raises UsageError when nothing can be run. `minutes`: its time limit."""
    prospect = look(options, minutes)
    refuse_nothing(prospect)
    if options.nodes is None:
        # Before it waits in line for the devices: without a cache no cell could begin.
        cell_cache.caches_folder()
    now = datetime.now(UTC)
    if date := store.unset_clock(now.timestamp()):
        print(f"the clock of this machine says {date}: set it, or this run counts as the oldest", file=sys.stderr)
    make_key()
    run = _new_run(options.out, now)
    try:
        _write_first(run, prospect, options, argv, now)
    except BaseException:
        # No cell has begun, as on a full disk: each try would leave an empty folder.
        trees.remove(run.folder)
        raise
    return prospect, run


def _write_first(run: store.RunStore, prospect: Prospect, options: Options, argv: Sequence[str], now: datetime) -> None:
    """Write what a run has before its first cell. Raises OSError."""
    code = _code_digests(prospect.plan.cells)
    manifest = manifest_of(run, now.isoformat(timespec="seconds"), prospect.plan, prospect.machine, code)
    # A pod has a host name of its own.
    name = os.environ.get("DLBENCH_NODE") or platform.node()
    manifest["host"] |= {"name": name, "kernel": prospect.machine.kernel, "architecture": kernel_machine()}
    run.write_manifest(
        manifest
        | {
            "argv": list(argv),
            # Those that the plan was made with: --resume makes it again.
            "options": prospect.options.model_dump(mode="json"),
            "seed": options.seed,
            "preset": options.preset,
            "repeats": prospect.repeats,
            "engine": prospect.engine.name,
            "bench_sha256": identity.source_digest(),
            "foreign": prospect.foreign,
            **prospect.expectations(prospect.jobs),
        }
        | prospect.facts()
    )
    keep_networks(options, run)
    remember(run.run_id, options)


def keep_networks(options: Options, run: store.RunStore) -> None:
    """Lay the own networks of a run into its folder, where its cells read them."""
    for network in own_networks.own_networks(options.workloads).values():
        for name, content in network.files.values():
            store.write_bytes(run.network_folder(network.name) / name, content)


def _with_stored_networks(options: Options, run: store.RunStore) -> Options:
    """The options of a run, its own networks by the copies in its folder: whoever edits the file meanwhile changes no run."""
    words = [word for word in options.workloads if not own_networks.is_path(word)]
    if len(words) == len(options.workloads):
        return options
    stored = sorted(run.word(folder.name) for folder in run.network_folder("").glob("*@*"))
    return options.model_copy(update={"workloads": (*words, *stored)})


def manifest_of(
    run: store.RunStore, created: str, plan: Plan, machine: Machine, code: Mapping[tuple[str, str], str]
) -> dict[str, Any]:
    """The part of run.json that follows from a plan and its machine. `code`: (framework, workload) -> the digest of its code."""
    return {
        "schema_version": store.SCHEMA_VERSION,
        "run_id": run.run_id,
        "created": created,
        "devices": [asdict(gpu) for gpu in machine.gpus],
        "devices_refused": [asdict(device) for device in machine.refused],
        "host": machine.cpu.facts,
        "plan": [cell.as_dict() | {"code_sha256": code.get((cell.framework, cell.workload))} for cell in plan.cells],
        "skipped": len(plan.skips),
        "skips": [asdict(skip) for skip in plan.skips],
        "runner_version": paths.runner_version(),
        "reused": [],
    }


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
                raise UsageError(f"--results: {out} is not a folder; name another") from None
        except OSError as error:
            fault = UsageError if code_of_fault(error) is ExitCode.USAGE else CannotBeginError
            raise fault(f"--results: no run can be stored in {out} ({error.strerror}); name another folder") from None
        try:
            # A folder that cannot be locked holds no run: it is not left there.
            with lease.alone(folder):
                return store.RunStore(folder)
        except lease.LeaseError:
            trees.remove(folder)
            raise


def resume(name: str, given: Options, look: Look = look_ahead) -> tuple[Prospect, store.RunStore]:
    """Go on with a run that was interrupted, with the options that it began with. Raises UsageError where its plan has changed.

    `given` are the options of the command line: where the results are, and the user's word for an interpreter.
    """
    out = given.out
    folder = store.run_folder(name, out)
    if not (folder / "run.json").is_file():
        raise UsageError(f"--resume {name}: it is not a run in {out}; {_runs_like(name, out)}")
    run = store.RunStore(folder.resolve())
    manifest = run.manifest()
    if "imported" in manifest:
        raise UsageError(
            f"--resume {name}: it was imported; run kit.py again on the machine that measured it, and import that"
        )
    options = stored_options(run.folder / "run.json", manifest.get("options"))
    _refuse_gone(name, options)
    _trust(name, options, given, run.run_id)
    if options.nodes is not None:
        # The nodes may have to be waited for, and the other runner may hold them.
        with lease.alone(run.folder):
            pass
    # `wait` belongs to the call.
    stored = _with_stored_networks(options, run)
    prospect = look(stored.model_copy(update={"wait": given.wait}), None)
    if stored.workloads != options.workloads:
        # They keep the paths that the user gave.
        prospect = replace(prospect, options=prospect.options.model_copy(update={"workloads": options.workloads}))
    _refuse_moved(name, manifest.get("foreign") or {}, prospect)
    planned = {cell["id"]: str(cell.get("image")) for cell in manifest["plan"]}
    today = {cell.id for cell in prospect.plan.cells}
    too_large = {skip.image: skip.reason for skip in prospect.plan.skips if skip.reason.startswith(TOO_LARGE)}
    if (lost := [image for cell, image in planned.items() if cell not in today]) and set(lost) <= too_large.keys():
        raise CannotBeginError(f"--resume {name}: {lost[0]}: {too_large[lost[0]].partition('; ')[0]}; free some")
    if lost or not planned:
        which = f": it lacks {len(lost)} of {len(planned)}, as {lost[0]}'s" if lost else ""
        raise UsageError(
            f"--resume {name}: today's plan has other cells{which} (a lock, an image or a device has changed); start a new run"
        )
    if added := today - planned.keys():
        # A cell that could not run when the run began is of another run: a figure of today would stand beside those of then.
        print(f"{plural(len(added), 'cell')} can run today and could not then: a new run has them", file=sys.stderr)
        cells = tuple(cell for cell in prospect.plan.cells if cell.id in planned)
        prospect = replace(prospect, plan=replace(prospect.plan, cells=cells))
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
    expected = manifest.get("expected") or {}
    prospect.durations.stored |= {cell: (entry["seconds"], entry["guessed"]) for cell, entry in expected.items()}
    prospect.durations.ended = manifest.get("took") or []
    print(f"resuming {run.run_id} with its original options", file=sys.stderr)
    return prospect, run


def _refuse_gone(name: str, options: Options) -> None:
    """Raises UsageError where a folder that the run began with is gone."""
    for folder, content in ((options.data, "data sets"), (options.catalog, "images")):
        if folder and not folder.is_dir():
            raise UsageError(f"--resume {name}: its {content} were in {folder}, which is gone; put them back there")


def _refuse_moved(name: str, foreign: Mapping[str, str], prospect: Prospect) -> None:
    """Raises UsageError where the address of a foreign image means another image than when the run began, or none."""
    for address, pinned in foreign.items():
        now = prospect.foreign.get(address)
        if now == pinned:
            continue
        if now is None:
            why = next((skip.reason for skip in prospect.plan.skips if skip.image == address), "it is not here")
            raise CannotBeginError(f"--resume {name}: {address}: {why}")
        raise UsageError(
            f"--resume {name}: {address} was {visible(pinned, 200)} when the run began, and is {now} now, so new results could not stand "
            "beside its own; give the name back to the image of then, or start a new run"
        )


def remember(run_id: str, options: Options) -> None:
    """Keep that a run was begun here, if its options choose code from outside of this checkout: `resume` trusts it then."""
    if code := _code_from_elsewhere(options):
        # A home folder that nobody can write ends no run: without the mark, `resume` asks for these options again.
        with contextlib.suppress(OSError):
            store.write_bytes(_mark(run_id), _marked(run_id, code).encode())


def _trust(name: str, options: Options, given: Options, run_id: str) -> None:
    """Raises UsageError where a run's own file names code that nobody here has named: looking ahead would start it.

    The folder of a run may come from elsewhere. A run that was begun here is known by its id and these options.
    """
    code = _code_from_elsewhere(options)
    said = _code_from_elsewhere(given)
    unsaid = {option: value for option, value in code.items() if said.get(option) != value}
    with contextlib.suppress(OSError):
        if unsaid and _mark(run_id).read_text() == _marked(run_id, code):
            return
    if unsaid:
        words = " ".join(f"--{option.replace('_', '-')} {shlex.quote(value)}" for option, value in unsaid.items())
        engine = "--engine host " if "python" in unsaid else ""
        raise UsageError(
            f"--resume {name}: its run.json names what is started ({visible(words, 400)}); where you know that it may be, "
            f"say {visible(engine + words, 400)} as well"
        )


def _code_from_elsewhere(options: Options) -> dict[str, str]:
    """The options that choose programs or images from outside of this checkout: name -> value. A file of hosts names programs."""
    values = options.model_dump(mode="json")
    names = [
        "python",
        "base_image",
        "images_from",
        "catalog",
        *(["nodes"] if (options.nodes or "").startswith("ssh:") else []),
    ]
    found = {name: str(values[name]) for name in names if values[name]}
    images = ",".join(options.images) if any(map(is_address, options.images)) else ""
    own = ",".join(word for word in values["workloads"] if own_networks.is_path(word))
    return found | ({"images": images} if images else {}) | ({"workloads": own} if own else {})


def _mark(run_id: str) -> Path:
    """The path of the mark of what a run that was begun here may start."""
    return paths.data_folder() / "begun" / run_id


def _marked(run_id: str, code: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps([run_id, code], sort_keys=True).encode()).hexdigest()


def _runs_like(name: str, out: Path) -> str:
    """The newest runs whose ids begin as `name` does, or the newest of all. A clause."""
    runs = [folder.name for folder in reversed(store.runs_below(out))]
    if not runs:
        return "it holds none; --results names another folder"
    alike = [run for run in runs if run.startswith(name)]
    which = f"these begin with {name}" if alike else "the newest are"
    return f"{which}: {', '.join((alike or runs)[:5])}"
