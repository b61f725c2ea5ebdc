"""A verification for a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from typing_extensions import TypedDict

from runner.results.statistics import Estimate
from runner.verify.causes import Cause
from runner.verify.outliers import Deviation, DeviceFleet, Spot
from runner.verify.output import next_step
from runner.verify.pinned.measured_beside import PinnedBeside
from runner.verify.references.among import AmongMachines
from runner.verify.references.facts import DifferentFact, Facts
from runner.verify.step_model import ModelledStep
from runner.verify.verdict import LEVEL, CellVerdict, Ratio
from runner.verify.verification import CellFinding, Verification


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
