"""The plan of a run over several nodes: the plans of the nodes as one, with the reason of each node that cannot take part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from runner.engines.base import Engine, ReadyImage, Running
from runner.errors import UserError
from runner.machine.devices import Machine
from runner.nodes import node_table
from runner.nodes.fleet import Fleet, Member, hellos, opened_fleet
from runner.nodes.transports import nodes_of
from runner.plan.durations import Durations, earlier_preparations, earlier_seconds
from runner.plan.plan import Cell, Plan, Skip
from runner.results.on_disk.image_names import is_address
from runner.run.dispatch import Job, run_alone
from runner.run.options import Options
from runner.run.prospect import Prospect
from runner.text import plural


class _OnNodes(Engine):
    """The engine that every node has. Nothing is started with it here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, *_: Any) -> ReadyImage:
        raise AssertionError("images are prepared on the nodes")

    def start(self, *_: Any) -> Running:
        raise AssertionError("cells are started on the nodes")

    def sweep(self) -> int:
        return 0


@dataclass(frozen=True)
class FleetProspect(Prospect):
    """The prospect of a run on several nodes. Its machine has the CPU of the first node, and the GPUs of all."""

    fleet: Fleet

    def lanes(self, jobs: Sequence[Job]) -> int:
        said = hellos(self.fleet.taken())
        if run_alone(jobs):
            # One at a time on each node.
            return len({name for name, hello in said.items() if hello.gpus}) or 1
        if any(job.cell.device_kind == "cuda" for job in jobs):
            return max(1, len({gpu.board for hello in said.values() for gpu in hello.gpus}))
        # With no node left, estimate for one node.
        return max(1, len(said))

    def expected_seconds(self, jobs: Sequence[Job]) -> float:
        """A rough length of these jobs: as long as their work takes where all devices share it."""
        work = sum(job.cell.takes * self.durations.seconds(job.cell) for job in jobs)
        longest = max((self.durations.seconds(job.cell) for job in jobs), default=0.0)
        return max(longest, work / self.lanes(jobs))

    def fetch_bytes(self) -> int:
        """Bytes that all nodes together must fetch or build. Those of one machine do it once."""
        each = [hello.fetch_bytes for hello in hellos(self.fleet.taken()).values()]
        return max(each, default=0) if self.fleet.nodes.shares_machine else sum(each)

    def fetches(self) -> str:
        each = [hello.fetch_bytes for hello in hellos(self.fleet.taken()).values()]
        whole = super().fetches()
        return whole if self.fleet.nodes.shares_machine or not any(each) else f"{by_node(each)} = {whole}"

    def facts(self) -> dict[str, Any]:
        return {"nodes": [_facts(member) for member in self.fleet.members.values()]}


def by_node(each: Sequence[int]) -> str:
    """The bytes of each node in words: `120 nodes x 4.10 GB + 8 nodes x 0.00 GB`."""
    sizes = Counter(f"{size / 1e9:.2f}" for size in each)
    return " + ".join(f"{plural(count, 'node')} x {size} GB" for size, count in sizes.most_common())


def _facts(member: Member) -> dict[str, Any]:
    hello = member.hello
    fields: dict[str, Any] = {"node": member.name, "why_not": member.why or None}
    if hello is not None:
        fields |= {
            "host": hello.host,
            "boot_id": hello.boot_id,
            "kernel": hello.kernel,
            "architecture": hello.architecture,
            **hello.cpu.facts,
            "gpus": [gpu.uuid for gpu in hello.gpus],
        }
    return fields


def looking(enter: Callable[[AbstractContextManager[Fleet]], Fleet]) -> Callable[[Options, float | None], Prospect]:
    """The `look` of `begin.start` and `begin.resume` if the options name nodes. `enter` keeps the agents until the command ends."""

    def look(options: Options, minutes: float | None = None) -> Prospect:
        assert options.nodes is not None
        _check(options, minutes)
        nodes = nodes_of(options.nodes, options.gpus, options.share)
        return prospect_of(enter(opened_fleet(nodes, options)), options)

    return look


def _check(options: Options, minutes: float | None) -> None:
    """Raise UserError for an option that would not do on several nodes what it promises."""
    reasons = {
        "--minutes": (minutes is not None, "what fits depends on when each node is ready"),
        "--lock-clocks": (options.lock_clocks is not None, "it locks the clocks of one machine"),
        "--catalog": (options.catalog is not None, "each node has the images of its own checkout"),
        "--images docker:…": (
            any(map(is_address, options.images)),
            "each node would fetch and look into it by itself, and a name may mean another image there",
        ),
        "--cool-down": (options.cool_down, "it waits for the GPUs of one machine"),
    }
    for option, (given, why) in reasons.items():
        if given:
            raise UserError(f"{option} does not go with --nodes: {why}; leave one of the two out")


def prospect_of(fleet: Fleet, options: Options) -> FleetProspect:
    """The plans of the nodes as one."""
    taken = fleet.taken()
    said = hellos(taken)
    first = next(iter(said.values()))
    plan = union(taken)
    refused = tuple(
        replace(gpu, reason=f"{name}: {gpu.reason}") for name, hello in said.items() for gpu in hello.refused
    )
    left = [f"{member.name} takes no part: {member.why}" for member in fleet.members.values() if member.why]
    own = list(dict.fromkeys(note for hello in said.values() for note in hello.notes))
    notes = (*fleet.nodes.notes, *left, *node_table.differences(taken), *node_table.not_everywhere(taken), *own)
    gpus = tuple(gpu for hello in said.values() for gpu in hello.gpus)
    return FleetProspect(
        options=options,
        machine=Machine(first.cpu, gpus, None if gpus else first.why_no_gpu, refused, notes),
        engine=_OnNodes(first.engine),
        why_engine=f"{len(said)} of {len(fleet.members)} nodes, {node_table.listed(list(said))}; {first.why_engine}",
        images={},
        plan=plan,
        durations=Durations(
            fleet.workloads, earlier_seconds(options.out), earlier_preparations(options.out, first.engine)
        ),
        fleet=fleet,
    )


def union(taken: Sequence[Member]) -> Plan:
    """The cells that any node runs, and what none does. A reason that is not every node's has the node's name."""
    said = hellos(taken)
    # Equal nodes have one tuple of cells.
    plans = {id(hello.cells): hello.cells for hello in said.values()}
    cells: dict[Cell, None] = dict.fromkeys(cell for plan in plans.values() for cell in plan)
    somewhere = {node_table.key_of(cell) for cell in cells}
    reasons: dict[tuple[Any, ...], dict[str, Skip]] = {}
    for name, hello in said.items():
        for skip in hello.skips:
            if node_table.key_of(skip) not in somewhere:
                reasons.setdefault(node_table.key_of(skip), {})[name] = skip
    skips = []
    for of_nodes in reasons.values():
        one = next(iter(of_nodes.values()))
        each = {skip.reason for skip in of_nodes.values()}
        words = one.reason if len(each) == 1 else "; ".join(f"{name}: {skip.reason}" for name, skip in of_nodes.items())
        skips.append(replace(one, reason=words))
    return Plan(tuple(cells), tuple(skips))
