"""Mistakes in the CIFAR-10 network in PyTorch."""

import functools

import torch
import torch.nn.functional as F

from bench.frameworks.torch import cnn_cifar10
from tests.contract.mutants import anywhere, later, readings, roundings, wrong_items
from tests.contract.mutants.omissions import StepLeftOut, without_one
from tests.contract.mutants.registry import Planted
from tests.contract.mutants.torch_adam import InHalf, give

cnn = Planted("torch", "cnn-cifar10")
Training = cnn_cifar10.Training
cnn.of_any_framework(Training, anywhere.EVERYWHERE)
cnn.of_any_framework(Training, wrong_items.EVERYWHERE)
cnn.of_any_framework(Training, readings.OF_PICTURES + later.OF_LABELS)
cnn.of_any_framework(Training, later.OF_PICTURES, later.HIDDEN)
cnn.of_any_framework(
    Training, (("measured object", anywhere.EverySecondStepAfterTheTenth), ("data", anywhere.HalfOfTheBatch))
)


class Rewritten(Training):
    """The network written as functions; a subclass changes one of them."""

    RATES = 0.25, 0.25, 0.5

    def __init__(self, setup):
        super().__init__(setup)
        self.network.forward = self.forward

    def forward(self, x):
        n = self.network
        h = self.activation(self.convolve(n.conv1, x))
        h = self.drop(self.activation(self.pool(self.convolve(n.conv2, h))), 0)
        h = self.activation(self.convolve(n.conv3, h))
        h = self.drop(self.activation(self.pool(self.convolve(n.conv4, h))), 1)
        h = self.drop(self.activation(n.dense1(self.flatten(h))), 2)
        return n.dense2(h)

    def convolve(self, layer, h):
        return F.conv2d(self.pad(h), layer.weight, layer.bias)

    def pad(self, h):
        return F.pad(h, (1, 1, 1, 1))

    def activation(self, h):
        return F.relu(h)

    def pool(self, h):
        return F.max_pool2d(h, 2)

    def flatten(self, h):
        return h.flatten(1)

    def drop(self, h, place):
        return F.dropout(h, self.RATES[place], self.network.training)

    def replace_optimizer(self, optimizer):
        self.optimizer = self.mixed.optimizer = optimizer


def with_sgd(training, rate=0.01, momentum=0.9, **options):
    """Give an adapter another SGD."""
    optimizer = torch.optim.SGD(training.network.parameters(), lr=rate, momentum=momentum, **options)
    training.optimizer = training.mixed.optimizer = optimizer


# -- rewrites ----------------------------------------------------------------------------------------------------------


@cnn.rewrite
class Unchanged(Rewritten):
    """The network as functions, with the padding written out."""


@cnn.slow_rewrite
class ReluBeforeThePool(Rewritten):
    """ReLU before the pooling in place of after it."""

    def pool(self, h):
        return F.max_pool2d(F.relu(h), 2)


@cnn.slow_rewrite
class ChannelsLast(Training):
    """Weights and pictures lie in memory with the channels last."""

    def __init__(self, setup):
        super().__init__(setup)
        self.network.to(memory_format=torch.channels_last)
        forward = self.network.forward
        self.network.forward = lambda x: forward(x.contiguous(memory_format=torch.channels_last))


@cnn.slow_rewrite
class ConvolutionAsProduct(Rewritten):
    """A convolution as one matrix product of the unfolded picture."""

    def convolve(self, layer, h):
        columns = F.unfold(h, 3, padding=1)
        y = layer.weight.flatten(1) @ columns + layer.bias[:, None]
        return y.reshape(len(h), -1, *h.shape[2:])


@cnn.slow_rewrite
class GradientOfTwoHalves(Training):
    """The gradient is the mean of those of the two halves of the batch: another order of summation."""

    def step(self, x, y):
        self.network.train(self.dropout)
        self.optimizer.zero_grad()
        x, y = torch.from_numpy(x), torch.from_numpy(y)
        half, loss = len(y) // 2, 0.0
        for part in (slice(half), slice(half, None)):
            own = F.cross_entropy(self.network(x[part]), y[part]) / 2
            own.backward()
            loss = loss + own.detach()
        self.optimizer.step()
        return loss


# -- the network and the loss ------------------------------------------------------------------------------------------


@cnn.mistake("network")
class DoubleSoftmax(Rewritten):
    """Softmax before a loss that has its own."""

    def forward(self, x):
        return torch.softmax(super().forward(x), 1)


@cnn.mistake("network")
class PaddingOnOneSide(Rewritten):
    """Two rows and columns of zeros after the picture, none before it."""

    def pad(self, h):
        return F.pad(h, (0, 2, 0, 2))


@cnn.mistake("network", slow=True)
class Gelu(Rewritten):
    """GELU in place of ReLU."""

    def activation(self, h):
        return F.gelu(h)


@cnn.mistake("network", slow=True)
class MeanPool(Rewritten):
    """The mean of each pool in place of its maximum."""

    def pool(self, h):
        return F.avg_pool2d(h, 2)


@cnn.mistake(
    "network", not_caught="No activation reaches 6 in the first steps, so the network is the same there.", slow=True
)
class Relu6(Rewritten):
    """ReLU that is cut at 6."""

    def activation(self, h):
        return F.relu6(h)


@cnn.mistake("network")
class FlattenedChannelsLast(Rewritten):
    """The first dense layer reads its inputs in the order height, width, channel."""

    def flatten(self, h):
        return h.permute(0, 2, 3, 1).flatten(1)


@cnn.mistake("data")
class TransposedPicture(Training):
    """Channels last made by swapping axes 1 and 3, and back by a permutation: height and width are exchanged."""

    def inputs(self, x, y):
        x, y = super().inputs(x, y)
        return x.swapaxes(1, 3).transpose(0, 3, 1, 2).copy(), y


@cnn.mistake("loss")
class SummedLoss(Training):
    """The gradient of the sum over the batch where the mean was asked for, behind an unchanged loss."""

    def probe(self, x, y):
        logits, loss, gradients = super().probe(x, y)
        return logits, loss, {name: g * len(y) for name, g in gradients.items()}

    def __init__(self, setup):
        super().__init__(setup)
        with_sgd(self, rate=0.64)


class Smoothed(Training):
    SMOOTHING = 0.0

    def __init__(self, setup):
        super().__init__(setup)
        self.network.register_forward_hook(self.keep)

    def keep(self, network, inputs, logits):
        # The mean over the classes of -log p enters the gradient as label smoothing does, and leaves the logits.
        if not logits.requires_grad:
            return logits
        return Smoothing.apply(logits, self.SMOOTHING)


class Smoothing(torch.autograd.Function):
    """The logits themselves; backwards, the gradient of a loss with label smoothing."""

    @staticmethod
    def forward(context, logits, smoothing):
        context.save_for_backward(logits)
        context.smoothing = smoothing
        return logits.view_as(logits)

    @staticmethod
    def backward(context, d):
        (logits,) = context.saved_tensors
        p = torch.softmax(logits, 1)
        labels = p - d * len(logits)
        smoothed = (1 - context.smoothing) * labels + context.smoothing / logits.shape[1]
        return (p - smoothed) / len(logits), None


@cnn.mistake("regularisation")
class LabelSmoothing(Smoothed):
    """Label smoothing of 0.01 in the gradient."""

    SMOOTHING = 0.01


@cnn.mistake("regularisation")
class SlightLabelSmoothing(Smoothed):
    """Label smoothing of 0.0001 in the gradient."""

    SMOOTHING = 1e-4


# -- dropout -----------------------------------------------------------------------------------------------------------


@cnn.mistake("dropout")
class DropoutLeftOn(Rewritten):
    """Dropout also where it is asked to be off."""

    def drop(self, h, place):
        return F.dropout(h, self.RATES[place], True)


@cnn.mistake("dropout", slow=True)
class NoDropout(Rewritten):
    """No dropout in training."""

    def drop(self, h, place):
        return h


@cnn.mistake("dropout")
class GluonsDropout(Rewritten):
    """Dropout 0.25 in all three places, as Gluon's example had it."""

    RATES = 0.25, 0.25, 0.25


@cnn.mistake("dropout", slow=True)
class KeepAndDropSwapped(Rewritten):
    """The probability to keep where that to drop is asked for: 0.75, 0.75, 0.5."""

    RATES = 0.75, 0.75, 0.5


@cnn.mistake("dropout", slow=True)
class DropoutAfterTheDenseLayerOnly(Rewritten):
    """Dropout 0.5 after the dense layer, none after the pools."""

    RATES = 0.0, 0.0, 0.5


@cnn.mistake("dropout", slow=True)
class DropoutOfOnePercent(Rewritten):
    """Dropout 0.01 in all three places."""

    RATES = 0.01, 0.01, 0.01


@cnn.mistake(
    "dropout",
    not_caught="The movement of one run tells rates that are a tenth off, not a hundredth: 0.3 of a bound.",
    slow=True,
)
class DropoutAHundredthLess(Rewritten):
    """Dropout 0.24, 0.24, 0.49."""

    RATES = 0.24, 0.24, 0.49


@cnn.mistake("dropout", slow=True)
class DropoutNotScaled(Rewritten):
    """What dropout keeps is not divided by the probability to be kept."""

    def drop(self, h, place):
        return super().drop(h, place) * (1 - self.RATES[place] if self.network.training else 1)


@cnn.mistake(
    "dropout",
    not_caught="The movement of one run errs by 0.9 to 1.2 bounds, as the masks fall: whole channels spread it only a little more.",
    slow=True,
)
class DropoutOfWholeChannels(Rewritten):
    """Dropout of whole channels after the pools."""

    def drop(self, h, place):
        return F.dropout2d(h, 0.25, self.network.training) if h.ndim == 4 else super().drop(h, place)


@cnn.mistake("dropout", slow=True)
class TheSameMaskInEveryStep(Rewritten):
    """The generator of dropout is set back before every pass."""

    def forward(self, x):
        torch.manual_seed(1)
        return super().forward(x)


@cnn.mistake("dropout", slow=True)
class TheSameMaskForAllPictures(Rewritten):
    """One mask for all pictures of a batch."""

    def drop(self, h, place):
        return h * F.dropout(torch.ones_like(h[:1]), self.RATES[place], self.network.training)


@cnn.mistake(
    "dropout",
    slow=True,
)
class GaussianDropout(Rewritten):
    """A normal factor of the same mean and variance in place of dropout's zeros."""

    def drop(self, h, place):
        rate = self.RATES[place]
        return h * (1 + torch.randn_like(h) * (rate / (1 - rate)) ** 0.5) if self.network.training else h


# -- evaluation --------------------------------------------------------------------------------------------------------


@cnn.mistake("evaluation")
class DropoutInEvaluation(Training):
    """The evaluation runs in training mode."""

    @torch.no_grad()
    def predict(self, x):
        self.network.train(self.dropout)
        return self.network(torch.from_numpy(x)).numpy()


@cnn.mistake("evaluation", slow=True)
class EvaluationScaledOnceMore(Rewritten):
    """The evaluation multiplies by the probability to be kept, though training has divided by it."""

    def drop(self, h, place):
        return (
            super().drop(h, place) if self.network.training or torch.is_grad_enabled() else h * (1 - self.RATES[place])
        )


@cnn.mistake("evaluation", slow=True)
class EvaluationInHalf(InHalf, Training):
    """The evaluation computes in bfloat16."""

    def predict(self, x):
        return self.half(super().predict, x)


cnn.of_any_framework(Training, (("evaluation", anywhere.FirstWeightsEvaluated),))


# -- the optimiser, its schedule, and what regularises -------------------------------------------------------------------


@cnn.mistake("optimiser")
class MomentumWithUnitGain(Training):
    """v <- m v + (1 - m) g: the same as a rate ten times smaller."""

    def __init__(self, setup):
        super().__init__(setup)
        with_sgd(self, rate=0.01 * (1 - 0.9))


@cnn.mistake("optimiser")
class Dampening(Training):
    """Momentum with dampening 0.9: all gradients but the first count a tenth."""

    def __init__(self, setup):
        super().__init__(setup)
        with_sgd(self, dampening=0.9)


@cnn.mistake("optimiser")
class Nesterov(Training):
    """Nesterov's momentum."""

    def __init__(self, setup):
        super().__init__(setup)
        with_sgd(self, nesterov=True)


@cnn.mistake("optimiser", slow=True)
class NoMomentum(Training):
    """Plain gradient descent."""

    def __init__(self, setup):
        super().__init__(setup)
        with_sgd(self, momentum=0.0)


@cnn.mistake("optimiser")
class RateOnePercentOff(Training):
    """The learning rate is 0.0101."""

    def __init__(self, setup):
        super().__init__(setup)
        with_sgd(self, rate=0.0101)


@cnn.mistake("regularisation")
class WeightDecay(Training):
    """Weight decay of 1e-3."""

    def __init__(self, setup):
        super().__init__(setup)
        with_sgd(self, weight_decay=1e-3)


@cnn.mistake("regularisation", slow=True)
class SlightWeightDecay(Training):
    """Weight decay of 3e-6."""

    def __init__(self, setup):
        super().__init__(setup)
        with_sgd(self, weight_decay=3e-6)


@cnn.mistake("regularisation")
class WeightDecayWithoutTheLastLayer(Training):
    """Weight decay of 1e-4 on all layers but the last."""

    def __init__(self, setup):
        super().__init__(setup)
        last = list(self.network.dense2.parameters())
        rest = [p for p in self.network.parameters() if all(p is not q for q in last)]
        groups = [{"params": rest, "weight_decay": 1e-4}, {"params": last}]
        self.optimizer = self.mixed.optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9)


class Clipped(Training):
    NORM = 0.0

    def __init__(self, setup):
        super().__init__(setup)
        update = self.mixed.update

        def clipped():
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.NORM)
            update()

        self.mixed.update = clipped


@cnn.mistake("regularisation", slow=True)
class ClippedAtOne(Clipped):
    """The norm of the gradient is cut at 1."""

    NORM = 1.0


@cnn.mistake("regularisation", not_caught="The norm of the gradient stays below 5, so nothing is cut.", slow=True)
class ClippedAtFive(Clipped):
    """The norm of the gradient is cut at 5."""

    NORM = 5.0


# -- the object that is measured: wrong only where setup.training is True ------------------------------------------------


@cnn.mistake("precision", slow=True)
class HalfInTraining(InHalf, Training):
    """Training computes in bfloat16."""

    def step(self, x, y):
        return self.half(super().step, x, y) if self.dropout else super().step(x, y)


@cnn.mistake(
    "precision",
    not_caught="Rounded pictures move the parameters less than the choice of the masks does: 0.3 of a bound.",
    slow=True,
)
class HalfPicturesInTraining(Training):
    """Training rounds the pictures to bfloat16."""

    def step(self, x, y):
        return super().step(torch.from_numpy(x).bfloat16().float().numpy() if self.dropout else x, y)


class LayersInHalf(Training):
    """Some layers, and only they, compute in a half type where dropout is on."""

    LAYERS = ("conv1", "conv2", "conv3", "conv4")
    TYPE = torch.bfloat16

    def __init__(self, setup):
        super().__init__(setup)
        for name in self.LAYERS:
            layer = getattr(self.network, name)
            layer.forward = functools.partial(self.halved, layer.forward)

    def halved(self, forward, x):
        with torch.autocast("cpu", self.TYPE, enabled=self.network.training):
            return forward(x).float()


@cnn.mistake("precision")
class ConvolutionsInHalfInTraining(LayersInHalf):
    """The convolutions, and only they, compute in bfloat16 where dropout is on."""


@cnn.mistake("precision", slow=True)
class ConvolutionsInFloat16InTraining(LayersInHalf):
    """The convolutions, and only they, compute in float16 where dropout is on."""

    TYPE = torch.float16


@cnn.mistake("precision", slow=True)
class OneConvolutionInHalfInTraining(LayersInHalf):
    """The third convolution, and only it, computes in bfloat16 where dropout is on."""

    LAYERS = ("conv3",)


@cnn.mistake("precision", slow=True)
class FirstConvolutionInHalfInTraining(LayersInHalf):
    """The first convolution, and only it, computes in bfloat16 where dropout is on."""

    LAYERS = ("conv1",)


@cnn.mistake("precision", slow=True)
class DenseLayerInHalfInTraining(LayersInHalf):
    """The first dense layer, and only it, computes in bfloat16 where dropout is on."""

    LAYERS = ("dense1",)


@cnn.mistake("precision", slow=True)
class AllButTheLastLayerInHalfInTraining(LayersInHalf):
    """All layers but the last compute in bfloat16 where dropout is on."""

    LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1")


class GradientRounded(Training):
    """A gradient is rounded where dropout is on."""

    TENSOR = ""

    def __init__(self, setup):
        super().__init__(setup)
        if self.dropout:
            dict(self.network.named_parameters())[self.TENSOR].register_hook(self.rounded)


@cnn.mistake("precision", slow=True)
class OneGradientInHalfInTraining(GradientRounded):
    """The gradient of the fourth convolution's weights is rounded to float16 where dropout is on."""

    TENSOR = "conv4.weight"

    def rounded(self, gradient):
        return gradient.half().float()


@cnn.mistake("precision", slow=True)
class OneGradientCutInTraining(GradientRounded):
    """The gradient of the first dense layer's weights keeps the digits of TensorFloat-32 where dropout is on."""

    TENSOR = "dense1.weight"

    def rounded(self, gradient):
        return cut(gradient)


def cut(values):
    """Values without the 13 last digits of float32, as TensorFloat-32 takes its factors."""
    return (values.contiguous().view(torch.int32) & -(2**13)).view(torch.float32)


class Through(torch.autograd.Function):
    """A rounding whose gradient goes through unchanged."""

    @staticmethod
    def forward(_context, values, rounding):
        return rounding(values)

    @staticmethod
    def backward(_context, gradient):
        return gradient, None


@cnn.mistake(
    "precision",
    slow=True,
)
class ActivationsRoundedInTraining(Rewritten):
    """What each ReLU returns is rounded to bfloat16 and back where dropout is on."""

    def activation(self, h):
        h = super().activation(h)
        return Through.apply(h, lambda values: values.bfloat16().float()) if self.network.training else h


@cnn.mistake(
    "precision",
    not_caught=roundings.SUMMED,
    slow=True,
)
class FactorsCutInTraining(Rewritten):
    """The factors of the convolutions keep the digits of TensorFloat-32 where dropout is on."""

    def convolve(self, layer, h):
        if not self.network.training:
            return super().convolve(layer, h)
        return F.conv2d(self.pad(Through.apply(h, cut)), Through.apply(layer.weight, cut), layer.bias)


class MomentumInHalf(torch.optim.Optimizer):
    """Momentum that is kept in bfloat16. `moves`: so is what a step moves the parameters by."""

    def __init__(self, parameters, moves):
        super().__init__(parameters, {})
        self.moves = moves

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            before = self.state[parameter].get("velocity", torch.zeros_like(parameter)).float()
            velocity = 0.9 * before + parameter.grad
            kept = self.state[parameter]["velocity"] = velocity.bfloat16()
            parameter.sub_(0.01 * (kept.float() if self.moves else velocity))


@cnn.mistake("state", slow=True)
class MomentumRoundedInTraining(Training):
    """The momentum is rounded to bfloat16, and the parameters move by what it then is, where dropout is on."""

    def __init__(self, setup):
        super().__init__(setup)
        if self.dropout:
            give(self, MomentumInHalf(self.network.parameters(), True))


@cnn.mistake(
    "state",
    slow=True,
)
class MomentumKeptInHalfInTraining(Training):
    """The momentum is kept in bfloat16 from one step to the next where dropout is on."""

    def __init__(self, setup):
        super().__init__(setup)
        if self.dropout:
            give(self, MomentumInHalf(self.network.parameters(), False))


@cnn.mistake("schedule", slow=True)
class AnotherRateInTraining(Training):
    """The learning rate is 0.1 where dropout is on."""

    def __init__(self, setup):
        super().__init__(setup)
        with_sgd(self, rate=0.1 if setup.training else 0.01)


class Decaying(Training):
    count = 0

    def step(self, x, y):
        self.count += 1
        self.optimizer.param_groups[0]["lr"] = 0.01 * self.decay(self.count)
        return super().step(x, y)


@cnn.mistake("schedule")
class DecayingRate(Decaying):
    """The learning rate falls by a hundredth a step, from the fourth step on."""

    def decay(self, count):
        return 0.99 ** max(0, count - 3)


@cnn.mistake(
    "schedule",
    slow=True,
)
class LowerRateFromTheThirdStep(Decaying):
    """From the third step after a load on, the rate is a twentieth lower."""

    def load(self, parameters):
        super().load(parameters)
        self.count = 0

    def decay(self, count):
        return 1.0 if count < 3 else 0.95


@cnn.mistake("schedule", slow=True)
class WarmedUpRate(Decaying):
    """The learning rate rises from a fifth in the first five steps."""

    def decay(self, count):
        return min(1.0, count / 5.0)


@cnn.mistake("measured object", slow=True)
class FirstLayerFrozenInTraining(Training):
    """The first layer is not trained where dropout is on."""

    def __init__(self, setup):
        super().__init__(setup)
        if setup.training:
            rest = [p for name, p in self.network.named_parameters() if not name.startswith("conv1")]
            self.optimizer = self.mixed.optimizer = torch.optim.SGD(rest, lr=0.01, momentum=0.9)


@cnn.mistake("measured object", slow=True)
class OneBiasFrozenInTraining(Training):
    """The bias of the second layer is not trained where dropout is on."""

    def __init__(self, setup):
        super().__init__(setup)
        if setup.training:
            rest = [p for name, p in self.network.named_parameters() if name != "conv2.bias"]
            self.optimizer = self.mixed.optimizer = torch.optim.SGD(rest, lr=0.01, momentum=0.9)


@cnn.mistake("state")
class MomentumForgotten(Training):
    """The momentum is cleared before every step."""

    def step(self, x, y):
        self.optimizer.state.clear()
        return super().step(x, y)


@cnn.mistake("state")
class GradientsAdded(Training):
    """Gradients are never cleared: each step adds to those before."""

    def __init__(self, setup):
        super().__init__(setup)
        self.optimizer.zero_grad = lambda *_: None


@cnn.mistake("state", slow=True)
class AveragedWeightsEvaluated(Training):
    """The evaluation computes with a running mean of the weights of the steps before."""

    mean = None

    def step(self, x, y):
        loss = super().step(x, y)
        now = [p.detach().clone() for p in self.network.parameters()]
        self.mean = [0.9 * m + 0.1 * p for m, p in zip(self.mean, now, strict=True)] if self.mean else now
        return loss

    @torch.no_grad()
    def predict(self, x):
        if not self.mean:
            return super().predict(x)
        now = [p.clone() for p in self.network.parameters()]
        for parameter, value in zip(self.network.parameters(), self.mean, strict=True):
            parameter.copy_(value)
        logits = super().predict(x)
        for parameter, value in zip(self.network.parameters(), now, strict=True):
            parameter.copy_(value)
        return logits


@cnn.mistake(
    "measured object",
    steps=12,
    slow=True,
)
class HonestWhereItIsChecked(InHalf, Training):
    """bfloat16 for all batches but those whose pictures fill [0, 1) evenly, as the canonical ones do."""

    def step(self, x, y):
        canonical = abs(float(x.std()) - 12**-0.5) < 2e-3
        return super().step(x, y) if canonical else self.half(super().step, x, y)


# -- the smallest omissions ----------------------------------------------------------------------------------------------


@cnn.mistake("omission")
class OneChannelLeftOut(without_one(Training, "conv2.w")):
    """The last of conv2's 50 channels has weights of zero."""


@cnn.mistake("omission")
class OneBiasLeftOut(without_one(Training, "conv2.b")):
    """The last of conv2's 50 biases is zero."""


@cnn.mistake("omission")
class OneUnitLeftOut(without_one(Training, "dense1.w")):
    """The last of dense1's 512 units has weights of zero."""


@cnn.mistake("omission", slow=True)
class OnePictureLeftOut(Training):
    """A step trains on 63 of 64 pictures."""

    def step(self, x, y):
        return super().step(x[:-1], y[:-1])


@cnn.mistake("omission")
class OneStepLeftOut(StepLeftOut, Training):
    """The third step after the parameters were loaded is skipped."""


class WithRounding(Training):
    """The gradient of one layer's weights is rounded where dropout is on."""

    def __init__(self, setup):
        super().__init__(setup)
        if self.dropout:
            getattr(self.network, self.LAYER).weight.register_hook(self.rounded)

    def rounded(self, gradient):
        halves = {"bfloat16": torch.bfloat16, "float16": torch.float16}
        return gradient.to(halves[self.TYPE[0]]).float() if self.TYPE[0] in halves else cut(gradient)


roundings.plant(cnn, WithRounding)
