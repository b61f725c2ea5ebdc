"""Mistakes in the MNIST perceptron in PyTorch."""

import torch
import torch.nn.functional as F

from bench.frameworks.torch import mlp_mnist
from tests.contract.mutants import anywhere, torch_adam
from tests.contract.mutants.omissions import StepLeftOut, without_one
from tests.contract.mutants.registry import Planted
from tests.contract.mutants.torch_adam import InHalf, planted

mlp = Planted("torch", "mlp-mnist")
Training = mlp_mnist.Training
mlp.of_any_framework(Training, anywhere.EVERYWHERE)
mlp.of_any_framework(Training, (("data", anywhere.HalfOfTheBatch), ("data", anywhere.LabelsOfTheBatchBefore)))


class WithNetwork(Training):
    def __init__(self, setup):
        super().__init__(setup)
        self.network.forward = self.forward


@mlp.rewrite
class FeaturesTimesPictures(WithNetwork):
    """Both layers as products of transposed matrices."""

    def forward(self, x):
        n = self.network
        h = F.relu(n.dense1.weight @ x.flatten(1).T + n.dense1.bias[:, None])
        return (n.dense2.weight @ h + n.dense2.bias[:, None]).T


@mlp.rewrite
class AdamByHand(planted(Training, torch_adam.HandAdam)):
    """Adam written by hand."""


@mlp.slow_rewrite
class Compiled(Training):
    """torch.compile."""

    def __init__(self, setup):
        super().__init__(setup._replace(mode="compile"))


@mlp.mistake("network")
class Sigmoid(WithNetwork):
    """A sigmoid in place of ReLU."""

    def forward(self, x):
        return self.network.dense2(torch.sigmoid(self.network.dense1(x.flatten(1))))


@mlp.mistake("data")
class PicturesNormalised(WithNetwork):
    """Mean and deviation of MNIST taken out of the pictures."""

    def forward(self, x):
        return self.network.dense2(F.relu(self.network.dense1((x.flatten(1) - 0.1307) / 0.3081)))


@mlp.mistake("optimiser")
class AmsGrad(planted(Training, lambda p: torch.optim.Adam(p, lr=0.001, eps=1e-8, amsgrad=True))):
    """AMSGrad."""


@mlp.mistake("optimiser")
class AdamWithoutBiasCorrection(planted(Training, torch_adam.WithoutBiasCorrection)):
    """Adam whose moments are not corrected for their start at zero."""


@mlp.mistake("optimiser")
class EpsilonHat(planted(Training, torch_adam.EpsilonHat)):
    """Epsilon added to the root of the uncorrected moment."""


@mlp.mistake("regularisation")
class AdamW(planted(Training, lambda p: torch.optim.AdamW(p, lr=0.001, eps=1e-8, weight_decay=0.01))):
    """AdamW with its default weight decay of 0.01."""


@mlp.mistake("precision")
class HalfInTraining(InHalf, Training):
    """Training computes in bfloat16."""

    def __init__(self, setup):
        super().__init__(setup)
        self.training = setup.training

    def step(self, x, y):
        return self.half(super().step, x, y) if self.training else super().step(x, y)


@mlp.mistake("omission")
class OneUnitLeftOut(without_one(Training, "dense1.w")):
    """The last of 32 hidden units has weights of zero."""


@mlp.mistake("omission")
class OneBiasLeftOut(without_one(Training, "dense1.b")):
    """The last of 32 biases is zero."""


@mlp.mistake("omission")
class OnePixelLeftOut(WithNetwork):
    """The last of 784 pixels is zero."""

    def forward(self, x):
        x = x.flatten(1)
        return self.network.dense2(
            F.relu(F.linear(x[:, :-1], self.network.dense1.weight[:, :-1], self.network.dense1.bias))
        )


@mlp.mistake("omission")
class OnePictureLeftOut(Training):
    """A step leaves out the last picture of its batch."""

    def step(self, x, y):
        return super().step(x[:-1], y[:-1])


@mlp.mistake("omission")
class OneStepLeftOut(StepLeftOut, Training):
    """The third step after the parameters were loaded is skipped."""
