"""The command `runner verify`: what was measured here beside references, with a verdict for each cell and why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from runner.engines.process.process import cache_folder
from runner.machine import lease
from runner.results.statistics import Estimate, median_estimate
from runner.results.store import RunStore, write_bytes
from runner.run.begin import Prospect, look_ahead, start
from runner.run.dispatch import places
from runner.run.matrix import execute, interruptible
from runner.run.options import Options, UsageError
from runner.run.progress import announce, say
from runner.run.schedule import slot_of
from runner.verify.causes import Case, Cause, causes, per_cent
from runner.verify.ceilings import CeilingsError, best, measure
from runner.verify.outliers import Fleet, compare
from runner.verify.references.facts import Difference, Facts
from runner.verify.references.measured import Measured, ceilings_path, read_runs
from runner.verify.references.rules import Choice, choose
from runner.verify.references.saved import FEWEST_WINDOWS, Reference
from runner.verify.step_model import Expectation, expect
from runner.verify.verdict import MARGINS, PASS, Kind, Ratio, excused, exit_code, judge, ratio, repeats_to_tell

# What is measured where nothing else is asked for: two networks that every framework has, in three minutes for one framework.
WORKLOADS = ("cnn-cifar10", "gru-imdb")


@dataclass(frozen=True)
class Finding:
    """One cell: what was measured, what it was held against, and the verdict."""

    run_id: str
    cell_id: str
    facts: Facts
    device_uuid: str  # empty for a CPU
    kind: Kind
    reason: str  # a sentence
    measured: Estimate | None  # seconds a step
    reference: str | None  # its name
    reference_seconds: float | None
    ratio: Ratio | None
    margin: float
    parity_passed: bool | None
    differences: tuple[Difference, ...] = ()
    nearest: str | None = None
    expectation: Expectation | None = None
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True)
class FleetFinding:
    """One cell on many devices of one model."""

    name: str
    device_model: str
    fleet: Fleet


@dataclass(frozen=True)
class Verification:
    """All that was found."""

    findings: tuple[Finding, ...]
    fleets: tuple[FleetFinding, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 could not tell. A device that is slower than its like fails whatever the references say."""
        if any(one.fleet.slow for one in self.fleets):
            return 1
        told = any(not one.fleet.why_not for one in self.fleets)
        return exit_code(["ok" if told and self._alike(finding) else finding.kind for finding in self.findings])

    @staticmethod
    def _alike(finding: Finding) -> bool:
        """Whether a cell that no reference decides was on a GPU that is like the others of its model."""
        return bool(finding.device_uuid) and finding.kind in ("no-reference", "not-comparable", "unsure")


# The folder of a run -> the report that was written of it.
WriteReport = Callable[[Path], Path]

# The folder of a run -> how many repeats each of its cells that are not sure wants, by the cell's id.
Further = Callable[[Path], Mapping[str, int]]


def measure_here(
    options: Options,
    argv: Sequence[str],
    write_report: WriteReport,
    each_gpu: bool = False,
    further: Further = lambda _: {},
) -> list[Path]:
    """Measure the ceilings and the cells of this machine; the folders of the runs. Raises UserError.

    `further` is asked once, when all was measured. It is not asked about GPUs that are compared with one another: what
    one of them was measured more often, or later, would be a difference between them.
    """
    if not each_gpu:
        prospect, run = _measure(options, argv, write_report)
        if not prospect.jobs_left(run):
            _go_on(prospect, run, further(run.folder), write_report)
        return [run.folder]
    gpus = look_ahead(options).machine.gpus
    if len(gpus) < 2:
        raise UsageError(f"--each-gpu compares GPUs with one another, and there is {len(gpus) or 'none'} here")
    folders = []
    for gpu in gpus:
        prospect, run = _measure(options.model_copy(update={"gpus": gpu.uuid}), argv, write_report)
        if prospect.jobs_left(run):
            raise UsageError(f"{run.folder} was cut off, so no GPU was compared; the other GPUs were not measured")
        folders.append(run.folder)
    return folders


def _measure(options: Options, argv: Sequence[str], write_report: WriteReport) -> tuple[Prospect, RunStore]:
    """One run, with the ceilings before its cells."""
    prospect, run = start(options, argv)
    announce(prospect)
    boards = prospect.boards(prospect.jobs)
    with interruptible(), lease.hold(boards, run.run_id, say, options.wait):
        _measure_ceilings(prospect, run)
    execute(prospect, run, write_report)
    return prospect, run


def _go_on(prospect: Prospect, run: RunStore, wanted: Mapping[str, int], write_report: WriteReport) -> None:
    """Repeat cells of a run until each has as many repeats as it wants, in blocks of all that want more."""
    if not wanted:
        return
    run.write_manifest(run.manifest() | {"extended": dict(wanted)})
    for repeats in sorted(set(wanted.values())):
        cells = tuple(cell for cell in prospect.plan.cells if wanted.get(cell.id, 0) >= repeats)
        say(f"not sure yet: {len(cells)} cell{'s' if len(cells) > 1 else ''}, going on to {repeats} repeats")
        plan = replace(prospect.plan, cells=cells)
        options = prospect.options.model_copy(update={"repeats": repeats})
        more = replace(prospect, plan=plan, options=options)
        execute(more, run, write_report)
        if more.jobs_left(run):
            return  # what there is will be judged


def repeats_wanted(found: Verification, most: int) -> dict[str, int]:
    """How many repeats would decide each cell that is unsure, where no more than `most` would; by the cell's id.

    To look a second time, with so many, raises each test's 5 % to 7 % at the margin itself (simulated, repeats that differ as the
    verdict's prior says, a reference of eight).
    """
    needed = {
        finding.cell_id: repeats_to_tell(finding.ratio, finding.margin)
        for finding in found.findings
        if finding.kind == "unsure" and finding.ratio
    }
    return {cell: repeats for cell, repeats in needed.items() if repeats and repeats <= most}


def _measure_ceilings(prospect: Prospect, run: RunStore) -> None:
    """Run the probe once for each environment, before anything else is measured. Where it cannot be, that is said."""
    cells = {(cell.image, cell.framework, cell.device_kind): cell for cell in prospect.plan.cells}
    cache = cache_folder() / "data"
    cache.mkdir(parents=True, exist_ok=True)
    for (image, framework, kind), cell in cells.items():
        slot = slot_of(prospect.machine, places(prospect.machine, kind)[:1])
        prepared = prospect.engine.prepare(prospect.images[image], lambda line: print(f"     {line}", file=sys.stderr))
        try:
            found = measure(prospect.engine, prepared, framework, cell.precision, slot, run.run_id, cache)
        except CeilingsError as error:
            print(f"     {image}: its ceilings are not known: {error}", file=sys.stderr)
            continue
        write_bytes(ceilings_path(run.folder, image, framework, kind), found.model_dump_json(indent=1).encode())
        own = f", {framework} {best(found.framework.matmul_flops) / 1e9:.0f}" if found.framework else ""
        print(f"ceil {image}: matrix product NumPy {best(found.numpy.matmul_flops) / 1e9:.0f}{own} GFLOP/s, "
              f"copy {best(found.numpy.copy_bytes) / 1e9:.1f} GB/s", file=sys.stderr)  # fmt: skip


def assess(folders: Sequence[Path], references: Sequence[Reference], margin: float | None = None) -> Verification:
    """Hold every cell of some stored runs against the references. Raises StoreError."""
    findings = tuple(_finding(one, references, margin) for one in read_runs(folders))
    return Verification(tuple(sorted(findings, key=lambda each: (each.facts.name, each.facts.image, each.device_uuid))))


def with_fleets(found: Verification) -> Verification:
    """The same, with each cell's devices of one model compared among themselves."""
    groups: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for finding in found.findings:
        if finding.measured and finding.device_uuid and finding.kind not in ("wrong", "failed"):
            place = (finding.facts.name, finding.facts.image, finding.facts.preset, finding.facts.device_model)
            groups.setdefault(place, {})[finding.device_uuid] = finding.measured.value
    fleets = [FleetFinding(place[0], place[3], compare(times)) for place, times in sorted(groups.items())]
    return replace(found, fleets=tuple(fleets))


def _finding(one: Measured, references: Iterable[Reference], margin: float | None) -> Finding:
    cell, facts = one.cell, one.facts
    choice = choose(facts, references)
    margin = MARGINS.get(facts.device_kind, max(MARGINS.values())) if margin is None else margin
    uuids = cell.row.get("device_uuids")
    kind, reason, found = _verdict(one, choice, margin)
    there = median_estimate(choice.cell.repeats) if found and choice.cell else None
    return Finding(
        run_id=cell.run_id,
        cell_id=cell.cell_id,
        facts=facts,
        device_uuid=str(uuids[0]) if uuids is not None and len(uuids) else "",
        kind=kind,
        reason=reason,
        measured=cell.step,
        reference=choice.reference.name if choice.reference and found else None,
        reference_seconds=there.value if there else None,
        ratio=found,
        margin=margin,
        parity_passed=cell.parity_passed,
        differences=choice.excuses + choice.conditions if found else (),
        nearest=choice.nearest,
        expectation=expect(facts.workload, facts.device_kind, one.ceilings) if kind == "no-reference" else None,
        causes=() if kind in PASS or kind == "wrong" else tuple(causes(_case(one, choice))),
    )


def _verdict(one: Measured, choice: Choice, margin: float) -> tuple[Kind, str, Ratio | None]:
    """The verdict, the sentence for it, and the ratio where there is one."""
    cell = one.cell
    if cell.parity_passed is False:
        return "wrong", cell.reason or "it computes something else than the specification", None
    if cell.status == "failed":
        return "failed", cell.reason, None
    if cell.parity_passed is None:
        return (
            "unsure",
            cell.reason or "parity was not checked, so nothing shows that it computes the same network",
            None,
        )
    if not one.repeats:
        return (
            "unsure",
            f"no repeat has {FEWEST_WINDOWS} windows: too slow, or too busy a machine, for this preset",
            None,
        )
    if choice.cell is None:
        return "no-reference", choice.why, None
    found = ratio(one.repeats, list(map(np.array, choice.cell.repeats)), one.facts.device_kind)
    bare = judge(found, margin)
    kind = excused(bare, bool(choice.excuses))
    says = {
        "ok": f"equal to the reference within {per_cent(margin)}",
        "not-slower": f"not slower than the reference by more than {per_cent(margin)}, and maybe faster by more",
        "slow": f"slower than the reference by more than {per_cent(margin)}",
        "fast": f"faster than the reference by more than {per_cent(margin)}",
        "unsure": f"the interval reaches across the margin of {per_cent(margin)}: {_what_would_tell(found, margin)}",
    }[bare]
    if kind == "not-comparable":
        says += "; but what differs may be why: " + "; ".join(map(str, choice.excuses))
    elif choice.excuses:
        says += "; though " + "; ".join(map(str, choice.excuses))
    return kind, says, found


def _what_would_tell(found: Ratio, margin: float) -> str:
    """What to do about an unsure ratio."""
    if more := repeats_to_tell(found, margin):
        return f"--repeats {more} would tell, if they scatter as these {found.measured_repeats}"
    repeats = "repeat" if found.reference_repeats == 1 else "repeats"
    return (
        f"one run differs from another by {per_cent(found.between)}, so more repeats here would not tell beside a reference of "
        f"{found.reference_repeats} {repeats}; a quieter machine, a reference of more repeats or a wider --margin would"
    )


def _case(one: Measured, choice: Choice) -> Case:
    cell, other = one.cell, choice.cell
    first = next((repeat.row for repeat in cell.repeats if repeat.status != "ok"), cell.row)
    return Case(
        facts=one.facts,
        ceilings=one.ceilings,
        reference=other.facts if other else None,
        reference_ceilings=other.ceilings if other else None,
        telemetry=one.telemetry,
        reference_telemetry=other.telemetry if other else None,
        machine_gpus=one.machine_gpus,
        failure=cell.reason if cell.status == "failed" else "",
        error_kind=str(first.get("error_kind") or ""),
        first_step_seconds=cell.first_step_seconds,
        shift_ratio=max((shift.ratio for _, shift in cell.shifts), default=None),
    )


def as_json(found: Verification) -> dict[str, object]:
    """The whole for a script. Ratios and times are plain numbers; the exit code is in it."""
    return {
        "exit_code": found.exit_code,
        "findings": [_plain(finding) for finding in found.findings],
        "fleets": [asdict(one) for one in found.fleets],
    }


def _plain(finding: Finding) -> dict[str, object]:
    fixed = {name: getattr(finding, name) for name in Finding.__dataclass_fields__}
    whole = {
        name: asdict(value) if hasattr(value, "__dataclass_fields__") else value
        for name, value in fixed.items()
        if name not in ("facts", "differences", "causes")
    }
    return whole | {
        "facts": finding.facts.model_dump(),
        "differences": [asdict(each) for each in finding.differences],
        "causes": [asdict(each) for each in finding.causes],
    }
