"""The nodes that a run gave up for good: what they measured counts, and somebody must look at them."""

from __future__ import annotations

from collections.abc import Iterable

from reports.data.model import StoredRun
from runner.text import in_a_line

# Of a name and of a reason, both from run.json.
_MOST = 300


def drained(runs: Iterable[StoredRun]) -> tuple[str, ...]:
    """A sentence for each drained node of these runs: its name and the reason."""
    return tuple(
        f"Node {in_a_line(entry['node'], _MOST)} was drained: {in_a_line(entry.get('lost') or 'no reason is stored', _MOST)}. "
        "Look at it before you use it again."
        for run in runs
        for entry in run.manifest.get("nodes") or ()
        if entry.get("drained")
    )
