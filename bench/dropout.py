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

What else no mask changes is in bench.digits: "digits" of "landing", and the quantity "exact". Of the share of zeros among
the sums of activations, the mean and the deviation over the reference's runs are stored.
"""

import collections
import math

import numpy as np

from bench import arithmetic, canonical, contract, digits, mixed, parity, rules, sketches

# Of the reference, each with masks of its own. The deviation of a statistic is then known to 9 %.
RUNS = 64
# The bound in deviations of one run.
MARGIN = 6.0
# All steps together, beside the single ones.
TOGETHER = "together"
# Of the square of a distance and its expected value: where nothing is drawn, the logarithm is still a number.
SMALLEST_RATIO = 1e-30
# The sums that a large tensor is sketched to. The last layer's weights are fewer.
BUCKETS = 8192
# The key of what is stored of bench.digits' share of zeros.
ZEROS = "zeros"
# How far the first step of the last bias may be off: some roundings of float32, or a sum of 64 bfloat16 values whose partial sums are
# rounded, too. The gradients of a class nearly cancel: in 2 000 random orders such a running sum errs by 0.048 in the square mean, by 0.085
# at most, and by 0.008 where float32 sums. PyTorch's on an H200 errs by 0.022. A float16 has three bits more.
FIRST_STEP, FIRST_STEP_IN_HALF = 1e-5, {"bfloat16": 0.09, "float16": 0.09 / 8}
# How many numbers at rest may move: none. A gradient of zero moves nothing, in any type. A weight decay of 3e-6 at a rate of 0.01 is half
# of a float32's last digit, and moves one number of a hundred.
AT_REST = 0.5


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
    moved = [movements(name, seed) for seed in range(RUNS)]
    stored_runs = {"/".join(key): value for key, value in with_chance([parts(run, momentum) for run in moved]).items()}
    shares = [zeros(name, run[0][last_layer(contract.specification(name))[0]]) for run in moved]
    more = {"first step": first_step(name), ZEROS: np.array([np.mean(shares), np.std(shares, ddof=1)])}
    return dict(stored_runs, **more)


def zeros(name, moved):
    """bench.digits' share of zeros, of what the first step added to the last layer's weights, flat."""
    workload = contract.specification(name)
    shape = workload.PARAMETERS[-2].shape
    sums = digits.activation_sums(workload.optimizer(), moved.reshape(shape), workload.BATCH)[0]
    return digits.share_of_zeros(sums)


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
    """The stored result of `with_chance` for a workload's reference, ("first step",) and (ZEROS,)."""
    with np.load(rules.dropout_path(name)) as file:
        return {tuple(key.split("/")): file[key] for key in file.files}


def check(name, training, precision, devices=1):
    """Hold three steps of an adapter built with training=True on `devices` devices against the stored runs: a list of parity.Result."""
    workload, known = contract.specification(name), stored(name)
    parameters, batches = case(workload)
    training.load(parameters)
    moved, checked, by_tensor, weights = [], [], sketches_of(parameters), last_layer(workload)[0]
    trail = Trail(parameters, weights)
    for batch in batches:
        parity.take_steps(workload, training, devices, [batch], (None,))
        # The next step may write into the memory that was read.
        after = training.read()
        movement = sketches.movement(parameters, after)
        checked = checked or _of_the_first_step(workload, precision, movement, known["first step",])
        moved.append(sketched(by_tensor, movement))
        trail.add(after)
    if not mixed.half(precision):
        checked += _in_digits(name, trail, known[ZEROS,])
    return checked + results(parts(moved, workload.optimizer().momentum), known)


class Trail(object):
    """Of the parameters before some steps and after each: the numbers whose digits are looked at, and the last layer's weights."""

    def __init__(self, parameters, weights):
        self.places, self.name, self.samples, self.weights = digits.telling(parameters), weights, [], []
        self.add(parameters)

    def add(self, parameters):
        self.samples.append(digits.sample(parameters, self.places))
        self.weights.append(np.array(parameters[self.name], dtype=np.float64))

    def results(self, optimizer, end=""):
        """The tensor with the fewest digits; of steps from rest the silent units, too: a list of parity.Result."""
        shares = digits.digits(optimizer, self.samples, from_rest=not end)
        most = max(shares, key=shares.get)
        fewest = parity.exact(most, end + ", digits", shares[most])
        # In a trained network the gradients of many units are a hundredth of the momentum: they look silent, and are not.
        if end:
            return [fewest]
        pushed = max(digits.pushed(optimizer, self.weights[at : at + 3]) for at in range(len(self.weights) - 2))
        return [fewest._replace(quantity="landing"), parity.exact(self.name, ", silent units", pushed)]


def _in_digits(name, trail, stored_zeros):
    """The statements of bench.digits about the three steps: a list of parity.Result."""
    optimizer, (mean, deviation) = contract.specification(name).optimizer(), stored_zeros
    first = trail.weights[1] - trail.weights[0]
    sums, errors = digits.activation_sums(optimizer, first, contract.specification(name).BATCH)
    share = max(digits.share_of_half(sums.ravel(), errors.ravel(), count) for count in digits.HALF_DIGITS)
    return trail.results(optimizer) + [
        parity.exact(trail.name, ", activations", share),
        _result("exact", trail.name + ", zeros", abs(digits.share_of_zeros(sums) - mean), MARGIN * deviation),
    ]


def _of_the_first_step(workload, precision, moved, expected):
    """The two exact statements about the first step: a list of parity.Result."""
    weights, bias = last_layer(workload)
    bound = FIRST_STEP_IN_HALF.get(mixed.half(precision), FIRST_STEP)
    checked = [_result("landing", bias + ", first step", parity.relative_error(moved[bias].piece(), expected), bound)]
    stirred = {tensor: _stirred(moved[tensor]) for tensor in moved if tensor not in (weights, bias)}
    most = max(stirred, key=stirred.get)
    return checked + [_result("landing", most + ", at rest", stirred[most], AT_REST)]


def _stirred(moved):
    """How many numbers of a Moved are not what they were."""
    return float(np.count_nonzero(moved.after != moved.before))


def results(run, stored_runs):
    """A parity.Result of each of the `statistics` of one run's `parts`."""
    found = statistics(run, stored_runs)
    return [_result(key[0], key[1], abs(value), MARGIN * float(stored_runs[key])) for key, value in found.items()]


def _result(quantity, tensor, error, bound):
    error = error if np.isfinite(error) else float("inf")
    return parity.Result(quantity, tensor, error, bound, error <= bound)
