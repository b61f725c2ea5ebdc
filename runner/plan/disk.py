"""Which images the disk can hold."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from runner.catalog.images import Image
from runner.engines.base import Engine
from runner.plan.breadth import tiers
from runner.plan.plan import Cell, Plan, Skip

# How the reason begins of an image that is left out for want of disk.
TOO_LARGE = "the disk cannot hold it"


def fitting(plan: Plan, images: Mapping[str, Image], engine: Engine) -> Plan:
    """The plan without the images that the disk cannot hold. Those that are measured first have the first claim on the disk.

    In the catalog's order the images of one framework would fill a small disk before the next framework has one.
    """
    folder = engine.images_folder()
    if not folder or not folder.exists():
        return plan
    free_bytes = shutil.disk_usage(folder).free
    held: set[str] = set()  # the parts of the images that fit
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(cell.image for tier in tiers(plan.cells, images) for cell in tier):
        parts = engine.disk_parts(images[name])
        needed = sum(size for part, size in parts.items() if part not in held)
        # An image that is there takes no room, also on a disk that is full.
        if needed and needed > free_bytes:
            reasons[name] = (
                f"{TOO_LARGE} beside the images that come first: it takes about {needed / 1e9:.1f} GB; free some, or choose "
                "with --images"
            )
            continue
        free_bytes -= needed
        held.update(parts)
    fits = tuple(cell for cell in plan.cells if cell.image not in reasons)
    left_out = [_skip(cell, reasons[cell.image]) for cell in plan.cells if cell.image in reasons]
    return Plan(fits, (*plan.skips, *left_out))


def _skip(cell: Cell, reason: str) -> Skip:
    return Skip(
        image=cell.image,
        framework=cell.framework,
        workload=cell.workload,
        precision=cell.precision,
        mode=cell.mode,
        device_kind=cell.device_kind,
        device_model=cell.device_model,
        devices=cell.devices,
        device_uuid=cell.device_uuid,
        reason=reason,
    )
