"""The command `runner verify`: measure this machine's cells, judge each beside a reference, and say why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from reports.text import plural
from runner.machine import lease
from runner.paths import cache_folder
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
from runner.verify.outliers import Fleet, fleet_of
from runner.verify.references.facts import DifferentFact, Facts
from runner.verify.references.measured import Measured, ceilings_path, read_runs
from runner.verify.references.rules import ChosenReference, reference_for
from runner.verify.references.saved import FEWEST_WINDOWS, Reference
from runner.verify.step_model import ModelledStep, modelled_step
from runner.verify.verdict import (
    MARGINS,
    PASS,
    CellVerdict,
    Ratio,
    excused,
    exit_code,
    ratio_to_reference,
    repeats_to_tell,
    verdict_of,
)

# The default: two networks that every framework has, in three minutes for one framework.
WORKLOADS = ("cnn-cifar10", "gru-imdb")


@dataclass(frozen=True)
class CellFinding:
    """One cell: what was measured, its reference, and the verdict."""

    run_id: str
    cell_id: str
    facts: Facts
    device_uuid: str  # empty for a CPU
    kind: CellVerdict
    reason: str  # a sentence
    measured: Estimate | None  # seconds a step
    reference: str | None  # its name
    reference_seconds: float | None
    ratio: Ratio | None
    margin: float
    parity_passed: bool | None
    differences: tuple[DifferentFact, ...] = ()
    nearest: str | None = None
    expectation: ModelledStep | None = None
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True)
class FleetFinding:
    """One cell on many devices of one model."""

    name: str
    device_model: str
    fleet: Fleet


@dataclass(frozen=True)
class Verification:
    """Every cell and every fleet, judged."""

    findings: tuple[CellFinding, ...]
    fleets: tuple[FleetFinding, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 undecided. A device that is slower than the others of its model fails, whatever its reference."""
        if any(finding.fleet.slow for finding in self.fleets):
            return 1
        decided = any(not finding.fleet.why_not for finding in self.fleets)
        return exit_code(["ok" if decided and _without_reference(cell) else cell.kind for cell in self.findings])


def _without_reference(finding: CellFinding) -> bool:
    """Whether a GPU's cell has no reference that decides, so that only its fleet can."""
    return bool(finding.device_uuid) and finding.kind in ("no-reference", "not-comparable", "unsure")


# The folder of a run -> the report that was written of it.
WriteReport = Callable[[Path], Path]

# The folder of a run -> how many repeats each unsure cell needs, by the cell's id.
Further = Callable[[Path], Mapping[str, int]]


def measure_here(
    options: Options,
    argv: Sequence[str],
    write_report: WriteReport,
    each_gpu: bool = False,
    further: Further = lambda _: {},
) -> list[Path]:
    """Measure the ceilings and the cells of this machine; the folders of the runs. Raises UserError.

    `further` is called once, after the first repeats. With `each_gpu` it is not: the GPUs are compared with one another, and more or
    later repeats of one GPU would look like a difference between them.
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
            raise UsageError(f"{run.folder} was interrupted, so no GPU was compared; the other GPUs were not measured")
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


def _go_on(prospect: Prospect, run: RunStore, needed: Mapping[str, int], write_report: WriteReport) -> None:
    """Repeat cells of a run until each has the repeats that it needs, in blocks of all that need more."""
    if not needed:
        return
    run.write_manifest(run.manifest() | {"extended": dict(needed)})
    for repeats in sorted(set(needed.values())):
        cells = tuple(cell for cell in prospect.plan.cells if needed.get(cell.id, 0) >= repeats)
        say(f"not sure yet: {len(cells)} cell{'s' if len(cells) > 1 else ''}, going on to {repeats} repeats")
        plan = replace(prospect.plan, cells=cells)
        options = prospect.options.model_copy(update={"repeats": repeats})
        more = replace(prospect, plan=plan, options=options)
        execute(more, run, write_report)
        if more.jobs_left(run):
            return  # the repeats that ended are judged


def repeats_wanted(verification: Verification, most: int) -> dict[str, int]:
    """How many repeats would decide each unsure cell, by the cell's id; a cell that needs more than `most` is left out.

    The second look raises each test's 5 % to 7 % for a ratio at the margin itself. (Simulated: repeats that differ as the prior says, a
    reference of eight repeats.)
    """
    needed = {
        finding.cell_id: repeats_to_tell(finding.ratio, finding.margin)
        for finding in verification.findings
        if finding.kind == "unsure" and finding.ratio
    }
    return {cell: repeats for cell, repeats in needed.items() if repeats and repeats <= most}


def _measure_ceilings(prospect: Prospect, run: RunStore) -> None:
    """Run the probe once for each environment, before its cells, on a part of the machine as a cell gets it."""
    cells = {(cell.image, cell.framework, cell.device_kind): cell for cell in prospect.plan.cells}
    cache = cache_folder() / "data"
    cache.mkdir(parents=True, exist_ok=True)
    for (image, framework, kind), cell in cells.items():
        slot = slot_of(prospect.machine, places(prospect.machine, kind)[:1])
        prepared = prospect.engine.prepare(prospect.images[image], lambda line: print(f"     {line}", file=sys.stderr))
        try:
            rates = measure(prospect.engine, prepared, framework, cell.precision, slot, run.run_id, cache)
        except CeilingsError as error:
            print(f"     {image}: its ceilings are not known: {error}", file=sys.stderr)
            continue
        write_bytes(ceilings_path(run.folder, image, framework, kind), rates.model_dump_json(indent=1).encode())
        own = f", {framework} {best(rates.framework.matmul_flops) / 1e9:.0f}" if rates.framework else ""
        print(f"ceil {image}: matrix product NumPy {best(rates.numpy.matmul_flops) / 1e9:.0f}{own} GFLOP/s, "
              f"copy {best(rates.numpy.copy_bytes) / 1e9:.1f} GB/s", file=sys.stderr)  # fmt: skip


def assess(folders: Sequence[Path], references: Sequence[Reference], margin: float | None = None) -> Verification:
    """Judge every cell of some stored runs beside the references. Raises StoreError."""
    findings = [_finding(measured, references, margin) for measured in read_runs(folders)]
    findings.sort(key=lambda finding: (finding.facts.name, finding.facts.image, finding.device_uuid))
    return Verification(tuple(findings))


def with_fleets(verification: Verification) -> Verification:
    """The same, with each cell's devices of one model compared with one another."""
    groups: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for finding in verification.findings:
        if finding.measured and finding.device_uuid and finding.kind not in ("wrong", "failed"):
            facts = finding.facts
            group = groups.setdefault((facts.name, facts.image, facts.preset, facts.device_model), {})
            group[finding.device_uuid] = finding.measured.value
    fleets = [FleetFinding(name, model, fleet_of(times)) for (name, _, _, model), times in sorted(groups.items())]
    return replace(verification, fleets=tuple(fleets))


def _finding(measured: Measured, references: Iterable[Reference], margin: float | None) -> CellFinding:
    cell, facts = measured.cell, measured.facts
    chosen = reference_for(facts, references)
    margin = MARGINS.get(facts.device_kind, max(MARGINS.values())) if margin is None else margin
    uuids = cell.row.get("device_uuids")
    verdict, reason, ratio = _verdict(measured, chosen, margin)
    reference_step = median_estimate(chosen.cell.repeats) if ratio and chosen.cell else None
    no_reference = verdict == "no-reference"
    return CellFinding(
        run_id=cell.run_id,
        cell_id=cell.cell_id,
        facts=facts,
        device_uuid=str(uuids[0]) if uuids is not None and len(uuids) else "",
        kind=verdict,
        reason=reason,
        measured=cell.step,
        reference=chosen.reference.name if chosen.reference and ratio else None,
        reference_seconds=reference_step.value if reference_step else None,
        ratio=ratio,
        margin=margin,
        parity_passed=cell.parity_passed,
        differences=chosen.excuses + chosen.conditions if ratio else (),
        nearest=chosen.nearest,
        expectation=modelled_step(facts.workload, facts.device_kind, measured.ceilings) if no_reference else None,
        causes=() if verdict in PASS or verdict == "wrong" else tuple(causes(_case(measured, chosen))),
    )


def _verdict(measured: Measured, chosen: ChosenReference, margin: float) -> tuple[CellVerdict, str, Ratio | None]:
    """The verdict, the sentence for it, and the ratio where there is one."""
    cell = measured.cell
    if cell.parity_passed is False:
        return "wrong", cell.reason or "it computes something else than the specification", None
    if cell.status == "failed":
        return "failed", cell.reason, None
    if cell.parity_passed is None:
        return "unsure", cell.reason or "parity was not checked, so the cell may compute another network", None
    if not measured.repeats:
        why = (
            f"no repeat has {FEWEST_WINDOWS} windows: the cell is too slow for this preset, or the machine is too busy"
        )
        return "unsure", why, None
    if chosen.cell is None:
        return "no-reference", chosen.why, None
    references = [np.array(repeat) for repeat in chosen.cell.repeats]
    ratio = ratio_to_reference(measured.repeats, references, measured.facts.device_kind)
    verdict = verdict_of(ratio, margin)
    reason = _reason(verdict, ratio, margin)
    judged = excused(verdict, bool(chosen.excuses))
    if chosen.excuses:
        link = "; but the reason may be a difference: " if judged == "not-comparable" else "; though these differ: "
        reason += link + "; ".join(map(str, chosen.excuses))
    return judged, reason, ratio


def _reason(verdict: CellVerdict, ratio: Ratio, margin: float) -> str:
    """What the verdict of a ratio says, as a clause."""
    share = per_cent(margin)
    if verdict == "ok":
        return f"equal to the reference within {share}"
    if verdict == "not-slower":
        return f"not slower than the reference by more than {share}, and maybe faster by more"
    if verdict == "unsure":
        return f"the interval reaches across the margin of {share}: {_what_would_tell(ratio, margin)}"
    return f"{'slower' if verdict == 'slow' else 'faster'} than the reference by more than {share}"


def _what_would_tell(ratio: Ratio, margin: float) -> str:
    """The advice for an unsure ratio."""
    if repeats := repeats_to_tell(ratio, margin):
        return f"--repeats {repeats} would tell, if they scatter as these {ratio.measured_repeats}"
    return (
        f"one run differs from another by {per_cent(ratio.between)}, so more repeats here would not tell beside a reference of "
        f"{plural(ratio.reference_repeats, 'repeat')}; a quieter machine, a reference of more repeats or a wider --margin would"
    )


def _case(measured: Measured, chosen: ChosenReference) -> Case:
    cell, reference = measured.cell, chosen.cell
    row = next((repeat.row for repeat in cell.repeats if repeat.status != "ok"), cell.row)
    return Case(
        facts=measured.facts,
        ceilings=measured.ceilings,
        reference=reference.facts if reference else None,
        reference_ceilings=reference.ceilings if reference else None,
        telemetry=measured.telemetry,
        reference_telemetry=reference.telemetry if reference else None,
        machine_gpus=measured.machine_gpus,
        failure=cell.reason if cell.status == "failed" else "",
        error_kind=str(row.get("error_kind") or ""),
        first_step_seconds=cell.first_step_seconds,
        shift_ratio=max((shift.ratio for _, shift in cell.shifts), default=None),
    )


def as_json(verification: Verification) -> dict[str, object]:
    """The whole for a script, with its exit code. Ratios and times are plain numbers."""
    findings = [asdict(finding) | {"facts": finding.facts.model_dump()} for finding in verification.findings]
    fleets = [asdict(finding) for finding in verification.fleets]
    return {"exit_code": verification.exit_code, "findings": findings, "fleets": fleets}
