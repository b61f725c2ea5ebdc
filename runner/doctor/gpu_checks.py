"""Doctor's checks of the driver and its GPUs."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench import rules
from runner import known_messages
from runner.doctor.scene import FAIL, OK, WARN, Check, Scene, advised
from runner.engines.process import installed, venv
from runner.errors import EngineError
from runner.machine import nvml, telemetry_cpu
from runner.machine.devices import Gpu
from runner.messages.of_gpus import WSL_FIX
from runner.results.store import unset_clock

# Doctor's checks of what the machine gives to each process: a time that is right, and room for further threads and processes.

# A framework begins a few threads for each CPU, and its compiler processes beside them.
_PROCESSES = 512


def clock(_: Scene) -> Iterator[Check]:
    """The clock was set since the machine started."""
    if date := unset_clock(time.time()):
        means = "runs get a wrong id and time, so that their order is wrong; servers' certificates seem to be of another time"
        yield Check("clock", FAIL, f"it says {date}", means, "set it: `timedatectl set-ntp true`, or `date -s`")


def cpus(_: Scene) -> Iterator[Check]:
    """This process may use the machine's CPUs, or as many as its job was given."""
    may, there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    quota = telemetry_cpu.group_limits().cpus
    held = [f"{may} of the machine's {there} (affinity)"] if may < there else []
    held += [f"{quota:.2g} at a time (a quota of the control group)"] if quota is not None and quota < may else []
    given = rules.whole(os.environ.get("SLURM_CPUS_PER_TASK", "")) or 0
    if given > may:
        means = f"the job was given {given} CPUs (SLURM_CPUS_PER_TASK), and cells compute with {may} of them"
        fix = "`srun --cpus-per-task=$SLURM_CPUS_PER_TASK`: since Slurm 22.05 srun does not take it over by itself"
        yield Check("CPUs", WARN, ", ".join(held), means, fix)
    elif held:
        yield Check("CPUs", OK, ", ".join(held))


def processes(_: Scene) -> Iterator[Check]:
    """The control groups leave room for a cell's threads and processes."""
    free = telemetry_cpu.group_limits().free_processes
    if free is None:
        return
    saw = f"{free} more may begin in this control group"
    if free >= _PROCESSES:
        yield Check("processes", OK, saw)
    else:
        means = 'a cell ends with "can\'t start new thread" or "Resource temporarily unavailable"'
        yield Check(
            "processes",
            WARN,
            saw,
            means,
            "raise it: `TasksMax=` of systemd's unit, `--pids-limit` of a container, or pids.max",
        )


# The name of CUDA's Multi-Process Service, as far as Linux keeps it.
_MPS = "nvidia-cuda-mps"

# Drivers keep up to a gigabyte for themselves, and a desktop another one.
_LEAST_HELD_BYTES = 2 << 30

_LOADED_FIX = (
    "in a container, start it again; else restart the machine: its kernel module is loaded, and does not answer"
)


def driver(scene: Scene) -> Iterator[Check]:
    """The driver answers, and library and kernel module are of one version."""
    if scene.why_no_gpu:
        loaded = f"; the kernel module is {scene.module}" if scene.module else "; no NVIDIA kernel module is loaded"
        load = _LOADED_FIX if scene.module else "install NVIDIA's driver, or load it: `modprobe nvidia`"
        no_cell = "no cell can use a GPU; CPU images run all the same"
        means, fix = advised(scene.why_no_gpu, no_cell, WSL_FIX if _in_wsl() else load)
        nothing = not scene.module and "no NVIDIA driver" in scene.why_no_gpu
        said = scene.why_no_gpu.removesuffix("; `runner doctor` says more").removesuffix("; restart the machine")
        yield Check("driver", WARN if nothing else FAIL, said + loaded, means, fix)
        return
    versions = {gpu.driver for gpu in scene.gpus}
    if not versions:
        why = "; ".join(scene.refused) or "CUDA_VISIBLE_DEVICES and the like leave none"
        means = "no cell can use a GPU; CPU images run all the same"
        yield Check(
            "driver",
            WARN,
            f"the driver answers, and no GPU can be used: {why}",
            means,
            "the rows on GPUs say what to do",
        )
        return
    saw = f"driver {', '.join(versions)}, CUDA up to {', '.join({gpu.cuda_driver for gpu in scene.gpus})}"
    if scene.module and versions and scene.module not in versions:
        message = known_messages.find("Driver/library version mismatch")
        assert message is not None
        yield Check("driver", FAIL, f"{saw}, kernel module {scene.module}", message.means, message.fix)
        return
    yield Check("driver", OK, saw)


def _in_wsl() -> bool:
    """True in the Windows Subsystem for Linux, whose driver belongs to Windows."""
    try:
        return "microsoft" in Path("/proc/sys/kernel/osrelease").read_text().lower()
    except OSError:
        return False


def gpus(scene: Scene) -> Iterator[Check]:
    """Each GPU answers, is free, keeps its driver loaded and has all its lanes."""
    for reason in scene.refused:
        yield Check("GPU", FAIL, reason, *advised(reason, "cells leave it out", ""))
    for reason in scene.hidden:
        yield Check("GPU", WARN, reason, "cells leave it out", "ask for it in the job, or give it to the container")
    for sentence in scene.clocks:
        yield Check("clocks", WARN, sentence, "what ran on it since then ran at the locked clock")
    for sentence in scene.limits:
        yield Check("GPU", OK, sentence)
    for gpu in scene.gpus:
        well = Check("", OK, f"{gpu.model}, {gpu.memory}, free")
        for notice in list(_notices(gpu)) or [well]:
            yield replace(notice, name=f"GPU {gpu.name}")


def _notices(gpu: Gpu) -> Iterator[Check]:
    if gpu.processes:
        who = ", ".join(map(str, gpu.processes))
        means = "its times would not be its own; the matrix leaves it out"
        yield Check("", WARN, f"{gpu.model} is in use by {who}", means, "wait, end it, or --share")
    if gpu.processes is None:
        saw = f"{gpu.model}, {gpu.memory}; the driver does not say who computes on it"
        yield Check("", WARN, saw, "if somebody does, its times are not its own", "look with nvidia-smi")
    if not gpu.processes and (held := _held(gpu)):
        saw = f"{gpu.model}: {held / 1e9:.1f} GB of its memory are in use, and no program on it is listed"
        means = "a program in another container, or one that died, holds it: cells have less memory, and perhaps not their own times"
        fix = "`fuser -v /dev/nvidia*` as root names who has it open; else `nvidia-smi --gpu-reset`, or restart the machine"
        yield Check("", WARN, saw, means, fix)
    if gpu.compute_mode == nvml.EXCLUSIVE:
        saw = f"{gpu.model}: its compute mode is {nvml.EXCLUSIVE}"
        means = "only one process at a time may compute on it; a second one ends with CUDA's error that all devices are busy"
        yield Check("", WARN, saw, means, f"`nvidia-smi -i {gpu.index} -c DEFAULT`")
    if any(process.program.startswith(_MPS) for process in gpu.processes or ()):
        means = "it shares the GPU among the programs of one user: a cell would be measured beside them"
        yield Check("", WARN, f"{gpu.model}: an MPS server runs on it", means, "`echo quit | nvidia-cuda-mps-control`")
    if gpu.persistence is False:
        means = "the driver is unloaded when nobody uses it: every cell pays seconds for its start"
        yield Check(
            "", WARN, f"{gpu.model}: persistence mode is off", means, "`systemctl enable --now nvidia-persistenced`"
        )
    if gpu.pcie_width and gpu.pcie_width_now and gpu.pcie_width_now < gpu.pcie_width:
        saw = f"{gpu.model} uses {gpu.pcie_width_now} of its {gpu.pcie_width} PCIe lanes"
        yield Check(
            "", WARN, saw, "copies from and to the host are slower than they could be", "look at its slot and riser"
        )


def _held(gpu: Gpu) -> int:
    """The bytes of a GPU's memory that are in use; 0 for as much as its driver and a display take."""
    if gpu.memory_bytes is None or gpu.free_bytes is None:
        return 0
    used = gpu.memory_bytes - gpu.free_bytes
    return used if used > max(_LEAST_HELD_BYTES, gpu.memory_bytes // 20) else 0


def mps(scene: Scene) -> Iterator[Check]:
    """The variables of NVIDIA's MPS in this shell: the catalog's cells do not get them, and a person's own programs do."""
    own = {name: value for name, value in sorted(os.environ.items()) if name.startswith("CUDA_MPS_") and value}
    if not own or not scene.gpus:
        return
    saw = ", ".join(f"{name}={value[:60]}" for name, value in own.items())
    pipe = own.get("CUDA_MPS_PIPE_DIRECTORY")
    if pipe and not Path(pipe, "control").exists():
        means = "no control daemon of MPS has its socket there: your programs compute without MPS, or end with CUDA's error 805"
        yield Check("MPS", WARN, saw, means, "`nvidia-cuda-mps-control -d` starts it; or unset the variable")
    else:
        means = "your programs share a GPU or have a part of it by them; cells of the catalog's images do not get them"
        yield Check(
            "MPS",
            WARN,
            saw,
            means,
            "unset them where the whole GPU is meant: `runner verify --python` measures with them",
        )


def cuda(scene: Scene) -> Iterator[Check]:
    """CUDA itself opens each GPU on this machine: NVML answers also where it cannot."""
    opened: list[str] = []
    for gpu in scene.gpus:
        try:
            uuids, reason = installed.opened(sys.executable, gpu.uuid)
        except EngineError as error:
            advice = advised(str(error), "the driver does not answer CUDA", "restart the machine")
            yield Check("CUDA", FAIL, f"GPU {gpu.name}: {error}", *advice)
            continue
        said, _, fix = reason.partition("; ")
        if reason.startswith("cu"):
            yield Check(
                "CUDA",
                FAIL,
                f"GPU {gpu.name}: {said}",
                "no cell of this machine can compute on it; a container may have other rights",
                fix,
            )
        elif reason:
            yield Check(
                "CUDA", WARN, said, "programs of this machine use no GPU; a container may have the library", fix
            )
            return
        elif uuids and uuids != [gpu.uuid]:
            saw = f"GPU {gpu.name} is {gpu.uuid} to the driver, and {', '.join(uuids)} to CUDA"
            yield Check("CUDA", FAIL, saw, "a cell would measure another GPU than its row says", "restart the machine")
        else:
            opened.append(gpu.name)
    if opened:
        yield Check("CUDA", OK, f"it opens GPU {', '.join(opened)}")


def apptainer(scene: Scene) -> Iterator[Check]:
    """Apptainer's --nv brings the driver into a container: it asks the loader's cache for it, and only warns where that lacks it."""
    if not scene.gpus or shutil.which("apptainer") is None:
        return
    if venv.is_there(venv.DRIVER):
        yield Check("Apptainer", OK, f"--nv finds {venv.DRIVER} in the loader's cache")
        return
    means = "a container of --engine apptainer sees the GPU's device and has no driver: its GPU cells fail"
    fix = f"put the folder of {venv.DRIVER} into a file of /etc/ld.so.conf.d, and run `ldconfig` as root"
    yield Check("Apptainer", WARN, f"the loader's cache has no {venv.DRIVER}, which --nv looks for there", means, fix)


def mig(scene: Scene) -> Iterator[Check]:
    """Instances of cut GPUs, which are measured as devices of their own."""
    cut = [gpu for gpu in scene.gpus if gpu.instance is not None]
    if cut:
        saw = ", ".join(f"{gpu.name} {gpu.model}" for gpu in cut)
        yield Check("MIG", OK, saw, "each instance is a device of its own; those of one GPU run one after another")
    elif scene.gpus:
        yield Check("MIG", OK, "no GPU is cut into instances")
