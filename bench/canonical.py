"""Canonical numbers: parameters and one batch from a seeded generator whose stream is frozen across NumPy versions."""

import collections

import numpy as np

# The seed of the parity check. Training draws its parameters from the cell's own seed.
PARITY_SEED = 20171124


def glorot_uniform(random, shape, fan_in, fan_out):
    """Uniform on (-l, l), l = sqrt(6 / (fan_in + fan_out)); float64, C order (Glorot and Bengio 2010, eq. 16)."""
    limit = np.sqrt(6.0 / (fan_in + fan_out))
    return random.uniform(-limit, limit, shape)


def specifications(workload, variant=""):
    """The Parameters of a workload, or of one of its declared variants."""
    left_out = workload.VARIANTS[variant].without if variant else ()
    return [spec for spec in workload.PARAMETERS if spec.name not in left_out]


def draw_parameters(workload, random, parity, variant=""):
    """name -> float32 array in the workload's order.

    Biases are zero for training. For parity they are uniform(-0.1, 0.1), so that a forgotten or doubled bias shows.
    """
    drawn = collections.OrderedDict()
    for spec in specifications(workload, variant):
        if spec.fan_in is not None:
            value = _draw_weight(random, spec)
        elif parity:
            value = random.uniform(-0.1, 0.1, spec.shape)
        else:
            value = np.zeros(spec.shape)
        drawn[spec.name] = np.ascontiguousarray(value, dtype=np.float32)
    return drawn


def _draw_weight(random, spec):
    if spec.stacked == 1:
        return glorot_uniform(random, spec.shape, spec.fan_in, spec.fan_out)
    rows = spec.shape[0] // spec.stacked
    return np.concatenate(
        [glorot_uniform(random, (rows,) + spec.shape[1:], spec.fan_in, spec.fan_out) for _ in range(spec.stacked)]
    )


# One parameter: fan_in and fan_out are None for a bias; `stacked` matrices (a GRU's gates) are drawn one after another.
Parameter = collections.namedtuple("Parameter", "name shape fan_in fan_out stacked")

# What a framework's own layer computes instead: a sentence, and the parameters that do not exist in it.
Variant = collections.namedtuple("Variant", "sentence without")


def weight(name, shape, fan_in, fan_out, stacked=1):
    return Parameter(name, shape, fan_in, fan_out, stacked)


def bias(name, size):
    return Parameter(name, (size,), None, None, 1)


def parity_case(workload, variant=""):
    """(parameters, x, y) of the parity check: drawn in this order from PARITY_SEED."""
    random = np.random.RandomState(PARITY_SEED)
    parameters = draw_parameters(workload, random, True, variant)
    x, y = workload.draw_batch(random)
    return parameters, x, y
