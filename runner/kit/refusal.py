"""The checks that the bench refused: a framework or a device that lacks a precision has not failed. Pure."""

from __future__ import annotations

_UNSUPPORTED = "bench.errors.Unsupported: "


def refusal(log: str) -> str | None:
    """The sentence with which a step that ended badly was refused as not supported; None where it was not."""
    last = (log.strip().splitlines() or [""])[-1]
    return last.removeprefix(_UNSUPPORTED)[:300] if last.startswith(_UNSUPPORTED) else None
