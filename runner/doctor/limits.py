"""Doctor's checks of what the machine gives to each process: a time that is right, and room for further threads and processes."""

from __future__ import annotations

import time
from collections.abc import Iterator

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
