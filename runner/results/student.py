"""The distributions of Student, of the studentized range and of a quotient of variances, for the few degrees of freedom of repeats.

No library of the host has them.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt


@functools.lru_cache(4096)
def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t for probability in (0.5, 1) and freedom from 1, whole or not; good to eight digits from 0.55.

    From a million degrees of freedom it is the normal one, which errs by 1e-6.

    By Newton's steps on the tail, whose slope is the density; a step that leaves the bracket doubles or halves it instead. Hill's
    expansion (CACM 13, 1970), which is one step, is 17 % off just above one degree of freedom, and Welch's degrees of two repeats lie
    there.
    """
    if freedom >= 1e6:
        return float(NormalDist().inv_cdf(probability))
    tails = 2 * (1 - probability)
    normal = NormalDist().inv_cdf(probability)
    # The quantile is above the normal one, and this is the next term of its expansion.
    low, high, at = normal, math.inf, normal + (normal**3 + normal) / (4 * freedom)
    # Just above 0.5 rounding may keep the bracket wide. Elsewhere some five steps are enough.
    for _ in range(100):
        tail = student_tail(at, freedom)
        low, high = (at, high) if tail > tails else (low, at)
        before, at = at, at + (tail - tails) / (2 * _student_density(at, freedom))
        if not low <= at <= high:
            at = min(2 * low, (low + high) / 2)
        elif abs(at - before) <= 1e-11 * at:
            break
        if high - low <= 1e-12 * low:
            break
    return at


def _student_density(t: float, freedom: float) -> float:
    half = (freedom + 1) / 2
    front = math.exp(math.lgamma(half) - math.lgamma(freedom / 2)) / math.sqrt(math.pi * freedom)
    return float(front * (1 + t * t / freedom) ** -half)


def student_tail(t: float, freedom: float) -> float:
    """P(|T| >= |t|) for Student's T: the square of T is the quotient of a variance of one degree of freedom and one of `freedom`."""
    return variance_tail(t * t, 1.0, freedom)


def variance_tail(ratio: float, above: float, below: float) -> float:
    """P(F >= ratio) of the quotient of two sample variances of so many degrees of freedom, whose populations' variances are equal.

    The incomplete beta function I_x(below/2, above/2) at x = below / (below + above ratio) by its continued fraction, evaluated as
    Lentz does (Press et al., Numerical Recipes, 2007, 6.4 and 6.14).
    """
    x = below / (below + above * ratio)
    if x >= 1:
        return 1.0
    a, b = below / 2, above / 2
    # The fraction converges fast on one side of the mean; the other side is its mirror image.
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_fraction(1 - x, b, a)
    return _beta_fraction(x, a, b)


def questions(levels: int, freedom: float, alpha: float) -> float:
    """As how many questions all pairs of so many levels count, so that together they err in `alpha` (Tukey's test).

    The pairs share the levels and one variance, so they count as fewer than levels (levels - 1) / 2. The degrees of freedom are
    rounded down to two digits: few quantiles then serve a whole report.
    """
    freedom = min(max(1.0, freedom), 1e6)
    step = 10.0 ** (math.floor(math.log10(freedom)) - 1)
    freedom = max(1.0, math.floor(freedom / step + 1e-9) * step)
    return alpha / student_tail(range_quantile(1 - alpha, levels, freedom) / math.sqrt(2), freedom)


@functools.lru_cache(4096)
def range_quantile(probability: float, levels: int, freedom: float) -> float:
    """Quantile of the studentized range: the range of so many normal values over a deviation of so many degrees of freedom."""
    # The deviation's distribution: chi over its root, on a grid of logarithms that holds nearly all of it.
    reach = 8 / math.sqrt(2 * freedom)
    deviations = np.geomspace(max(1e-6, 1 - reach), 1 + reach, 801)
    logs = freedom * np.log(deviations) - freedom * deviations**2 / 2
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    ranges, chances = _normal_range(levels)
    low, high = 0.0, 200.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if float(weights @ np.interp(middle * deviations, ranges, chances)) < probability:
            low = middle
        else:
            high = middle
    return high


@functools.lru_cache(256)
def _normal_range(levels: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Ranges on a grid, and the chance that so many standard normal values lie within each."""
    step, most = 0.02, 8.0
    places = np.arange(-most, most + step / 2, step)
    below = np.array([(1 + math.erf(place / math.sqrt(2))) / 2 for place in places])
    density = np.exp(-(places**2) / 2) / math.sqrt(2 * math.pi)
    chances = []
    for at in range(len(places)):
        # The largest value lies at a place, and all others at most so far below it.
        within = below - np.concatenate([np.zeros(at), below[: len(below) - at]])
        chances.append(levels * step * float(density @ within ** (levels - 1)))
    return step * np.arange(len(places), dtype=np.float64), np.minimum(1.0, np.array(chances, dtype=np.float64))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """I_x(a, b) for x below (a + 1) / (a + b + 2)."""
    if x <= 0:
        return 0.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    product = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for part in (even, odd):
            d = 1 / ((1 + part * d) or tiny)
            c = (1 + part / c) or tiny
            product *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return front * product
