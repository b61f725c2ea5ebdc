"""The checks of `runner doctor`. Each says what it saw, what that means, and how to fix it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from typing_extensions import TypedDict

from runner.doctor.builds import base_image, pip_index
from runner.doctor.container_engine import cdi, cells, cgroups, container, engine, hook, runtime, toolkit
from runner.doctor.folders import folders
from runner.doctor.gpu_checks import apptainer as apptainers_driver
from runner.doctor.gpu_checks import cuda, driver, gpus, mig, mps
from runner.doctor.limits import clock, cpus, processes
from runner.doctor.other_engines import apptainer, podman
from runner.doctor.scene import FAIL, WARN, Check, Scene, gather
from runner.errors import one_code
from runner.json_document import print_document
from runner.terminal import folded

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
