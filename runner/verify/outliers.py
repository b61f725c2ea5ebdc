"""Which of many devices of one model is slower than the others. No reference is needed. Pure and deterministic.

Each device is one number: its median step time. Its score is its distance from the fleet's median in units of the fleet's spread. The
spread is the standard deviation of the devices within CLIP robust deviations of that median. A robust deviation is 1.4826 times the
median absolute deviation, which less than half of the devices cannot change. Among fewer than FEWEST_TO_CLIP devices the spread is the
robust deviation itself. A device is slow when its score is above the score that the slowest of as many healthy devices exceeds in
FALSE_ALARM of all fleets. That limit is simulated for the fleet's size: the spread of a few devices is itself uncertain, so no normal
quantile holds for four GPUs. The limit holds where healthy devices scatter normally. With heavier tails more of them are called slow.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runner.results.statistics import SEED, Array

# Of healthy fleets in which any device is called slow, where devices scatter normally.
FALSE_ALARM = 0.01
FEWEST = 4
SIMULATED = 20_000
CLIP = 4.0

# With fewer devices the robust deviation alone gives the lower limit (simulated).
FEWEST_TO_CLIP = 12

# A fleet can be so even that a hundredth of a percent stands out; below this a device is not worth taking out.
SMALLEST_GAP = 0.02


@dataclass(frozen=True)
class Outlier:
    """A device that is slower than the others of its model."""

    device: str
    ratio: float  # its step time over the fleet's median
    score: float


@dataclass(frozen=True)
class Fleet:
    """The devices of one model, with those that are slow."""

    devices: int
    step_seconds: float  # the fleet's median
    spread: float  # robust standard deviation of the log step times
    limit: float | None  # the score beyond which a device is slow; None where nothing can be said
    slow: tuple[Outlier, ...]
    why_not: str = ""  # why nothing can be said


def fleet_of(step_seconds: Mapping[str, float]) -> Fleet:
    """The slow devices among those of one model; `step_seconds` is each device's median over all its repeats."""
    names, logs = list(step_seconds), np.log(np.array(list(step_seconds.values()), dtype=np.float64))
    middle = float(np.median(logs)) if names else 0.0
    if len(names) < FEWEST:
        why = f"{len(names)} devices: at least {FEWEST} are needed to tell which one is slow"
        return Fleet(len(names), math.exp(middle), 0.0, None, (), why)
    limit = score_limit(len(names))
    spread = float(_spread(logs))
    slow = []
    for name, log in zip(names, logs, strict=True):
        gap = float(log) - middle
        score = gap / spread if spread > 0 else math.inf if gap > 0 else 0.0
        if score > limit and gap > math.log1p(SMALLEST_GAP):
            slow.append(Outlier(name, math.exp(gap), score))
    return Fleet(len(names), math.exp(middle), spread, limit, tuple(sorted(slow, key=lambda outlier: -outlier.ratio)))


def _spread(logs: Array) -> Array:
    """The standard deviation about the median, along the last axis, of what lies within CLIP robust deviations of it."""
    gaps = np.abs(logs - np.median(logs, axis=-1, keepdims=True))
    robust = 1.4826 * np.median(gaps, axis=-1, keepdims=True)
    if logs.shape[-1] < FEWEST_TO_CLIP:
        return np.asarray(robust[..., 0], dtype=np.float64)
    near = gaps <= CLIP * robust
    return np.asarray(np.sqrt(np.sum(near * gaps**2, axis=-1) / np.sum(near, axis=-1)), dtype=np.float64)


@functools.cache
def score_limit(devices: int) -> float:
    """The score that the slowest of so many alike, normal devices exceeds in FALSE_ALARM of all fleets."""
    logs = np.random.default_rng(SEED).standard_normal((SIMULATED, devices))
    highest = (logs.max(axis=1) - np.median(logs, axis=1)) / _spread(logs)
    return float(np.quantile(highest, 1 - FALSE_ALARM))
