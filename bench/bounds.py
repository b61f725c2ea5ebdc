"""How far a right adapter may be off the reference: the numbers and the bounds that `python -m bench reference WORKLOAD` stores.

Where the bounds come from. The reference is computed again RUNS times in Monte Carlo arithmetic, each result disturbed as much as the
precision would (bench.arithmetic.MonteCarlo gives the model and its derivation). The bound of a quantity is MARGIN times the largest
error in those runs. It contains what a count of operations misses: a ReLU or a maximum that changes its choice because a rounding error
moved its argument; Adam's division by a tiny second moment; and Adam's bias correction 1 - beta^t, whose float32 value is as far off as
the rounding of beta^t. The price is wide bounds on the gradients below the pools, where a single changed maximum among millions moves a
whole element of the gradient.
"""

import collections

import numpy as np

from bench import arithmetic, canonical, contract, mixed, parity, reference, rules

RUNS = 8
# The largest of 8 draws is the 89 % point of the error's distribution. A correct float32 stays below three times that: a normal error
# would need 4.8 deviations to exceed it. A wrong formula errs by orders of magnitude more.
MARGIN = 3.0
# Truncation is no random error: each run errs alike, so the margin is for what the model leaves out.
TRUNCATION_MARGIN = 1.5
# A parameter that stands still errs by 1. If Adam divides gradients that are noise in a half type, three times an honest error is more.
MOST_OF_MOVEMENT = 0.9
# Numbers between which a network chooses are further apart in the canonical case than this many errors of either. Rounding moves none of
# its choices then, in any right adapter.
SETTLED = 100.0

# precision -> models of its arithmetic: (the margin, how often it is run, the model from the source of its errors). Some devices round the
# factors of a tf32 product to nearest, others truncate them; some kernels round to a half type after each operation, others after a few.
# The bound is the larger of the models'.
ROUNDINGS = {
    "fp32": [(MARGIN, RUNS, lambda random: arithmetic.MonteCarlo(random, 2.0**-24, 0.0))],
    "tf32": [
        (MARGIN, RUNS, lambda random: arithmetic.MonteCarlo(random, 2.0**-24, 2.0**-11)),
        (TRUNCATION_MARGIN, 2, lambda random: arithmetic.Truncated(random, 2.0**-24, 10)),
    ],
    "amp-fp16": [
        (MARGIN, RUNS, lambda random: arithmetic.Mixed(random, arithmetic.FLOAT16, mixed.INITIAL_SCALE)),
        (MARGIN, 1, lambda random: arithmetic.Mixed(random, arithmetic.FLOAT16, mixed.INITIAL_SCALE, nearest=True)),
    ],
    "amp-bf16": [
        (MARGIN, RUNS, lambda random: arithmetic.Mixed(random, arithmetic.BFLOAT16, 1.0)),
        (MARGIN, 1, lambda random: arithmetic.Mixed(random, arithmetic.BFLOAT16, 1.0, nearest=True)),
    ],
    "fp16": [
        (MARGIN, RUNS, lambda random: arithmetic.Half(random, arithmetic.FLOAT16)),
        (MARGIN, 1, lambda random: arithmetic.Half(random, arithmetic.FLOAT16, nearest=True)),
    ],
    "bf16": [
        (MARGIN, RUNS, lambda random: arithmetic.Half(random, arithmetic.BFLOAT16)),
        (MARGIN, 1, lambda random: arithmetic.Half(random, arithmetic.BFLOAT16, nearest=True)),
    ],
}


def quantities(workload, rounding, variant="", parts=1):
    """(quantity, tensor) -> float64 array: everything that is compared, from the canonical case.

    parts: of the batch, each normalised by itself, as several devices do for a workload that has PARTS.
    """
    parameters, batches = canonical.parity_case(workload, variant)
    start = collections.OrderedDict((name, value.astype(np.float64)) for name, value in parameters.items())
    p = start.copy()
    batches = [(x.astype(np.float64) if x.dtype.kind == "f" else x, y) for x, y in batches]
    if workload.features:  # inference only
        return {("features", "features"): workload.features(p, batches[0][0], rounding)}
    if workload.decoded:
        decoded = workload.decoded(p, [x for x, _ in batches], rounding)
        return collections.OrderedDict((("logits", tensor), logits) for tensor, logits in decoded.items())
    optimizer = workload.optimizer()
    values = collections.OrderedDict()
    if workload.predict:
        values["prediction", "logits"] = workload.predict(p, batches[0][0], rounding)
    how = {"parts": parts} if parts > 1 else {}
    for step, (x, y) in enumerate(batches):
        optimizer.rate = workload.PARITY_RATES[step] or optimizer.rate
        logits, loss, gradients = workload.loss_and_gradients(p, x, y, rounding, variant, **how)
        gradients = collections.OrderedDict((name, g / rounding.scale) for name, g in gradients.items())
        if step == 0:
            values["logits", "logits"], values["loss", "loss"] = logits, np.array([loss])
            values.update((("gradient", name), gradients[name]) for name in canonical.compared(workload, variant))
        optimizer.update(p, gradients, rounding)
        if workload.DROPOUT and step == parity.FIRST_STEPS - 1:
            values.update((("movement", name), value - start[name]) for name, value in p.items())
    compared = (name for name in p if name not in workload.SYMMETRIC)
    values.update((("parameter", name), p[name] - start[name.replace(parity.EITHER, "")]) for name in compared)
    return values


def make_reference(name, variant="", devices=1):
    """The stored reference as a dict of arrays: "value/<quantity>/<tensor>" and "bound/<precision>/<quantity>/<tensor>"."""
    workload = contract.specification(name)
    parts, rounding = parity.parts_of(workload, devices), arithmetic.Exact()
    exact = quantities(workload, rounding, variant, parts)
    stored = {
        "value/%s/%s" % key: parity.sketch(key[1].replace(parity.EITHER, ""), value, workload.BUCKETS)
        for key, value in exact.items()
    }
    for precision in sorted(set(ROUNDINGS).intersection(rules.workload_declaration(name)["precisions"])):
        runs = workload.MOST_RUNS or RUNS
        bounds = bounds_of(workload, precision, exact, variant, parts, runs, rounding.choices)
        stored.update(("bound/%s/%s/%s" % ((precision,) + key), np.array(bound)) for key, bound in bounds.items())
    return stored


def bounds_of(workload, precision, exact, variant="", parts=1, most_runs=RUNS, choices=()):
    """(quantity, tensor) -> the largest relative error that is allowed; `exact` are the `quantities` without rounding.

    most_runs: of each model. Fewer make bounds that are at most as large. choices: those of the rounding that made `exact`. Raises
    ValueError where one of them is not SETTLED.
    """
    # Results are stored in float32, so no error is smaller than its unit.
    bounds = dict.fromkeys(exact, MARGIN * 2.0**-24)
    for margin, runs, rounding in ROUNDINGS[precision] + workload.ROUNDINGS.get(precision, []):
        for run in range(min(runs, most_runs)):
            model = rounding(np.random.RandomState(run))
            disturbed = quantities(workload, model, variant, parts)
            refuse_close_choices(precision, choices, model.choices)
            for key, value in disturbed.items():
                most = MOST_OF_MOVEMENT if key[0] in ("movement", "parameter") else float("inf")
                bounds[key] = min(most, max(bounds[key], margin * parity.relative_error(value, exact[key])))
    if precision in rules.MIXED and workload.ERRS_ALIKE:
        bounds["loss", "loss"] = max(bounds["loss", "loss"], of_the_loss(workload, exact, bounds, variant))
    return pooled(workload, bounds)


def refuse_close_choices(precision, exact, disturbed):
    """Raises ValueError where numbers between which the network chooses are nearer to each other than SETTLED times their errors."""
    for (numbers, gap), (others, _) in zip(exact, disturbed):
        settled = gap.min() / np.abs(others - numbers).max()
        if settled < SETTLED:
            message = "a choice of the canonical case is settled by %.2g errors of %s only; it must be %g"
            raise ValueError(message % (settled, precision, SETTLED))


def of_the_loss(workload, exact, bounds, variant):
    """How far the loss is off where the logits err as much as in the model's runs, and all of them the same way.

    It is for ERRS_ALIKE: in a half type the errors of the items' logits have a part in common, which the model's random roundings have not.
    JAX's loss of gru-imdb at amp-bf16 on an H200 errs by 3.4 times the largest of the model's, and its logits by no more than these.
    """
    logits, y = exact["logits", "logits"], canonical.parity_case(workload, variant)[1][0][1]
    flat = logits.reshape(-1, logits.shape[-1])
    if y.shape == logits.shape:
        d = (reference.sigmoid(flat) - y) / y.size
    else:
        _, d = reference.softmax_cross_entropy(flat, y.ravel(), arithmetic.Exact())
    off = bounds["logits", "logits"] / MARGIN * np.linalg.norm(logits) * np.linalg.norm(d)
    return float(off / abs(exact["loss", "loss"][0]))


def pooled(workload, bounds):
    """The bounds with one bound for the movements of all tensors of a kind: the largest.

    Adam divides a gradient by its size, so a rounding error can turn the sign of an element's movement. Few runs show that in a few of
    the tensors, and it is as likely in the others of the kind.
    """
    if workload.alike is None:
        return bounds
    most = {}
    for (quantity, tensor), bound in bounds.items():
        kind = quantity, workload.alike(tensor)
        most[kind] = max(bound, most.get(kind, 0.0))
    moves = ("movement", "parameter")
    return {key: most[key[0], workload.alike(key[1])] if key[0] in moves else bound for key, bound in bounds.items()}


def files_of(name, variant, devices, stored):
    """(path, the arrays of make_reference that it holds) of each file that they are stored in."""
    first = {key: value for key, value in stored.items() if "movement" in key.split("/")}
    yield (
        parity.reference_path(name, variant, devices),
        {key: value for key, value in stored.items() if key not in first},
    )
    if first:
        yield parity.first_steps_path(name), first
