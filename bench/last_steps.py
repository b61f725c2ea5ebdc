"""Were the last measured steps the workload's, too? They are held without a `load`, which a counter, a cache or a schedule would notice.

Parameters are kept before the last two steps and after them. The bench knows the items of the last one (bench.items).

Adam, of a workload that is FOLLOWED. What a step moves a number by is D = rate m' / (sqrt(v') + epsilon), with the corrected moments. Both
are unknown, but a number without a gradient has m = beta1 m and v = beta2 v: so D is its last D times a factor, which lies between those
of a root much larger and much smaller than epsilon. Where there is a gradient g, D less that has the sign of g, unless v grows so much that
some v explains it. NumPy computes g in float32 from the parameters before the step. Then it is held:
rows at rest  how many numbers of rows that the last batch did not name move otherwise, and of those that it named do so
direction     of a tensor's |g|, the share of the numbers that do not follow: that a batch, its labels or some of its items are others

Momentum, under dropout: g depends on the masks, so it is not computed. It is held:
digits        those of g (bench.digits)
labels        how far g of the last bias, the mean of p - y over the items, is from that of these items, by the logits that the adapter
              predicts without masks; relative to how far it would be if half of them were others. Of items that the network has learned
              p - y is small beside what masks do, and nothing is said.
Which pictures they were is not seen.
"""

import numpy as np

from bench import arithmetic, contract, digits, dropout, mixed, parity, reference, rules

STEPS = 2
END = ", last step"
# Of Adam's steps. In a network that has learned its set a gradient may be too small beside the moments to be seen in float32.
MOST_STEPS = 200
# Of a large tensor about so many numbers are looked at, evenly spread. So each row of an embedding has some.
LOOKED_AT = 2**17
# A gradient of this part of the tensor's largest one is seen beside any moments.
LARGE = 1e-2
# In a tensor of fewer numbers one that hardly has a gradient is a large share of it.
FEWEST = 1024
# The roots of v, in |g|, that may explain how a number moved: v is not known.
ROOTS = 10.0 ** np.linspace(-2.0, 2.0, 41)
# The corrections 1 - beta^t are computed in float32. At t = 5 that of beta 0.999 is off by 1e-5 of itself.
CORRECTION = 1e-4
# Of the squares of p - y, summed over the classes: 0.9 where nothing is learned. Honest steps err by 0.17 at most where it is above
# this, by 0.3 at 0.7 and by 1 at 0.5. A step of half of its items errs by 0.4 to 1.1.
UNLEARNED = 0.8
# Below this loss it is below UNLEARNED, and no logits are asked for: at a loss of 1.5 it is 0.7 without masks.
LOSS_UNLEARNED = 1.5


def reason(options, workload):
    """Why the last steps of a cell are not held, or None."""
    if options.devices > 1:
        return "they are held on one device"
    if mixed.half(options.precision):
        return "they are held at fp32 and tf32"
    if not (workload.FOLLOWED or rules.has_dropout(options.workload)):
        return "the reference takes too long for a step of it"
    return None


def needs_logits(name, losses):
    """True if `check` takes logits. losses: steps so far -> loss, or None where it is not finite."""
    return rules.has_dropout(name) and (losses[max(losses)] or 0.0) >= LOSS_UNLEARNED


def check(name, copies, x, y, steps, variant="", logits=None):
    """A list of parity.Result. copies: the parameters before the last two steps and after them; steps: how many were taken in all.

    logits: of the items of the last step, as the adapter predicts them after it; of a workload with dropout that has not learned its set.
    """
    workload = contract.specification(name)
    if rules.has_dropout(name):
        trail = dropout.Trail(copies[0], dropout.last_layer(workload)[0])
        for copy in copies[1:]:
            trail.add(copy)
        labels = [] if logits is None else of_labels(workload, copies, y, logits)
        return trail.results(workload.optimizer(), END) + labels
    if steps > MOST_STEPS:
        return []
    x = x.astype(np.float32) if x.dtype.kind == "f" else x
    gradients = workload.loss_and_gradients(copies[1], x, y, arithmetic.Exact(), variant)[2]
    results, shares = [], {}
    for tensor, gradient in gradients.items():
        places = [looked_at(copy[tensor]).astype(np.float64) for copy in copies]
        follows, rests, still = moved(workload.optimizer(), places, looked_at(gradient), steps)
        sizes = np.abs(looked_at(gradient))
        if gradient.size >= FEWEST:
            shares[tensor] = sizes[~follows].sum(dtype=np.float64) / max(sizes.sum(dtype=np.float64), 1e-300)
        if workload.named and tensor in workload.named(x):
            others = np.ones(gradient.shape, dtype=bool)
            others[workload.named(x)[tensor]] = False
            wrong = np.where(looked_at(others), ~rests, still & (sizes >= LARGE * sizes.max()))
            results.append(parity.exact(tensor, END + ", rows at rest", np.count_nonzero(wrong)))
    most = max(shares, key=shares.get)
    return results + [parity.exact(most, END + ", direction", shares[most])]


def of_labels(workload, copies, y, logits):
    """The statement "labels": a list of parity.Result."""
    bias = dropout.last_layer(workload)[1]
    gradient, _ = digits.gradient(workload.optimizer(), [np.array(copy[bias], dtype=np.float64) for copy in copies])
    _, of_each = reference.softmax_cross_entropy(np.array(logits, dtype=np.float64), y, arithmetic.Exact())
    size = np.linalg.norm(of_each)
    if len(y) * size**2 < UNLEARNED:
        return []
    return [parity.exact(bias, END + ", labels", np.linalg.norm(gradient - of_each.sum(axis=0)) / size)]


def looked_at(values):
    """Some numbers of a tensor, flat."""
    flat = np.ravel(values)
    return flat[:: max(1, flat.size // LOOKED_AT)]


def moved(optimizer, places, gradient, steps):
    """(which numbers follow their gradient, which move as they would without one, which do so to the last digits), of a step of Adam.

    places: of some numbers, before the step before it, before it, and after it; steps: its number, from 1 on.
    """
    beta1, beta2, unit = optimizer.beta1, optimizer.beta2, 2.0**-24
    # The factors of a root that is much smaller than epsilon, and of one that is much larger.
    low = beta1 * (1.0 - beta1 ** (steps - 1)) / (1.0 - beta1**steps)
    high = low * np.sqrt((1.0 - beta2**steps) / (beta2 * (1.0 - beta2 ** (steps - 1))))
    before, now = places[1] - places[0], places[2] - places[1]
    rounded = unit * (np.abs(places[2]) + 2.0 * np.abs(places[1]) + np.abs(places[0])) + CORRECTION * np.abs(before)
    more = now - high * before
    follows = (np.abs(more) > rounded) & (np.sign(more) == -np.sign(gradient))
    others = np.flatnonzero(~follows & (gradient != 0))
    follows[others] = _explained(optimizer, before[others], now[others], np.sign(gradient[others]), steps)
    between = np.minimum(low * before, high * before) - rounded, np.maximum(low * before, high * before) + rounded
    return follows, (now >= between[0]) & (now <= between[1]), np.abs(more) <= rounded


def _explained(optimizer, before, now, signs, steps):
    """Which numbers some v explains, where the growth of v outweighs the gradient; signs: of the gradients.

    With u = root of v / |g|, m = beta1 m + (1 - beta1) g reads: D a sqrt(beta2 u^2 + 1 - beta2) = beta1 D' a' u + 1 - beta1, along g, where
    a and a' undo the corrections. Next to the true u the left side is the larger one.
    """
    beta1, beta2 = optimizer.beta1, optimizer.beta2
    undone = [(1.0 - beta1**t) / np.sqrt(1.0 - beta2**t) / optimizer.rate for t in (steps - 1, steps)]
    explained = np.zeros(before.shape, dtype=bool)
    for u in ROOTS:
        left = -signs * now * undone[1] * np.sqrt(beta2 * u * u + 1.0 - beta2)
        explained |= left >= -signs * before * undone[0] * beta1 * u + 1.0 - beta1
    return explained
