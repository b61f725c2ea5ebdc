"""The tables of `runner nodes`: every node with its devices, what differs between them, and what would not run where. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from runner.nodes import settings
from runner.nodes.fleet import Member, hellos
from runner.nodes.wire.messages import Hello
from runner.plan.plan import Combination
from runner.text import plural


def gpus_of(hello: Hello) -> str:
    """The GPUs of a node by model: `8 x NVIDIA H200`."""
    counts = Counter(gpu.model for gpu in hello.gpus)
    return ", ".join(f"{count} x {model}" for model, count in counts.items()) or "none"


# Facts of a node in which nodes of one fleet should be alike. runner.nodes.settings has those of its GPUs.
_OF_NODE: dict[str, Callable[[Hello], str]] = {
    "engine": lambda hello: hello.engine,
    "CPU": lambda hello: hello.cpu.model,
    "CPUs": lambda hello: str(hello.cpu.count),
    "CPU governor": lambda hello: hello.cpu.governor or "not reported",
    "CPU energy preference": lambda hello: hello.cpu.energy_preference or "not reported",
    "CPU turbo": lambda hello: hello.cpu.turbo or "not reported",
    "memory": lambda hello: f"{hello.cpu.memory_bytes / 2**30:.0f} GiB",
    "kernel": lambda hello: hello.kernel,
    "architecture": lambda hello: hello.architecture,
    "GPUs": gpus_of,
}
# The most nodes to name of a fact.
_NAMED = 4

HEADS = ("node", "GPUs", "driver", "engine", "CPUs", "cells", "to fetch", "takes part")


def rows(members: Iterable[Member]) -> list[tuple[str, ...]]:
    """A row a node, with the columns HEADS."""
    made = []
    for member in members:
        hello = member.hello
        if hello is None:
            made.append((member.name, *["–"] * 6, f"no: {member.why}"))
            continue
        drivers = ", ".join(dict.fromkeys(gpu.driver for gpu in hello.gpus)) or "–"
        fetch = f"{hello.fetch_bytes / 1e9:.1f} GB"
        cells = str(len(hello.cells))
        takes_part = f"no: {member.why}" if member.why else "yes"
        made.append(
            (member.name, gpus_of(hello), drivers, hello.engine, str(hello.cpu.count), cells, fetch, takes_part)
        )
    return made


def differences(members: Sequence[Member]) -> list[str]:
    """A sentence for each fact in which the nodes differ. GPUs are compared with those of their own model."""
    said = hellos(members)
    lines = []
    for what, fact in _OF_NODE.items():
        lines += _difference(what, {name: [fact(hello)] for name, hello in said.items()})
    for model in dict.fromkeys(gpu.model for hello in said.values() for gpu in hello.gpus):
        entries = {
            name: [settings.facts(asdict(gpu)) for gpu in hello.gpus if gpu.model == model]
            for name, hello in said.items()
        }
        for what in settings.OF_GPU:
            values = {name: sorted({entry[what] for entry in each}) for name, each in entries.items()}
            lines += _difference(f"{what} of {model}", {name: each for name, each in values.items() if each})
    return lines


def _difference(what: str, values: Mapping[str, Sequence[str]]) -> list[str]:
    """`what` differs: each value with its nodes, the most common first. Empty where all are alike."""
    nodes: dict[str, list[str]] = {}
    for name, each in values.items():
        nodes.setdefault(" and ".join(each), []).append(name)
    if len(nodes) < 2 and all(len(each) < 2 for each in values.values()):
        return []
    parts = [f"{value} ({listed(names)})" for value, names in sorted(nodes.items(), key=lambda pair: -len(pair[1]))]
    return [f"{what} differs: {'; '.join(parts)}"]


def notes(members: Sequence[Member]) -> list[str]:
    """The nodes' own notes: each sentence once, with its nodes. A thousand nodes often have the same."""
    nodes: dict[str, list[str]] = {}
    for name, hello in hellos(members).items():
        for sentence in dict.fromkeys([*(f"not used: {gpu.reason}" for gpu in hello.refused), *hello.notes]):
            nodes.setdefault(sentence, []).append(name)
    return [f"{listed(names)}: {sentence}" for sentence, names in nodes.items()]


def listed(names: Sequence[str]) -> str:
    """Nodes by name; of many the first few."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def key_of(combination: Combination) -> tuple[Any, ...]:
    """The key of a planned or skipped combination, without the reason."""
    one = combination
    names = (one.image, one.framework, one.workload, one.precision, one.mode)
    return (*names, one.device_kind, one.device_model, one.devices, one.device_uuid)


def not_everywhere(members: Sequence[Member]) -> list[str]:
    """A sentence for each node and reason for which it cannot run what another node of the same devices runs."""
    said = hellos(members)
    plans = {id(hello.cells): hello.cells for hello in said.values()}
    somewhere = {key_of(cell) for plan in plans.values() for cell in plan}
    lines = []
    for name, hello in said.items():
        reasons = Counter(skip.reason for skip in hello.skips if key_of(skip) in somewhere)
        lines += [
            f"{name} leaves {plural(count, 'cell')} to other nodes: {reason}" for reason, count in reasons.items()
        ]
    return lines
