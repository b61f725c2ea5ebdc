"""Student's distribution, for as many degrees of freedom as repeats leave: no library of the host has it."""

from __future__ import annotations

import math
from statistics import NormalDist


def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t for probability in (0.5, 1) (Hill, Algorithm 396, CACM 13, 1970); good to five digits."""
    tail = 2 * (1 - probability)
    if freedom >= 1e6:
        return float(NormalDist().inv_cdf(probability))
    if abs(freedom - 2) < 1e-9:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    if abs(freedom - 1) < 1e-9:
        return 1 / math.tan(tail * math.pi / 2)
    a = 1 / (freedom - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * freedom
    x = d * tail
    y = x ** (2 / freedom)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(tail / 2)
        y = x * x
        if freedom < 5:
            c += 0.3 * (freedom - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = (
            (1 / (((freedom + 6) / (freedom * y) - 0.089 * d - 0.822) * (freedom + 2) * 3) + 0.5 / (freedom + 4)) * y
            - 1
        ) * (freedom + 1) / (freedom + 2) + 1 / y
    return math.sqrt(freedom * y)


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
