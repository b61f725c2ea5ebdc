"""Batch normalisation with running statistics, as a float64 reference has it in training and in evaluation.

In training each of `parts` equal parts of the batch is normalised by its own mean and biased variance (epsilon 1e-5): one part is the
plain normalisation, several are devices that share a batch and exchange nothing but gradients. Every training step moves the
running statistics a tenth of the way to the batch's; of several devices they are the mean of what each would hold.
"""

import numpy as np

from bench import reference

EPSILON = 1e-5
STEP = 0.1  # how far a step moves the running statistics
STATISTICS = ("mean", "variance")  # their kinds among the Parameters: what a step moves without a gradient


def in_training(p, name, x, rounding, parts=1):
    """(y, what in_training_gradient needs) of x (N, C, H, W); the running statistics in p move.

    Beside each running variance, which takes the unbiased estimate, p holds what the biased one would have made of it, its name ending
    in .biased (bench.parity.EITHER).
    """
    parts_normalised = [
        reference.batch_norm_training(part, p[name + ".weight"], p[name + ".bias"], EPSILON, rounding)
        for part in np.split(x, parts)
    ]
    y, means, variances, caches = zip(*parts_normalised)
    mean, variance = sum(means) / parts, sum(variances) / parts
    many = x.size // x.shape[1] // parts
    biased = name + ".running_var.biased"
    p.setdefault(biased, p[name + ".running_var"])  # both begin at the same
    unbiased = variance * many / (many - 1.0)
    for tensor, value in ((name + ".running_mean", mean), (name + ".running_var", unbiased), (biased, variance)):
        p[tensor] = rounding.stored(p[tensor], (1.0 - STEP) * p[tensor] + STEP * value)
    return np.concatenate(y), caches


def in_training_gradient(d, caches, rounding):
    """Gradients (dx, dscale, dshift): those of scale and shift are the sums over the parts."""
    gradients = [reference.batch_norm_gradient(*(pair + (rounding,))) for pair in zip(np.split(d, len(caches)), caches)]
    dx, dscales, dshifts = zip(*gradients)
    return np.concatenate(dx), sum(dscales), sum(dshifts)


def in_evaluation(p, name, x, rounding):
    """(y, nothing) of x, normalised with the running statistics."""
    statistics = [p["%s.%s" % (name, end)] for end in ("weight", "bias", "running_mean", "running_var")]
    return reference.batch_norm(x, *(statistics + [EPSILON, rounding])), None
