"""Runs the steps on a GPU machine. It needs Python 3.10 and what lies in the kit's folder; the frameworks may be in another interpreter."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import identity
from runner.engines.process import installed
from runner.engines.process.process import sweep_scratch
from runner.engines.slots import Slot
from runner.errors import UserError, system_fault
from runner.kit import pack
from runner.kit.agreement import share, total
from runner.kit.command_line import parser, say
from runner.kit.doing import Doer, StepInterpreter
from runner.kit.facts_file import facts_of, planned, stored
from runner.kit.steps import CELL, Device, KitStep, cell_of
from runner.machine import lease, telemetry
from runner.machine.detect import HardwareError, detect, detect_gpus
from runner.machine.devices import Machine


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: every step was done and ended well; 1: some failed or were not done; 2: nothing could be done."""
    try:
        return run(parser().parse_args(words))
    except UserError as error:
        print(f"kit.py: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"kit.py: {system_fault(error)}; what had ended is kept, run it again", file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    """Do the steps that are left, and pack all that was done."""
    deadline = time.monotonic() + 60 * options.minutes
    if options.device == "cpu" and options.gpu != "all":
        raise UserError(
            f"--device cpu and --gpu {options.gpu}: the CPU is measured without a GPU; leave one of them out"
        )
    out: Path = options.out.absolute()
    (out / "steps").mkdir(parents=True, exist_ok=True)
    # The kit's own files go into the folder of the results, too.
    os.environ["XDG_CACHE_HOME"] = str(out / "cache")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with lease.alone(out), contextlib.ExitStack() as stack:
        machine = _machine(options.device, _begun_on(out) if options.gpu == "all" else options.gpu)
        gpu = machine.gpus[0] if machine.gpus else None
        say(f"{gpu.model}, driver {gpu.driver}" if gpu else machine.cpu.model)
        facts = facts_of(options, machine, gpu)
        stack.enter_context(lease.hold([gpu.board if gpu else lease.CPUS], "gpu-kit", say, until=deadline))
        steps = planned(options.out / "facts.json", facts)
        doer = _doer(options.python, facts, steps, machine, out, stack.enter_context(telemetry.Monitor()), deadline)
        interrupted = doer.do([step for step in steps if not pack.path_of(out, step).is_file()])
        sweep_scratch()
    return _conclude(out, steps, interrupted)


def _begun_on(out: Path) -> str:
    """The GPU that an earlier start measured, whichever is free now; `all` at the first start."""
    return str(stored(out / "facts.json").get("device_uuid") or "all") if pack.is_begun(out) else "all"


def _machine(device: str, names: str) -> Machine:
    """This machine with the one GPU to measure. Raises UserError."""
    if device == "cuda" and names != "all":
        gpus, refused, why = detect_gpus(())
        if not gpus:
            why = why or "; ".join(refusal.reason for refusal in refused)
            raise UserError(f"--gpu {names}: there is no GPU to measure: {why}; --device cpu measures the CPU")
    try:
        machine = detect("none" if device == "cpu" else names)
    except HardwareError as error:
        raise UserError(str(error).replace("--gpus", "--gpu")) from None
    if device == "cuda" and not machine.gpus:
        raise UserError(f"there is no GPU to measure: {machine.why_no_gpu}; --device cpu measures the CPU")
    return machine


def _doer(
    python: str,
    facts: Mapping[str, Any],
    steps: Sequence[KitStep],
    machine: Machine,
    out: Path,
    monitor: telemetry.Monitor,
    deadline: float,
) -> Doer:
    gpu = machine.gpus[0] if machine.gpus else None
    slot = Slot("cuda", (gpu.uuid,), gpu.cpus, None) if gpu else Slot("cpu", (), machine.cpu.cpus, None)
    device = Device(slot.device_kind, gpu.model if gpu else machine.cpu.model, None)
    lock = installed.lock_sha256(facts["packages"])
    versions = {entry["framework"]: entry["version"] for entry in facts["frameworks"]}
    cells = {step: cell_of(step, versions[step.framework], lock, device) for step in steps if step.kind == CELL}
    code = identity.code_digests({(step.framework, step.workload) for step in cells})
    interpreter = StepInterpreter((python, "-m", "bench"), installed.image_digest(lock, facts["python"]))
    return Doer(out, interpreter, cells, slot, gpu, monitor, deadline, code)


def _conclude(out: Path, steps: Sequence[KitStep], interrupted: bool) -> int:
    """Pack the results and say what was done and what was not: the exit code."""
    done = [step for step in steps if pack.path_of(out, step).is_file()]
    said = [stored(pack.said_path(out, step)) for step in done]
    words = [str(each["outcome"]).partition(" ")[0].strip(":,") for each in said]
    archive, digest = pack.pack(out, done)
    counts = {word: words.count(word) for word in ("ok", "refused", "FAILED")}
    left = [step for step in steps if step not in done]
    say(
        "{ok} steps ended well, {refused} were refused, {FAILED} failed, ".format(**counts)
        + f"{len(left)} were not done"
    )
    for device, (counter, integral) in total(each["energy_joules"] for each in said).items():
        say(
            f"{device}: its energy counter says {counter:.0f} J, its power over time {integral:.0f} J ({share(counter, integral)})"
        )
    if left:
        why = "it was interrupted" if interrupted else "the time was over"
        say(f"not done, because {why}: {'; '.join(map(str, left[:5]))}{' and more' if len(left) > 5 else ''}")
        say("run the same command again: it goes on")
    say(f"results  {archive} ({archive.stat().st_size / 1e6:.1f} MB, sha256 {digest})")
    say("on another machine: runner import " + archive.name)
    return 1 if counts["FAILED"] or left else 0
