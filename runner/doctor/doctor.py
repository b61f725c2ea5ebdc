"""The command `runner doctor`: each thing that a GPU cell needs, looked at by itself: what was seen, what it means, how to mend it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from runner.doctor.builds import base_image, disk, pip_index
from runner.doctor.engine import cdi, cgroups, container, engine, hook, runtime, toolkit
from runner.doctor.gpus import driver, gpus, mig
from runner.doctor.scene import FAIL, WARN, Check, Scene, scene

CHECKS: tuple[Callable[[Scene], Iterator[Check]], ...] = (
    driver, gpus, mig, engine, toolkit, hook, runtime, cdi, cgroups, container, disk, base_image, pip_index,
)  # fmt: skip


def run(as_json: bool, base_image: str | None, image: str | None) -> int:
    """Look at everything, print it, and return 0 when nothing failed, 1 when something did."""
    with scene(base_image, image) as seen:
        found = [check for look in CHECKS for check in look(seen)]
    if as_json:
        print(json.dumps({"checks": [asdict(check) for check in found], "failed": failed(found)}, indent=2))
    else:
        _print(found)
    return 1 if failed(found) else 0


def failed(found: Sequence[Check]) -> list[str]:
    return [check.name for check in found if check.status == FAIL]


def _print(found: Sequence[Check]) -> None:
    for check in found:
        print(f"{check.status:8} {check.name}: {check.saw}")
        if check.status in (WARN, FAIL):
            for word, sentence in (("means", check.means), ("fix", check.fix)):
                if sentence:
                    print(f"{'':9}{word}: {sentence}")
    bad = failed(found)
    print(f"\n{len(bad)} failed: {', '.join(bad)}" if bad else "\nnothing failed")
