"""Exact statements about a step of momentum SGD, whatever the masks of dropout were.

digits        Masks change which gradient a step has, and not how many digits a number of it has: these show the type in which the
              gradient of a tensor was computed.
silent units  A unit that is off in all items of a batch has no gradient: its weights in the layer after it move on by momentum alone.
activations   Where the last layer is zero all logits are equal, and a step gives it sums of the last hidden activations. Some are of one
              item only, and show the activation's digits. Others are zero, as often as dropout and ReLU leave all items of a class out.
"""

import numpy as np

from bench import rules

# The digits of bfloat16 and of float16. TensorFloat-32 has as many as float16.
HALF_DIGITS = 8, 11
# A number counts as one of a half type within this part of the half type's spacing. So twice this is the share that counts by chance.
NEAR = 0.1
# Only a number whose own error is within this part of the spacing is counted. Below NEAR a half type's number is then always near.
TOLD = 0.09
# Of the numbers of a half type all are near.
SHARE_OF_HALF = rules.EXACT[", digits"]
# Of so few numbers chance brings the share to a half at six deviations: 64. A tensor with fewer is not looked at.
FEWEST = int(round(2 * NEAR * (1 - 2 * NEAR) * (6.0 / (SHARE_OF_HALF - 2 * NEAR)) ** 2))
# The digits are looked at in about so many numbers of a tensor.
DIGITS_OF = 2**15
# A unit is silent if all its weights move by one multiple of what they moved by before, within this part of it. A momentum that is kept
# in bfloat16 errs by 2^-9, so it is seen as silent, too.
ONE_MULTIPLE = 0.01
# Only weights whose multiple is known better than this are compared, and only units with so large a share of them. By chance seven
# multiples agree to a hundredth in one of 10^12 units.
MULTIPLE_KNOWN, SHARE_KNOWN = 1e-3, 0.7
# Units with a single small activation look silent and are not. Of fewer units than these nothing is said.
FEWEST_UNITS = 8
# A sum of activations counts as zero below this part of the largest one: it is a difference of two float32 sums of 64 terms.
ZERO = 1e-5


def telling(parameters):
    """tensor -> the flat places of the numbers whose digits are looked at: in a large tensor those near zero, which are rounded least."""
    places = {}
    for tensor, value in parameters.items():
        sizes = np.abs(np.ravel(value))
        places[tensor] = np.flatnonzero(sizes <= sizes.max() * min(1.0, DIGITS_OF / float(sizes.size)))
    return places


def sample(parameters, places):
    """tensor -> a copy, in float64, of the numbers at some flat places."""
    return {tensor: np.ravel(parameters[tensor])[at].astype(np.float64) for tensor, at in places.items()}


def digits(optimizer, samples, from_rest=True):
    """tensor -> the share of its gradients that look like numbers of a half type, of all steps together.

    samples: the `sample` before the first step and after each; from_rest: there was no step before, so the first one shows a gradient, too.
    Whatever the masks, what a step adds is the rate times a gradient.
    """
    shares = {}
    for tensor in samples[0]:
        steps = [
            [one[tensor] for one in samples[max(0, last - 2) : last + 1]]
            for last in range(1 if from_rest else 2, len(samples))
        ]
        values, errors = (np.concatenate(of) for of in zip(*(gradient(optimizer, places) for places in steps)))
        shares[tensor] = max(share_of_half(values, errors, count) for count in HALF_DIGITS)
    return shares


def gradient(optimizer, places):
    """(the gradient of a step, how far off each of its numbers may be), from a tensor before the last step, before this one, and after it.

    A tensor that makes its first step has no place before the last one. Each place was rounded to float32 once; so were the velocity and
    its product with the rate.
    """
    rate, momentum, unit = optimizer.rate, optimizer.momentum, 2.0**-24
    before, after = places[-2:]
    steps, rounded = np.abs(after - before), _rounding(after)
    value = before - after
    if len(places) > 2:
        value = value - momentum * (places[0] - before)
        steps = steps + momentum * np.abs(before - places[0])
        rounded = rounded + momentum * _rounding(before)
    return value / rate, (rounded + 4.0 * unit * steps) / rate


def _rounding(places):
    """How far a float32 may be off the number that was rounded to it: half of its last digit."""
    return 0.5 * np.spacing(np.abs(places).astype(np.float32)).astype(np.float64)


def share_of_half(values, errors, count):
    """The share of the numbers that have no more than `count` digits, of those that are known well enough; 0 where these are few."""
    spacing = 2.0 ** (np.frexp(values)[1] - count)
    told = (values != 0) & (errors <= TOLD * spacing)
    if np.count_nonzero(told) < FEWEST:
        return 0.0
    places = values[told] / spacing[told]
    return float(np.mean(np.abs(places - np.round(places)) < NEAR))


def pushed(optimizer, weights):
    """The share of the weights of silent units that move by something else than momentum; 0 where few units are silent.

    weights: of the last layer (classes, units), before the last step, before this one, and after it.
    """
    value, error = gradient(optimizer, weights)
    before = weights[1] - weights[0]
    known = (before != 0) & (error * optimizer.rate <= MULTIPLE_KNOWN * optimizer.momentum * np.abs(before))
    multiples = (weights[2] - weights[1]) / np.where(before == 0, 1.0, before)
    least = np.where(known, multiples, np.inf).min(axis=0)
    most = np.where(known, multiples, -np.inf).max(axis=0)
    silent = (known.mean(axis=0) >= SHARE_KNOWN) & (most - least <= ONE_MULTIPLE * np.abs(most))
    if np.count_nonzero(silent) < FEWEST_UNITS:
        return 0.0
    counted = known & silent
    return np.count_nonzero(counted & (np.abs(value) > error)) / float(np.count_nonzero(counted))


def activation_sums(optimizer, moved, items):
    """(the sums of the last hidden activations of each class (classes, units), how far off they may be).

    moved: what the first step added to a last layer (classes, units) that was zero. All classes then have one probability p, and the
    gradient of a weight is (p times the sum over all items, less that over the items of its class) / items. So a class without an active
    item has the largest gradient of a unit.
    """
    gradients = -moved / optimizer.rate
    sums = items * (gradients.max(axis=0) - gradients)
    return sums, items * 2.0**-24 * sums.max(axis=0) * np.ones_like(sums)


def share_of_zeros(sums):
    """The share of the classes and units without an active item."""
    return float(np.mean(sums <= ZERO * sums.max()))
