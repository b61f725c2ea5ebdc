"""The content of facts.json: the machine, the interpreter and the steps that are planned. The first start that measures something
decides it."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import identity, rules
from runner.catalog.names import unknown_name
from runner.engines.process import installed
from runner.errors import CannotBeginError, UserError
from runner.kit import pack
from runner.kit.command_line import say
from runner.kit.steps import KitStep, Wanted, plan
from runner.machine.devices import Machine
from runner.plan.combination import Cell, Skip
from runner.results.on_disk.whole import replace_bytes

# The digest of facts.json, so that an edit is found.
_DIGEST = "facts.sha256"

_OPTIONS = {
    "frameworks": "--frameworks",
    "workloads": "--workloads",
    "precisions": "--precision",
    "repeats": "--repeats",
}


def facts_of(options: argparse.Namespace, machine: Machine) -> dict[str, Any]:
    """The content of facts.json, by the first start that measures something. Raises UserError if a later start is on something else."""
    path = options.out / pack.FACTS
    packages = installed.packages(options.python)
    if not re.match(r"\d+\.\d+\.\d+", str(packages.get("python"))):
        raise UserError(f"{options.python} tells no version of Python; name another interpreter with --python")
    same: dict[str, Any] = {
        "kit": pack.VERSION,
        "bench_sha256": identity.source_digest(),
        "device_uuid": machine.gpus[0].uuid if machine.gpus else "",
        "packages": packages,
    }
    same = json.loads(pack.document(same))
    if not pack.is_begun(options.out):
        content = pack.document(same | _planned(options, machine, same["packages"]))
        replace_bytes(path.with_name(_DIGEST), hashlib.sha256(content).hexdigest().encode())
        replace_bytes(path, content)
        return dict(json.loads(content))
    facts = begun(options.out)
    if changed := [name for name, value in same.items() if facts.get(name) != value]:
        raise UserError(f"{path}: {changed[0]} was another when this measurement began; name another folder with --out")
    for name, option in _OPTIONS.items():
        value, before = getattr(options, name), facts["options"][name]
        if value and value != before:
            words = before if isinstance(before, int) else ",".join(before) or "not given"
            raise UserError(
                f"{option} was {words} when the measurement in {options.out} began; leave it out to go on with that one, "
                "or name another folder with --out"
            )
    say("going on with what was begun; an option that is not given is that of the first start")
    return facts


def begun(out: Path) -> dict[str, Any]:
    """The facts of an earlier start. Raises UserError where they are not as that start wrote them."""
    path = out / pack.FACTS
    content = path.read_bytes()
    digest = path.with_name(_DIGEST)
    if not digest.is_file() or digest.read_bytes() != hashlib.sha256(content).hexdigest().encode():
        raise UserError(f"{path} is not as this kit wrote it; restore it, or name another folder with --out")
    return dict(json.loads(content))


def steps_of(facts: Mapping[str, Any]) -> list[KitStep]:
    """The steps that the first start planned."""
    return [KitStep(step["kind"], Cell(**step["cell"]), step["repeat"]) for step in facts["planned"]]


def _planned(options: argparse.Namespace, machine: Machine, packages: Mapping[str, Any]) -> dict[str, Any]:
    say("looking at the frameworks")
    given = {name: getattr(options, name) for name in _OPTIONS}
    wanted = Wanted(**{name: value for name, value in given.items() if value})
    entries = _entries(options.python, wanted)
    workloads = rules.workload_names()
    if own := next((name for name in wanted.workloads if name.endswith(".py")), None):
        raise UserError(
            f"--workloads {own}: the kit measures the catalog's networks, since its archive holds figures and no programs; your own is "
            "measured by `runner matrix --workloads` where the runner is installed"
        )
    precisions = sorted({each for name in workloads for each in rules.workload_declaration(name)["precisions"]})
    for option, names, existing in (
        (f"--frameworks (of {options.python})", wanted.frameworks, [str(entry["framework"]) for entry in entries]),
        ("--workloads", wanted.workloads, workloads),
        ("--precision", wanted.precisions, precisions),
    ):
        if why := unknown_name(option, names, existing):
            raise UserError(why)
    steps, skips = plan(entries, machine, installed.lock_sha256(packages), wanted)
    if not steps:
        none = f"{options.python} has none of the frameworks; --python names another interpreter"
        raise CannotBeginError(f"nothing can be measured: {first_reason(skips) or none}")
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": options.python,
        "options": asdict(wanted),
        "gpus": [asdict(each) for each in machine.gpus],
        "refused": [asdict(each) for each in machine.refused],
        "cpu": asdict(machine.cpu),
        "kernel": machine.kernel,
        "planned": [asdict(step) for step in steps],
        "skips": [asdict(skip) for skip in skips],
    }


def _entries(python: str, wanted: Wanted) -> Sequence[Mapping[str, Any]]:
    """The frameworks of the interpreter. Raises UserError for one that is to be measured and tells no version: no run could name it."""
    entries = []
    for entry in installed.frameworks(python)[0]:
        version = entry["version"]
        if isinstance(version, str) and 0 < len(version) <= 100:
            entries.append(entry)
        elif not wanted.frameworks or entry["framework"] in wanted.frameworks:
            raise UserError(
                f"{entry['framework']} of {python} tells no version; install it again, or name the others with --frameworks"
            )
    return entries


def first_reason(skips: Sequence[Skip]) -> str:
    """The reason of PyTorch, else of another framework: what runs on one of them, as Keras does, has its reason from that."""
    order = [
        (rules.framework_declaration(skip.framework).get("backend", ""), skip.framework != "torch") for skip in skips
    ]
    return min(zip(order, (skip.reason for skip in skips), strict=True), key=lambda one: one[0], default=((), ""))[1]
