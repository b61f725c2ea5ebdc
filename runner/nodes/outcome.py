"""How each node fared in a run: in run.json, and in the last lines of the command. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.nodes.node_table import listed

Entry = Mapping[str, Any]

_BEFORE = " (before the run was resumed)"


@dataclass(frozen=True)
class NodeOutcome:
    """One node at the end of a run. `why` it measured no longer; empty where it did to the end."""

    node: str
    why: str
    drained: bool


def entries(facts: Iterable[Entry], outcomes: Iterable[NodeOutcome], earlier: Iterable[Entry]) -> list[dict[str, Any]]:
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
