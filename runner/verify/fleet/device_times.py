"""The time of each device of a fleet from its repeats, once what moved a block of them is taken out. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

import numpy as np

from runner.results.student import student_quantile
from runner.verify.outliers import Deviation

# The block of a repeat: (run id, number of the repeat).
Block = tuple[str, int]


def levels(repeats: Mapping[str, Mapping[Block, float]]) -> tuple[dict[str, float], bool]:
    """Each device's time from its repeats, and whether blocks were shared; `repeats` are seconds by device and block.

    Where blocks hold the repeats of most devices, a device's time is the median of its repeats' distances from the medians of their
    blocks: a drift from block to block then changes nothing, and that within a block changes only one repeat. A block that holds half of
    the devices or fewer is left out. Where no block is shared, a device's time is the median of its repeats.
    """
    logs, shared = within_blocks(repeats)
    return {device: math.exp(median(of_device)) for device, of_device in logs.items()}, shared


def within_blocks(repeats: Mapping[str, Mapping[Block, float]]) -> tuple[dict[str, list[float]], bool]:
    """The log of each repeat's time by device, once what moved its block is taken out, and whether blocks were shared."""
    blocks: dict[Block, list[float]] = {}
    for times in repeats.values():
        for block, seconds in times.items():
            blocks.setdefault(block, []).append(math.log(seconds))
    middles = {block: median(logs) for block, logs in blocks.items() if 2 * len(logs) > max(2, len(repeats))}
    if not middles:
        return {device: list(map(math.log, times.values())) for device, times in repeats.items()}, False
    level = median(middles.values())
    logs = {
        device: [level + math.log(seconds) - middles[block] for block, seconds in times.items() if block in middles]
        for device, times in repeats.items()
    }
    return {device: of_device for device, of_device in logs.items() if of_device}, True


def deviations(repeats: Mapping[str, Mapping[Block, float]]) -> tuple[Deviation, ...]:
    """How far each device is from the median of all, with 95 % intervals from the scatter of all devices' repeats."""
    logs = within_blocks(repeats)[0]
    gaps = {device: median(of_device) for device, of_device in logs.items()}
    middle = median(gaps.values()) if gaps else 0.0
    freedom = sum(len(of_device) - 1 for of_device in logs.values())
    squares = sum(float(np.sum((np.array(of_device) - np.mean(of_device)) ** 2)) for of_device in logs.values())
    found = []
    for device, gap in gaps.items():
        reach = None
        if freedom and len(logs[device]) > 1:
            reach = student_quantile(0.975, freedom) * math.sqrt(squares / freedom / len(logs[device]))
        ends = (None, None) if reach is None else (math.expm1(gap - middle - reach), math.expm1(gap - middle + reach))
        found.append(Deviation(device, math.expm1(gap - middle), *ends))
    return tuple(found)
