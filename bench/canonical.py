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


def trained(workload, variant=""):
    """The names of the parameters that have a gradient: all but the running statistics of a normalisation."""
    return [spec.name for spec in specifications(workload, variant) if spec.kind not in ("mean", "variance")]


def compared(workload, variant=""):
    """The names of the trained parameters whose gradient is more than rounding."""
    return [name for name in trained(workload, variant) if name not in workload.SYMMETRIC]


def draw_parameters(workload, random, parity, variant=""):
    """name -> float32 array in the workload's order.

    For training, biases are zero and a batch normalisation is the identity. For parity and for inference they are random, so that one
    that is forgotten or doubled shows.
    """
    drawn = collections.OrderedDict()
    for spec in specifications(workload, variant):
        if spec.kind == "weight":
            value = _draw_weight(random, spec)
        elif parity:
            value = _RANDOM[spec.kind](random, spec.shape)
        else:
            value = np.full(spec.shape, _AT_START[spec.kind])
        drawn[spec.name] = np.ascontiguousarray(value, dtype=np.float32)
    return drawn


_RANDOM = {
    "bias": lambda random, shape: random.uniform(-0.1, 0.1, shape),
    "scale": lambda random, shape: random.uniform(0.5, 1.5, shape),
    "mean": lambda random, shape: random.normal(0.0, 0.1, shape),
    "variance": lambda random, shape: random.uniform(0.5, 1.5, shape),
}
_AT_START = {"bias": 0.0, "scale": 1.0, "mean": 0.0, "variance": 1.0}


def _draw_weight(random, spec):
    if spec.stacked == 1:
        return glorot_uniform(random, spec.shape, spec.fan_in, spec.fan_out)
    rows = spec.shape[0] // spec.stacked
    return np.concatenate(
        [glorot_uniform(random, (rows,) + spec.shape[1:], spec.fan_in, spec.fan_out) for _ in range(spec.stacked)]
    )


# One parameter. kind: "weight" | "bias" | "scale" | "mean" | "variance" (of a batch normalisation, whose shift is a bias); fan_in and
# fan_out are a weight's; `stacked` matrices (a GRU's gates) are drawn one after another.
Parameter = collections.namedtuple("Parameter", "name shape kind fan_in fan_out stacked")

# A framework's own layer that computes something else: a sentence, and the parameters that it lacks.
Variant = collections.namedtuple("Variant", "sentence without")


def weight(name, shape, fan_in, fan_out, stacked=1):
    return Parameter(name, shape, "weight", fan_in, fan_out, stacked)


def vector(name, size, kind):
    return Parameter(name, (size,), kind, None, None, 1)


def bias(name, size):
    return vector(name, size, "bias")


def convolution(name, inputs, outputs, size):
    """The weight (out, in, size, size) of a convolution without bias."""
    return [weight(name + ".weight", (outputs, inputs, size, size), inputs * size**2, outputs * size**2)]


def normalisation(name, size):
    """A batch normalisation's four vectors, with torchvision's names."""
    kinds = (("weight", "scale"), ("bias", "bias"), ("running_mean", "mean"), ("running_var", "variance"))
    return [vector("%s.%s" % (name, end), size, kind) for end, kind in kinds]


# (the specification's draw_batch, its Parameters ...) -> the case of the parity check.
_drawn = {}


def forget():
    """Free the case of the parity check; the next one is drawn again."""
    _drawn.clear()


def parity_case(workload, variant=""):
    """(parameters, batches) of the parity check, drawn in this order from PARITY_SEED; `batches` are the (x, y) of its steps,
    as many as the workload has PARITY_RATES.

    It is drawn once, until forget(). Each caller gets copies, so that no adapter changes the numbers of the next check.

    The batches differ. On a single one an adapter that keeps its first batch would pass, and so would an Adam that leaves alone the rows of
    an embedding that the batch does not name.
    """
    key = (workload.draw_batch,) + tuple(specifications(workload, variant))
    if key not in _drawn:
        random = np.random.RandomState(PARITY_SEED)
        parameters = draw_parameters(workload, random, True, variant)
        batches = [workload.draw_batch(random) for _ in workload.PARITY_RATES]
        workload.adjust_parity(parameters, batches)
        _drawn[key] = parameters, batches
    parameters, batches = _drawn[key]
    copied = collections.OrderedDict((name, value.copy()) for name, value in parameters.items())
    # Inference has no labels.
    return copied, [(x.copy(), None if y is None else y.copy()) for x, y in batches]
