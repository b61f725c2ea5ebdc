"""What more devices would give: a model of the step time by the number of devices, fitted to measured times. Pure functions.

    t(n) = compute(n) + 2 log2(n) latency + 2 (n - 1) / n transfer

compute(n) is a constant in weak scaling and 1 / n of one device's in strong. The rest is an all-reduce of the gradients by
reduce-scatter and all-gather (Rabenseifner's; Thakur, Rabenseifner and Gropp, Int. J. High Performance Computing Applications 19,
2005, 4.4): no algorithm sends less, and its latency grows with the logarithm, as that of NCCL's double binary trees does
(Jeaugey, NCCL 2.4, 2019), which it takes among many devices. A ring sends as much, but its latency grows with n - 1: a network
of rings scales worse than this says. Waiting for the slowest of n devices grows about as the logarithm too and is part of the
latency here. Where gradients travel while others are still computed, latency and transfer are what could not be hidden.
The three terms are fitted without a negative one, to relative errors.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runner.results.statistics import LEVEL, SEED, Array, error_draws, fewest_windows, median_draws, median_estimate

FEWEST_COUNTS = 3
DRAWS = 1000
TERMS = ("compute", "latency", "transfer")


class ModelError(Exception):
    """The measured points are not enough for a model; the message says why."""


@dataclass(frozen=True)
class Prediction:
    """The step time at a number of devices in seconds, with its interval. `measured`: the number is not above the measured ones."""

    devices: int
    seconds: float
    low: float
    high: float
    measured: bool


@dataclass(frozen=True)
class Model:
    """The fitted terms in seconds, the deviation of the measured points from it, and what it predicts.

    `residual` is the relative standard deviation of the points from the model; None where the model has as many terms as points. The
    intervals include the noise of the points and this deviation. They do not include changes of the machine: another switch or rack.
    """

    terms: Mapping[str, float]
    residual: float | None
    counts: tuple[int, ...]
    predictions: tuple[Prediction, ...]


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


def model(points: Mapping[int, Sequence[Array]], strong: bool, predicted: Sequence[int]) -> Model:
    """The model of measured step times: device count -> the windows of each repeat. Predicts the `wanted` counts. Raises ModelError."""
    counts = tuple(sorted(points))
    if len(counts) < FEWEST_COUNTS:
        measured = ", ".join(map(str, counts))
        raise ModelError(
            f"{len(counts)} device counts ({measured}): a model of three terms needs {FEWEST_COUNTS} or more, such as --devices 1,2,4"
        )
    rng = np.random.default_rng(SEED)
    draws = np.stack([_draws(points[count], rng) for count in counts], axis=1)
    middle = np.array([[float(np.median(np.concatenate(list(points[count])))) for count in counts]])
    terms = fit(counts, middle, strong)[0]
    fitted = features(counts, strong) @ terms
    left = len(counts) - int((terms > 0).sum())
    residual = float(np.sqrt(np.sum(np.log(middle[0] / fitted) ** 2) / left)) if left else None
    draws = draws * np.exp((residual or 0.0) * rng.standard_normal(draws.shape))
    sets = fit(counts, draws, strong)
    return Model(
        dict(zip(TERMS, map(float, terms), strict=True)),
        residual,
        counts,
        tuple(_predicted(count, terms, sets, strong, counts[-1]) for count in predicted),
    )


def _predicted(count: int, terms: Array, sets: Array, strong: bool, largest: int) -> Prediction:
    row = features([count], strong)[0]
    low, high = np.quantile(sets @ row, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    value = float(row @ terms)
    return Prediction(count, value, min(value, float(low)), max(value, float(high)), count <= largest)


def _draws(repeats: Sequence[Array], rng: np.random.Generator) -> Array:
    """Medians that other runs might have had: of other repeats where there are several, else of other windows."""
    pooled = np.concatenate(list(repeats))
    step = median_estimate(repeats)
    if step is not None and step.error is not None and (step.error or step.inside):
        # One degree of freedom can draw factors beyond floating point. 1e21 is far enough from any step time.
        factors = np.exp(np.clip(error_draws(step, rng, DRAWS), -50.0, 50.0))
        return np.asarray(step.value * factors)
    if len(pooled) < fewest_windows():
        raise ModelError(f"a point has {len(pooled)} windows: an interval needs {fewest_windows()} or more")
    return median_draws(pooled, rng, DRAWS)
