"""The parity gate: does this adapter compute what the specification says?

Canonical parameters and one canonical batch go through the adapter with dropout off. Logits, loss, the gradient of every
parameter and every parameter after three optimiser steps are held against the float64 reference (bench.reference), each as
the relative error ||a - b|| / ||b|| in the 2-norm. The reference is stored beside the workload, made by
`python -m bench reference WORKLOAD`; large tensors are stored as a sketch from which the error's norm is estimated.

Where the bounds come from. The reference is computed again RUNS times in Monte Carlo arithmetic, each result disturbed as much as the
precision would (bench.arithmetic.MonteCarlo gives the model and its derivation). The bound of a quantity is MARGIN times the largest
error in those runs. It contains what a count of operations misses: a ReLU or a maximum that changes its choice because a rounding error
moved its argument; Adam's division by a tiny second moment; and Adam's bias correction 1 - beta^t, whose float32 value is as far off as
the rounding of beta^t. The price is wide bounds on the gradients below the pools, where a single changed maximum among millions moves a
whole element of the gradient. Logits, loss, and the parameters after the steps are held to 1e-7 to 1e-4.
"""

import collections
import os
import zlib

import numpy as np

from bench import arithmetic, canonical, contract, mixed, rules
from bench.errors import Overflow, Unsupported

STEPS = 3
RUNS = 8
# The largest of 8 draws is the 89 % point of the error's distribution. A correct float32 stays below three times that: a normal error
# would need 4.8 deviations to exceed it. A wrong formula errs by orders of magnitude more.
MARGIN = 3.0
# The decay is measured to some per cent in float32. A decay that is missing, or applied to other tensors, is off by 100 %.
DECAY_BOUND = 0.2
# A specification may accept two values of a tensor. The second one's name ends so, and an adapter must have either.
EITHER = ".biased"

# precision -> the model of its arithmetic, from the source of its errors
ROUNDINGS = {
    "fp32": lambda random: arithmetic.MonteCarlo(random, 2.0**-24, 0.0),
    "tf32": lambda random: arithmetic.MonteCarlo(random, 2.0**-24, 2.0**-11),
    "amp-fp16": lambda random: arithmetic.Mixed(random, arithmetic.FLOAT16, mixed.INITIAL_SCALE),
    "amp-bf16": lambda random: arithmetic.Mixed(random, arithmetic.BFLOAT16, 1.0),
}

Result = collections.namedtuple("Result", "quantity tensor error bound passed")


def sketch(name, value, buckets=contract.Specification.BUCKETS):
    """float64 vector whose difference to another's has, up to 5 %, the 2-norm of the difference of the tensors.

    Small tensors are kept whole. Large ones are count-sketched (Charikar et al. 2002): each element is added with a random sign to one
    of so many sums; E||s||^2 = ||v||^2 with relative deviation sqrt(2 / buckets) on the square, 4.4 % for 1024.
    """
    flat = np.asarray(value, dtype=np.float64).ravel()
    if flat.size <= buckets:
        return flat
    random = np.random.RandomState(zlib.crc32(name.encode("ascii")))
    bucket = random.randint(0, buckets, flat.size)
    sign = random.randint(0, 2, flat.size) * 2.0 - 1.0
    return np.bincount(bucket, weights=flat * sign, minlength=buckets)


def quantities(workload, rounding, variant="", parts=1):
    """(quantity, tensor) -> float64 array: everything that is compared, from the canonical case.

    parts: of the batch, each normalised by itself, as several devices do for a workload that has PARTS.
    """
    parameters, x, y = canonical.parity_case(workload, variant)
    p = collections.OrderedDict((name, value.astype(np.float64)) for name, value in parameters.items())
    x = x.astype(np.float64) if x.dtype.kind == "f" else x
    if workload.features:  # inference only
        return {("features", "features"): workload.features(p, x, rounding)}
    optimizer = workload.optimizer()
    values = collections.OrderedDict()
    if workload.predict:
        values["prediction", "logits"] = workload.predict(p, x, rounding)
    how = {"parts": parts} if parts > 1 else {}
    for step in range(STEPS):
        optimizer.rate = workload.PARITY_RATES[step] or optimizer.rate
        logits, loss, gradients = workload.loss_and_gradients(p, x, y, rounding, variant, **how)
        gradients = collections.OrderedDict((name, g / rounding.scale) for name, g in gradients.items())
        if step == 0:
            values["logits", "logits"], values["loss", "loss"] = logits, np.array([loss])
            values.update((("gradient", name), gradients[name]) for name in p if name in gradients)
        optimizer.update(p, gradients, rounding)
    values.update((("parameter", name), value) for name, value in p.items())
    return values


def parts_of(workload, devices):
    """Into how many parts several devices share the canonical batch where each part is normalised by itself; 1 where none is."""
    return workload.PARTS if devices > 1 else 1


def dealt(workload, devices, array):
    """The canonical batch (or its labels) as so many devices take it, one equal share after another.

    Where each device normalises its own share, a share is one of the workload's PARTS, the same for several devices: their mean
    is then that of the parts, however many they are.
    """
    parts = parts_of(workload, devices)
    shares = array.reshape((parts, -1) + array.shape[1:])
    return shares.repeat(devices // parts if parts > 1 else 1, axis=0).reshape((-1,) + array.shape[1:])


def undealt(workload, devices, array):
    """The inverse of `dealt`, for results: the mean over the devices that had the same share."""
    parts = parts_of(workload, devices)
    copies = devices // parts if parts > 1 else 1
    shares = array.reshape((parts, copies, -1) + array.shape[1:])
    return shares.mean(axis=1).reshape((-1,) + array.shape[1:]) if copies > 1 else array


def relative_error(a, b):
    """||a - b|| / ||b||; inf where a is not finite."""
    difference = np.linalg.norm(np.asarray(a, dtype=np.float64).ravel() - b.ravel())
    return float(difference / np.linalg.norm(b)) if np.isfinite(difference) else float("inf")


def make_reference(name, variant="", devices=1):
    """The stored reference as a dict of arrays: "value/<quantity>/<tensor>" and "bound/<precision>/<quantity>/<tensor>"."""
    workload = contract.specification(name)
    parts = parts_of(workload, devices)
    exact = quantities(workload, arithmetic.Exact(), variant, parts)
    stored = {
        "value/%s/%s" % key: sketch(key[1].replace(EITHER, ""), value, workload.BUCKETS) for key, value in exact.items()
    }
    for precision in sorted(set(ROUNDINGS).intersection(rules.workload_declaration(name)["precisions"])):
        worst = dict.fromkeys(exact, 0.0)
        for run in range(RUNS):
            rounding = ROUNDINGS[precision](np.random.RandomState(run))
            for key, value in quantities(workload, rounding, variant, parts).items():
                # Results are stored in float32, so no error is smaller than its unit.
                worst[key] = max(worst[key], relative_error(value, exact[key]), 2.0**-24)
        stored.update(("bound/%s/%s/%s" % ((precision,) + key), np.array(MARGIN * e)) for key, e in worst.items())
    return stored


def reference_path(name, variant="", devices=1):
    """Where a workload's reference is stored. A variant has its own, and so have several devices where PARTS makes them differ."""
    name = rules.workload_declaration(name).get("computes") or name
    stem = name + "." + variant if variant else name
    stem += ".devices" if parts_of(contract.specification(name), devices) > 1 else ""
    return os.path.join(rules.WORKLOADS, stem + ".reference.npz")


def variant_of(training, name):
    """The variant that an adapter (class or object) declares; "" for the specification itself. Raises ValueError."""
    variant = training.VARIANT
    if variant and (variant not in contract.specification(name).VARIANTS or not training.VARIANT_REASON):
        raise ValueError("%s knows no variant %r, or the adapter gives no VARIANT_REASON" % (name, variant))
    return variant


def check(name, adapter, precision, devices=1):
    """Hold an adapter (built with training=False) on so many devices against the stored reference; a list of Result."""
    variant, workload = variant_of(adapter, name), contract.specification(name)
    parameters, x, y = canonical.parity_case(workload, variant)
    adapter.load(parameters)
    if isinstance(adapter, contract.Training):
        x, y = dealt(workload, devices, x), dealt(workload, devices, y)
        measured = _trained(adapter, workload, parameters, canonical.trained(workload, variant), x, y)
        measured[0] = measured[0][:2] + (undealt(workload, devices, measured[0][2]),)
    else:
        measured = [_features(adapter, x)]
    with np.load(reference_path(name, variant, devices)) as stored:
        results = [_nearest_result(stored, precision, *item) for item in measured]
        if mixed.half(precision):
            _refuse_float32(results, precision, float(stored["bound/fp32/logits/logits"]))
            results = [_in_float32(result, *item) for result, item in zip(results, measured)]
    return results + _decay(name, adapter, devices)


def _refuse_float32(results, precision, bound):
    """Raises Unsupported where the logits are within float32's bound: then nothing was computed in the half type."""
    error = next(result.error for result in results if result.quantity == "logits")
    if error <= bound:
        raise Unsupported(
            "%s: the logits err by %.2g, as float32's do; nothing was computed in %s"
            % (precision, error, mixed.half(precision))
        )


def _in_float32(result, quantity, tensor, value):
    """The result of a parameter, failed where the parameter is kept in the half type.

    The error does not show it: rounding a parameter in every step stays within the error of Adam's steps. Its digits do: in a float32
    tensor, a value in thousands has no more digits than the half type.
    """
    value = np.asarray(value, "float32").ravel()
    value = value[value != 0]
    if quantity != "parameter" or len(value) < 32:
        return result
    with np.errstate(over="ignore"):
        float16 = np.mean(value.astype("float16").astype("float32") == value)
    bfloat16 = np.mean(value.view("uint32") & 0xFFFF == 0)
    return result._replace(error=float("inf"), passed=False) if max(float16, bfloat16) > 0.5 else result


def _features(inference, x):
    return "features", "features", inference.predict(inference.inputs(x))


def _trained(training, workload, parameters, trained, x, y):
    """[(quantity, tensor, value)] of one batch and of STEPS steps on it; the logits first."""
    x, y = training.inputs(x, y)
    logits, loss, gradients = training.probe(x, y)
    # A forward pass in training may move running statistics.
    if len(trained) < len(parameters):
        training.load(parameters)
    for rate in workload.PARITY_RATES:
        if rate is not None:
            training.set_rate(rate)
        handle = training.step(x, y)
    training.value(handle)
    skipped = training.skipped()
    if skipped:
        raise Overflow(
            "%d of the parity check's steps were skipped: gradients overflow at the first loss scale" % skipped
        )
    training.share_statistics()
    after = training.read()
    measured = [("logits", "logits", logits), ("loss", "loss", np.array([loss]))]
    measured += [("gradient", tensor, gradients[tensor]) for tensor in trained]
    return measured + [("parameter", tensor, after[tensor]) for tensor in parameters]


def check_prediction(name, training, precision, devices=1):
    """Hold the logits of `predict` against the reference: a Result. Evaluation often takes another path than training."""
    variant, workload = variant_of(training, name), contract.specification(name)
    parameters, x, y = canonical.parity_case(workload, variant)
    training.load(parameters)
    x, y = dealt(workload, devices, x), dealt(workload, devices, y)
    logits = undealt(workload, devices, training.predict(training.inputs(x, y)[0]))
    with np.load(reference_path(name, variant, devices)) as stored:
        own = "prediction" if "value/prediction/logits" in stored else "logits"
        return _nearest_result(stored, precision, own, "logits", logits)._replace(quantity="prediction")


def check_training(name, training, precision, devices=1):
    """Sentences about what is wrong with an adapter built with training=True: none where it trains, with the workload's dropout."""
    workload = contract.specification(name)
    variant = variant_of(training, name)
    parameters, x, y = canonical.parity_case(workload, variant)
    training.load(parameters)
    x, y = dealt(workload, devices, x), dealt(workload, devices, y)
    loss = training.value(training.step(*training.inputs(x, y)))
    if not np.isfinite(loss):
        return ["training: the loss of the first step is %r" % loss]
    with np.load(reference_path(name, variant, devices)) as stored:
        off = abs(loss / float(stored["value/loss/loss"][0]) - 1.0)
        rounding = max(1e-4, float(stored["bound/%s/loss/loss" % precision]))
    if workload.DROPOUT and off < rounding:
        return ["training: the loss of the first step is that without dropout; it is off in training"]
    if not workload.DROPOUT and off > rounding:
        return ["training: the loss of the first step is off by %.2g from that of the parity check" % off]
    return []


def _decay(name, training, devices):
    """Hold the weight decay of the tensors in DECAYED against the specification's: a list of Result, [] without a decay.

    The decay is too small beside the gradients for the bounds to see. The first step subtracts rate (g + decay w). With the adapter's own
    g subtracted too, the component of the remainder along w is the decay. DECAYED are the last tensors: two runs agree on their gradients.
    """
    workload = contract.specification(name)
    decay = workload.WEIGHT_DECAY
    if decay is None:
        return []
    parameters, x, y = canonical.parity_case(workload, variant_of(training, name))
    x, y = training.inputs(dealt(workload, devices, x), dealt(workload, devices, y))
    training.load(parameters)
    gradients = training.probe(x, y)[2]
    training.load(parameters)
    rate = workload.PARITY_RATES[-1]
    training.set_rate(rate)
    training.value(training.step(x, y))
    after, results = training.read(), []
    for tensor in workload.DECAYED:
        before, now, gradient = (v[tensor].astype(np.float64).ravel() for v in (parameters, after, gradients))
        measured = (before - now - rate * gradient).dot(before) / (rate * before.dot(before))
        error = relative_error(measured, np.array(decay))
        results.append(Result("decay", tensor, error, DECAY_BOUND, error <= DECAY_BOUND))
    return results


def _nearest_result(stored, precision, quantity, tensor, value):
    results = [_result(stored, precision, quantity, tensor, value, "")]
    if "value/%s/%s%s" % (quantity, tensor, EITHER) in stored:
        results.append(_result(stored, precision, quantity, tensor, value, EITHER))
    return min(results, key=lambda result: result.error / result.bound)


def _result(stored, precision, quantity, tensor, value, end):
    expected = stored["value/%s/%s%s" % (quantity, tensor, end)]
    bound = float(stored["bound/%s/%s/%s%s" % (precision, quantity, tensor, end)])
    with np.errstate(all="ignore"):
        measured = sketch(tensor, value, expected.size)
    error = relative_error(measured, expected) if measured.shape == expected.shape else float("inf")
    return Result(quantity, tensor, error, bound, error <= bound)
