"""Which steps the bench refused: a framework or a device that lacks a precision has not failed. Pure."""

from __future__ import annotations

import json

from runner.kit.steps import CELL

_UNSUPPORTED = "bench.errors.Unsupported: "


def refusal(kind: str, output: bytes, log: str) -> str | None:
    """The sentence with which a step that ended badly was refused as not supported; None where it was not."""
    if kind != CELL:
        last = (log.strip().splitlines() or [""])[-1]
        return last.removeprefix(_UNSUPPORTED)[:300] if last.startswith(_UNSUPPORTED) else None
    for line in output[-65536:].splitlines():
        if b'"error"' in line:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and event.get("event") == "error" and event.get("kind") == "unsupported":
                return str(event.get("message"))[:300]
    return None
