"""The gap that another release of a framework may explain.

The limit is chosen, not measured: no healthy release was seen to take more than 1.21 times as long as another one, beside which it ran on a
CPU, and these intervals are wide (docs/verify.md has the table). Nothing was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

from runner.verify.references.facts import DifferentFact

EXPLAINED = 1.5

# The facts whose difference has this limit. Another processor, other data or other code explain any gap.
_LIMITED = frozenset({"framework_version"})


def explained_up_to(device_kind: str, excuses: Iterable[DifferentFact]) -> float | None:
    """The largest ratio that these differences explain; None where they may explain any."""
    return EXPLAINED if device_kind == "cpu" and {excuse.name for excuse in excuses} <= _LIMITED else None
