"""The checks of `runner doctor`. Each says what it saw, what that means, and how to fix it: for people, as JSON, and as metrics for
node_exporter."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import TypedDict

from runner import known_messages, terminal
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
from runner.doctor.preflight import exit_code
from runner.doctor.scene import FAIL, OK, WARN, Check, Scene, advised, folders, gather, of_engine
from runner.errors import ExitCode, UserError, one_code
from runner.text import in_a_line, print_document, visible
from runner.verify.verification import CellFinding, Verification

# Doctor's checks of Podman and Apptainer, where they are on this machine: what their containers need, and one that is started.

_PROGRAM_SECONDS = 60.0
_FUSE = Path("/dev/fuse")
# The hierarchy of version 2 beside those of version 1.
_BOTH_HIERARCHIES = Path("/sys/fs/cgroup/unified")
NO_CELL = "`--engine {}` starts no cell here; other engines do not need it"


def podman(_: Scene) -> Iterator[Check]:
    """Podman answers, and its runtime starts containers with this machine's control groups."""
    from runner.engines.podman import PodmanEngine

    if not os.environ.get("CONTAINER_HOST") and shutil.which("podman") is None:
        return
    engine, means = PodmanEngine(), NO_CELL.format("podman")
    if reason := engine.unavailable():
        own = "start its service, as the sentence says; or take another engine"
        yield Check("Podman", WARN, reason, *advised(reason, means, own))
        return
    runtime = str(engine.info.get("DefaultRuntime") or "an unnamed runtime")
    if "crun" in runtime and _BOTH_HIERARCHIES.is_dir():
        message = known_messages.find("crun: cgroups in hybrid mode not supported")
        assert message is not None
        yield Check("Podman", WARN, f"its runtime is {runtime}: {message.means}", means, message.fix)
        return
    yield Check("Podman", OK, f"it answers, with {runtime}; {engine.guarantees()}")
    yield from of_engine(engine.info, "set `graphroot` in storage.conf to another disk")


def apptainer(_: Scene) -> Iterator[Check]:
    """User namespaces, /dev/fuse and mksquashfs, which Apptainer needs; and a container of the newest of this user's SIFs, if any."""
    from runner.engines import sif

    if shutil.which("apptainer") is None:
        return
    try:
        version = sif.version()
        sifs = sorted(sif.own_folder().glob("*.sif"), key=lambda path: path.stat().st_mtime)
    except UserError as error:
        # Of a cache folder that is not known, too, which has a row of its own.
        yield Check("Apptainer", WARN, str(error), *advised(str(error), NO_CELL.format("apptainer"), ""))
        return
    if why := _apptainer_lacks() or (_apptainer_refusal(sifs[-1]) if sifs else None):
        own = "the message is Apptainer's; `apptainer --debug exec` says more"
        means, fix = advised(why, "it starts no container", own)
        yield Check("Apptainer", WARN, f"Apptainer {version}: {why}", f"{means}; {NO_CELL.format('apptainer')}", fix)
        return
    started = f"a container of {sifs[-1].name} starts" if sifs else "no SIF of ours is here, so none was started"
    yield Check("Apptainer", OK, f"Apptainer {version}; {started}")
    if shutil.which("mksquashfs") is None:
        means = "no SIF can be made here; those that --images-from finds run all the same"
        yield Check("mksquashfs", WARN, "it is not on PATH", means, "install squashfs-tools")


def _apptainer_lacks() -> str | None:
    """A part of this machine that is missing, in the words of Apptainer's own refusal; root needs neither."""
    if os.getuid() == 0:
        return None
    unshare = shutil.which("unshare")
    if unshare and (said := _said([unshare, "--user", "true"])) is not None:
        return f"failed to create user namespace: {said}"
    if not os.access(_FUSE, os.R_OK | os.W_OK):
        return f"/dev/fuse: {'Permission denied' if _FUSE.exists() else 'No such file or directory'}"
    return None


def _apptainer_refusal(image: Path) -> str | None:
    """Apptainer's words where it starts no container of a SIF."""
    return _said(["apptainer", "--quiet", "exec", "--containall", "--no-home", str(image), "true"])


def _said(command: list[str]) -> str | None:
    """The last line of a program that failed; None where it did not."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return in_a_line(str(error), 300)
    last = ended.stderr.strip().splitlines()[-1:] or [f"{command[0]} ended with {ended.returncode}"]
    return in_a_line(last[0], 300) if ended.returncode else None


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
        print(terminal.folded(f"{check.status:8} {check.name}: {check.saw}", hang=9))
        if check.status in (WARN, FAIL):
            for word, sentence in (("means", check.means), ("fix", check.fix)):
                if sentence:
                    print(terminal.folded(f"{'':9}{word}: {sentence}"))
