"""How many steps an Adam has taken that keeps beta^t, for its bias correction, and not t itself."""

import math

import numpy as np

# Below it a float32 loses digits: after 87273 steps with beta = 0.999.
LEAST = float(np.finfo(np.float32).tiny)


def steps(power, beta=0.999):
    """t, from a float32 that was multiplied by beta once a step; None where it has become too small.

    Rounding moves the result by less than 0.01 of a step until then (tests/unit/bench/test_powers.py).
    """
    power = float(power)
    return int(round(math.log(power) / math.log(np.float32(beta)))) if power >= LEAST else None
