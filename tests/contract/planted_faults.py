"""Plants one mistake of mixed precision at a time in a PyTorch adapter and tells, as JSON, what the parity gate says of each.

Runs in an interpreter that has torch (the image's own environment); test_parity_gate.py reads what it prints.
"""

import json
import sys

import torch
import torch.nn.functional as F

from bench import parity
from bench.contract import Setup
from bench.errors import BenchError
from bench.frameworks.torch import cnn_mnist, framework

SETUP = Setup("cpu", "fp32", "default", 2, 1, False)


class Half(cnn_mnist.Training):
    """No fault, in mixed precision."""


class LossNotUnscaled(cnn_mnist.Training):
    """The gradients of the scaled loss, as they are, are what the optimiser is given."""

    def __init__(self, setup):
        super().__init__(setup)
        self.mixed.update, self.mixed.skipped = self.optimizer.step, lambda: 0
        self.mixed.gradient = lambda parameter: parameter.grad.numpy()


class WeightsKeptInHalf(cnn_mnist.Training):
    """The optimiser's result is rounded to the half type after each step."""

    def step(self, x, y):
        loss = super().step(x, y)
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.copy_(parameter.to(self.mixed.half).float())
        return loss


class LossInHalf(cnn_mnist.Training):
    """Softmax and its logarithm in the half type."""

    def probe(self, x, y):
        logits, _, gradients = super().probe(x, y)
        loss = F.nll_loss(torch.log_softmax(torch.from_numpy(logits).to(self.mixed.half), 1), y)
        return logits, loss.item(), gradients


class BiasDroppedInHalf(cnn_mnist.Training):
    def __init__(self, setup):
        super().__init__(setup)
        self.network.dense.bias.register_hook(torch.zeros_like)
        forward = self.network.forward
        self.network.forward = lambda x: forward(x) - self.network.dense.bias.detach().to(self.mixed.half)


class StepSkippedUnseen(cnn_mnist.Training):
    """The first scale is too large, its step is skipped, and nobody counts."""

    def __init__(self, setup):
        super().__init__(setup)
        self.mixed.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
        # A scaler that begins afresh with every `load` would have the right scale again.
        self.mixed.restart = self.optimizer.state.clear

    def skipped(self):
        return 0


class NotInHalf(cnn_mnist.Training):
    """Mixed precision is asked for, and the cell computes in float32."""

    def __init__(self, setup):
        super().__init__(setup._replace(precision="fp32"))


# of mixed precision: precision -> workload -> mistakes
HALF_FAULTS = {
    "amp-fp16": {
        "cnn-mnist": [
            Half,
            LossNotUnscaled,
            WeightsKeptInHalf,
            LossInHalf,
            BiasDroppedInHalf,
            StepSkippedUnseen,
            NotInHalf,
        ]
    },
    "amp-bf16": {"cnn-mnist": [Half, WeightsKeptInHalf, LossInHalf, BiasDroppedInHalf, NotInHalf]},
}


def verdict(workload, fault, setup):
    try:
        results = parity.check(workload, fault(setup), setup.precision)
    except BenchError as error:
        return {"failed": ["error: %s" % error], "worst": float("inf")}
    return {
        "failed": ["%s %s" % (r.quantity, r.tensor) for r in results if not r.passed],
        "worst": max(r.error / r.bound for r in results),
    }


def main():
    framework.configure(SETUP)
    torch.manual_seed(1)
    found = {}
    for precision, of_workload in HALF_FAULTS.items():
        for workload, faults in of_workload.items():
            for fault in faults:
                found[fault.__name__ + " " + precision] = verdict(workload, fault, SETUP._replace(precision=precision))
    json.dump(found, sys.stdout)


main()
