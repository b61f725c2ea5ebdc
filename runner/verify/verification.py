"""The verdicts of `runner verify`: each stored cell beside a reference, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from reports.wording import apart, times
from runner.errors import ExitCode
from runner.results.cells import MISSING, StoredCell, foreign_processes, middle, not_yet_run, run_word
from runner.results.rank.blocks import Scatter
from runner.results.statistics import Array, Estimate, log_levels, of_kind
from runner.results.steadiness import level_shift, slowdown
from runner.results.store import RunStore
from runner.text import number
from runner.verify.causes import Case, Cause, causes, per_cent
from runner.verify.outliers import FleetFinding
from runner.verify.pinned import PinnedBeside, explained_up_to, is_installation, pinned_beside, ratios, without_pinned
from runner.verify.probes.ceilings import is_machine_busy
from runner.verify.references.comparability import AmongMachines, ChosenReference, among_machines, reference_for
from runner.verify.references.facts import DifferentFact, Facts
from runner.verify.references.measured import Measured, read_runs
from runner.verify.references.published import ModelledStep, modelled_step
from runner.verify.references.saved import FEWEST_WINDOWS, Reference
from runner.verify.verdict import (
    FEWEST_TOGETHER,
    MARGINS,
    PASS,
    CellVerdict,
    Ratio,
    Sides,
    VariancePart,
    excused,
    exit_code,
    meaning,
    questions_of,
    ratios_to_references,
    reach_of,
    repeats_to_tell,
    sessions_to_tell,
    verdict_from,
    verdict_of,
)

# All cells of a run beside their references, as a test of its own: one factor that is common to them. Pure.
#
# Each cell's log ratio counts by its precision: the inverse of the variance that its repeats leave. Cells may differ by more than that,
# since a fault need not slow all cells alike. Then the variance between cells counts as well (DerSimonian and Laird, Control. Clin.
# Trials 7, 1986). A session moves all cells of a run alike, so its scatter is not divided by their number.


@dataclass(frozen=True)
class Together:
    """The cells that one run measured on one kind of device, judged as one."""

    run_id: str
    device_kind: str
    cells: int
    ratio: float
    low: float  # of the 90 % interval
    high: float
    margin: float
    verdict: CellVerdict

    @property
    def name(self) -> str:
        """The name of its row."""
        return f"all {self.cells} cells together"

    @property
    def reason(self) -> str:
        """The result as a sentence, with the shift, its interval and what they mean beside the margin."""
        ends = f"ratio, 90 % interval: {self.low:.3f} to {self.high:.3f}"
        said = f"a step of the {self.cells} cells of {self.run_id} together {apart(self.ratio)} as in their references ({ends})"
        means = meaning(self.verdict, self.ratio, (self.low, self.high), self.margin)
        if self.low > 1 and self.verdict != "slow":
            means += "; equal is ruled out: they did become slower"
        elif self.high < 1 and self.verdict != "fast":
            means += "; equal is ruled out: they did become faster"
        return f"{said}: {means}"

    @property
    def passes(self) -> bool:
        return self.verdict in PASS


def together(run_id: str, device_kind: str, ratios: Sequence[Ratio], margin: float, questions: int) -> Together | None:
    """The whole of some cells, of which every ratio is sound and is one of so many `questions`; None of fewer than FEWEST_TOGETHER."""
    if len(ratios) < FEWEST_TOGETHER:
        return None
    logs = np.log([ratio.value for ratio in ratios])
    own = np.array([ratio.of_repeats.variance for ratio in ratios])
    weights = 1 / own
    middle = float(np.average(logs, weights=weights))
    squares = float(np.sum(weights * (logs - middle) ** 2))
    scale = float(np.sum(weights) - np.sum(weights**2) / np.sum(weights))
    own += max(0.0, (squares - (len(ratios) - 1)) / scale)
    shares = (1 / own) / np.sum(1 / own)
    log = float(np.sum(shares * logs))
    of_cells = shares**2 * own
    freedom = float(np.sum(of_cells) ** 2 / np.sum(of_cells**2 / [ratio.of_repeats.freedom for ratio in ratios]))
    of_sessions = VariancePart(
        float(np.sum(shares * [ratio.of_sessions.variance for ratio in ratios])),
        float(np.sum(shares * [ratio.of_sessions.freedom for ratio in ratios])),
    )
    parts = (VariancePart(float(np.sum(of_cells)), freedom), of_sessions)
    ends = [math.exp(log + sign * reach_of(parts)) for sign in (-1, 1)]
    verdict = verdict_from(log, parts, margin, questions)
    return Together(run_id, device_kind, len(ratios), math.exp(log), ends[0], ends[1], margin, verdict)


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
    # True if the installation alone explains the ratio: no choice differs from the reference's, and nothing disturbed the cell.
    sound: bool = False
    proved: tuple[str, ...] = ()  # the quantities that were checked on the adapter that was measured
    differences: tuple[DifferentFact, ...] = ()
    nearest: str | None = None
    expectation: ModelledStep | None = None
    causes: tuple[Cause, ...] = ()
    kernel_share: float | None = None  # of a step's time, in which kernels ran on the GPU
    # Each repeat's median, seconds a step, by the repeat's number.
    repeat_seconds: Mapping[int, float] = field(default_factory=dict)
    repeat_length: float | None = None  # seconds of a repeat's steady windows together
    celsius: float | None = None  # the highest temperature that a GPU reached in any repeat, where telemetry has it
    among: AmongMachines | None = None  # its place among the machines of an index of references
    beside: PinnedBeside | None = None  # the pinned image that was measured in the same run


@dataclass(frozen=True)
class Verification:
    """Every cell and every fleet, judged."""

    findings: tuple[CellFinding, ...]
    fleets: tuple[FleetFinding, ...] = ()
    # Of each run with cells that have no repeat: how many, and how to go on. They are not judged.
    waiting: tuple[str, ...] = ()
    # Run's id -> how a command names it.
    names: Mapping[str, str] = field(default_factory=dict)
    # The cause that cut the measurement short: the machine (CANNOT_BEGIN) or the user (INTERRUPTED).
    cut_by: ExitCode = ExitCode.OK

    @property
    def wholes(self) -> tuple[Together, ...]:
        """All cells of each run and kind of device as one, where two or more have a sound ratio."""
        groups: dict[tuple[str, str], list[CellFinding]] = {}
        for finding in self.findings:
            if finding.sound:
                groups.setdefault((finding.run_id, finding.facts.device_kind), []).append(finding)
        questions = questions_of((one.run_id, one.facts.device_kind) for one in self.findings)
        found = (
            together(
                run_id, kind, [one.ratio for one in cells if one.ratio], max(one.margin for one in cells), questions
            )
            for (run_id, kind), cells in groups.items()
        )
        return tuple(filter(None, found))

    @property
    def settled(self) -> frozenset[tuple[str, str]]:
        """The open cells that pass with the others, as (run id, cell id): the whole passes, and their own ratio is within the margin."""
        passed = {(whole.run_id, whole.device_kind) for whole in self.wholes if whole.passes}
        return frozenset(
            (one.run_id, one.cell_id)
            for one in self.findings
            if one.kind == "open" and one.sound and one.ratio and one.ratio.value < 1 + one.margin
            if (one.run_id, one.facts.device_kind) in passed
        )

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 open: so is a run with cells that are not yet run. 4 or 130: it is open since it was cut short.

        A device that is slower than the others of its model fails, whatever its reference. So do all cells together.

        A cell without a reference that decides passes where its own fleet was judged. A fleet that was not judged is open.
        """
        if any(finding.fleet.slow for finding in self.fleets):
            return ExitCode.FOUND
        passed = {cell for finding in self.fleets if not finding.fleet.why_not for cell in finding.cells}
        passed = {(one.run_id, one.cell_id) for one in self.findings if _without_reference(one)} & passed
        passed |= self.settled
        verdicts: list[CellVerdict] = [
            "ok" if (cell.run_id, cell.cell_id) in passed else cell.kind for cell in self.findings
        ]
        verdicts += ["open"] * len(self.waiting)
        verdicts += [whole.verdict for whole in self.wholes]
        verdicts += ["ok" if not finding.fleet.why_not else "open" for finding in self.fleets]
        code = exit_code(verdicts)
        return self.cut_by if self.cut_by and code == ExitCode.OPEN else code


def _without_reference(finding: CellFinding) -> bool:
    """True if a cell computes the specification and has no reference that decides, so that only its fleet can."""
    return finding.parity_passed is True and finding.kind in ("no-reference", "not-comparable", "open")


def assess(folders: Sequence[Path], references: Sequence[Reference], margin: float | None = None) -> Verification:
    """Judge every cell of some stored runs beside the references. Raises StoreError."""
    cells = read_runs(folders)
    against, pinned = _against(folders, cells, margin)
    runs = {run_id for run_id, _ in against}
    cells = [one for one in cells if one.cell.run_id not in runs or is_installation(one)]
    begun = [measured for measured in cells if measured.cell.status != MISSING]
    chosen = [_chosen(measured, references) for measured in begun]
    questions = questions_of((measured.cell.run_id, measured.facts.device_kind) for measured in begun)
    findings = [
        _finding(*of_cell, margin, questions) for of_cell in zip(begun, chosen, _ratios(begun, chosen), strict=True)
    ]
    findings = [
        _held_against(
            finding, against[finding.run_id, finding.cell_id], measured, pinned.get((finding.run_id, finding.cell_id))
        )
        if (finding.run_id, finding.cell_id) in against
        else finding
        for finding, measured in zip(findings, begun, strict=True)
    ]
    findings.sort(key=lambda finding: (finding.facts.name, finding.facts.image, finding.device_uuid))
    names = {RunStore(folder).run_id: run_word(folder) for folder in folders}
    return Verification(tuple(findings), waiting=not_yet_run(measured.cell for measured in cells), names=names)


# A cell of a run: the run's id and its own.
_Place = tuple[str, str]


def _against(
    folders: Sequence[Path], cells: Sequence[Measured], margin: float | None
) -> tuple[dict[_Place, PinnedBeside], dict[_Place, Measured]]:
    """Each installation's cell beside the pinned image of its run, and the pinned image's cell; without one: why."""
    found: dict[_Place, PinnedBeside] = {}
    pinned: dict[_Place, Measured] = {}
    for folder in folders:
        manifest = RunStore(folder).manifest()
        run_id = str(manifest["run_id"])
        own = [one for one in cells if one.cell.run_id == run_id]
        if not (why := without_pinned(manifest)):
            continue
        pairs = pinned_beside(own)
        pinned |= {(run_id, cell_id): one for cell_id, one in pairs.items()}
        installed = [one for one in own if is_installation(one) and one.cell.status != MISSING]
        lacking = [one for one in installed if one.cell.cell_id not in pairs]
        found |= {(run_id, one.cell.cell_id): PinnedBeside("", "", reason=why) for one in lacking}
        found |= {(run_id, cell_id): one for cell_id, one in ratios(folder, pairs, installed, margin).items()}
    return found, pinned


def _held_against(
    finding: CellFinding, beside: PinnedBeside, measured: Measured, pinned: Measured | None
) -> CellFinding:
    """A finding with what the pinned image beside it says: that decides where no reference does, and no reference clears it."""
    finding = replace(finding, beside=beside)
    if finding.kind in ("wrong", "failed", "slow") or finding.parity_passed is None:
        return finding
    if beside.ratio is None:
        return finding if finding.kind in PASS else replace(finding, reason=f"{finding.reason}; {beside.reason}")
    kind, reason = finding.kind, beside.reason
    if kind not in PASS or beside.verdict == "slow":
        kind = beside.verdict
    if finding.ratio is not None:
        reason = f"{reason}; beside its reference: {finding.reason}"
    if _busy(measured):
        reason = f"{reason}; other work kept the CPUs busy beside both, which may hide what more threads would do"
    case = _case(measured, ChosenReference())
    found = () if kind in PASS else causes(replace(case, **_of_pinned(pinned)) if pinned else case)
    return replace(finding, kind=kind, reason=reason, expectation=None, nearest=None, causes=tuple(found))


def _of_pinned(pinned: Measured) -> dict[str, Any]:
    """The pinned image's part of a case."""
    return {
        "reference": pinned.facts,
        "reference_ceilings": pinned.ceilings,
        "reference_telemetry": pinned.telemetry,
    }


def _chosen(measured: Measured, references: Sequence[Reference]) -> ChosenReference:
    # A reference of this very run says nothing about it. It is chosen where no other fits.
    others = [reference for reference in references if set(reference.run_ids) != {measured.cell.run_id}]
    chosen = reference_for(measured.facts, others)
    return chosen if chosen.cell else reference_for(measured.facts, references)


def _ratios(begun: Sequence[Measured], chosen: Sequence[ChosenReference]) -> list[Ratio | None]:
    """The ratio of each cell to its reference; None where there is none.

    A cell that is too noisy says nothing of how the others scatter.
    """
    ratios: list[Ratio | None] = [None] * len(begun)
    alike: dict[tuple[str, bool], list[int]] = {}
    sides: dict[int, Sides] = {}
    for at, (measured, reference) in enumerate(zip(begun, chosen, strict=True)):
        cell = measured.cell
        sessions, _ = _other_sessions(reference, cell.run_id)
        if cell.parity_passed and cell.status != "failed" and measured.repeats and sessions:
            sides[at] = [measured.repeats], sessions
            alike.setdefault((measured.facts.device_kind, cell.too_noisy), []).append(at)
    for (kind, _), indices in alike.items():
        for at, ratio in zip(indices, ratios_to_references([sides[at] for at in indices], kind), strict=True):
            ratios[at] = ratio
    return ratios


def _finding(
    measured: Measured, chosen: ChosenReference, ratio: Ratio | None, margin: float | None, questions: int
) -> CellFinding:
    cell, facts = measured.cell, measured.facts
    margin = of_kind(MARGINS, facts.device_kind) if margin is None else margin
    uuids = cell.row.get("device_uuids")
    verdict, reason = _verdict(measured, chosen, ratio, margin, questions)
    no_reference = verdict == "no-reference"
    # A cell of which no ratio is known yet has a reference all the same, and a reader can look at both.
    beside = ratio.reference_seconds if ratio else _seconds(chosen, cell.run_id) if verdict == "open" else None
    return CellFinding(
        run_id=cell.run_id,
        cell_id=cell.cell_id,
        facts=facts,
        device_uuid=str((uuids[0] if uuids is not None and len(uuids) else None) or cell.row.get("device_uuid") or ""),
        kind=verdict,
        reason=reason,
        measured=cell.step,
        reference=chosen.reference.name if chosen.reference and beside else None,
        reference_seconds=beside,
        ratio=ratio,
        margin=margin,
        parity_passed=cell.parity_passed,
        sound=ratio is not None and not chosen.excuses and not cell.too_noisy and not _busy(measured),
        proved=measured.proved,
        differences=chosen.excuses + chosen.conditions if ratio else (),
        nearest=chosen.nearest,
        expectation=modelled_step(facts.workload, facts.device_kind, measured.ceilings) if no_reference else None,
        kernel_share=middle((repeat.row for repeat in cell.repeats), "kernel_share"),
        repeat_seconds=measured.levels,
        repeat_length=_length(cell),
        celsius=max(filter(None, (one.row.get("max_temperature_celsius") for one in cell.repeats)), default=None),
        among=among_machines(facts.device_model, measured.repeats, chosen.cell)
        if measured.repeats and chosen.cell and chosen.reference and chosen.reference.of_machines
        else None,
        causes=() if verdict in PASS or verdict == "wrong" else tuple(causes(_case(measured, chosen))),
    )


def _length(cell: StoredCell) -> float | None:
    """Seconds of the steady windows of the longest repeat; None without any."""
    lengths = [
        sum(
            seconds
            for stage, seconds in zip(one.windows.stage, one.windows.seconds.tolist(), strict=True)
            if stage == "steady"
        )
        for one in cell.repeats
    ]
    return max(lengths, default=0.0) or None


def _verdict(
    measured: Measured, chosen: ChosenReference, ratio: Ratio | None, margin: float, questions: int
) -> tuple[CellVerdict, str]:
    """The verdict, and the sentence for it."""
    cell = measured.cell
    if cell.parity_passed is False:
        return "wrong", cell.reason or "it computes something else than the specification"
    if cell.status == "failed":
        return "failed", cell.reason
    if cell.parity_passed is None:
        return "open", cell.reason or "parity was not checked, so the cell may compute another network"
    if not measured.repeats:
        why = (
            f"too few windows: no repeat has {FEWEST_WINDOWS}; the cell is too slow for this preset, or the machine is too busy; "
            "measure with --preset standard, or on a quiet machine"
        )
        return "open", why
    if chosen.cell is None:
        return "no-reference", chosen.why
    if ratio is None:
        name = chosen.reference.name if chosen.reference else ""
        why = (
            f"this is the run that the reference {name} was made from, so the two agree whatever the machine does: measure once more "
            "with `runner matrix`, and judge that run"
        )
        return "open", why
    verdict = verdict_of(ratio, margin, questions)
    if why := _disturbed(measured, verdict):
        return excused("open", bool(chosen.excuses)), why
    of_machines = chosen.reference is not None and chosen.reference.of_machines
    reason = _reason(verdict, ratio, margin, of_machines) + ("" if verdict == "open" else _assumptions(ratio))
    if verdict == "slow" and cell.stalls and ratio.stalled is not None and ratio.stalled > 1 + margin / 2:
        reason += f"; {cell.stalls}, and the reference's do not: that alone makes it take {times(ratio.stalled)} times as long"
    if _other_sessions(chosen, cell.run_id)[1]:
        reason += "; this run is one that the reference was made from, and is compared with the others of it"
    return _excused(verdict, reason, ratio, measured.facts, chosen.excuses)


def _excused(
    verdict: CellVerdict, reason: str, ratio: Ratio, facts: Facts, excuses: Sequence[DifferentFact]
) -> tuple[CellVerdict, str]:
    """The verdict and its sentence, where these choices differ: they excuse a gap up to what they explain."""
    if not excuses:
        return verdict, reason
    names = "; ".join(map(str, excuses))
    limit = explained_up_to(facts.device_kind, excuses)
    if verdict == "slow" and limit is not None and ratio.low > limit:
        return (
            verdict,
            f"{reason}; these differ, and may explain up to {number(limit, 3)} times, and not this: {names}",
        )
    judged = excused(verdict, differs=True)
    if judged != "not-comparable":
        return judged, f"{reason}; though these differ: {names}"
    advice = "`runner verify --python` measures a pinned image beside it, which decides"
    return judged, f"{reason}; but the reason may be a difference: {names}; {advice}"


def _disturbed(measured: Measured, verdict: CellVerdict) -> str:
    """Why a ratio says nothing of the installation; empty where it may. A cell that the report ranks nowhere is too noisy here as well."""
    remedy = "end what else runs on the machine, then measure again"
    if measured.cell.too_noisy:
        return f"too noisy to be ranked: {remedy}"
    if verdict == "slow" and _busy(measured):
        return f"slower than the reference, but other work kept the CPUs busy: {remedy}"
    return ""


def _busy(measured: Measured) -> bool:
    """True if other work kept the CPUs busy before a CPU cell was measured, or beside it."""
    ceilings = measured.ceilings
    before = measured.facts.device_kind == "cpu" and ceilings is not None and is_machine_busy(ceilings)
    return before or measured.cell.other_work is not None


def _seconds(chosen: ChosenReference, run_id: str) -> float | None:
    """A reference's step time: the geometric mean of its repeats' levels, each session counting alike, and none of this very run."""
    sessions, _ = _other_sessions(chosen, run_id)
    if not sessions:
        return None
    return math.exp(float(np.mean([np.mean(log_levels(session)) for session in sessions])))


def _other_sessions(chosen: ChosenReference, run_id: str) -> tuple[list[list[Array]], bool]:
    """The sessions of a reference's cell but for one of this very run, and whether there was one."""
    reference, cell = chosen.reference, chosen.cell
    sessions = cell.sessions() if cell else {}
    others = [windows for run, windows in sessions.items() if reference is None or reference.run_ids[run] != run_id]
    return others, len(others) < len(sessions)


def margin_text(margin: float) -> str:
    """A margin as the user gave it: 8 %, 6.6 %."""
    return f"{100 * margin:g} %"


def _reason(verdict: CellVerdict, ratio: Ratio, margin: float, of_machines: bool) -> str:
    """The verdict of a ratio, as a clause."""
    said = meaning(verdict, ratio.value, (ratio.low, ratio.high), margin)
    return f"{said}: {_what_would_tell(ratio, margin, of_machines)}" if verdict == "open" else said


def _assumptions(ratio: Ratio) -> str:
    """The assumptions of a verdict, since the data do not show them."""
    parts = []
    if not ratio.between.observed:
        parts.append(f"repeats differ by {per_cent(ratio.between.deviation)} (one on each side does not show it)")
    elif ratio.reference_repeats == 1:
        parts.append("the reference's one repeat is like these")
    if not ratio.between_sessions.observed:
        parts.append(f"sessions differ by {per_cent(ratio.between_sessions.deviation)} (the reference has one)")
    return f", if {' and '.join(parts)}" if parts else ""


def _what_would_tell(ratio: Ratio, margin: float, of_machines: bool) -> str:
    """The advice for an open ratio."""
    if repeats := repeats_to_tell(ratio, margin):
        return (
            f"{repeats} repeats would tell, if they scatter as those so far: the same command with --repeats {repeats}"
        )
    if of_machines:
        return (
            f"one machine of the model differs from another by {_known(ratio.between_sessions)}, which more repeats do not show. A "
            "reference of this very machine would tell: `runner reference save RUN RUN ... --name NAME` while it is well"
        )
    sessions = f"one session differs from another by {_known(ratio.between_sessions)}"
    if count := sessions_to_tell(ratio, margin):
        return (
            f"{sessions}, which more repeats do not show. A reference of {count} sessions would tell: `runner reference save RUN RUN ... "
            f"--name NAME` with runs of several days"
        )
    return (
        f"{sessions}, one repeat by {_known(ratio.between)}, and the ratio lies too near the margin: no number of repeats or sessions "
        "would tell; a quieter machine or a wider --margin would"
    )


def _known(scatter: Scatter) -> str:
    """A scatter, and whether it was measured."""
    share = per_cent(scatter.deviation)
    return f"{share} (measured, and moderated by what is usual)" if scatter.observed else f"{share} (assumed)"


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
        foreign_processes=foreign_processes(repeat.row for repeat in cell.repeats),
        other_work=cell.other_work,
        slowdown=slowdown([repeat.shift for repeat in cell.measured]),
        reference_slowdown=slowdown([level_shift(repeat) for repeat in reference.repeats]) if reference else 1.0,
    )
