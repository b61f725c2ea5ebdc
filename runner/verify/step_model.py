"""The time that a step should take where there is no reference: a model over the ceilings that were measured before the cells.

    step = (flops / matmul rate + bytes / copy rate + launches x launch time) x inefficiency

The model is coarse. The published rows show how coarse: on the datasheets of K80, M60, P40, P100, V100 and Titan V the same model
gives a time for each published training, and the published time over the modelled time is the inefficiency. Programs reach only a
part of the ceilings. That part differs by framework and by workload, so each workload has its own range of inefficiencies.
The lower end of a modelled step is the time at the ceilings: they are measured here, and no datasheet's.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from runner.results.plausible.work import MULTIPLY_ADDS
from runner.verify.probes.ceilings import Ceilings, best
from runner.verify.references.published import load_published, training_times


@dataclass(frozen=True)
class Work:
    """The work of one training step of a workload, from its specification."""

    flops: float  # multiply and add counted as two; backward twice the forward
    bytes: float  # parameters, gradients and optimiser state; activations forward and back, float32
    launches: float  # kernels that follow one another, each waiting for the last: fused layers count as one
    steps: int  # of the published training


_BATCH = 64
_FLOAT = 4

# cnn-cifar10: 3 441 592 parameters with gradient and momentum, each read and written; activations of
# the six layers (50+50 maps of 32x32, 50+100+100 of 16x16 and below) written once and read twice.
_CNN = Work(
    flops=3 * 2 * MULTIPLY_ADDS["cnn-cifar10"] * _BATCH,
    bytes=_FLOAT * (3 * 2 * 3_441_592 + 3 * _BATCH * (2 * 50 * 32 * 32 + (50 + 200) * 16 * 16 + 100 * 8 * 8 + 522)),
    launches=60,
    steps=7810,
)

# gru-imdb: 3 818 302 parameters with gradient and Adam's two moments (the embedding's too); activations of 150 positions. The positions
# follow one another, forward and back: about three kernels each.
_GRU = Work(
    flops=3 * 2 * MULTIPLY_ADDS["gru-imdb"] * _BATCH,
    bytes=_FLOAT * (4 * 2 * 3_818_302 + 3 * _BATCH * 150 * (125 + 4 * 100)),
    launches=150 * 2 * 3,
    steps=1170,
)

WORK = {"cnn-cifar10": _CNN, "gru-imdb": _GRU}

# Datasheet peaks at boost clock, of one GPU: float32 flop/s and bytes/s (NVIDIA's product briefs of the boards).
DATASHEETS = {
    "K80": (4.37e12, 240e9),
    "M60": (4.8e12, 160e9),
    "P40": (11.76e12, 346e9),
    "P100": (9.3e12, 732e9),
    "V100": (14.0e12, 900e9),
    "Titan V": (13.8e12, 653e9),
}

# Seconds from one small kernel to the next that waits for it. No datasheet has it: this is an assumption for the published rows,
# and its error is part of the inefficiency that they give.
_LAUNCH_SECONDS = 10e-6

# The range of inefficiencies holds this share of the published rows.
_SHARE = 0.9


@dataclass(frozen=True)
class Inefficiency:
    """How many times as long as the model published trainings took."""

    low: float
    middle: float
    high: float
    rows: int
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class ModelledStep:
    """The step time that the model gives, as a band, in seconds."""

    low: float
    middle: float
    high: float
    model: str  # the model in words, with its known error

    def place_of(self, seconds: float) -> str:
        """The place of a measured step time."""
        if seconds > self.high:
            return "slower than the model's band"
        return "faster than the model's band" if seconds < self.low else "inside the model's band"


def ideal_seconds(work: Work, flops: float, bytes_: float, launch_seconds: float) -> float:
    """A step at the ceilings themselves: flop/s, bytes/s, seconds a launch."""
    return work.flops / flops + work.bytes / bytes_ + work.launches * launch_seconds


@functools.cache
def inefficiency(workload: str) -> Inefficiency:
    """The range that holds nine tenths of the published trainings of a workload, on the GPUs of DATASHEETS."""
    rows = training_times(load_published(), workload, list(DATASHEETS))
    work = WORK[workload]
    factors = [
        (row.seconds or 0.0) / work.steps / ideal_seconds(work, *DATASHEETS[row.gpu or ""], _LAUNCH_SECONDS)
        for row in rows
    ]
    low, middle, high = np.quantile(factors, [(1 - _SHARE) / 2, 0.5, (1 + _SHARE) / 2])
    gpus = tuple(name for name in DATASHEETS if any(row.gpu == name for row in rows))
    return Inefficiency(float(low), float(middle), float(high), len(rows), gpus)


def modelled_step(workload: str, device_kind: str, ceilings: Ceilings | None) -> ModelledStep | None:
    """The model's band for a step on these ceilings. None: WORK lacks the workload, or the device's ceilings are not known."""
    work = WORK.get(workload)
    if work is None or ceilings is None or (device_kind == "cuda" and ceilings.framework is None):
        return None
    own = ceilings.framework
    # On a CPU NumPy's product stands in for a framework whose calls the probe does not know; its call costs next to nothing.
    product = best(own.matmul_flops if own else ceilings.numpy.matmul_flops)
    copy = best(ceilings.numpy.copy_bytes if device_kind == "cpu" or own is None else own.copy_bytes)
    launch = 1 / best(own.launches) if own else 0.0
    ideal = ideal_seconds(work, product, copy, launch)
    error = inefficiency(workload)
    text = (
        f"a model, not a measurement: operations over {product / 1e9:.0f} GFLOP/s, bytes over {copy / 1e9:.1f} GB/s and launches of "
        f"{launch * 1e6:.1f} µs, as measured here; of {error.rows} published trainings ({', '.join(error.gpus)}) nine tenths took "
        f"{error.low:.1f} to {error.high:.1f} times as long as the model says"
    )
    if device_kind == "cpu":
        text += "; its error on CPUs is not known from published numbers"
    return ModelledStep(ideal, ideal * error.middle, ideal * error.high, text)
