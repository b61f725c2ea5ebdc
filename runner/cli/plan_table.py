"""The plan as --dry-run shows it: for a person, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from reports.text import plural
from runner.plan.plan import Skip
from runner.run import progress
from runner.run.begin import Prospect

# So many combinations of an image are named one by one; more are counted.
_NAMED = 3


def print_plan(prospect: Prospect, as_json: bool) -> None:
    """What --dry-run shows: the cells, what is left out and why, what must be fetched, how long it will take."""
    jobs, fetch = prospect.jobs, prospect.fetch_bytes()
    seconds, expected = prospect.expected_seconds(jobs), prospect.durations.seconds
    if as_json:
        found = {
            "engine": prospect.engine.name,
            "why_engine": prospect.why_engine,
            "cells": [cell.as_dict() | {"expected_seconds": expected(cell)} for cell in prospect.plan.cells],
            "refused_gpus": [asdict(each) for each in prospect.machine.refused],
            "skipped": [asdict(skip) for skip in prospect.plan.skips],
            "repeats": prospect.options.repeats,
            "fetch_bytes": fetch,
            "expected_seconds": seconds,
        }
        print(json.dumps(found, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("workload", "framework", "mode", "image", "precision", "device", "expected", title="cells")
    for cell in prospect.plan.cells:
        device = f"{cell.devices} x {cell.device_model}, {cell.scaling}" if cell.devices > 1 else cell.device_model
        device += f" {cell.device_uuid}" if cell.device_uuid else ""
        row = (cell.workload, cell.framework, cell.mode, cell.image, cell.precision, device)
        table.add_row(*row, progress.minutes(expected(cell)))
    Console().print(table)
    for refused in prospect.machine.refused:
        print(f"not used: {refused.reason}")
    for reason, skips in prospect.plan.skipped_by_reason().items():
        print(f"left out: {', '.join(combinations(skips))}\n          {reason}")
    print(prospect.why_engine)
    print(
        f"{plural(len(jobs), 'cell')} to run, {len(prospect.plan.skips)} left out; to fetch or build: {fetch / 1e9:.2f} GB; "
        f"about {progress.minutes(seconds)} of measuring"
    )


def combinations(skips: Sequence[Skip]) -> list[str]:
    """What was left out for one reason, image by image."""
    by_image: dict[str, list[Skip]] = {}
    for skip in skips:
        by_image.setdefault(skip.image, []).append(skip)
    found: list[str] = []
    for image, of_image in by_image.items():
        named = dict.fromkeys(f"{image} ({skip.framework}, {skip.workload}, {skip.precision})" for skip in of_image)
        if len(named) > _NAMED:
            frameworks = ", ".join(dict.fromkeys(skip.framework for skip in of_image))
            named = {f"{image} ({len(named)} cells of {frameworks})": None}
        found += named
    return found
