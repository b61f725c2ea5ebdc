"""Doctor's checks of what the machine gives to each process: a time that is right, and room for further threads and processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from bench import rules
from runner.doctor.scene import FAIL, OK, WARN, Check, Scene
from runner.machine import control_groups
from runner.results.store import unset_clock

# A framework begins a few threads for each CPU, and its compiler processes beside them.
_PROCESSES = 512


def clock(_: Scene) -> Iterator[Check]:
    """The clock was set since the machine started."""
    if date := unset_clock(time.time()):
        means = "runs get a wrong id and time, so that the newest one counts as the oldest; servers' certificates seem to be of the future"
        yield Check("clock", FAIL, f"it says {date}", means, "set it: `timedatectl set-ntp true`, or `date -s`")


def cpus(_: Scene) -> Iterator[Check]:
    """This process may use the machine's CPUs, or as many as its job was given."""
    may, there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    quota = control_groups.limits().cpus
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
    free = control_groups.limits().free_processes
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
