"""The gradient that three steps of an optimiser show, by the parameters before and after each and the gradients of the last two.

Adam. A step moves a number by D = -rate m' / (sqrt(v') + epsilon), with the corrected moments. m and v before the steps are not known. The
first step gives m for each v; the second one, with its gradient, gives v; so the third one is known, and what is told apart of it is the
part that its gradient adds. A factor that all gradients of all steps share is not seen: Adam's steps do not have it.
Momentum. A step less the momentum times the step before is the rate times the gradient.

Parameters are float32, so each place is off by half of its last digit. Each computation is repeated with places that are off by so much:
numbers that hang on it are not known, and the others err by the difference.
"""

import numpy as np

from bench import digits

UNIT = 2.0**-24
# The corrections 1 - beta^t are computed in float32. At t = 5 that of beta 0.999 is off by 1e-5 of itself.
CORRECTION = 1e-4
# A root of v that is larger than this many times the gradients of its tensor would hide any gradient, and explains none that is missing.
LARGEST_ROOT = 2e3
# A gradient is seen where it can move its number by so many roundings.
SEEN = 16.0
# A number whose rounding changes this part of what its gradient adds is not known.
KNOWN = 0.3


def missed(optimizer, places, gradients, number, axes=1):
    """(which numbers are known, how far each is off, how far rounding may take it), the last two relative to what the gradient adds.

    places: of some numbers, in float64, before three steps, between them and after them; gradients: of the last two; number: of the last
    step, from 1 on; axes: of the tensor, as only matrices decay in AdamW.
    """
    if hasattr(optimizer, "beta1"):
        decay = optimizer.rate * optimizer.decay if axes > 1 else 0.0
        found = [_adam(optimizer, places, gradients, number, decay, scale) for scale in _scales(optimizer)]
        # A writing by which nothing is known explains nothing.
        return min(found, key=lambda one: np.mean(one[1][one[0]]) if one[0].any() else np.inf)
    value, error = digits.gradient(optimizer, places[1:])
    due = gradients[1] + optimizer.decay * places[2]
    size = np.maximum(np.abs(gradients[1]), 1e-300)
    error = error / size
    known = (gradients[1] != 0) & (error < KNOWN)
    return known, np.minimum(1.0, np.abs(value - due) / size), error


def _scales(optimizer):
    """A framework's steps may be so many times those of the exact beta2, which is not a float32.

    PyTorch computes with the exact one. optax corrects by powers of the rounded one, which makes each step smaller; TensorFlow's kernel
    gives each gradient the weight 1 - beta2 of the rounded one in v, which makes each step larger. At 0.999 that is 6.5e-6 of a step: more
    than the rounding of most numbers, so that no v would explain the step of a number that had no gradient before.
    """
    part = abs(float(np.float32(optimizer.beta2)) - optimizer.beta2) / (2.0 * (1.0 - optimizer.beta2))
    return 1.0, 1.0 - part, 1.0 + part


def _adam(optimizer, places, gradients, number, decay, scale):
    steps = _steps(places, decay)
    # The correction 1 - beta2^t is computed in float32, too, as far off as the rounding of beta2^t.
    rounded = UNIT * (
        np.abs(places[1]) + np.abs(places[2]) + np.abs(steps[1]) / (1.0 - optimizer.beta2 ** max(1, number - 2))
    )
    live = (_most(optimizer, gradients[0], number - 1) > SEEN * rounded) & (gradients[1] != 0)
    off, known = _third(optimizer, steps, gradients, number, scale)
    error, near = np.zeros_like(off), known.copy()
    # Each place is off by itself. Two that are off together may make up for one another, and then a number by itself, such as the last bias
    # of two classes, seems to err by less than it does.
    for at, place in enumerate(places):
        most = np.zeros_like(off)
        for sign in (1, -1):
            moved = _steps(places[:at] + [place + sign * UNIT * np.abs(place)] + places[at + 1 :], decay)
            other, found = _third(optimizer, moved, gradients, number, scale)
            with np.errstate(invalid="ignore"):
                differ = np.abs(other - off)
            most = np.maximum(most, np.where(found & known & np.isfinite(differ), differ, 2.0))
            near |= found
        error += most
    # Of a gradient that adds next to nothing the first two steps hardly tell, and they may be off against each other.
    for sign in (1, -1):
        moved = [steps[0] + sign * (rounded + UNIT * np.abs(places[0])), steps[1] - sign * rounded, steps[2]]
        near |= _third(optimizer, moved, gradients, number, scale)[1]
    # If no v explains the second step, whatever the rounding, its gradient is another one.
    unexplained = live & ~near
    error[unexplained] = 0.0
    return unexplained | (live & known & (error < KNOWN)), np.where(known, np.minimum(1.0, off), 1.0), error


def _steps(places, decay):
    return [after - before + decay * before for before, after in zip(places, places[1:])]


def first(optimizer, before, after, gradient, number):
    """Of numbers that had no gradient before this step, as `missed`. Those that must move by more than rounding are known."""
    due = np.maximum(_most(optimizer, gradient, number), 1e-300)
    error = UNIT * (np.abs(before) + np.abs(after)) / due
    return error < 1.0 / SEEN, np.minimum(1.0, np.abs(after - before + np.sign(gradient) * due) / due), error


def at_rest(optimizer, places, number):
    """Which numbers move as Adam moves them without a gradient. places: before the step before the last, before the last, and after it.

    Then m = beta1 m and v = beta2 v: a step is the step before times a factor, which lies between those of a root of v much larger and
    much smaller than epsilon.
    """
    beta1, beta2 = optimizer.beta1, optimizer.beta2
    low = beta1 * (1.0 - beta1 ** (number - 1)) / (1.0 - beta1**number)
    high = low * np.sqrt((1.0 - beta2**number) / (beta2 * (1.0 - beta2 ** (number - 1))))
    before, now = places[1] - places[0], places[2] - places[1]
    rounded = UNIT * (np.abs(places[2]) + 2.0 * np.abs(places[1]) + np.abs(places[0])) + CORRECTION * np.abs(before)
    return (now >= np.minimum(low * before, high * before) - rounded) & (
        now <= np.maximum(low * before, high * before) + rounded
    )


def _most(optimizer, gradient, number):
    """How far a gradient alone moves a number, without moments: the most that it can add."""
    rate, epsilon = _corrected(optimizer, number)
    return (
        rate
        * (1.0 - optimizer.beta1)
        * np.abs(gradient)
        / (np.sqrt(1.0 - optimizer.beta2) * np.abs(gradient) + epsilon)
    )


def _third(optimizer, steps, gradients, number, scale):
    """(how far the third step is from the one that is due, relative to what its gradient adds; which have a v that explains the second)."""
    beta1, beta2 = optimizer.beta1, optimizer.beta2
    rates, epsilons = zip(*(_corrected(optimizer, number - back, scale) for back in (2, 1, 0)))
    off, explained = np.full(steps[0].shape, np.inf), np.zeros(steps[0].shape, bool)
    for root in _roots(optimizer, steps, gradients, rates, epsilons):
        with np.errstate(all="ignore"):
            m = beta1 * -steps[0] * (root + epsilons[0]) / rates[0] + (1.0 - beta1) * gradients[0]
            v = beta2 * root * root + (1.0 - beta2) * gradients[0] ** 2
            without = -rates[2] * beta1 * m / (np.sqrt(beta2 * v) + epsilons[2])
            m, v = beta1 * m + (1.0 - beta1) * gradients[1], beta2 * v + (1.0 - beta2) * gradients[1] ** 2
            due = -rates[2] * m / (np.sqrt(v) + epsilons[2])
            # Infinite or NaN where the last gradient is so small that it adds nothing: of such a number nothing is known.
            off = np.fmin(off, np.abs(steps[2] - due) / np.abs(due - without))
        explained |= np.isfinite(root)
    return off, explained


def _corrected(optimizer, number, scale=1.0):
    """The rate, scaled, and the epsilon of a step, for moments that are not corrected."""
    root = np.sqrt(1.0 - optimizer.beta2**number)
    return scale * optimizer.rate * root / (1.0 - optimizer.beta1 ** max(1, number)), optimizer.epsilon * root


def _roots(optimizer, steps, gradients, rates, epsilons):
    """The roots of v before the second step that explain it, one or two for each number; NaN where there is none.

    With q that root, a step k reads k (sqrt(beta2 q^2 + w) + epsilon) = b q - c: a square equation of q.
    """
    beta1, beta2, gradient = optimizer.beta1, optimizer.beta2, gradients[0]
    # Of a batch that the network knows by heart the gradients are small, so those of both batches say what is usual.
    usual = max(np.sqrt((one**2).sum() / max(1, np.count_nonzero(one))) for one in gradients)
    most = LARGEST_ROOT * np.maximum(np.abs(gradient), usual)
    w = (1.0 - beta2) * gradient**2
    k, b = steps[1], rates[1] * beta1 * steps[0] / rates[0]
    c = rates[1] * (1.0 - beta1) * gradient + k * epsilons[1] - b * epsilons[0]
    square, line, rest = k * k * beta2 - b * b, 2.0 * b * c, k * k * w - c * c
    with np.errstate(all="ignore"):
        half = -0.5 * (
            line + np.where(line >= 0, 1.0, -1.0) * np.sqrt(np.maximum(0.0, line * line - 4.0 * square * rest))
        )
        for root in (half / square, rest / half):
            left, right = k * np.sqrt(beta2 * root * root + w), b * root - c
            true = np.abs(left - right) <= 1e-6 * (np.abs(left) + np.abs(b * root) + np.abs(c))
            yield np.where(true & (root >= 0) & (root <= most), root, np.nan)
