"""Do the losses that a cell told belong to the network? They are held against those of the reference on the same stand-in.

The stand-ins are deterministic: every framework that trains with the same seed begins with the same parameters and takes the same batches.
So the reference ran the first steps of a cell of the default seed several times (bench.learning_reference). Its runs differ as much as
correct frameworks may: by the masks of dropout; without dropout, by a disturbance of rounding's size, which grows from step to step.
For other seeds and other precisions another band is stored where there is one: a run for each of several seeds. It is wider by orders
of magnitude, as another seed is other pictures, other parameters and another order.

A loss is standardised: less the mean of the runs at that step, divided by their spread there. Two numbers are held: the largest of these
deviations, and the size of their mean, which sees what shifts all losses a little.

Where the bounds come from. Each run is held against the others in the same way, at the same steps. The bound is MARGIN times the
largest that a run shows, and at least MARGIN. So it contains that the mean and the spread of a few runs are estimates, that the losses of
neighbouring steps go together, and that the spread has tails.

The first pass through the training part is compared, and not more. There each item is taken once, so that the losses of other seeds do
not depend on how many items there are.
"""

import numpy as np

from bench.parity import Result

MARGIN = 3.0
# The steps before and after a step from which its spread is estimated, too.
NEIGHBOURS = 3
# The least spread, relative to the loss. On a CPU five frameworks differ from the reference by 3.5e-7 of it at most in gru-imdb, and by
# 6e-6 in mlp-mnist, whose sums have 60 000 terms. Other processors add in other orders.
ROUNDING = 2.0**-16


def check(stored, losses):
    """Hold {step, counted from 1: loss} against the losses in a file: a list of Result, [] where no step is in it."""
    runs = np.loadtxt(stored, ndmin=2)
    steps = [step for step in sorted(losses) if step <= runs.shape[1]]
    if not steps:
        return []
    columns = np.array(steps) - 1
    # Divergence is no number to subtract; as the largest deviation it is refused.
    measured = np.array([np.inf if losses[step] is None else losses[step] for step in steps])
    each = [_deviations(np.delete(runs, run, axis=0), row[columns], columns) for run, row in enumerate(runs)]
    bounds = MARGIN * np.maximum(1.0, np.max(each, axis=0))
    errors = _deviations(runs, measured, columns)
    return [
        Result("learning", tensor, float(error), float(bound), bool(error <= bound))
        for tensor, error, bound in zip(("worst", "mean"), errors, bounds)
    ]


def _deviations(runs, measured, columns):
    """(largest, size of the mean) of the standardised losses at these steps; runs (runs, steps), measured (compared,)."""
    standardised = (measured - runs.mean(axis=0)[columns]) / _spread(runs)[columns]
    return np.abs(standardised).max(), abs(standardised.mean())


def _spread(runs):
    """The standard deviation over the runs at each step, smoothed: the root of the mean variance of the steps around it.

    Of few steps each has its own: those of a deep network part from one step to the next by more than they differ at either.
    """
    variance = np.maximum(runs.var(axis=0, ddof=1), (ROUNDING * runs.mean(axis=0)) ** 2)
    reach = NEIGHBOURS if len(variance) > 4 * NEIGHBOURS else 0
    around = [variance[max(0, step - reach) : step + reach + 1].mean() for step in range(len(variance))]
    return np.sqrt(around)
