"""The folder of a kit's results: facts.json, which the first start that measures something decides, the parcel of each step, and the
archive of them; with the options that choose it."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench import identity, rules
from runner.catalog.names import full_name, unknown_name
from runner.engines.process import installed
from runner.errors import CannotBeginError, UserError
from runner.kit.steps import NETWORKS, KitStep, Wanted, plan
from runner.machine.devices import Machine
from runner.paths import PROJECT
from runner.plan.combination import Cell, Skip
from runner.results.on_disk.schema import replace_bytes, write_bytes
from runner.results.parcel import ENDING
from runner.results.store import RunStore

# The results of a kit as one archive: facts.json, the parcel of each step, and manifest.json with the digest of every file.

# Of the archive's layout. Until version 3 adapters were checked in steps of their own; versions 1 and 2 had other files.
VERSION = 4

ARCHIVE, FACTS, MANIFEST = "gpu-kit-results.tar.gz", "facts.json", "manifest.json"

# Of the files of all steps.
MOST_BYTES = 480 * 2**20


def path_of(out: Path, step: KitStep) -> Path:
    """The parcel of a step. It is written last: the step is done when it is there."""
    return out / "steps" / f"{step.name}{ENDING}"


def said_path(out: Path, step: KitStep) -> Path:
    """The outcome of a step that is done, for the summary; it stays here."""
    return out / "steps" / f"{step.name}.said"


def said(out: Path, step: KitStep) -> dict[str, Any]:
    """The document at said_path: `status`, `energy_joules` and a cell's figures. Raises UserError where it was edited."""
    path = said_path(out, step)
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        raise UserError(
            f"{path} is not as this kit wrote it; remove {path_of(out, step)}, and its step is done again"
        ) from None


def is_begun(out: Path) -> bool:
    """True if a step has ended in this folder, also of an older kit. Before one has, nothing is lost by beginning anew."""
    ended = (f"*{ENDING}", "*.json", "*/step.json")
    return (out / FACTS).exists() and any(any((out / "steps").glob(pattern)) for pattern in ended)


def size(out: Path) -> int:
    """How many bytes the parcels of the steps have."""
    return sum(path.stat().st_size for path in (out / "steps").glob(f"*{ENDING}"))


def pack(out: Path, done: Sequence[KitStep]) -> tuple[Path, str]:
    """Pack what was done so far: the archive, and its sha256 (hex)."""
    paths = [out / FACTS, *(path_of(out, step) for step in done)]
    content = packed({path.relative_to(out).as_posix(): path.read_bytes() for path in paths})
    replace_bytes(out / ARCHIVE, content)
    return out / ARCHIVE, hashlib.sha256(content).hexdigest()


def packed(files: Mapping[str, bytes]) -> bytes:
    """These files with their manifest as a .tar.gz: the same bytes for the same files."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    manifest = json.dumps({"kit": VERSION, "files": digests}, indent=1, sort_keys=True).encode()
    buffer = io.BytesIO()
    # Without a time in its header.
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        for name, content in [(MANIFEST, manifest), *sorted(files.items())]:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def document(value: Any) -> bytes:
    """A document. A path that is not UTF-8 would not be read again: question marks stand for such characters."""
    return json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "replace")


# The command line of kit.py: its options, and the lines that it prints.


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="kit.py", description="Measure this machine's GPU with the frameworks of a Python."
    )
    add = top.add_argument
    add("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: the same on the CPU, without a GPU")
    add("--gpu", default="all", metavar="NAME", help="index or UUID; default: the first that is free")
    add("--minutes", type=_minutes, default=9.0, help="time to take; default: 9. Run again, it goes on")
    add("--out", type=Path, default=Path("gpu-kit-results"), help="folder of the results")
    add("--python", type=_program, default=sys.executable, help="the one with the frameworks; default: this one")
    for name, field in (("--frameworks", "frameworks"), ("--workloads", "workloads"), ("--precision", "precisions")):
        add(name, dest=field, type=_names, default=[], help="these only, between commas; default: all that fit")
    add("--repeats", type=_repeats, help="of each cell; default: 3")
    return top


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes <= 7 * 24 * 60:
        raise argparse.ArgumentTypeError(f"{text[:80]} is not a number of minutes")
    return minutes


def _repeats(text: str) -> int:
    repeats = int(text)
    if not 1 <= repeats <= 100:
        raise argparse.ArgumentTypeError(f"{text[:80]} is not a number of repeats")
    return repeats


def _program(text: str) -> str:
    """Cells start in a folder of their own, where a relative path leads elsewhere."""
    return os.path.abspath(shutil.which(text) or text)  # noqa: PTH100 - a link to an interpreter is an environment


def _names(text: str) -> list[str]:
    return sorted({full_name(word.strip()) for word in text.split(",") if word.strip()})


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
    path = options.out / FACTS
    packages = installed.packages(options.python)
    if not re.match(r"\d+\.\d+\.\d+", str(packages.get("python"))):
        raise UserError(f"{options.python} tells no version of Python; name another interpreter with --python")
    same: dict[str, Any] = {
        "kit": VERSION,
        "bench_sha256": identity.source_digest(),
        "device_uuid": machine.gpus[0].uuid if machine.gpus else "",
        "packages": packages,
    }
    if networks := _networks():
        same["networks"] = {name: network["files"] for name, network in networks.items()}
    same = json.loads(document(same))
    if not is_begun(options.out):
        content = document(same | _planned(options, machine, same["packages"], networks))
        for name, file in ((name, file) for name, network in networks.items() for file in network["files"].items()):
            # A cell reads it there.
            write_bytes(RunStore(options.out).network_folder(name) / file[0], file[1].encode("latin-1"))
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
    path = out / FACTS
    content = path.read_bytes()
    digest = path.with_name(_DIGEST)
    if not digest.is_file() or digest.read_bytes() != hashlib.sha256(content).hexdigest().encode():
        raise UserError(f"{path} is not as this kit wrote it; restore it, or name another folder with --out")
    return dict(json.loads(content))


def steps_of(facts: Mapping[str, Any]) -> list[KitStep]:
    """The steps that the first start planned."""
    return [KitStep(step["kind"], Cell(**step["cell"]), step["repeat"]) for step in facts["planned"]]


def _networks() -> dict[str, Any]:
    """The networks of a person's own that this kit was made with."""
    path = PROJECT / NETWORKS
    return dict(json.loads(path.read_bytes())) if path.is_file() else {}


def _planned(
    options: argparse.Namespace, machine: Machine, packages: Mapping[str, Any], networks: Mapping[str, Any]
) -> dict[str, Any]:
    say("looking at the frameworks")
    given = {name: getattr(options, name) for name in _OPTIONS}
    # A person says the name of the file.
    of_stems = {name.partition("@")[0]: name for name in networks}
    given["workloads"] = [of_stems.get(name, name) for name in given["workloads"]]
    wanted = Wanted(**{name: value for name, value in given.items() if value})
    entries = _entries(options.python, wanted)
    workloads = [*networks, *rules.workload_names()]
    if own := next((name for name in wanted.workloads if name.endswith(".py")), None):
        raise UserError(
            f"--workloads {own}: a kit has the networks that it was made with; where the runner is installed, say "
            f"`runner gpu-kit FOLDER --workloads {own}`, and copy that kit"
        )
    precisions = sorted({each for name in workloads for each in rules.workload_declaration(name)["precisions"]})
    for option, names, existing in (
        (f"--frameworks (of {options.python})", wanted.frameworks, [str(entry["framework"]) for entry in entries]),
        ("--workloads", wanted.workloads, workloads),
        ("--precision", wanted.precisions, precisions),
    ):
        if why := unknown_name(option, names, existing):
            raise UserError(why)
    steps, skips = plan(entries, machine, installed.lock_sha256(packages), wanted, networks)
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
