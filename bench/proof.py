"""The proof of the adapter that a cell measured: after the last window, on that very object, with its dropout.

`trained` asks whether the measured steps were steps: every tensor has moved, and the optimiser counts as many steps as the loop did.
`computes` loads the canonical parameters: the prediction and some more steps of the same `step` are held against the float64 reference.
"""

import numpy as np

from bench import canonical, contract, dropout, parity, rules, sketches

MOST_SKIPPED = 3
# Two names for "moved", beside each tensor's: all numbers before and after the last steps, and the logits before and after training.
LAST_STEPS, EVALUATION = "all tensors, by the last steps", "the prediction, by training"


def trained(training, loaded, after, steps, before_last=None):
    """The check of the state after training: a list of parity.Result.

    loaded, after: canonical name -> the array that training began and ended with; steps: those that the cell counted; before_last: the
    `numbers` before the last window, where they are known.
    moved       the share of a tensor's numbers that are what was loaded. At least one must differ. So must one of all numbers of what
                they were before the last window.
    updates     how far the optimiser's own count is from the steps, relative to them; left out where it keeps none.
    """
    results = [_moved(tensor, {tensor: before}, after) for tensor, before in loaded.items()]
    if before_last is not None:
        results.append(_moved(LAST_STEPS, before_last, after))
    counted = training.updates()
    if counted is not None:
        error, bound = abs(counted - steps) / float(max(1, steps)), 0.5 / max(1, steps)
        results.append(parity.Result("updates", "optimiser", error, bound, error <= bound))
    return results


def goes_on(name, adapter, devices=1):
    """Check that a step still trains after the last window: a parity.Result. A loss scaler may skip a step or two."""
    before, batch = numbers(adapter), parity.first_batch(name, adapter, devices)
    for _ in range(MOST_SKIPPED):
        skipped = adapter.skipped()
        adapter.value(adapter.step(*batch))
        if adapter.skipped() == skipped:
            break
    return _moved(LAST_STEPS, before, numbers(adapter))


def numbers(adapter):
    """name -> a copy of each of an adapter's parameters: what `read` returned may be the memory that the next step writes to."""
    return {name: np.array(value, dtype=np.float32) for name, value in adapter.read().items()}


def _moved(what, before, after):
    """before, after: name -> array. Of what is in `before`, the share of the numbers that are the same in `after`."""
    stayed, size, finite = 0, 0, True
    for name, old in before.items():
        sketches.refuse_shape(name, after[name], old)
        new = np.asarray(after[name], dtype=np.float32)
        stayed, size = stayed + np.count_nonzero(new == old), size + old.size
        finite = finite and np.isfinite(new).all()
    # A diverged value, which is not finite, has not moved.
    error, bound = stayed / float(size) if finite else float("inf"), 1.0 - 0.5 / size
    return parity.Result("moved", what, error, bound, error <= bound)


def computes(name, adapter, precision, devices=1, gradients=None, evaluations=()):
    """The check of the measured adapter from canonical parameters: a list of parity.Result.

    adapter: of any task, built with training=True on `devices` devices, as one (bench.parallel's `whole`);
    gradients: of the canonical batch as parity.check_network returns them, for a workload with a weight decay;
    evaluations: the logits of one batch before training and after it, where the cell has evaluated twice.
    """
    if isinstance(adapter, (contract.Inference, contract.Decoding)):
        return parity.check(name, adapter, precision, devices)
    parameters, _ = canonical.parity_case(contract.specification(name), parity.variant_of(adapter, name))
    adapter.load(parameters)
    before = np.array(parity.predicted(name, adapter, devices))
    results = [parity.hold_prediction(name, adapter, precision, devices, before)]
    if rules.has_dropout(name):
        results += dropout.check(name, adapter, precision, devices)
    else:
        results += parity.check_steps(name, adapter, precision, devices, gradients)
    # An evaluation that keeps the parameters that were loaded last says the same after the steps.
    if len(evaluations) < 2:
        evaluations = before, parity.predicted(name, adapter, devices)
    first, last = evaluations
    return results + [_moved(EVALUATION, {"logits": np.asarray(first, dtype=np.float32)}, {"logits": last})]
