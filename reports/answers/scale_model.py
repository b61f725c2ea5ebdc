"""The limit of more devices: a model of the step time by the number of devices, fitted to measured times. Pure functions.

    t(n) = compute(n) + 2 log2(n) latency + 2 (n - 1) / n transfer

compute(n) is a constant in weak scaling and 1 / n of one device's in strong. The rest is an all-reduce of the gradients by
reduce-scatter and all-gather (Rabenseifner's; Thakur, Rabenseifner and Gropp, Int. J. High Performance Computing Applications 19,
2005, 4.4): no algorithm sends less, and its latency grows with the logarithm, as that of NCCL's double binary trees does
(Jeaugey, NCCL 2.4, 2019), which it takes among many devices. A ring sends as much, but its latency grows with n - 1: a network
of rings scales worse than this says. Waiting for the slowest of n devices grows about as the logarithm too and is part of the
latency here. If gradients travel while others are still computed, latency and transfer are the parts that were not hidden.
The three terms are fitted without a negative one, to relative errors.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reports.wording import listing
from runner.results.statistics import SEED, Array, Estimate, error_draws, step_estimate

FEWEST_COUNTS = 3
DRAWS = 2000
# The share of drawn models that are faster than a bound. So the truth is at or above the bound in 95 of 100 simulated runs or more,
# on machines of the model's kind and of others (tests/unit/reports/answers/test_scaling.py). With 0.025 it was in 88 of 100 on one.
TAIL = 0.005
TERMS = ("compute", "latency", "transfer")


class ModelError(Exception):
    """The measured points are not enough for a model; the message says why."""


@dataclass(frozen=True)
class Bound:
    """The least that a step takes on a number of devices, in seconds."""

    devices: int
    seconds: float


@dataclass(frozen=True)
class Model:
    """The fitted terms in seconds, the deviation of the measured points from it, and bounds beyond them.

    `residual` is the relative standard deviation of the points from the model; None where the model has as many terms as points.
    A bound is no prediction. It assumes that more devices are joined as well as the measured ones are. Another switch, a network
    of rings, congestion, or communication that no longer hides behind computing make a step longer than that.
    """

    terms: Mapping[str, float]
    residual: float | None
    counts: tuple[int, ...]
    bounds: tuple[Bound, ...]


def features(counts: Sequence[int] | Array, strong: bool) -> Array:
    """(counts, terms): the factor of each term."""
    n = np.asarray(counts, dtype=np.float64)
    return np.stack([1 / n if strong else np.ones_like(n), 2 * np.log2(n), 2 * (n - 1) / n], axis=1)


def fit(counts: Sequence[int] | Array, seconds: Array, strong: bool) -> Array:
    """The terms of each of several sets of step times, (sets, counts) -> (sets, terms): least squares of relative errors, none negative.

    With three terms the best of all fits that leave some out is the exact answer (Lawson and Hanson, Solving Least Squares
    Problems, 1974, ch. 23: the solution is the plain one on its positive terms).
    """
    weighted = features(counts, strong)[None] / seconds[:, :, None]
    best = np.full((len(seconds), len(TERMS)), np.nan)
    least = np.full(len(seconds), np.inf)
    for size in range(1, len(TERMS) + 1):
        for chosen in itertools.combinations(range(len(TERMS)), size):
            part = weighted[:, :, chosen]
            solution = np.zeros((len(seconds), len(TERMS)))
            solution[:, chosen] = np.linalg.pinv(part).sum(axis=2)
            errors = ((np.einsum("snt,st->sn", weighted, solution) - 1) ** 2).sum(axis=1)
            better = (solution >= 0).all(axis=1) & (errors < least * (1 - 1e-9))
            best[better], least[better] = solution[better], errors[better]
    return best


def model(points: Mapping[int, Sequence[Array]], strong: bool, further: Sequence[int]) -> Model:
    """The model of measured step times: device count -> the windows of each repeat. Bounds the `further` counts. Raises ModelError."""
    counts = tuple(sorted(points))
    if len(counts) < FEWEST_COUNTS:
        measured = ", ".join(map(str, counts))
        raise ModelError(
            f"{len(counts)} device counts ({measured}): a model of three terms needs {FEWEST_COUNTS} or more, such as --devices 1,2,4"
        )
    steps = [step_estimate(points[count]) for count in counts]
    once = [str(count) for count, step in zip(counts, steps, strict=True) if step is None or step.error is None]
    if once:
        raise ModelError(
            f"one repeat on {listing(once)} device{'s' * (once != ['1'])} does not show how much another run would differ; "
            "measure with --repeats 3"
        )
    rng = np.random.default_rng(SEED)
    draws = np.stack([_draws(step, rng) for step in steps if step is not None], axis=1)
    middle = np.array([[step.value for step in steps if step is not None]])
    terms = fit(counts, middle, strong)[0]
    fitted = features(counts, strong) @ terms
    left = len(counts) - int((terms > 0).sum())
    residual = float(np.sqrt(np.sum(np.log(middle[0] / fitted) ** 2) / left)) if left else None
    draws = draws * np.exp((residual or 0.0) * rng.standard_normal(draws.shape))
    times = fit(counts, draws, strong) @ features(further, strong).T
    least = np.quantile(times, TAIL, axis=0) if further else ()
    return Model(
        dict(zip(TERMS, map(float, terms), strict=True)),
        residual,
        counts,
        tuple(Bound(count, float(seconds)) for count, seconds in zip(further, least, strict=True)),
    )


def _draws(step: Estimate, rng: np.random.Generator) -> Array:
    """Medians that other runs might have had."""
    # One degree of freedom can draw factors beyond floating point. 1e21 is far enough from any step time.
    return np.asarray(step.value * np.exp(np.clip(error_draws(step, rng, DRAWS), -50.0, 50.0)))
