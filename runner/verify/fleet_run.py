"""Verification of many nodes: what is measured in the time that there is."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from runner.errors import CannotBeginError, UserError
from runner.nodes import driver, fleet
from runner.nodes.fleet_plan import FleetProspect, looking
from runner.plan.plan import Cell
from runner.run.begin import refuse_cpu_only, start
from runner.run.options import Options
from runner.run.progress import announce, say
from runner.run.prospect import Prospect
from runner.text import plural
from runner.verify.verification_run import Measurement, WriteReport

# The level that `--time 30m` holds: how many workloads and repeats, and whether the GPUs are loaded fully as well. Pure.

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}

# Four loads of 7.5 s on each GPU alone, the same on all at once, and the start of a framework before each (runner.verify.probes.load).
_LOAD_SECONDS, _START_SECONDS, _LEAD_SECONDS = 30.0, 10.0, 40.0

# Agents, leases, ceilings and the report.
_BESIDE_SECONDS = 30.0


@dataclass(frozen=True)
class Level:
    """The workloads and repeats for each GPU."""

    name: str
    workloads: tuple[str, ...]
    repeats: int
    loads: bool

    def __str__(self) -> str:
        load = ", and each GPU under full load" if self.loads else ""
        return f"{self.name}: {', '.join(self.workloads)}, {plural(self.repeats, 'repeat')}{load}"


@dataclass(frozen=True)
class Site:
    """The cells to measure, their seconds and their nodes."""

    cells: Sequence[Cell]
    seconds: Callable[[Cell], float]  # how long a repeat of a cell takes
    node_of: Mapping[str, str]  # the node of each GPU, by its UUID
    prepare_seconds: float  # until the images are ready
    loads: bool  # whether GPUs can be loaded fully here


def site_here(prospect: Prospect) -> Site:
    """The GPUs of this machine."""
    agenda = prospect.agenda()
    prepare = agenda.preparing(agenda.parts, agenda.unready(()))
    return Site(prospect.plan.cells, prospect.durations.seconds, {}, prepare, loads=True)


def seconds_of(text: str) -> float:
    """A time such as 30m, 90s or 1.5h in seconds. Raises UserError."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh])", text.strip())
    if match is None or not float(match[1]):
        raise UserError(f"--time: {text!r} is no time; say a number and s, m or h, such as 30m")
    return float(match[1]) * _UNITS[match[2]]


def levels(site: Site) -> list[Level]:
    """From the shortest to the longest. The shortest has the workload that takes the least time."""
    each: dict[str, float] = {}
    for cell in site.cells:
        each[cell.workload] = max(each.get(cell.workload, 0.0), site.seconds(cell))
    workloads = tuple(sorted(each, key=each.__getitem__))
    steps = [
        Level("shortest", workloads[:1], 2, False),
        Level("short", workloads, 2, False),
        Level("usual", workloads, 3, False),
    ]
    steps += [Level("usual with load", workloads, 3, True)] if site.loads else []
    steps += [Level("long", workloads, 5, site.loads), Level("longest", workloads, 9, site.loads)]
    return list({(level.workloads, level.repeats, level.loads): level for level in reversed(steps)}.values())[::-1]


def length(level: Level, site: Site) -> float:
    """Seconds of a level: GPUs of a node are measured one after another, and nodes side by side."""
    of_node: dict[str, float] = {}
    gpus: dict[str, set[str]] = {}
    for cell in site.cells:
        node = site.node_of.get(cell.device_uuid, "")
        gpus.setdefault(node, set()).add(cell.device_uuid)
        if cell.workload in level.workloads:
            of_node[node] = of_node.get(node, 0.0) + level.repeats * site.seconds(cell)
    load = 0.0
    if level.loads:
        most = max(map(len, gpus.values()), default=0)
        load = most * (_LOAD_SECONDS + _START_SECONDS) + _LEAD_SECONDS + _LOAD_SECONDS
    return _BESIDE_SECONDS + site.prepare_seconds + max(of_node.values(), default=0.0) + load


def chosen(site: Site, limit: float, text: str) -> tuple[Level, str]:
    """The longest level that fits, and a sentence that says it. Raises UserError where none does."""
    every = [(level, length(level, site)) for level in levels(site)]
    fit = [(level, seconds) for level, seconds in every if seconds <= limit]
    if not fit:
        raise UserError(
            f"--time {text}: the shortest level takes about {_minutes(every[0][1])} here ({every[0][0]}); "
            f"give --time {_whole(every[0][1])}m, or fewer GPUs"
        )
    level, seconds = fit[-1]
    longer = [(other, more) for other, more in every if more > limit]
    then = f"; the next level, {longer[0][0].name}, takes about {_minutes(longer[0][1])}" if longer else ""
    return level, f"--time {text}: level {level}: about {_minutes(seconds)}{then}"


def _whole(seconds: float) -> int:
    return int(-(-seconds // 60))


def _minutes(seconds: float) -> str:
    return plural(_whole(seconds), "minute")


def shortened(prospect: Prospect, level: Level) -> Prospect:
    """The prospect with the workloads and repeats of a level."""
    cells = tuple(cell for cell in prospect.plan.cells if cell.workload in level.workloads)
    options = prospect.options.model_copy(update={"repeats": level.repeats, "workloads": level.workloads})
    return replace(prospect, plan=replace(prospect.plan, cells=cells), options=options)


# Measure every GPU of several nodes in one run: each GPU by itself, in blocks over the GPUs of its node, all nodes side by side.


def measure_nodes(options: Options, argv: Sequence[str], write_report: WriteReport, limit: str | None) -> Measurement:
    """Measure the GPUs of the nodes that the options name. Raises UserError.

    `limit` is what `--time` says. A node that is lost does not end the verification: what is missing is "not yet run".
    """
    wanted = options.model_copy(update={"each_gpu": True})
    # A mistake in --time is said before any agent is started.
    seconds = None if limit is None else seconds_of(limit)
    with contextlib.ExitStack() as stack:
        look_at_nodes = looking(stack.enter_context)

        def look(options: Options, minutes: float | None) -> Prospect:
            prospect = look_at_nodes(options, minutes)
            if not prospect.plan.cells:
                return prospect
            refuse_cpu_only(prospect, "--each-gpu")
            if limit is None or seconds is None:
                return prospect
            level, sentence = chosen(_site(prospect), seconds, limit)
            say(sentence)
            return shortened(prospect, level)

        prospect, run = start(wanted, argv, None, look)
        assert isinstance(prospect, FleetProspect)
        # --resume goes on with the chosen options.
        run.write_manifest(run.manifest() | {"options": prospect.options.model_dump(mode="json")})
        announce(prospect)
        ended = driver.execute(prospect, run, write_report)
    if not run.finished():
        raise CannotBeginError(
            f"{run.folder}: no cell ended, so no GPU was compared; see the lines above, and measure again"
        )
    return Measurement([run.folder], ended.cut_by)


def _site(prospect: Prospect) -> Site:
    assert isinstance(prospect, FleetProspect)
    said = fleet.hellos(prospect.fleet.taken())
    cost = prospect.fetch_bytes() // max(1, len(said))
    images = list(dict.fromkeys(cell.image for cell in prospect.plan.cells))
    return Site(
        cells=prospect.plan.cells,
        seconds=prospect.durations.seconds,
        node_of={gpu.uuid: name for name, hello in said.items() for gpu in hello.gpus},
        prepare_seconds=sum(prospect.durations.preparing(image, cost // len(images)) for image in images)
        if cost
        else 0.0,
        # An agent runs cells, and no loads.
        loads=False,
    )
