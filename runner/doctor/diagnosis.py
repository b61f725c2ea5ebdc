"""The checks of `runner doctor`. Each says what it saw, what that means, and how to fix it: for people, as JSON, and as metrics for
node_exporter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import TypedDict

from runner.doctor.container_engine import (
    base_image,
    cdi,
    cells,
    cgroups,
    container,
    engine,
    hook,
    pip_index,
    runtime,
    toolkit,
)
from runner.doctor.gpu_checks import apptainer as apptainers_driver
from runner.doctor.gpu_checks import clock, cpus, cuda, driver, gpus, mig, mps, processes
from runner.doctor.other_engines import apptainer, podman
from runner.doctor.preflight import exit_code
from runner.doctor.scene import FAIL, WARN, Check, Scene, folders, gather
from runner.errors import ExitCode, one_code
from runner.terminal import folded
from runner.text import print_document, visible
from runner.verify.verification import CellFinding, Verification

# A verification for Prometheus: the text that node_exporter's textfile collector reads from a file of the name *.prom.
#
# A label's value comes out of cells and may hold any character, so it is made visible and escaped. A run's id is no label: each run would
# be a series of its own. Of several runs the last cell of a name counts.

_PREFIX = "dlbench_verify_"
# In characters, of a label's value.
_LONGEST = 200


@dataclass(frozen=True)
class _Gauge:
    """A metric: its name after the prefix, its help, and the values by their labels."""

    name: str
    help: str
    values: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)

    def put(self, labels: Mapping[str, str], value: float) -> None:
        shown = ((name, visible(text, _LONGEST)) for name, text in labels.items())
        self.values[tuple(shown)] = value

    def lines(self) -> Iterator[str]:
        if self.values:
            yield f"# HELP {_PREFIX}{self.name} {self.help}"
            yield f"# TYPE {_PREFIX}{self.name} gauge"
        for labels, value in self.values.items():
            words = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            yield f"{_PREFIX}{self.name}{{{words}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def textfile_of_checks(checks: Sequence[Check], level: int) -> bytes:
    """The checks of level 1 or 2."""
    states = _Gauge("check", "1 for the status that a check of the machine has.")
    for check in checks:
        states.put({"level": str(level), "check": check.name, "status": check.status}, 1)
    return _text([*_ended(level, exit_code(checks)), states])


def textfile_of_no_begin(level: int) -> bytes:
    """A level that could not begin: nothing was measured."""
    return _text(_ended(level, ExitCode.CANNOT_BEGIN))


def textfile_of_verification(verification: Verification) -> bytes:
    """The cells of level 3, and the devices that are slower than others of their model."""
    verdicts = _Gauge("cell", "1 for the verdict that a cell has beside its reference.")
    steps = _Gauge("step_seconds", "Measured time of a step.")
    ratios = _Gauge("step_ratio", "Step time over that of the reference; above 1 is slower.")
    slow = _Gauge("slow_devices", "Devices or nodes that stand out as slow among those of their model.")
    for finding in verification.findings:
        labels = _labels(finding)
        verdicts.put(labels | {"verdict": finding.kind}, 1)
        if finding.measured:
            steps.put(labels, finding.measured.value)
        if finding.ratio:
            ratios.put(labels, finding.ratio.value)
    for group in verification.fleets:
        slow.put({"of": group.of, "device_model": group.device_model, "comparison": group.name}, len(group.fleet.slow))
    return _text([*_ended(3, verification.exit_code), verdicts, steps, ratios, slow])


def _ended(level: int, code: int) -> tuple[_Gauge, _Gauge]:
    """The result and its time, by which a rule sees that the verification did not run again."""
    result = _Gauge("exit_code", "Result of the verification: 0 pass, 1 fail, 3 open, 4 it could not begin.")
    when = _Gauge("timestamp_seconds", "Unix time at which the verification ended.")
    result.put({"level": str(level)}, int(code))
    when.put({"level": str(level)}, round(time.time(), 3))
    return result, when


def _labels(finding: CellFinding) -> dict[str, str]:
    facts = finding.facts
    return {
        **{
            name: str(getattr(facts, name))
            for name in ("image", "framework", "mode", "workload", "precision", "preset", "batch", "devices", "scaling")
        },
        "device_model": facts.device_model,
        "device": finding.device_uuid,
        "cell": finding.cell_id,
    }


def _text(gauges: Sequence[_Gauge]) -> bytes:
    return "".join(f"{line}\n" for gauge in gauges for line in gauge.lines()).encode()


CHECKS: tuple[Callable[[Scene], Iterator[Check]], ...] = (
    driver, gpus, cuda, mig, mps, apptainers_driver,
    engine, podman, apptainer, cells, toolkit, hook, runtime, cdi, cgroups, container, clock, cpus, processes, folders, base_image,
    pip_index,
)  # fmt: skip


class DoctorDocument(TypedDict):
    """All checks, and the names of those that failed."""

    checks: list[Check]
    failed: list[str]


def run(as_json: bool, base_image: str | None, image: str | None, out: Path) -> int:
    """Make and print all checks. Returns 0 when nothing failed, 1 when something failed."""
    with gather(base_image, image, out) as scene:
        checks = [check for make_checks in CHECKS for check in make_checks(scene)]
    if as_json:
        document: DoctorDocument = {"checks": checks, "failed": failed(checks)}
        print_document(document)
    else:
        print_checks(checks)
        bad = failed(checks)
        print(f"\n{len(bad)} failed: {', '.join(bad)}" if bad else "\nnothing failed")
    return one_code(bool(failed(checks)), is_open=False)


def failed(checks: Sequence[Check]) -> list[str]:
    return [check.name for check in checks if check.status == FAIL]


def print_checks(checks: Sequence[Check]) -> None:
    for check in checks:
        print(folded(f"{check.status:8} {check.name}: {check.saw}", hang=9))
        if check.status in (WARN, FAIL):
            for word, sentence in (("means", check.means), ("fix", check.fix)):
                if sentence:
                    print(folded(f"{'':9}{word}: {sentence}"))
