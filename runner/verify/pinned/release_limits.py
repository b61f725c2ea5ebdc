"""The gap that a release explains: how many times as long as another healthy release one was seen to take, on one machine at one time.

Measured beside one another on a CPU; docs/verify.md has the table. Nothing was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

from runner.verify.references.facts import DifferentFact

RELEASES_DIFFER = {"torch": 1.5, "jax": 1.5, "tensorflow": 1.5}
# Of a framework that is not there, or stands on one that is, such as Keras.
_OTHERS = max(RELEASES_DIFFER.values())

# The facts of which such a difference was measured. Another processor, other data or other code explain any gap.
_MEASURED = frozenset({"framework_version"})


def limit_of(framework: str) -> float:
    """A ratio of step times that two healthy releases of a framework may have."""
    return RELEASES_DIFFER.get(framework, _OTHERS)


def explained_up_to(framework: str, device_kind: str, excuses: Iterable[DifferentFact]) -> float | None:
    """The largest ratio that these differences explain; None where they may explain any."""
    known = device_kind == "cpu" and {excuse.name for excuse in excuses} <= _MEASURED
    return limit_of(framework) if known else None
