"""Runs the steps on a GPU machine. It needs Python 3.10 and what lies in the kit's folder; the frameworks may be in another interpreter."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from bench import identity
from runner.engines.base import ReadyImage
from runner.engines.process import installed
from runner.errors import CannotBeginError, ExitCode, UserError, code_of, code_of_fault, one_code, system_fault
from runner.kit import results_folder
from runner.kit.doing import INTERRUPTED, Doer, layouts, sentence, total
from runner.kit.results_folder import begun, facts_of, parser, say, steps_of
from runner.kit.steps import KitStep
from runner.machine import lease, telemetry
from runner.machine.detect import HardwareError, detect
from runner.machine.devices import Gpu, Machine


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: every step was done, and ended well or was refused; 1: some failed or were not done; 2: a mistake of the
    command line, or a file that cannot be read; 4: nothing could be measured; 130: interrupted."""
    try:
        return run(parser().parse_args(words))
    except KeyboardInterrupt:
        print("kit.py: interrupted; what had ended is kept, run it again", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except UserError as error:
        print(f"kit.py: {error}", file=sys.stderr)
        return code_of(error)
    except OSError as error:
        print(f"kit.py: {system_fault(error)}; what had ended is kept, run it again", file=sys.stderr)
        return code_of_fault(error)


def run(options: argparse.Namespace) -> int:
    """Do the steps that are left, and pack all that was done."""
    deadline = time.monotonic() + 60 * options.minutes
    if options.device == "cpu" and options.gpu != "all":
        raise UserError(
            f"--device cpu and --gpu {options.gpu}: the CPU is measured without a GPU; leave one of them out"
        )
    options.out = out = options.out.absolute()
    (out / "steps").mkdir(parents=True, exist_ok=True)
    # The kit's own files go into the folder of the results, too.
    os.environ["XDG_CACHE_HOME"] = str(out / "cache")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with lease.alone(out), contextlib.ExitStack() as stack:
        names = options.gpu
        if names == "all" and results_folder.is_begun(out):
            # The GPU that an earlier start measured, whichever is free now.
            names = begun(out)["device_uuid"] or "all"
        machine = _machine(options.device, names)
        gpu = machine.gpus[0] if machine.gpus else None
        say(f"{gpu.model}, driver {gpu.driver}" if gpu else machine.cpu.model)
        facts = facts_of(options, machine)
        steps = steps_of(facts)
        stack.enter_context(lease.hold([gpu.board if gpu else lease.CPUS], "gpu-kit", say, until=deadline))
        # Under the lease: it would disturb what another run measures.
        if gpu:
            _open(options.python, gpu)
        lock = installed.lock_sha256(facts["packages"])
        ready = ReadyImage(None, installed.image_digest(lock, facts["python"]), (options.python, "-m", "bench"))
        code = identity.code_digests({(step.cell.framework, step.cell.workload) for step in steps})
        monitor, engine = stack.enter_context(telemetry.Monitor()), installed.InterpreterEngine(options.python)
        doer = Doer(out, engine, ready, replace(machine, gpus=machine.gpus[:1]), monitor, deadline, code)
        why = doer.do([step for step in steps if not results_folder.path_of(out, step).is_file()])
        engine.sweep()
    return _conclude(out, steps, why, [*doer.why_left, *([doer.gone] if doer.gone else [])])


def _machine(device: str, names: str) -> Machine:
    """This machine with the GPUs to choose from. Raises UserError."""
    try:
        machine = detect("none" if device == "cpu" else names)
    except HardwareError as error:
        words = str(error).replace("say --gpus none", "--device cpu measures the CPU")
        raise CannotBeginError(words.replace("--gpus", "--gpu")) from None
    if device == "cuda" and not machine.gpus:
        # The kit shares no GPU.
        why = str(machine.why_no_gpu).replace(", or share it with --share", "")
        raise CannotBeginError(f"there is no GPU to measure: {why}; --device cpu measures the CPU")
    return machine


def _open(python: str, gpu: Gpu) -> None:
    """Raises CannotBeginError where CUDA does not open this GPU: nothing is begun, and nothing counts as done."""
    uuids, reason = installed.opened(python, gpu.uuid)
    if reason:
        raise CannotBeginError(f"{gpu.model} cannot be opened: {reason}; then run the same command again")
    # A driver that tells no UUID cannot be held to one.
    if uuids and uuids != [gpu.uuid]:
        raise CannotBeginError(
            f"the driver shows {gpu.uuid}, and CUDA opens {', '.join(uuids)} instead; restart the machine"
        )


def _conclude(out: Path, steps: Sequence[KitStep], why: str, why_left: Collection[str]) -> int:
    """Pack the results and say what was done, and why the rest was not: the exit code. `why_left`: the frameworks of
    which steps that had their turn found no GPU."""
    done = [step for step in steps if results_folder.path_of(out, step).is_file()]
    left = [step for step in steps if step not in done]
    said = [results_folder.said(out, step) for step in done]
    statuses = [each["status"] for each in said]
    ok, refused, failed = map(statuses.count, ("ok", "refused", "failed"))
    say(f"{ok} steps ended well, {refused} were refused, {failed} failed, {len(left)} were not done")
    for device, both in total(each["energy_joules"] for each in said).items():
        say(sentence(device, *both))
    for line in layouts(dict(zip(done, said, strict=True))):
        say(line)
    if left:
        say(f"not done, because {why}: {'; '.join(map(str, left[:5]))}{' and more' if len(left) > 5 else ''}")
        after = "once that works, " if {step.cell.framework for step in left} <= {*why_left} else ""
        say(f"{after}run the same command again: it goes on")
    try:
        archive, digest = results_folder.pack(out, done)
        say(f"results  {archive} ({archive.stat().st_size / 1e6:.1f} MB, sha256 {digest})")
        say("on another machine: runner import " + archive.name)
    except OSError as error:
        # The steps are there, and the next start packs them.
        say(f"the results are not packed: {system_fault(error)}; what had ended is kept, run it again")
        failed += 1
    if left and why == INTERRUPTED:
        return ExitCode.INTERRUPTED
    if not ok and not failed and (why_left or not left or not done):
        say("nothing was measured" + ("" if left else ": every step was refused, and the line of each says why"))
        return ExitCode.CANNOT_BEGIN
    return one_code(bool(failed or left), is_open=False)
