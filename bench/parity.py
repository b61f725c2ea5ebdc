"""The parity gate: does this adapter compute what the specification says?

Canonical parameters and canonical batches go through the adapter with dropout off. Logits, loss and the gradient of every parameter on
the first batch, and the movement of every parameter in three or four optimiser steps, each on a batch of its own, are held against the
float64 reference (bench.reference), each as the relative error ||a - b|| / ||b|| in the 2-norm. The reference is stored beside the
workload with its bounds (bench.bounds); large tensors are stored as a sketch from which the error's norm is estimated.

A parameter is compared by its movement, because it moves by a small part of itself: held against itself, a rate that is some per cent
off would hide in its rounding.
"""

import collections
import os

import numpy as np

from bench import canonical, contract, mixed, rules, sketches
from bench.errors import Overflow, Unsupported

# The decay is measured to some per cent in float32. A decay that is missing, or applied to other tensors, is off by 100 %.
DECAY_BOUND = 0.2
# An adapter without dropout takes this number of steps before anything is measured, since dropout hides small errors of the
# optimiser. Two show the rate, the momentum and a skipped step, of every parameter. The third step is in the check of the measured
# adapter.
FIRST_STEPS = 2
# A specification may accept two values of a tensor. The second one's name ends so, and an adapter must have either.
EITHER = ".biased"

Result = collections.namedtuple("Result", "quantity tensor error bound passed")


def sketch(name, value, buckets=contract.Specification.BUCKETS):
    """float64 vector by which an array, or a Moved, is compared (bench.sketches.Sketch)."""
    size = value.size if isinstance(value, sketches.Moved) else np.size(value)
    return sketches.Sketch(name, size, buckets).of(value)


def parts_of(workload, devices):
    """Into how many parts several devices share the canonical batch where each part is normalised by itself; 1 where none is."""
    return workload.PARTS if devices > 1 else 1


def dealt(workload, devices, array):
    """The canonical batch (or its labels) as `devices` devices take it, one equal share after another.

    If each device normalises its own share, a share is one of the workload's PARTS, the same for several devices: their mean
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
    return relative_norm(np.asarray(a, dtype=np.float64).ravel() - b.ravel(), b)


def relative_norm(difference, b):
    """||difference|| / ||b||; inf where the difference is not finite."""
    size = np.linalg.norm(difference)
    return float(size / np.linalg.norm(b)) if np.isfinite(size) else float("inf")


def reference_path(name, variant="", devices=1):
    """The path of a workload's reference. A variant has its own, and so have several devices where PARTS makes them differ."""
    name = rules.network_of(name)
    stem = name + "." + variant if variant else name
    stem += ".devices" if parts_of(contract.specification(name), devices) > 1 else ""
    return os.path.join(rules.WORKLOADS, stem + ".reference.npz")


def first_steps_path(name):
    """The path of the "movement" of a workload with dropout, and its bounds: apart, as `bench check` holds no adapter against it."""
    return os.path.join(rules.WORKLOADS, name + ".first-steps.npz")


def bounds_of(name, precision, variant=""):
    """(quantity, tensor) -> the stored bound; of two values that are both right the larger one's."""
    prefix, found = "bound/%s/" % precision, {}
    with np.load(reference_path(name, variant)) as stored:
        for key in stored.files:
            if key.startswith(prefix):
                quantity, tensor = key[len(prefix) :].split("/", 1)
                key_of = quantity, tensor.replace(EITHER, "")
                found[key_of] = max(found.get(key_of, 0.0), float(stored[key]))
    return found


def variant_of(training, name):
    """The variant that an adapter (class or object) declares; "" for the specification itself. Raises ValueError."""
    variant = training.VARIANT
    if variant and (variant not in contract.specification(name).VARIANTS or not training.VARIANT_REASON):
        raise ValueError("%s knows no variant %r, or the adapter gives no VARIANT_REASON" % (name, variant))
    return variant


def check(name, adapter, precision, devices=1):
    """Hold an adapter (built with training=False) on `devices` devices against the stored reference; a list of Result."""
    if isinstance(adapter, contract.Inference):
        return _check_features(name, adapter, precision)
    if isinstance(adapter, contract.Decoding):
        return _check_decoding(name, adapter, precision)
    results, gradients = check_network(name, adapter, precision, devices)
    return results + check_steps(name, adapter, precision, devices, gradients)


def _check_features(name, inference, precision):
    parameters, batches = canonical.parity_case(contract.specification(name))
    inference.load(parameters)
    features = inference.predict(inference.inputs(batches[0][0]))
    with np.load(reference_path(name)) as stored:
        result = _nearest_result(stored, precision, "features", "features", features)
        _refuse_float32(stored, precision, result)
    return [result]


def _check_decoding(name, decoding, precision):
    """Hold the logits of the prompts and of every step of the canonical sequences, one sequence after the other."""
    workload, results = contract.specification(name), []
    parameters, batches = canonical.parity_case(workload)
    decoding.load(parameters)
    with np.load(reference_path(name)) as stored:
        for number, (x, _) in enumerate(batches, 1):
            decoding.prefill(x[:, : workload.PARITY_PROMPT])
            for step in range(workload.PARITY_GENERATED + 1):
                if step:
                    decoding.step(x[:, workload.PARITY_PROMPT + step - 1].copy())
                tensor = workload.tensor_of(number, step)
                results.append(_nearest_result(stored, precision, "logits", tensor, decoding.logits()))
        _refuse_float32(stored, precision, results[0])
    return results


def check_network(name, training, precision, devices=1):
    """Hold the logits, the loss and the gradients of one batch: ([Result], the gradients by name)."""
    variant, workload = variant_of(training, name), contract.specification(name)
    parameters, batches = canonical.parity_case(workload, variant)
    training.load(parameters)
    logits, loss, gradients = training.probe(*_inputs(workload, training, devices, batches[0]))
    measured = [("logits", "logits", undealt(workload, devices, logits)), ("loss", "loss", np.array([loss]))]
    measured += [("gradient", tensor, gradients[tensor]) for tensor in canonical.compared(workload, variant)]
    with np.load(reference_path(name, variant, devices)) as stored:
        results = [_nearest_result(stored, precision, *item) for item in measured]
        _refuse_float32(stored, precision, results[0])
    return results, gradients


def check_steps(name, training, precision, devices=1, gradients=None):
    """Hold the movement of every parameter in the steps from canonical parameters, and the weight decay: a list of Result.

    gradients: those of check_network; None: they are computed again where the workload has a decay.
    """
    workload = contract.specification(name)
    results = _hold_steps(name, training, precision, devices, "parameter")
    return results + (_decay(name, training, devices, gradients) if workload.WEIGHT_DECAY is not None else [])


def check_first_steps(name, training, precision, devices=1):
    """Hold the movement of every parameter in the FIRST_STEPS steps from canonical parameters: a list of Result."""
    return _hold_steps(name, training, precision, devices, "movement", FIRST_STEPS)


def _hold_steps(name, training, precision, devices, quantity, steps=None):
    results = []
    after, moved = movements(name, training, devices, steps, results)
    first = quantity == "movement"
    with np.load(
        first_steps_path(name) if first else reference_path(name, variant_of(training, name), devices)
    ) as stored:
        for tensor, movement in moved.items():
            result = _nearest_result(stored, precision, quantity, tensor, movement)
            results.append(_in_float32(result, after[tensor]) if mixed.half(precision) else result)
    return results


def movements(name, training, devices=1, steps=None, resting=None):
    """All steps on the canonical batches, or the first few, from canonical parameters.

    Returns (tensor -> its values after them, tensor -> its Moved). To `resting` is added how many numbers moved, before the last step, of
    the rows that no batch had named: a list of Result.
    """
    workload = contract.specification(name)
    parameters, batches = canonical.parity_case(workload, variant_of(training, name))
    training.load(parameters)
    first, last = (batches[:steps][:-1], batches[:steps][-1:]) if workload.named else (batches[:steps], [])
    take_steps(workload, training, devices, first, workload.PARITY_RATES)
    if last:
        resting += _at_rest(workload, parameters, training.read(), first)
        take_steps(workload, training, devices, last, workload.PARITY_RATES[len(first) :])
    training.share_statistics()
    after = training.read()
    compared = ((tensor, value) for tensor, value in parameters.items() if tensor not in workload.SYMMETRIC)
    return after, sketches.movement(collections.OrderedDict(compared), after)


def take_steps(workload, training, devices, batches, rates):
    """A step on each batch, at the rates that are not None. Raises Overflow where the loss scaler skipped one."""
    skipped = training.skipped()
    for rate, batch in zip(rates, batches):
        if rate is not None:
            training.set_rate(rate)
        handle = training.step(*_inputs(workload, training, devices, batch))
    training.value(handle)
    skipped = training.skipped() - skipped
    if skipped:
        raise Overflow(
            "%d of the parity check's steps were skipped: gradients overflow at the first loss scale" % skipped
        )


def first_batch(name, training, devices=1):
    """The first canonical batch as `step` takes it."""
    workload = contract.specification(name)
    return _inputs(workload, training, devices, canonical.parity_case(workload, variant_of(training, name))[1][0])


def _inputs(workload, training, devices, batch):
    """A canonical batch as `step` takes it."""
    return training.inputs(*(dealt(workload, devices, part) for part in batch))


def _refuse_float32(stored, precision, result):
    """Raises Unsupported where the results are within float32's bound: then nothing was computed in the type that was asked for."""
    if precision == "fp32":
        return
    bound = float(stored["bound/fp32/%s/%s" % (result.quantity, result.tensor)])
    if result.error <= bound:
        raise Unsupported(
            "%s: the %s err by %.2g, as float32's do; nothing was computed in %s"
            % (precision, result.quantity, result.error, mixed.half(precision) or precision)
        )


def _in_float32(result, value):
    """The result of a parameter, failed where the parameter is kept in the half type.

    The error does not show it: rounding a parameter in every step stays within the error of Adam's steps. Its digits do: in a float32
    tensor, a value in thousands has no more digits than the half type.
    """
    value = np.asarray(value, "float32").ravel()
    value = value[value != 0]
    if len(value) < 32:
        return result
    with np.errstate(over="ignore"):
        float16 = np.mean(value.astype("float16").astype("float32") == value)
    bfloat16 = np.mean(value.view("uint32") & 0xFFFF == 0)
    return result._replace(error=float("inf"), passed=False) if max(float16, bfloat16) > 0.5 else result


def _at_rest(workload, parameters, now, batches):
    """A Result of each tensor with rows that an index selects: in rows that these batches did not name no bit changes.

    Their gradients and moments are zero, and so is what Adam makes of them. A weight decay of 1e-4 at a rate of 0.001 is twice the last
    digit.
    """
    results, named = [], [workload.named(x) for x, _ in batches]
    for tensor in named[0]:
        resting = np.setdiff1d(np.arange(len(parameters[tensor])), np.concatenate([rows[tensor] for rows in named]))
        moved = np.count_nonzero(np.asarray(now[tensor])[resting] != parameters[tensor][resting])
        results.append(exact(tensor, ", rows at rest", moved))
    return results


def exact(tensor, end, error):
    """The Result of one of rules.EXACT."""
    bound = rules.EXACT[end[end.rindex(",") :]]
    error = float(error) if np.isfinite(error) else float("inf")
    return Result("exact", tensor + end, error, bound, error <= bound)


def check_prediction(name, training, precision, devices=1):
    """Hold the logits of `predict` against the reference: a Result. Evaluation often takes another path than training."""
    training.load(canonical.parity_case(contract.specification(name), variant_of(training, name))[0])
    return hold_prediction(name, training, precision, devices, predicted(name, training, devices))


def predicted(name, training, devices=1):
    """The logits (items, classes) of the first canonical batch, by the adapter's present parameters."""
    logits = training.predict(first_batch(name, training, devices)[0])
    return undealt(contract.specification(name), devices, logits)


def hold_prediction(name, training, precision, devices, logits):
    """Hold the logits that were predicted with canonical parameters: a Result."""
    with np.load(reference_path(name, variant_of(training, name), devices)) as stored:
        own = "prediction" if "value/prediction/logits" in stored else "logits"
        return _nearest_result(stored, precision, own, "logits", logits)._replace(quantity="prediction")


def _decay(name, training, devices, gradients):
    """Hold the weight decay of the tensors in DECAYED against the specification's: a list of Result.

    The decay is too small beside the gradients for the bounds to see. The first step subtracts rate (g + decay w). With the adapter's own
    g subtracted too, the component of the remainder along w is the decay. DECAYED are the last tensors: two runs agree on their gradients.
    """
    workload = contract.specification(name)
    parameters, batches = canonical.parity_case(workload, variant_of(training, name))
    x, y = _inputs(workload, training, devices, batches[0])
    training.load(parameters)
    if gradients is None:
        gradients = training.probe(x, y)[2]
        training.load(parameters)
    rate = workload.PARITY_RATES[-1]
    training.set_rate(rate)
    training.value(training.step(x, y))
    after, results = training.read(), []
    for tensor in workload.DECAYED:
        before, now, gradient = (v[tensor].astype(np.float64).ravel() for v in (parameters, after, gradients))
        measured = (before - now - rate * gradient).dot(before) / (rate * before.dot(before))
        error = relative_error(measured, np.array(workload.WEIGHT_DECAY))
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
