"""Which images the disk can hold."""

from __future__ import annotations

from collections.abc import Mapping

from runner.catalog.images import Image
from runner.engines.base import Engine
from runner.engines.cell_cache import Room
from runner.plan.breadth import tiers
from runner.plan.plan import Cell, Plan, Skip

# The files of an environment, as they were counted: 3 889 of tinygrad to 28 407 of PyTorch.
LEAST_FILES, MOST_FILES = 3_900, 28_500

_OTHER_DISK = "take another disk: XDG_CACHE_HOME, or the engine's data-root"

# How the reason begins of an image that is left out for want of disk.
TOO_LARGE = "the disk cannot hold it"


def fitting(plan: Plan, images: Mapping[str, Image], engine: Engine) -> Plan:
    """The plan without the images that the disk cannot hold. Those that are measured first have the first claim on the disk.

    In the catalog's order the images of one framework would fill a small disk before the next framework has one.
    """
    folder = engine.images_folder()
    if not folder or not folder.exists():
        return plan
    room = Room.of(folder)
    free_bytes, free_files = room.bytes, room.files
    held: set[str] = set()  # the parts of the images that fit
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(cell.image for tier in tiers(plan.cells, images) for cell in tier):
        parts = engine.disk_parts(images[name])
        needed = sum(size for part, size in parts.items() if part not in held)
        # An image that is there takes no room, also on a disk that is full.
        if needed and free_files is not None and free_files < LEAST_FILES:
            reasons[name] = (
                f"{TOO_LARGE}: beside the images that come first the disk takes {free_files} more files, and an image has "
                f"{LEAST_FILES} or more (`df -i` counts them); "
                f"free some, or {_OTHER_DISK}"
            )
            continue
        if needed and needed > free_bytes:
            reasons[name] = (
                f"{TOO_LARGE} beside the images that come first: it takes about {needed / 1e9:.1f} GB; free some, choose with "
                f"--images, or {_OTHER_DISK}"
            )
            continue
        free_bytes -= needed
        if needed and free_files is not None:
            free_files -= LEAST_FILES
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
