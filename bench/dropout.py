"""Does the measured adapter train with the workload's dropout? Three steps of it are held against the reference's over masks.

Under dropout what a step adds to a parameter, the gradient times the rate, is random. The reference computes three steps RUNS times in
float64, each time with masks of its own (bench.reference; the workload's draw_masks). Of each step and parameter it stores the mean M of
what the step adds, as a sketch (bench.parity.sketch), and the spread S = E||a - M||^2; and of all three steps together those of the
movement. A step's own part is its movement less the momentum times the movement of the step before. Of an adapter's one a:

landing     <a - M, M> / ||M||^2: how far it moves along the mean, beyond it. It sees the rate, the momentum, the loss, the batches, steps
            that are skipped, a missing factor 1 / (1 - p).
dropout     log(||a - M|| / sqrt(S)): its distance from the mean against the reference's own. It sees the rates of dropout, masks
            that are shared, a network that moves elsewhere; and in the movement of all steps together ("together"), masks that repeat.

Each is the mean over the steps, for each parameter. The part of chance follows from the reference's own runs: each is held against the
others in the same way, and the bound is MARGIN times the deviation of what comes out.

The case is that of the parity check with the workload's adjust_dropout: the last layer is zero. So in the first step no mask has a part
in the loss, which makes two more statements of "landing" exact: the last bias moves by the rate times a known gradient ("first step"), and
no other layer has a gradient, and stays where it is, unless something shrinks it ("at rest").

Masks change which gradient a step has, and not how many digits a number of it has. So one more statement of "landing", "digits", is about
what each step adds, number by number: its digits show the type in which the gradient of that tensor was computed.
"""

import collections
import math

import numpy as np

from bench import arithmetic, canonical, contract, mixed, parity, rules, sketches

# Of the reference, each with masks of its own. The deviation of a statistic is then known to 9 %.
RUNS = 64
# The bound in deviations of one run.
MARGIN = 6.0
# All steps together, beside the single ones.
TOGETHER = "together"
# Of the square of a distance and its expected value: where nothing is drawn, the logarithm is still a number.
SMALLEST_RATIO = 1e-30
# The sums that a large tensor is sketched to.
BUCKETS = 8192
# How far the first step of the last bias may be off: some roundings of float32, or a sum of 64 bfloat16 values whose partial sums are
# rounded, too. The gradients of a class nearly cancel: in 2 000 random orders such a running sum errs by 0.048 in the square mean, by 0.085
# at most, and by 0.008 where float32 sums. PyTorch's on an H200 errs by 0.022.
FIRST_STEP, FIRST_STEP_IN_HALF = 1e-5, 0.09
# A number at rest may err by one rounding of float32. A weight decay of 1e-4 at a rate of 0.01 moves it by 1e-6.
AT_REST = 2.0**-24
# The digits of bfloat16 and of float16. TensorFloat-32 has as many as float16.
HALF_DIGITS = 8, 11
# A number counts as one of a half type within this part of the half type's spacing. So twice this is the share that counts by chance.
NEAR = 0.1
# Only a number whose own error is within this part of the spacing is counted: a half type's number is then always near.
TOLD = 0.05
# Of the numbers of a half type all are near.
SHARE_OF_HALF = 0.5
# Of so few numbers chance brings the share to a half at MARGIN deviations: 64. A tensor with fewer is not looked at.
FEWEST = int(round(2 * NEAR * (1 - 2 * NEAR) * (MARGIN / (SHARE_OF_HALF - 2 * NEAR)) ** 2))
# The digits are looked at in about so many numbers of a tensor.
DIGITS_OF = 2**15


def case(workload):
    """(parameters, batches): where the three steps begin, and what they are taken on."""
    parameters, batches = canonical.parity_case(workload)
    workload.adjust_dropout(parameters, batches)
    return parameters, batches


def last_layer(workload):
    """The names of the last layer's weights and bias."""
    return [spec.name for spec in workload.PARAMETERS[-2:]]


def movements(name, seed):
    """[tensor -> the sketch of its movement so far] after each of the reference's three steps, with masks drawn from a seed."""
    workload, random = contract.specification(name), np.random.RandomState(seed)
    parameters, batches = case(workload)
    p = collections.OrderedDict((tensor, value.astype(np.float64)) for tensor, value in parameters.items())
    optimizer, rounding, moved, by_tensor = workload.optimizer(), arithmetic.Exact(), [], sketches_of(parameters)
    for x, y in batches:
        masks = workload.draw_masks(random, len(x))
        gradients = workload.loss_and_gradients(p, x.astype(np.float64), y, rounding, masks=masks)[2]
        optimizer.update(p, gradients, rounding)
        moved.append(sketched(by_tensor, sketches.movement(parameters, p)))
    return moved


def sketches_of(parameters):
    """tensor -> what its movement is compared by."""
    return {tensor: sketches.Sketch(tensor, value.size, BUCKETS) for tensor, value in parameters.items()}


def sketched(by_tensor, moved):
    """A movement, each tensor as its sketch."""
    return collections.OrderedDict((tensor, by_tensor[tensor].of(one)) for tensor, one in moved.items())


def parts(moved, momentum):
    """(part, tensor) -> what is held against the reference: of each step ("1", "2", ...) what it adds; TOGETHER, the whole movement."""
    found, before, last = collections.OrderedDict(), None, None
    for step, now in enumerate(moved, 1):
        for tensor in now:
            change = now[tensor] - (before[tensor] if before else 0.0)
            found[str(step), tensor] = change - (momentum * last[tensor] if last else 0.0)
        last = {tensor: now[tensor] - (before[tensor] if before else 0.0) for tensor in now}
        before = now
    found.update(((TOGETHER, tensor), value) for tensor, value in moved[-1].items())
    return found


def first_step(name):
    """The movement of the last bias in the first step, in float64: no mask has a part in it."""
    workload = contract.specification(name)
    parameters, batches = case(workload)
    p = collections.OrderedDict((tensor, value.astype(np.float64)) for tensor, value in parameters.items())
    (x, y), bias = batches[0], last_layer(workload)[1]
    before, rounding = p[bias].copy(), arithmetic.Exact()
    gradients = workload.loss_and_gradients(p, x.astype(np.float64), y, rounding)[2]
    workload.optimizer().update(p, gradients, rounding)
    return p[bias] - before


def make_reference(name):
    """The arrays to store, of RUNS runs of the reference: `with_chance`, the keys joined by "/", and "first step"."""
    momentum = contract.specification(name).optimizer().momentum
    runs = [parts(movements(name, seed), momentum) for seed in range(RUNS)]
    stored_runs = {"/".join(key): value for key, value in with_chance(runs).items()}
    return dict(stored_runs, **{"first step": first_step(name)})


def with_chance(runs):
    """`summary` of the `parts` of some runs, with the deviation of each of the `statistics` of one run, under the key of that statistic.

    Each run is held against the others as a measured one is held against all.
    """
    chance = [statistics(run, summary(runs[:at] + runs[at + 1 :])) for at, run in enumerate(runs)]
    deviations = {key: np.array(np.sqrt(np.mean([one[key] ** 2 for one in chance]))) for key in chance[0]}
    deviations.update(summary(runs))
    return deviations


def summary(runs):
    """("mean", part, tensor) and ("spread", part, tensor): the spread is what one more run is expected to have about this mean.

    A part that no mask changes is left out.
    """
    found = {}
    for key in runs[0]:
        values = np.array([run[key] for run in runs])
        mean, spread = values.mean(axis=0), values.var(axis=0, ddof=1).sum() * (1.0 + 1.0 / len(runs))
        if spread > 1e-12 * mean.dot(mean):
            found[("mean",) + key], found[("spread",) + key] = mean.astype(np.float32), np.array(spread)
    return found


def statistics(run, stored_runs):
    """("landing" or "dropout", tensor) -> the mean over the steps of the statistic of one run's `parts`, about 0 where it is as expected.

    ("dropout", tensor and TOGETHER) is of all steps together.
    """
    values = collections.OrderedDict()
    for (part, tensor), added in run.items():
        if ("mean", part, tensor) not in stored_runs:
            continue
        mean, spread = stored_runs["mean", part, tensor].astype(np.float64), float(stored_runs["spread", part, tensor])
        off = added - mean
        # The logarithm: the distances themselves have a long tail to the right. By them 1 of 250 right runs erred by 0.96 of a bound.
        distance = 0.5 * math.log(max(float(off.dot(off)) / spread, SMALLEST_RATIO))
        if part == TOGETHER:
            values["dropout", "%s, %s" % (tensor, TOGETHER)] = [distance]
        else:
            values.setdefault(("landing", tensor), []).append(float(off.dot(mean) / mean.dot(mean)))
            values.setdefault(("dropout", tensor), []).append(distance)
    return collections.OrderedDict((key, float(np.mean(of_steps))) for key, of_steps in values.items())


def stored(name):
    """The stored result of `with_chance` for a workload's reference, and ("first step",)."""
    with np.load(rules.dropout_path(name)) as file:
        return {tuple(key.split("/")): file[key] for key in file.files}


def check(name, training, precision, devices=1):
    """Hold three steps of an adapter built with training=True on `devices` devices against the stored runs: a list of parity.Result."""
    workload, known = contract.specification(name), stored(name)
    parameters, batches = case(workload)
    training.load(parameters)
    moved, checked, by_tensor, places = [], [], sketches_of(parameters), telling(parameters)
    samples = [sample(parameters, places)]
    for batch in batches:
        parity.take_steps(workload, training, devices, [batch], (None,))
        # The next step may write into the memory that was read.
        after = training.read()
        movement = sketches.movement(parameters, after)
        checked = checked or _of_the_first_step(workload, precision, movement, known["first step",])
        moved.append(sketched(by_tensor, movement))
        samples.append(sample(after, places))
    if not mixed.half(precision):
        checked.append(digits(workload.optimizer(), samples))
    return checked + results(parts(moved, workload.optimizer().momentum), known)


def _of_the_first_step(workload, precision, moved, expected):
    """The two exact statements about the first step: a list of parity.Result."""
    weights, bias = last_layer(workload)
    bound = FIRST_STEP_IN_HALF if mixed.half(precision) else FIRST_STEP
    checked = [_result("landing", bias + ", first step", parity.relative_error(moved[bias].piece(), expected), bound)]
    stirred = {tensor: _stirred(moved[tensor]) for tensor in moved if tensor not in (weights, bias)}
    most = max(stirred, key=stirred.get)
    return checked + [_result("landing", most + ", at rest", stirred[most], AT_REST)]


def _stirred(moved):
    """The norm of a movement, relative to what was moved."""
    return 0.0 if np.array_equal(*moved) else parity.relative_norm(moved.piece(), moved.before)


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


def digits(optimizer, samples):
    """The parity.Result of the tensor whose gradients look most like numbers of a half type, of all steps together.

    samples: the `sample` before the first step and after each. Whatever the masks, what a step adds is the rate times a gradient.
    """
    shares = {}
    for tensor in samples[0]:
        steps = [[one[tensor] for one in samples[max(0, last - 2) : last + 1]] for last in range(1, len(samples))]
        values, errors = (np.concatenate(of) for of in zip(*(gradient(optimizer, places) for places in steps)))
        shares[tensor] = max(share_of_half(values, errors, count) for count in HALF_DIGITS)
    most = max(shares, key=shares.get)
    return _result("landing", most + ", digits", shares[most], SHARE_OF_HALF)


def gradient(optimizer, places):
    """(the gradient of a step, how far off each of its numbers may be), from a tensor before the last step, before this one, and after it.

    A tensor that makes its first step has no place before the last one. Each place was rounded to float32 once; so were the velocity and
    its product with the rate.
    """
    rate, momentum, unit = optimizer.rate, optimizer.momentum, 2.0**-24
    before, after = places[-2:]
    steps, rounded = np.abs(after - before), np.abs(after)
    value = before - after
    if len(places) > 2:
        value = value - momentum * (places[0] - before)
        steps = steps + momentum * np.abs(before - places[0])
        rounded = rounded + momentum * np.abs(before)
    return value / rate, unit * (rounded + 4.0 * steps) / rate


def share_of_half(values, errors, count):
    """The share of the numbers that have no more than `count` digits, of those that are known well enough; 0 where these are few."""
    spacing = 2.0 ** (np.frexp(values)[1] - count)
    told = (values != 0) & (errors <= TOLD * spacing)
    if np.count_nonzero(told) < FEWEST:
        return 0.0
    places = values[told] / spacing[told]
    return float(np.mean(np.abs(places - np.round(places)) < NEAR))


def results(run, stored_runs):
    """A parity.Result of each of the `statistics` of one run's `parts`."""
    found = statistics(run, stored_runs)
    return [_result(key[0], key[1], abs(value), MARGIN * float(stored_runs[key])) for key, value in found.items()]


def _result(quantity, tensor, error, bound):
    error = error if np.isfinite(error) else float("inf")
    return parity.Result(quantity, tensor, error, bound, error <= bound)
