"""The measurements of `runner verify`: the ceilings of this machine and its cells, then further repeats of what is not yet sure."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from typing_extensions import TypedDict

from runner.errors import CannotBeginError, EngineError, ExitCode, NothingBegunError, UndecidedError, UserError
from runner.machine import lease
from runner.machine.detect import detect
from runner.results.on_disk.image_names import is_of_no_catalog
from runner.results.statistics import Estimate
from runner.results.store import RunStore, replace_bytes
from runner.run.begin import look_ahead, refuse_cpu_only, refuse_fewer, start
from runner.run.dispatch import places
from runner.run.execution import execute, interruptible
from runner.run.options import Options, UsageError
from runner.run.progress import announce, say
from runner.run.prospect import Prospect
from runner.run.schedule import slot_of
from runner.run.summary import kept
from runner.text import length, plural
from runner.verify.causes import Cause
from runner.verify.outliers import Deviation, DeviceFleet, Spot
from runner.verify.output import next_step
from runner.verify.pinned import PinnedBeside
from runner.verify.probes.ceilings import CeilingsError, measure
from runner.verify.probes.load import load_each
from runner.verify.references.comparability import AmongMachines
from runner.verify.references.facts import DifferentFact, Facts
from runner.verify.references.measured import ceilings_path
from runner.verify.references.published import ModelledStep
from runner.verify.verdict import LEVEL, CellVerdict, Ratio, beyond_doubt, narrows
from runner.verify.verification import CellFinding, Verification

# A verification for a script.


class FindingRecord(TypedDict):
    """A cell beside its reference. Sound: the installation alone explains the ratio. Times are seconds a step."""

    run_id: str
    cell_id: str
    facts: Facts
    device_uuid: str
    verdict: CellVerdict
    passes_with_the_others: bool
    reason: str
    step: Estimate | None
    reference_name: str | None
    reference_seconds: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    ratio_from: Ratio | None
    margin: float
    parity_passed: bool | None
    sound: bool
    proved: tuple[str, ...]
    facts_differ: tuple[DifferentFact, ...]
    nearest: str | None
    expectation: ModelledStep | None
    causes: tuple[Cause, ...]
    kernel_share: float | None
    repeat_seconds: Mapping[int, float]
    repeat_length: float | None
    celsius: float | None
    among: AmongMachines | None
    pinned: PinnedBeside | None


class TogetherRecord(TypedDict):
    """The cells of one run on one kind of device as one."""

    run_id: str
    device_kind: str
    cell_count: int
    ratio: float
    ratio_low: float
    ratio_high: float
    margin: float
    verdict: CellVerdict
    reason: str


class FleetRecord(TypedDict):
    """The devices of one model, or nodes, beside one another. Compared: the run id and cell id of each cell."""

    name: str
    device_model: str
    of: Literal["GPU", "node"]
    fleet: DeviceFleet
    median_text: str
    remarks: tuple[str, ...]
    compared: tuple[tuple[str, str], ...]
    deviations: tuple[Deviation, ...]
    spots: Mapping[str, Spot]


class VerificationDocument(TypedDict):
    """Every cell, all cells together, and every fleet, judged. The level is that of the intervals of ratios to a reference."""

    exit_code: int
    level: float
    findings: list[FindingRecord]
    together: list[TogetherRecord]
    fleets: list[FleetRecord]
    not_yet_run: list[str]
    remarks: list[str]


def document(verification: Verification) -> VerificationDocument:
    settled = verification.settled
    return {
        "exit_code": verification.exit_code,
        "level": LEVEL,
        "findings": [_finding(one, (one.run_id, one.cell_id) in settled) for one in verification.findings],
        "together": [
            {
                "run_id": whole.run_id,
                "device_kind": whole.device_kind,
                "cell_count": whole.cells,
                "ratio": whole.ratio,
                "ratio_low": whole.low,
                "ratio_high": whole.high,
                "margin": whole.margin,
                "verdict": whole.verdict,
                "reason": whole.reason,
            }
            for whole in verification.wholes
        ],
        "fleets": [
            _renamed(FleetRecord, one, median_text=one.middle, remarks=one.beside, compared=one.cells)
            for one in verification.fleets
        ],
        "not_yet_run": list(verification.waiting),
        "remarks": list(filter(None, [next_step(verification)])),
    }


def _finding(one: CellFinding, settled: bool) -> FindingRecord:
    ratio = one.ratio
    record: FindingRecord = _renamed(
        FindingRecord,
        one,
        verdict=one.kind,
        step=one.measured,
        reference_name=one.reference,
        passes_with_the_others=settled,
        ratio=ratio and ratio.value,
        ratio_low=ratio and ratio.low,
        ratio_high=ratio and ratio.high,
        ratio_from=ratio,
        facts_differ=one.differences,
        pinned=one.beside,
    )
    return record


def _renamed(record: Any, of: object, **others: object) -> Any:
    """An object with the keys of `record`: those among `others`, and the fields of `of` under their own names."""
    return {name: others[name] if name in others else getattr(of, name) for name in record.__annotations__}


# A cell that looks slow gets so many times the repeats of an open one before it is called so.
TO_ACCUSE = 3

# Of the time that is said before. So there is room for further repeats, and for a machine that is slower than the estimate.
AT_MOST = 2.0
# The probe of the ceilings of an environment takes about so long, with the start of its framework.
_PROBE_SECONDS = 20.0

# The folder of a run -> the report that was written of it.
WriteReport = Callable[[Path], Path]

# The folder of a run -> how many repeats each open cell gets, by the cell's id.
Further = Callable[[Path], Mapping[str, int]]


class Part(Protocol):
    """The part of a plan that a limit of time leaves (runner.verify.fleet_run)."""

    @property
    def workloads(self) -> tuple[str, ...]: ...
    @property
    def repeats(self) -> int: ...
    @property
    def loads(self) -> bool: ...


Limit = Callable[[Prospect], Part]


class Measurement(NamedTuple):
    """The folders of the runs that were measured, and what cut the last one short, as in runner.run.summary.Conclusion."""

    folders: list[Path]
    cut_by: ExitCode = ExitCode.OK


# The error of a run without an answer, by what cut it short.
CUT: Mapping[ExitCode, type[UserError]] = {
    ExitCode.CANNOT_BEGIN: CannotBeginError,
    ExitCode.INTERRUPTED: NothingBegunError,
}


def measure_here(
    options: Options,
    argv: Sequence[str],
    write_report: WriteReport,
    each_gpu: bool = False,
    further: Further = lambda _: {},
    limited: Limit | None = None,
) -> Measurement:
    """Measure the ceilings and the cells of this machine. Raises UserError.

    `limited` says what of the plan for all GPUs is measured; without it, all. `further` is called once, after the first repeats. With
    `each_gpu` it is not: the GPUs are compared with one another, and more or later repeats of one GPU would look like a difference
    between them. The GPUs of a model are measured in one run, one at a time, in shuffled blocks: a drift of the machine then comes to
    each of them alike.
    """
    if not each_gpu:
        prospect, run, ends_at, cut_by = _measure(options, argv, write_report, AT_MOST)
        if not prospect.jobs_left(run):
            cut_by = _go_on(prospect, run, further(run.folder), write_report, ends_at)
        return Measurement([run.folder], cut_by)
    # Before the engine: without a GPU it does not matter which framework is here.
    machine = detect(options.gpus, options.share)
    ahead = look_ahead(options) if machine.gpus or machine.refused else None
    machine = ahead.machine if ahead else machine
    gpus = machine.gpus
    refuse_fewer(options.least_gpus, machine)
    # A run below has the GPUs of one model.
    options = options.model_copy(update={"least_gpus": 0})
    if len(gpus) < 2:
        why = f" ({machine.why_no_gpu})" if machine.why_no_gpu and not gpus else ""
        error = UsageError if options.gpus == "none" else CannotBeginError
        raise error(
            f"--each-gpu compares GPUs with one another, and there is {len(gpus) or 'none'} here{why}; leave the option out"
        )
    # A build for CPUs would be measured on the CPU for minutes, and compared with nothing.
    if ahead:
        refuse_cpu_only(ahead, "--each-gpu")
    part = limited(look_ahead(options.model_copy(update={"each_gpu": True}))) if limited else None
    if part is not None:
        options = options.model_copy(update={"workloads": part.workloads, "repeats": part.repeats})
    folders = []
    # A run of each model: only GPUs of one model are compared, and the ceilings of a run are those of its first GPU.
    for model in dict.fromkeys(gpu.model for gpu in gpus):
        uuids = ",".join(gpu.uuid for gpu in gpus if gpu.model == model)
        prospect, run, _, cut_by = _measure(
            options.model_copy(update={"gpus": uuids, "each_gpu": True}), argv, write_report
        )
        if prospect.jobs_left(run):
            raise CUT.get(cut_by, UndecidedError)(
                f"{run.folder} was cut short, so no GPU was compared; go on with `runner matrix --resume {run.folder}`, then compare "
                f"with `runner verify --each-gpu --run {run.folder}`, which loads no GPU"
            )
        folders.append(run.folder)
    if part is not None and not part.loads:
        return Measurement(folders)
    with interruptible():
        load_each(look_ahead(options), [RunStore(folder) for folder in folders])
    return Measurement(folders)


def _measure(
    options: Options, argv: Sequence[str], write_report: WriteReport, at_most: float = math.inf
) -> tuple[Prospect, RunStore, float, ExitCode]:
    """One run with the ceilings before its cells, the end of its time by time.monotonic(), and what cut it short.

    Its time is `at_most` times what is expected.
    """
    prospect, run = start(options, argv)
    announce(prospect)
    seconds = _seconds(prospect)
    more = f", and at most {length(at_most * seconds)} with further repeats of what is not yet sure"
    say(f"level 3: about {length(seconds)} with all that comes before the cells{more if at_most < math.inf else ''}")
    if options.against != "none":
        images = [name for name in prospect.images if not is_of_no_catalog(name)]
        beside = ", ".join(images) or "no image of the catalog fits"
        say(f"measured beside it: {beside}; {prospect.fetches()} to fetch; --against none leaves it out")
    with interruptible(), lease.hold(prospect.leased(prospect.jobs), run.run_id, say, options.wait):
        # Another runner's time is not ours.
        ends_at = time.monotonic() + at_most * seconds
        _measure_ceilings(prospect, run)
    return prospect, run, ends_at, _executed(prospect, run, write_report, ends_at)


def _executed(prospect: Prospect, run: RunStore, write_report: WriteReport, ends_at: float) -> ExitCode:
    """Run what is left of a run; what cut it short. Raises UserError."""
    try:
        return execute(prospect, run, write_report, ends_at=ends_at).cut_by
    except OSError as error:
        raise CannotBeginError(kept(prospect, run, error)) from error


def _seconds(prospect: Prospect) -> float:
    """The estimate of a run of verify: its images, the ceilings of each environment, its cells."""
    environments = {(cell.image, cell.framework, cell.device_kind) for cell in prospect.plan.cells}
    agenda = prospect.agenda()
    prepare = agenda.preparing(agenda.parts, agenda.unready(()))
    return prepare + _PROBE_SECONDS * len(environments) + prospect.expected_seconds(prospect.jobs)


def _go_on(
    prospect: Prospect, run: RunStore, needed: Mapping[str, int], write_report: WriteReport, ends_at: float
) -> ExitCode:
    """Repeat cells of a run until each has the repeats that it needs, in blocks of all that need more, or until its time is over.

    Returns what cut it short.
    """
    if not needed:
        return ExitCode.OK
    run.write_manifest(run.manifest() | {"extended": dict(needed)})
    for repeats in sorted(set(needed.values())):
        cells = tuple(cell for cell in prospect.plan.cells if needed.get(cell.id, 0) >= repeats)
        say(f"not yet sure: {plural(len(cells), 'cell')}, going on to {repeats} repeats")
        plan = replace(prospect.plan, cells=cells)
        options = prospect.options.model_copy(update={"repeats": repeats})
        more = replace(prospect, plan=plan, options=options)
        cut_by = _executed(more, run, write_report, ends_at)
        if more.jobs_left(run):
            if time.monotonic() + min(map(more.durations.seconds, cells)) > ends_at:
                say("the time that was said is over; the verdict is of what has ended")
            return cut_by  # the repeats that ended are judged
    return ExitCode.OK


def repeats_wanted(verification: Verification, most: int) -> dict[str, int]:
    """How many repeats each cell gets that is not yet sure and whose interval they would make narrower, by the cell's id.

    An open cell gets `most`, and one whose ratio is beyond the margin TO_ACCUSE times as many. A cell that is slow gets these as well:
    a second look that only open cells had would make healthy cells slow more often. It gets none where an interval of twice the width
    would lie beyond the margin as well: chance does not reach so far, and each further repeat would be a slow one.
    """
    wanted: dict[str, int] = {}
    for one in verification.findings:
        if one.beside and one.beside.ratio and one.kind == "open":
            # Both sides, or there would be no more blocks of the two.
            wanted |= dict.fromkeys((one.cell_id, one.beside.cell_id), most)
        elif one.ratio and one.kind in ("open", "slow") and not beyond_doubt(one.ratio, one.margin):
            repeats = most * TO_ACCUSE if one.ratio.value > 1 + one.margin else most
            if narrows(one.ratio, repeats):
                wanted[one.cell_id] = repeats
    return wanted


def _measure_ceilings(prospect: Prospect, run: RunStore) -> None:
    """Run the probe once for each environment, before its cells, on a part of the machine as a cell gets it."""
    cells = {(cell.image, cell.framework, cell.device_kind): cell for cell in prospect.plan.cells}
    for (image, framework, kind), cell in cells.items():
        slot = slot_of(prospect.machine, places(prospect.machine, kind)[:1])
        try:
            prepared = prospect.engine.prepare(
                prospect.images[image], lambda line: print(f"     {line}", file=sys.stderr)
            )
        except EngineError as error:
            # Without the pinned image the installation is measured all the same.
            if prospect.options.against == "none" or is_of_no_catalog(image):
                raise
            print(
                f"     {image}: {str(error).splitlines()[0]}: nothing is measured beside the installation",
                file=sys.stderr,
            )
            continue
        try:
            rates = measure(prospect.engine, prepared, framework, cell.precision, slot, run.run_id)
        except CeilingsError as error:
            print(f"     {image}: its ceilings are not known: {error}", file=sys.stderr)
            continue
        replace_bytes(ceilings_path(run.folder, image, framework, kind), rates.model_dump_json(indent=1).encode())
        print(f"ceil {image}: {rates.sentence(framework)}", file=sys.stderr)
