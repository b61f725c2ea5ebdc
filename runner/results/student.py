"""Student's distribution, for as many degrees of freedom as repeats leave: no library of the host has it."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist


@functools.lru_cache(4096)
def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t for probability in (0.5, 1) and freedom from 1, whole or not; good to nine digits.

    By bisection of the tail: Hill's expansion (CACM 13, 1970), which is one step, is 17 % off just above one degree of
    freedom, and Welch's degrees of two repeats lie there.
    """
    if freedom >= 1e6:
        return float(NormalDist().inv_cdf(probability))
    tails = 2 * (1 - probability)
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > tails:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if student_tail(middle, freedom) > tails:
            low = middle
        else:
            high = middle
    return high


def student_tail(t: float, freedom: float) -> float:
    """P(|T| >= |t|) for Student's T: the incomplete beta function I_x(freedom/2, 1/2) at x = freedom / (freedom + t^2)
    by its continued fraction, evaluated as Lentz does (Press et al., Numerical Recipes, 2007, 6.4 and 6.14)."""
    x = freedom / (freedom + t * t)
    if x >= 1:
        return 1.0
    a, b = freedom / 2, 0.5
    # The fraction converges fast on one side of the mean; the other side is its mirror image.
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_fraction(1 - x, b, a)
    return _beta_fraction(x, a, b)


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
