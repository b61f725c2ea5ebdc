"""Were the measured steps the workload's? Some are held by the adapter's own `probe`, which parity holds before in the canonical shape.

Parameters are copied before three steps that follow each other, and after them. The losses that the steps told are kept, and bench.items
works out which items they took. After all that is measured the parameters before the last two are loaded, and `probe` computes these
batches again, in parts of the canonical batch's size: so the kernels are those that parity held. Batch normalisation makes an item by
itself another function, so such networks compute the batch in one piece; under dropout the masks are those of the batch. So it is held,
relative to a bound that rounding explains:

loss             how far what the step told is from the mean of what `probe` says. Where the network chooses experts, the loss has a term of
                 the whole batch, which is no mean over parts of it: `probe` gives it of the batch in one piece, less the cross-entropy of
                 its own logits. A choice that rounding may turn moves the loss, and by no more than MOST_OF_A_CHOICE for each
gradient         of a tensor's |g|, by how much the step misses it: its direction and its size (bench.moments)
first gradients  the same of numbers that never moved before, of rows that an index selects: without moments a step shows any gradient
rows at rest     how many numbers of rows that the last batch did not name move otherwise than the moments say

Under dropout this needs the masks that were drawn (`masks` of bench.contract). Where an adapter cannot draw them again, it is held:
moved            the share of tensors of which no number moved
and, in any adapter at fp32 and tf32:
digits           those of g (bench.digits)
labels           how far g of the last bias, the mean of p - y over the items, is from that of these items, by the logits that the adapter
                 predicts without masks; relative to how far it would be if half of them were others. Of items that the network has learned
                 p - y is small beside what masks do, and nothing is said.
"""

import collections

import numpy as np

from bench import (
    arithmetic,
    canonical,
    contract,
    digits,
    dropout,
    items,
    mixed,
    moments,
    parity,
    proof,
    reference,
    rules,
    timing,
)

# Copies are made before so many steps, and after them.
STEPS = 3
END = ", measured step"
# Of a large tensor about so many numbers are looked at, evenly spread. Of an embedding so many that each row has some.
LOOKED_AT, LOOKED_AT_OF_ROWS = 2**14, 2**17
# Of the derived bounds: how many of the model's errors are allowed, as in bench.bounds.
MARGIN = 3.0
# A gradient that is missing errs by 1. Beyond this a bound would not see it.
MOST_MISSED = 0.5
# Of the numbers of a tensor this part, which misses most, is left out. In an embedding one number of some hundred has a gradient whose
# terms cancel beside what they were before, and then the arithmetic of its moments explains all of its movement.
LEFT_OUT = 0.02
# The two losses are computed each for itself, and the third step hangs on two gradients.
TWICE = 2.0
# By how much a choice that turns may move the loss, in nats of one position. Of the closest choices of moe-bytes 48 were turned by hand, in
# batches of its first 24 steps, and none moved it by more than 0.7.
MOST_OF_A_CHOICE = 1.0
# Of the squares of p - y, summed over the classes: 0.9 where nothing is learned. Honest steps err by 0.17 at most where it is above
# this, by 0.3 at 0.7 and by 1 at 0.5. A step of half of its items errs by 0.4 to 1.1.
UNLEARNED = 0.8
# Below this loss it is below UNLEARNED, and no logits are asked for: at a loss of 1.5 it is 0.7 without masks.
LOSS_UNLEARNED = 1.5

# A copy: batches and steps taken before it, the learning rate (None: the optimiser's own), the parameters, what dropout draws from next.
Copy = collections.namedtuple("Copy", "taken steps rate parameters masks")
# STEPS + 1 copies; of the last two steps the batches as they were handed over, and the losses that were told.
Steps = collections.namedtuple("Steps", "copies fed told")


class Watch(object):
    """Copies the parameters around STEPS steps of a timing.Loop.

    moment: after which share of the measurement; None: the last steps. An adapter sees no more of it than that its parameters are read.
    rate: the learning rate, where it is not the optimiser's own. It may be set anew.
    """

    def __init__(self, training, loop, moment, rate=None):
        self.training, self.loop, self.moment, self.rate = training, loop, moment, rate
        self.copies, self._taken, self.steps = [], {}, None

    def wants(self, share, left, per_window):
        """True if a copy comes before the next window; share: of the measurement that is over, left: how many windows probably are left."""
        if self.steps is not None:
            return False
        return share >= self.moment if self.moment is not None else left <= STEPS and per_window == 1

    def copy(self):
        """Called before each window that `wants` a copy. True: the window must have one step."""
        self._copy()
        if self.moment is not None:
            self._keep()
        return self.moment is not None and self.steps is None

    def after(self, loss):
        """Called after each window, and each further step, with the loss that its last step told."""
        self._taken = {at: kept for at, kept in self._taken.items() if at > self.loop.taken - STEPS}
        self._taken[self.loop.taken] = self.loop.last, loss

    def end(self, further):
        """Called after the last window; further: steps without a window may be taken, where the copies do not end with it."""
        if self.copies:
            self._copy()
            self._keep()
        for _ in range(timing.MOST_SKIPPED if further else 0):
            if self.steps is not None:
                break
            self._copy()
            self.after(self.training.value(self.loop.further()))
            self._copy()
            self._keep()

    def _copy(self):
        loop = self.loop
        if self.copies and self.copies[-1].taken == loop.taken:
            return
        now = Copy(loop.taken, loop.steps, self.rate, proof.numbers(self.training), self.training.masks())
        before = self.copies[-1] if self.copies else now
        # Between two copies one step was taken, which no loss scaler skipped, at one rate.
        if (now.taken - before.taken, now.steps - before.steps, now.rate) != (1, 1, before.rate):
            self.copies = []
        self.copies = self.copies[-STEPS:] + [now]

    def _keep(self):
        if len(self.copies) > STEPS:
            taken = [self._taken[at] for at in (self.loop.taken - 1, self.loop.taken)]
            self.steps = Steps(self.copies, *zip(*taken))


def reason(devices):
    """Why no measured steps of a cell are held, or None."""
    return "they are held on one device" if devices > 1 else None


def check(name, training, steps, batches, precision, first):
    """A list of parity.Result. It loads other parameters.

    batches: of the last two steps, as the data set has them, or None: then they are those that were handed over;
    first: the parameters that training began with.
    """
    workload, variant = contract.specification(name), parity.variant_of(training, name)
    results, masks = [], all(copy.masks is not None for copy in steps.copies)
    if rules.has_dropout(name):
        if not mixed.half(precision):
            results += _digits(workload, steps)
        results += _labels(workload, training, steps, *batches[1])
        if not masks:
            return results + [_all_moved(steps)]
    computed = [_probed(name, training, steps, batches, at, variant) for at in (0, 1)]
    bounds, errors = parity.bounds_of(name, precision, variant), []
    for at, (told, one) in enumerate(zip(steps.told, computed)):
        off, bound = abs(told - one.loss), one.loss_bound(name, precision, bounds)
        if workload.CHOOSES and off > bound:
            # Only here, as the reference takes as long as a step.
            bound += MOST_OF_A_CHOICE * close_choices(name, steps.copies[at + 1].parameters, *batches[at]) / one.items
        errors.append(off / bound)
    results.append(parity.exact("the loss", END + ", loss", max(errors)))
    return results + _followed(workload, steps, [one.gradients for one in computed], bounds, first, batches)


def _digits(workload, steps):
    trail = dropout.Trail(steps.copies[1].parameters, dropout.last_layer(workload)[0])
    for copy in steps.copies[2:]:
        trail.add(copy.parameters)
    return trail.results(workload.optimizer(), END)


def _all_moved(steps):
    """Each tensor moved in these steps: a parity.Result."""
    before, after = steps.copies[0].parameters, steps.copies[-1].parameters
    stayed = [tensor for tensor in before if np.array_equal(before[tensor], after[tensor])]
    return parity.exact(stayed[0] if stayed else "all tensors", END + ", moved", len(stayed))


class _Probed(object):
    """The answer of `probe` for one batch: the loss, the gradients of some numbers of each tensor, and what the bound of the loss needs."""

    def __init__(self):
        self.loss, self.gradients, self.items, self.squares, self.together = 0.0, {}, 0, 0.0, 0.0
        # Of the loss what is the mean cross-entropy of the logits.
        self.crossed = 0.0

    def add(self, logits, loss, gradients, labels, share):
        """share: of the whole batch."""
        self.loss += share * float(loss)
        for tensor, gradient in gradients.items():
            self.gradients[tensor] = self.gradients.get(tensor, 0.0) + share * looked_at(gradient)
        flat = np.asarray(logits, dtype=np.float64).reshape(-1, np.shape(logits)[-1])
        if labels.shape == np.shape(logits):
            slope = (reference.sigmoid(flat) - labels.reshape(flat.shape)) / flat.shape[1]
        else:
            crossed, slope = reference.softmax_cross_entropy(flat, labels.ravel(), arithmetic.Exact())
            self.crossed, slope = self.crossed + share * float(crossed), slope * len(flat)
        sizes = share / len(flat) * np.linalg.norm(flat, axis=1) * np.linalg.norm(slope, axis=1)
        self.items, self.squares, self.together = (
            self.items + len(flat),
            self.squares + (sizes**2).sum(),
            self.together + sizes.sum(),
        )

    def loss_bound(self, name, precision, bounds):
        """How far a loss may be off: by its logits, and by the sum of so many items.

        An item's loss errs by its logits' error along p - y: at most by the product of their sizes. The items err each for itself, or alike
        (ERRS_ALIKE of bench.contract, in a half type). A float32 sum of n terms of one sign errs by unit sqrt(n / 3) of it, in any order
        (bench.arithmetic).
        """
        alike = precision in rules.MIXED and contract.specification(name).ERRS_ALIKE
        of_logits = bounds["logits", "logits"] * (self.together if alike else np.sqrt(self.squares))
        return TWICE * (of_logits + MARGIN * 2.0**-24 * (1.0 + np.sqrt(self.items / 3.0)) * self.loss)


def _probed(name, training, steps, batches, at, variant):
    """The _Probed of one of the last two steps, at the parameters before it."""
    workload, copy, found = contract.specification(name), steps.copies[at + 1], _Probed()
    training.load({tensor: value.copy() for tensor, value in copy.parameters.items()})
    x, y = steps.fed[at] if batches is None else batches[at]
    count = len(y)
    size = part(workload, variant, count)
    for begin in range(0, count, size):
        own_x, own_y = x[begin : begin + size], y[begin : begin + size]
        given = (own_x, own_y) if batches is None else training.inputs(own_x, own_y)
        if copy.masks is not None:
            training.redraw(copy.masks)
        found.add(*training.probe(*given), labels=items.on_host(training.array_of(own_y)), share=size / float(count))
    if workload.CHOOSES:
        whole = _Probed()
        whole.add(*training.probe(*training.inputs(x, y)), labels=y, share=1.0)
        found.loss = found.crossed + (whole.loss - whole.crossed)
    return found


def close_choices(name, parameters, x, y):
    """How many positions of a batch have a choice that rounding may turn, in any layer (items.CLOSE)."""
    found = 0
    for item in range(len(y)):
        rounding = arithmetic.Exact()
        items.reference_logits(name, parameters, x[item : item + 1], y[item : item + 1], rounding)
        close = [gap <= items.CLOSE * np.abs(numbers).max() for numbers, gap in rounding.choices]
        found += np.count_nonzero(np.any(close, axis=0))
    return found


def part(workload, variant, count):
    """How many of `count` items `probe` takes at once."""
    canonical_count = len(canonical.parity_case(workload, variant)[1][0][1])
    normalised = any(spec.kind in ("mean", "variance") for spec in workload.PARAMETERS)
    return count if normalised or workload.DROPOUT or count % canonical_count else canonical_count


def _followed(workload, steps, gradients, bounds, first, batches):
    """Of all tensors the one whose step misses its gradient by most, and the statements about rows: a list of parity.Result."""
    optimizer, number = workload.optimizer(), steps.copies[-1].steps
    optimizer.rate = steps.copies[-1].rate or optimizer.rate
    results, errors = [], {}
    for tensor in gradients[0]:
        if tensor in workload.SYMMETRIC:
            continue
        places = [looked_at(copy.parameters[tensor]) for copy in steps.copies]
        of_tensor = [one[tensor] for one in gradients]
        with np.errstate(all="ignore"):
            known, off, rounded = moments.missed(
                optimizer, places, of_tensor, number, steps.copies[0].parameters[tensor].ndim
            )
        # A choice that rounding turns moves the gradient of an expert by up to 0.23 of it, and the gradient of the loss's term of the whole
        # batch, which that of its parts lacks, is up to 0.15 of a router's: only a large part that is missing is seen.
        bound = 1.0 if workload.CHOOSES else bounds["gradient", tensor]
        errors[tensor] = _share(known, off, rounded, np.abs(of_tensor[1]), bound)
        if np.array_equal(places[0], places[-1]) and np.any(of_tensor[1]):
            errors[tensor] = 1.0 / MOST_MISSED
        if workload.named and tensor in workload.named(batches[1][0]):
            results.append(_at_rest(workload, optimizer, steps, tensor, batches[1][0]))
            fresh = (places[2] == looked_at(first[tensor])) & (of_tensor[0] == 0)
            with np.errstate(all="ignore"):
                seen, off, rounded = moments.first(optimizer, places[2], places[3], of_tensor[1], number)
            error = _share(fresh & seen, off, rounded, np.ones_like(off), bound)
            results.append(parity.exact(tensor, END + ", first gradients", error))
    most = max(errors, key=errors.get)
    return [parity.exact(most, END + ", gradient", errors[most])] + results


def _share(known, off, rounded, sizes, bound):
    """By how much of their sizes the known numbers are off, in bounds. bound: of the relative error of the tensor's gradient.

    A bound of the 2-norm is one of the sum of all sizes, times sqrt(n) ||g|| / sum |g|.
    """
    whole, count = sizes[known].sum(), np.count_nonzero(sizes)
    if not whole:
        return 0.0
    spread = np.sqrt(count) * np.linalg.norm(sizes) / sizes.sum()
    derived = MARGIN * (sizes * rounded)[known].sum() / whole + TWICE * spread * bound
    missed = np.sort((sizes * off)[known])
    return missed[: len(missed) - int(LEFT_OUT * len(missed))].sum() / whole / min(MOST_MISSED, derived)


def _at_rest(workload, optimizer, steps, tensor, x):
    """How many numbers of the rows that a batch did not name move otherwise than without a gradient: a parity.Result."""
    places = [looked_at(copy.parameters[tensor], LOOKED_AT_OF_ROWS) for copy in steps.copies[1:]]
    others = np.ones(steps.copies[0].parameters[tensor].shape, dtype=bool)
    others[workload.named(x)[tensor]] = False
    moved = ~moments.at_rest(optimizer, places, steps.copies[-1].steps)
    return parity.exact(
        tensor, END + ", rows at rest", np.count_nonzero(moved & (looked_at(others, LOOKED_AT_OF_ROWS) > 0))
    )


def _labels(workload, training, steps, x, y):
    """`of_labels`, where the network has not learned its set."""
    if steps.told[-1] < LOSS_UNLEARNED:
        return []
    training.load(steps.copies[-1].parameters)
    return of_labels(workload, steps, y, training.predict(training.inputs(x, y)[0])[: len(y)])


def of_labels(workload, steps, y, logits):
    """The statement "labels": a list of parity.Result."""
    bias = dropout.last_layer(workload)[1]
    places = [np.array(copy.parameters[bias], dtype=np.float64) for copy in steps.copies[1:]]
    gradient, _ = digits.gradient(workload.optimizer(), places)
    _, of_each = reference.softmax_cross_entropy(np.array(logits, dtype=np.float64), y, arithmetic.Exact())
    size = np.linalg.norm(of_each)
    if len(y) * size**2 < UNLEARNED:
        return []
    return [parity.exact(bias, END + ", labels", np.linalg.norm(gradient - of_each.sum(axis=0)) / size)]


def looked_at(values, most=LOOKED_AT):
    """Some numbers of a tensor, flat, in float64."""
    flat = np.ravel(values)
    return flat[:: max(1, flat.size // most)].astype(np.float64)
