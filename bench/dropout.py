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
in the loss, which makes three more statements of "landing" exact: the last bias moves by the rate times a known gradient ("first step");
no other layer has a gradient, and stays where it is, unless something shrinks it ("at rest"); and the last weights are the gradient times
the rate, so their digits show in which type it was computed ("digits").
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
# How far the first step of the last bias may be off: some roundings of float32, or of a sum of bfloat16 values.
FIRST_STEP, FIRST_STEP_IN_HALF = 1e-5, 2.0**-6
# A number at rest may err by one rounding of float32. A weight decay of 1e-4 at a rate of 0.01 moves it by 1e-6.
AT_REST = 2.0**-24
# In float32 hardly a number in a thousand has no more digits than a half type.
SHARE_OF_HALF = 0.5


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
    moved, checked, by_tensor = [], [], sketches_of(parameters)
    for batch in batches:
        parity.take_steps(workload, training, devices, [batch], (None,))
        # The next step may write into the memory that was read.
        movement = sketches.movement(parameters, training.read())
        checked = checked or _of_the_first_step(workload, precision, movement, known["first step",])
        moved.append(sketched(by_tensor, movement))
    return checked + results(parts(moved, workload.optimizer().momentum), known)


def _of_the_first_step(workload, precision, moved, expected):
    """The three exact statements about the first step: a list of parity.Result."""
    weights, bias = last_layer(workload)
    bound = FIRST_STEP_IN_HALF if mixed.half(precision) else FIRST_STEP
    checked = [_result("landing", bias + ", first step", parity.relative_error(moved[bias].piece(), expected), bound)]
    stirred = {tensor: _stirred(moved[tensor]) for tensor in moved if tensor not in (weights, bias)}
    most = max(stirred, key=stirred.get)
    checked.append(_result("landing", most + ", at rest", stirred[most], AT_REST))
    if not mixed.half(precision):
        share = share_of_half(moved[weights].piece() / workload.optimizer().rate)
        checked.append(_result("landing", weights + ", digits", share, SHARE_OF_HALF))
    return checked


def _stirred(moved):
    """The norm of a movement, relative to what was moved."""
    return 0.0 if np.array_equal(*moved) else parity.relative_norm(moved.piece(), moved.before)


def share_of_half(values):
    """The share of the numbers that have no more digits than float16 or bfloat16, whichever is more; 0 where all are zero.

    A float32 rounding is forgiven: each was multiplied by the rate in float32.
    """
    values = np.abs(values[values != 0])
    if not len(values):
        return 0.0
    fractions = np.frexp(values)[0]  # 0.5 to 1
    shares = []
    for bits in (8, 11):
        digits = fractions * 2.0**bits
        shares.append(np.mean(np.abs(digits - np.round(digits)) < 2.0 ** (bits - 22)))
    return float(max(shares))


def results(run, stored_runs):
    """A parity.Result of each of the `statistics` of one run's `parts`."""
    found = statistics(run, stored_runs)
    return [_result(key[0], key[1], abs(value), MARGIN * float(stored_runs[key])) for key, value in found.items()]


def _result(quantity, tensor, error, bound):
    error = error if np.isfinite(error) else float("inf")
    return parity.Result(quantity, tensor, error, bound, error <= bound)
