"""The learning curve that every framework must follow: 300 steps from canonical parameters, on the same batches, dropout off.

Parity proves one batch and three steps. This proves that nothing drifts after that: momentum, learning rate, stale gradients,
statistics carried over, a parameter left out of the update. The reference is float64 NumPy (bench.reference), stored beside
the workload by `python -m bench reference WORKLOAD --curve`.

The batches are the workload's own `curve_batches`: a task whose loss falls and then stays above zero, with labels in part
drawn at random. On data that can be learned by heart the loss falls to nothing by a path that doubles a rounding error every
few steps, and two correct float32 runs disagree by more than a mistake would; here a relative disturbance of 3e-7 moves a
50-step mean by less than 1 %: of mlp-mnist by 0.003 %, of gru-imdb by less than 0.001 %. In gru-imdb the words that tell are
the last ten. Where all 150 tell, two starts that differ by 3e-7 part by a quarter in single steps.
"""

import os

import numpy as np

from bench import arithmetic, canonical, contract, rules

STEPS = 300
SINGLE_STEPS = 20  # held one by one
SINGLE_BOUND = 1e-3
MEAN_OF = 50  # and then as means of this number
MEAN_BOUND = 0.02


def has_curve(name):
    return os.path.isfile(path(name))


def path(name):
    return os.path.join(rules.WORKLOADS, name + ".curve.txt")


def _case(workload):
    """(parameters, batches): as training starts, so biases are zero."""
    random = np.random.RandomState(canonical.PARITY_SEED)
    return canonical.draw_parameters(workload, random, parity=False), workload.curve_batches(random)


def make_reference(name):
    """The losses of STEPS steps in float64."""
    workload = contract.specification(name)
    parameters, batches = _case(workload)
    p = {key: value.astype(np.float64) for key, value in parameters.items()}
    optimizer, rounding, losses = workload.optimizer(), arithmetic.Exact(), []
    for _ in range(STEPS):
        x, y = next(batches)
        x = x.astype(np.float64) if x.dtype.kind == "f" else x
        _, loss, gradients = workload.loss_and_gradients(p, x, y, rounding)
        optimizer.update(p, gradients, rounding)
        losses.append(float(loss))
    return losses


def write_reference(name):
    losses = make_reference(name)
    with open(path(name), "w") as file:
        file.write("# Losses of %d float64 steps, made by `python -m bench reference %s --curve`.\n" % (STEPS, name))
        file.write("\n".join(repr(loss) for loss in losses) + "\n")
    return path(name)


def follow(name, training):
    """The losses of an adapter over the same steps. If the workload has dropout, it was built with training=False."""
    workload = contract.specification(name)
    parameters, batches = _case(workload)
    training.load(parameters)
    return [float(training.value(training.step(*training.inputs(*next(batches))))) for _ in range(STEPS)]


def verdict(name, losses):
    """Relative errors against the reference: {"single": worst of the first steps, "means": [...], "passed": ...}."""
    expected = np.loadtxt(path(name))
    measured = np.array(losses)
    single = np.abs(measured - expected)[:SINGLE_STEPS] / expected[:SINGLE_STEPS]
    means = measured.reshape(-1, MEAN_OF).mean(1) / expected.reshape(-1, MEAN_OF).mean(1) - 1
    passed = bool(np.all(single <= SINGLE_BOUND) and np.all(np.abs(means) <= MEAN_BOUND))
    return {"single": float(single.max()), "means": [float(v) for v in means], "passed": passed}
