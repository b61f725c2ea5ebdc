"""Plants one mistake at a time in the PyTorch adapters and tells, as JSON, what the parity gate says of each.

Runs in an interpreter that has torch (the image's own environment); test_parity_gate.py reads what it prints.
"""

import json
import sys

import torch
import torch.nn.functional as F

from bench import parity
from bench.contract import Setup
from bench.errors import BenchError
from bench.frameworks.torch import cnn_cifar10, cnn_mnist, framework, gru_imdb

SETUP = Setup("cpu", "fp32", "default", 2, 1, False)


class WithNetwork:
    """Mixes a faulty forward pass into an adapter: `forward(network, x)` replaces the network's own."""

    def __init__(self, setup):
        super().__init__(setup)
        self.network.forward = lambda x: self.forward(self.network, x)


def forward_cnn(n, x, pad=lambda x: F.pad(x, (1, 1, 1, 1)), flatten=lambda h: h.flatten(1), drop=0.0):
    def convolve(layer, h):
        return F.conv2d(pad(h), layer.weight, layer.bias)

    h = F.relu(convolve(n.conv1, x))
    h = F.dropout(F.relu(F.max_pool2d(convolve(n.conv2, h), 2)), drop, True)
    h = F.relu(convolve(n.conv3, h))
    h = F.dropout(F.relu(F.max_pool2d(convolve(n.conv4, h), 2)), drop, True)
    return n.dense2(F.relu(n.dense1(flatten(h))))


class Unchanged(WithNetwork, cnn_cifar10.Training):
    """No fault: the rewritten forward pass is the specification's. It must pass, or the faults below prove nothing."""

    forward = staticmethod(forward_cnn)


class DoubleSoftmax(WithNetwork, cnn_cifar10.Training):
    @staticmethod
    def forward(n, x):
        return torch.softmax(forward_cnn(n, x), 1)


class DropoutLeftOn(WithNetwork, cnn_cifar10.Training):
    @staticmethod
    def forward(n, x):
        return forward_cnn(n, x, drop=0.25)


class PaddingOnOneSide(WithNetwork, cnn_cifar10.Training):
    @staticmethod
    def forward(n, x):
        return forward_cnn(n, x, pad=lambda h: F.pad(h, (0, 2, 0, 2)))


class TransposedPicture(cnn_cifar10.Training):
    """Channels last made by swapping axes 1 and 3, and back by a permutation: height and width are exchanged."""

    def inputs(self, x, y):
        x, y = super().inputs(x, y)
        return x.swapaxes(1, 3).transpose(0, 3, 1, 2).copy(), y


class FlattenedChannelsLast(WithNetwork, cnn_cifar10.Training):
    @staticmethod
    def forward(n, x):
        return forward_cnn(n, x, flatten=lambda h: h.permute(0, 2, 3, 1).flatten(1))


class SummedLoss(WithNetwork, cnn_cifar10.Training):
    """The gradient of the sum over the batch where the mean was asked for, planted behind an unchanged loss."""

    forward = staticmethod(forward_cnn)

    def probe(self, x, y):
        logits, loss, gradients = super().probe(x, y)
        return logits, loss, {name: g * len(y) for name, g in gradients.items()}


class MomentumWithUnitGain(cnn_cifar10.Training):
    """v <- m v + (1 - m) g: the same as a rate ten times smaller."""

    def __init__(self, setup):
        super().__init__(setup)
        self.optimizer = self.mixed.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.01 * (1 - 0.9), momentum=0.9
        )


class Dampening(cnn_cifar10.Training):
    def __init__(self, setup):
        super().__init__(setup)
        self.optimizer = self.mixed.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.01, momentum=0.9, dampening=0.9
        )


class Nesterov(cnn_cifar10.Training):
    def __init__(self, setup):
        super().__init__(setup)
        self.optimizer = self.mixed.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.01, momentum=0.9, nesterov=True
        )


class WeightDecay(cnn_cifar10.Training):
    def __init__(self, setup):
        super().__init__(setup)
        self.optimizer = self.mixed.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3
        )


class WithCell(gru_imdb.Training):
    """A hand-written GRU in place of the fused one; `cell(gi, gh, u, c, h)` is what the faults change."""

    def __init__(self, setup):
        super().__init__(setup)
        self.network.forward = self.forward

    def forward(self, x):
        n = self.network
        gru, e = n.gru, n.embedding(x)
        h = e.new_zeros(len(x), 100)
        for t in range(e.shape[1]):
            gi = F.linear(e[:, t], gru.weight_ih_l0, gru.bias_ih_l0)
            h = self.cell(gi.chunk(3, 1), F.linear(h, gru.weight_hh_l0, gru.bias_hh_l0).chunk(3, 1), h)
        return n.dense(h)

    def cell(self, gi, gh, h):
        r, z = torch.sigmoid(gi[0] + gh[0]), torch.sigmoid(gi[1] + gh[1])
        return (1 - z) * torch.tanh(gi[2] + r * gh[2]) + z * h


class ResetBefore(WithCell):
    """The reset gate applied to the state before the recurrent product (Cho et al. 2014, version 1)."""

    def cell(self, gi, gh, h):
        gru = self.network.gru
        r, z = torch.sigmoid(gi[0] + gh[0]), torch.sigmoid(gi[1] + gh[1])
        u, c = gru.weight_hh_l0[200:], gru.bias_hh_l0[200:]
        return (1 - z) * torch.tanh(gi[2] + F.linear(r * h, u, c)) + z * h


class UpdateGateTurned(WithCell):
    """h' = z n + (1 - z) h: the other sign convention of the update gate."""

    def cell(self, gi, gh, h):
        r, z = torch.sigmoid(gi[0] + gh[0]), torch.sigmoid(gi[1] + gh[1])
        return z * torch.tanh(gi[2] + r * gh[2]) + (1 - z) * h


class GatesInAnotherOrder(gru_imdb.Training):
    """Parameters stacked z, r, n (Keras' order) loaded as r, z, n."""

    def load(self, parameters):
        def swap(v):
            return torch.cat([torch.from_numpy(v)[i : i + 100] for i in (100, 0, 200)]).numpy()

        super().load({k: swap(v) if k.startswith("gru.") else v for k, v in parameters.items()})


class RecurrentBiasForgotten(gru_imdb.Training):
    def load(self, parameters):
        super().load({k: v * 0 if k == "gru.c" else v for k, v in parameters.items()})


class AdamWithoutBiasCorrection(gru_imdb.Training):
    def __init__(self, setup):
        super().__init__(setup)
        rate = 0.001 * (1 - 0.999**1) ** 0.5 / (1 - 0.9**1)
        self.optimizer = self.mixed.optimizer = torch.optim.RMSprop(
            self.network.parameters(), lr=rate, alpha=0.999, eps=1e-8
        )


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
        ],
    },
    "amp-bf16": {"cnn-mnist": [Half, WeightsKeptInHalf, LossInHalf, BiasDroppedInHalf, NotInHalf]},
}

FAULTS = {
    "cnn-cifar10": [
        Unchanged,
        DoubleSoftmax,
        DropoutLeftOn,
        PaddingOnOneSide,
        TransposedPicture,
        FlattenedChannelsLast,
        SummedLoss,
        MomentumWithUnitGain,
        Dampening,
        Nesterov,
        WeightDecay,
    ],
    "gru-imdb": [
        WithCell,
        ResetBefore,
        UpdateGateTurned,
        GatesInAnotherOrder,
        RecurrentBiasForgotten,
        AdamWithoutBiasCorrection,
    ],
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
    for workload, faults in FAULTS.items():
        for fault in faults:
            found[fault.__name__] = verdict(workload, fault, SETUP)
    for precision, of_workload in HALF_FAULTS.items():
        for workload, faults in of_workload.items():
            for fault in faults:
                found[fault.__name__ + " " + precision] = verdict(workload, fault, SETUP._replace(precision=precision))
    json.dump(found, sys.stdout)


main()
