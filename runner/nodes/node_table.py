"""The tables of `runner nodes`: every node with its devices, what differs between them, and what would not run where. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runner.nodes.fleet import Member, hellos
from runner.nodes.wire import Hello
from runner.plan.plan import Combination
from runner.results import gpu_facts
from runner.text import plural

# How GPUs and their machines are set up, in words, and what is set up otherwise than on the other nodes. Pure.
#
# A GPU's facts are those of its entry in run.json, which is what `dataclasses.asdict` makes of a `Gpu`.

Entry = Mapping[str, Any]


def _switch(name: str) -> Callable[[Entry], str]:
    return lambda entry: {True: "on", False: "off"}.get(entry.get(name), "unknown")  # type: ignore[arg-type]


def _text(name: str) -> Callable[[Entry], str]:
    return lambda entry: str(entry.get(name) or "unknown")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _watts(entry: Entry) -> str:
    watts = _number(entry.get("power_limit_watts"))
    return "unknown" if watts is None else f"{watts:.0f} W"


def _memory(entry: Entry) -> str:
    size = _number(entry.get("memory_bytes"))
    return "memory not reported" if size is None else f"{size / 2**30:.0f} GiB"


def _lanes(entry: Entry) -> str:
    return f"{entry.get('pcie_generation') or '?'} x{entry.get('pcie_width') or '?'}"


# In the order in which they explain a slow GPU.
OF_GPU: dict[str, Callable[[Entry], str]] = {
    "driver": _text("driver"),
    "power limit": _watts,
    "ECC": _switch("ecc"),
    "PCIe": _lanes,
    "PCIe lanes in use": lambda entry: str(entry.get("pcie_width_now") or "?"),
    "clocks": gpu_facts.clock_state,
    "persistence": _switch("persistence"),
    "GPU memory": _memory,
    "compute mode": _text("compute_mode"),
    "VBIOS": _text("vbios"),
}
OF_HOST: dict[str, Callable[[Entry], str]] = {
    "kernel": _text("kernel"),
    "architecture": _text("architecture"),
    "CPU": _text("cpu_model"),
    "CPUs": _text("cpu_count"),
    "CPU governor": _text("cpu_governor"),
    "CPU energy preference": _text("cpu_energy_preference"),
    "CPU turbo": _text("cpu_turbo"),
}


def settings_facts(entry: Entry, of: Mapping[str, Callable[[Entry], str]] = OF_GPU) -> dict[str, str]:
    """Each fact of a GPU, or of a host, in words."""
    return {what: fact(entry) for what, fact in of.items()}


def deviant_settings(name: str, settings: Mapping[str, Sequence[Mapping[str, str]]]) -> list[str]:
    """In what a node, or a GPU, is set up otherwise than most of the others: a clause a fact.

    `settings`: the facts of each node's GPUs, by the node's name; of a GPU its own, by its UUID.
    """
    clauses = []
    for what in dict.fromkeys(what for each in settings.values() for entry in each for what in entry):
        values = {
            other: " and ".join(sorted({entry[what] for entry in each if what in entry}))
            for other, each in settings.items()
        }
        own, others = values.pop(name, ""), Counter(value for value in values.values() if value)
        if not own or not others:
            continue
        usual, count = others.most_common(1)[0]
        if own != usual and 2 * count > others.total():
            clauses.append(f"{what} {own}, and {usual} on {count} of {others.total()} others")
    return clauses


def gpus_of(hello: Hello) -> str:
    """The GPUs of a node by model: `8 x NVIDIA H200`."""
    counts = Counter(gpu.model for gpu in hello.gpus)
    return ", ".join(f"{count} x {model}" for model, count in counts.items()) or "none"


# Facts of a node in which nodes of one fleet should be alike. runner.nodes.node_table has those of its GPUs.
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
            name: [settings_facts(asdict(gpu)) for gpu in hello.gpus if gpu.model == model]
            for name, hello in said.items()
        }
        for what in OF_GPU:
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
    return tuple(combination.names().values())


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


# How each node fared in a run: in run.json, and in the last lines of the command. Pure.


_BEFORE = " (before the run was resumed)"


@dataclass(frozen=True)
class NodeOutcome:
    """One node at the end of a run. `why` it measured no longer; empty where it did to the end."""

    node: str
    why: str
    drained: bool


def outcome_entries(
    facts: Iterable[Entry], outcomes: Iterable[NodeOutcome], earlier: Iterable[Entry]
) -> list[dict[str, Any]]:
    """run.json's entries of the nodes: what each is, how it fared, and what happened to it `earlier`, before the run was resumed.

    Results from before the drain still count, so list the node. A node that is no longer there stays.
    """
    fared, before = {one.node: one for one in outcomes}, {entry["node"]: entry for entry in earlier}
    made: dict[str, dict[str, Any]] = {}
    for fact in facts:
        entry = dict(fact)
        if one := fared.get(entry["node"]):
            entry |= {"lost": one.why or None, "drained": one.drained}
        old = before.pop(entry["node"], {})
        if not entry.get("drained") and old.get("drained"):
            entry |= {"lost": f"{str(old.get('lost') or '').removesuffix(_BEFORE)}{_BEFORE}", "drained": True}
        made[entry["node"]] = entry
    return [*made.values(), *map(dict, before.values())]


def last_words(outcomes: Sequence[NodeOutcome]) -> Iterator[str]:
    """The last sentences on the nodes, the worst first. A reason that many nodes share is said once."""
    if drained := [one.node for one in outcomes if one.drained]:
        yield f"drained: {', '.join(drained)}; look at these nodes before you use them again"
    reasons: dict[str, list[str]] = {}
    for one in outcomes:
        if one.why and not one.drained:
            reasons.setdefault(one.why, []).append(one.node)
    if reasons:
        yield "lost: " + "; ".join(f"{listed(names)} ({why})" for why, names in reasons.items())
