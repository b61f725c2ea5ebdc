"""The checks of `runner doctor`. Each says what it saw, what that means, and how to fix it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from runner.doctor.builds import base_image, disk, pip_index
from runner.doctor.container_engine import cdi, cgroups, container, engine, hook, runtime, toolkit
from runner.doctor.gpu_checks import cuda, driver, gpus, mig
from runner.doctor.scene import FAIL, WARN, Check, Scene, gather
from runner.terminal import folded

CHECKS: tuple[Callable[[Scene], Iterator[Check]], ...] = (
    driver, gpus, cuda, mig, engine, toolkit, hook, runtime, cdi, cgroups, container, disk, base_image, pip_index,
)  # fmt: skip


def run(as_json: bool, base_image: str | None, image: str | None) -> int:
    """Make and print all checks. Returns 0 when nothing failed, 1 when something failed."""
    with gather(base_image, image) as scene:
        checks = [check for make_checks in CHECKS for check in make_checks(scene)]
    if as_json:
        print(json.dumps({"checks": [asdict(check) for check in checks], "failed": failed(checks)}, indent=2))
    else:
        _print(checks)
    return 1 if failed(checks) else 0


def failed(checks: Sequence[Check]) -> list[str]:
    return [check.name for check in checks if check.status == FAIL]


def _print(checks: Sequence[Check]) -> None:
    for check in checks:
        print(folded(f"{check.status:8} {check.name}: {check.saw}", hang=9))
        if check.status in (WARN, FAIL):
            for word, sentence in (("means", check.means), ("fix", check.fix)):
                if sentence:
                    print(folded(f"{'':9}{word}: {sentence}"))
    bad = failed(checks)
    print(f"\n{len(bad)} failed: {', '.join(bad)}" if bad else "\nnothing failed")
