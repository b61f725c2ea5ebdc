"""The content of facts.json: the machine, the frameworks and the steps that are planned. The first start that measures
something decides it."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import identity, rules
from runner.engines.process import installed
from runner.errors import UserError
from runner.kit import pack
from runner.kit.command_line import DEFAULT_REPEATS, say
from runner.kit.steps import Device, KitStep, LeftOut, Wanted, plan
from runner.machine.devices import Gpu, Machine

# The fields of a planned step, and what its name may be: it names a folder.
_STEP = {"kind": str, "framework": str, "workload": str, "precision": str, "repeat": int}
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+){4}")

# The options of the first start.
_OPTIONS = "options.json"


def facts_of(options: argparse.Namespace, machine: Machine, gpu: Gpu | None) -> dict[str, Any]:
    """The content of facts.json, by the first start that measures something. Raises UserError if a later start is on something else."""
    path = options.out / "facts.json"
    packages = installed.packages(options.python)
    if not re.match(r"\d+\.\d+\.\d+", str(packages.get("python"))):
        raise UserError(f"{options.python} tells no version of Python; name another interpreter with --python")
    same: dict[str, Any] = {
        "kit": pack.VERSION,
        "bench_sha256": identity.source_digest(),
        "device_kind": "cuda" if gpu else "cpu",
        "device_uuid": gpu.uuid if gpu else "",
        "packages": json.loads(pack.document(packages)),
    }
    if pack.is_begun(options.out):
        facts = stored(path)
        if changed := [name for name, value in same.items() if facts.get(name) != value]:
            raise UserError(
                f"{path}: {changed[0]} was another when this measurement began; name another folder with --out"
            )
        _check_options(options)
        say("going on with what was begun; an option that is not given is that of the first start")
        return facts
    say("looking at the frameworks")
    device = Device("cuda", gpu.model, gpu.compute_capability) if gpu else Device("cpu", machine.cpu.model, None)
    wanted = Wanted(options.frameworks, options.workloads, options.precision, options.repeats or DEFAULT_REPEATS)
    entries = _entries(options.python, wanted)
    _check_names(wanted, [str(entry["framework"]) for entry in entries], options.python)
    # A framework that the user names is tried, whatever it reports.
    why_not = {str(entry["framework"]): _why_not(entry, device) for entry in entries}
    why_not |= dict.fromkeys(set(wanted.frameworks) & set(why_not))
    steps, left_out = plan(why_not, device, wanted)
    if not steps:
        raise UserError(f"nothing can be measured: {_first_reason(left_out, options.python)}")
    facts = same | {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": options.python,
        "frameworks": [
            {name: entry.get(name) for name in ("framework", "version", "device_kinds")} for entry in entries
        ],
        "gpus": [asdict(each) for each in machine.gpus],
        "refused": [asdict(each) for each in machine.refused],
        "cpu": asdict(machine.cpu),
        "kernel": machine.kernel,
        "planned": [asdict(step) for step in steps],
        "left_out": [asdict(each) for each in left_out],
    }
    pack.write(options.out / _OPTIONS, pack.document(asdict(wanted), indent=1))
    pack.write(path, pack.document(facts, indent=1))
    return facts


def stored(path: Path) -> dict[str, Any]:
    """The document of an earlier start. Raises UserError if it is no such document."""
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _edited(path, str(error)) from None
    if not isinstance(document, dict):
        raise _edited(path, "it is no object")
    return document


def planned(path: Path, facts: Mapping[str, Any]) -> list[KitStep]:
    """The steps that the first start planned, from what `path` says. Raises UserError where a step is not as the kit writes it."""
    entries = facts.get("planned")
    if not isinstance(entries, list) or not entries:
        raise _edited(path, "it has no list of planned steps")
    steps = []
    for at, entry in enumerate(entries):
        fits = (
            isinstance(entry, dict)
            and set(entry) == set(_STEP)
            and all(type(entry[name]) is _STEP[name] for name in _STEP)
        )
        if not fits or not _NAME.fullmatch(KitStep(**entry).name):
            raise _edited(path, f"planned[{at}] is no step")
        steps.append(KitStep(**entry))
    return steps


def _edited(path: Path, why: str) -> UserError:
    return UserError(f"{path}: {why}: it is not as the kit wrote it; restore it, or name another folder with --out")


def _check_options(options: argparse.Namespace) -> None:
    """Raises UserError where a later start names other steps than the first: which steps there are is decided once."""
    path = options.out / _OPTIONS
    first = stored(path) if path.exists() else {}
    for option, name, value in (
        ("--frameworks", "frameworks", options.frameworks),
        ("--workloads", "workloads", options.workloads),
        ("--precision", "precisions", options.precision),
        ("--repeats", "repeats", options.repeats),
    ):
        before = first.get(name, value)
        same = value == before if name == "repeats" else set(value) == set(before)
        if value and not same:
            words = before if name == "repeats" else ",".join(before) or "not given"
            raise UserError(
                f"{option} was {words} when the measurement in {options.out} began; leave it out to go on with that one, "
                f"or name another folder with --out"
            )


def _entries(python: str, wanted: Wanted) -> list[dict[str, Any]]:
    """The frameworks of the interpreter. Raises UserError for one that is to be measured and tells no version: no run could name it."""
    entries = []
    for entry in installed.frameworks(python):
        version = entry["version"]
        if isinstance(version, str) and 0 < len(version) <= 100:
            entries.append(entry)
        elif not wanted.frameworks or entry["framework"] in wanted.frameworks:
            raise UserError(
                f"{entry['framework']} of {python} tells no version; install it again, or name the others with --frameworks"
            )
    return entries


def _check_names(wanted: Wanted, frameworks: Sequence[str], python: str) -> None:
    workloads = rules.workload_names()
    precisions = sorted({each for name in workloads for each in rules.workload_declaration(name)["precisions"]})
    for option, names, existing in (
        (f"--frameworks (of {python})", wanted.frameworks, frameworks),
        ("--workloads", wanted.workloads, workloads),
        ("--precision", wanted.precisions, precisions),
    ):
        for name in names:
            if name not in existing:
                raise UserError(f"{option}: there is no {name!r}; there is {', '.join(existing) or 'none'}")


def _why_not(entry: Mapping[str, Any], device: Device) -> str | None:
    """Why an installed framework cannot run on the device; None where it can, or does not say."""
    kinds = entry.get("device_kinds")
    if not isinstance(kinds, list) or device.kind in kinds:
        return None
    return f"{entry['framework']} {entry['version']} here computes on {' and '.join(map(str, kinds)) or 'nothing'} only"


def _first_reason(left_out: Sequence[LeftOut], python: str) -> str:
    return (
        left_out[0].reason if left_out else f"{python} has none of the frameworks; --python names another interpreter"
    )
