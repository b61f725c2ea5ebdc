"""A well-known message: how it is found, what it means, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A message, by a pattern that is in it."""

    pattern: str
    means: str
    fix: str
    # True for a fault of the machine that its fix removes: --resume measures such a repeat again, and the advice says so.
    again: bool = False
    # True for what many faults end with, such as a signal: a message of the machine beside it tells more.
    general: bool = False

    @property
    def advice(self) -> str:
        """The meaning, and what to do."""
        return f"{self.means}: {self.fix}{'; then --resume measures it again' if self.again else ''}"
