"""What is proved of the adapter that a cell measured: after the last window, on that very object, with its dropout.

`trained` asks whether the measured steps were steps: every tensor has moved, and the optimiser counts as many steps as the loop did.
`computes` loads the canonical parameters: the prediction and three more steps of the same `step` are held against the float64 reference.
"""

import numpy as np

from bench import canonical, contract, dropout, parity, rules

MOST_SKIPPED = 3
# What "moved" compares beside each tensor: all numbers before the last steps and after them, the logits before training and after it.
LAST_STEPS, EVALUATION = "all tensors, by the last steps", "the prediction, by training"


def trained(training, loaded, steps, before_last=None):
    """What training left behind: a list of parity.Result.

    loaded: canonical name -> the array that training began with; steps: those that the cell counted; before_last: the `numbers` before
    the last window, where they are known.
    moved       the share of a tensor's numbers that are what was loaded. At least one must differ. So must one of all numbers of what
                they were before the last window.
    updates     how far the optimiser's own count is from the steps, relative to them; left out where it keeps none.
    """
    after = training.read()
    results = [_moved(tensor, before, after[tensor]) for tensor, before in loaded.items()]
    if before_last is not None:
        results.append(_moved(LAST_STEPS, before_last, _flat(after)))
    counted = training.updates()
    if counted is not None:
        error, bound = abs(counted - steps) / float(max(1, steps)), 0.5 / max(1, steps)
        results.append(parity.Result("updates", "optimiser", error, bound, error <= bound))
    return results


def goes_on(name, adapter, devices=1):
    """Whether a step still trains after the last window: a parity.Result. A loss scaler may skip a step or two."""
    before, batch = numbers(adapter), parity.first_batch(name, adapter, devices)
    for _ in range(MOST_SKIPPED):
        skipped = adapter.skipped()
        adapter.value(adapter.step(*batch))
        if adapter.skipped() == skipped:
            break
    return _moved(LAST_STEPS, before, numbers(adapter))


def numbers(adapter):
    """All numbers of an adapter's parameters, as one array."""
    return _flat(adapter.read())


def _flat(tensors):
    # A copy: what `read` returned may be the memory that the next step writes to.
    return np.concatenate([np.ravel(tensors[name]) for name in sorted(tensors)])


def _moved(tensor, before, after):
    after = np.asarray(after, dtype=np.float32)
    # What is not finite has not moved: training diverged.
    stayed = np.count_nonzero(after == before) / float(before.size) if np.isfinite(after).all() else float("inf")
    bound = 1.0 - 0.5 / before.size
    return parity.Result("moved", tensor, stayed, bound, stayed <= bound)


def computes(name, adapter, precision, devices=1, gradients=None, evaluations=()):
    """What the measured adapter computes from canonical parameters: a list of parity.Result.

    adapter: of any task, built with training=True, on so many devices, as one (bench.parallel's `whole`);
    gradients: of the canonical batch as parity.check_network returns them, for a workload with a weight decay;
    evaluations: the logits of one batch before training and after it, where the cell has evaluated twice.
    """
    if isinstance(adapter, contract.Inference):
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
    return results + [_moved(EVALUATION, np.asarray(first, dtype=np.float32), last)]
