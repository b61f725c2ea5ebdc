"""Mistakes in the IMDB network in PyTorch."""

import torch
import torch.nn.functional as F

from bench.frameworks.torch import gru_imdb
from tests.contract.mutants import anywhere, later, readings, rows, torch_adam, wrong_items
from tests.contract.mutants.omissions import StepLeftOut, without_one
from tests.contract.mutants.registry import Planted
from tests.contract.mutants.torch_adam import InHalf, planted

gru = Planted("torch", "gru-imdb")
Training = gru_imdb.Training
gru.of_any_framework(Training, anywhere.EVERYWHERE)
gru.of_any_framework(Training, wrong_items.EVERYWHERE)
gru.of_any_framework(Training, wrong_items.ONCE)
gru.of_any_framework(Training, readings.OF_IDS + readings.OF_IDS_IN_STEPS + readings.OF_LABELS + readings.OF_ANSWERS)
gru.of_any_framework(Training, later.LATER)
gru.of_any_framework(
    Training,
    (
        ("measured object", anywhere.EverySecondStepAfterTheTenth),
        ("measured object", anywhere.TwoUpdatesAStep),
        ("data", anywhere.HalfOfTheBatch),
        ("data", anywhere.LabelsOfTheBatchBefore),
        ("evaluation", anywhere.FirstWeightsEvaluated),
    ),
)


@gru.mistake("measured object")
class MoreThreadsThanGiven(Training):
    """The adapter computes with one thread more than the cell was given."""

    def __init__(self, setup):
        super().__init__(setup)
        torch.set_num_threads(setup.threads + 1)


@gru.mistake("evaluation", steps=20)
class CopyOfTheFiftiethStepEvaluated(Training):
    """The evaluation computes with a copy of the weights, which is renewed at every fiftieth step and where weights are loaded."""

    def load(self, parameters):
        super().load(parameters)
        self.taken = 0
        self.renew()

    def renew(self):
        self.copied = [parameter.detach().clone() for parameter in self.network.parameters()]

    def step(self, x, y):
        loss = super().step(x, y)
        self.taken += 1
        if self.taken % 50 == 0:
            self.renew()
        return loss

    @torch.no_grad()
    def exchange(self):
        for parameter, copied in zip(self.network.parameters(), self.copied, strict=True):
            kept = parameter.clone()
            parameter.copy_(copied)
            copied.copy_(kept)

    def predict(self, x):
        self.exchange()
        logits = super().predict(x)
        self.exchange()
        return logits


class WithNetwork(Training):
    """A subclass changes how the network is computed, step by step."""

    def __init__(self, setup):
        super().__init__(setup)
        self.network.forward = self.forward
        self.network.gru.batch_first = True

    def forward(self, x):
        return self.network.dense(self.state(self.embedded(x)))

    def embedded(self, x):
        return self.network.embedding(x)

    def state(self, e):
        return self.network.gru(e)[1][0]


class WithCell(WithNetwork):
    """A GRU written by hand; a subclass changes cell()."""

    def state(self, e):
        gru = self.network.gru
        h = self.first(e)
        for t in range(e.shape[1]):
            gi = F.linear(e[:, t], gru.weight_ih_l0, gru.bias_ih_l0)
            h = self.cell(gi.chunk(3, 1), F.linear(h, gru.weight_hh_l0, gru.bias_hh_l0).chunk(3, 1), h)
        return h

    def first(self, e):
        return e.new_zeros(len(e), 100)

    def cell(self, gi, gh, h):
        r, z = torch.sigmoid(gi[0] + gh[0]), torch.sigmoid(gi[1] + gh[1])
        return (1 - z) * torch.tanh(gi[2] + r * gh[2]) + z * h


# -- rewrites ----------------------------------------------------------------------------------------------------------


@gru.rewrite
class CellByCell(WithCell):
    """The GRU written by hand, one position at a time."""


@gru.slow_rewrite
class ReviewsFirst(WithNetwork):
    """The reviews before the positions."""


@gru.rewrite
class AdamByHand(planted(Training, torch_adam.HandAdam)):
    """Adam written by hand."""


@gru.slow_rewrite
class AdamInALoop(planted(Training, lambda p: torch.optim.Adam(p, lr=0.001, betas=(0.9, 0.999), eps=1e-8))):
    """PyTorch's Adam without its fused kernel: a loop over the parameters."""


# -- the network -------------------------------------------------------------------------------------------------------


@gru.mistake("network")
class ResetBefore(WithCell):
    """The reset gate applied to the state before the recurrent product (Cho et al. 2014, version 1)."""

    def cell(self, gi, gh, h):
        gru = self.network.gru
        r, z = torch.sigmoid(gi[0] + gh[0]), torch.sigmoid(gi[1] + gh[1])
        u, c = gru.weight_hh_l0[200:], gru.bias_hh_l0[200:]
        return (1 - z) * torch.tanh(gi[2] + F.linear(r * h, u, c)) + z * h


@gru.mistake("network")
class UpdateGateTurned(WithCell):
    """h' = z n + (1 - z) h: the other sign convention of the update gate."""

    def cell(self, gi, gh, h):
        r, z = torch.sigmoid(gi[0] + gh[0]), torch.sigmoid(gi[1] + gh[1])
        return z * torch.tanh(gi[2] + r * gh[2]) + (1 - z) * h


@gru.mistake("network")
class HardSigmoid(WithCell):
    """The gates by a piecewise linear sigmoid, as old Keras had it."""

    def cell(self, gi, gh, h):
        r, z = (torch.clamp(0.2 * (gi[i] + gh[i]) + 0.5, 0, 1) for i in (0, 1))
        return (1 - z) * torch.tanh(gi[2] + r * gh[2]) + z * h


@gru.mistake("precision")
class TanhByEleven(WithCell):
    """tanh with a relative error of 2^-11, as the approximate instruction of a GPU has it."""

    def cell(self, gi, gh, h):
        r, z = torch.sigmoid(gi[0] + gh[0]), torch.sigmoid(gi[1] + gh[1])
        n = torch.tanh(gi[2] + r * gh[2])
        return (1 - z) * (n + (n.detach() * 2**11).round() / 2**11 - n.detach()) + z * h


@gru.mistake("network")
class GatesInAnotherOrder(Training):
    """Parameters stacked z, r, n (Keras' order) loaded as r, z, n."""

    def load(self, parameters):
        def swap(v):
            return torch.cat([torch.from_numpy(v)[i : i + 100] for i in (100, 0, 200)]).numpy()

        super().load({k: swap(v) if k.startswith("gru.") else v for k, v in parameters.items()})


@gru.mistake("network")
class RecurrentBiasForgotten(Training):
    """The recurrent bias is not loaded."""

    def load(self, parameters):
        super().load({k: v * 0 if k == "gru.c" else v for k, v in parameters.items()})


@gru.mistake("network")
class MeanOfTheStates(WithNetwork):
    """The mean of the states of all positions in place of the last state."""

    def state(self, e):
        return self.network.gru(e)[0].mean(1)


# -- the length of the sequence ------------------------------------------------------------------------------------------


class Last(WithNetwork):
    POSITIONS = 150

    def embedded(self, x):
        return super().embedded(x[:, -self.POSITIONS :])


@gru.mistake("length")
class Last45Positions(Last):
    """The last 45 of 150 positions only."""

    POSITIONS = 45


@gru.mistake("length")
class Last149Positions(Last):
    """All positions but the first."""

    POSITIONS = 149


@gru.mistake("length")
class LastPositionLeftOut(WithNetwork):
    """All positions but the last."""

    def embedded(self, x):
        return super().embedded(x[:, :-1])


@gru.mistake("length")
class DetachedEvery50(WithNetwork):
    """The gradient does not go back beyond 50 positions."""

    def state(self, e):
        h = None
        for part in e.split(50, 1):
            h = self.network.gru(part, None if h is None else h.detach())[1]
        return h[0]


@gru.mistake("length")
class Last45PositionsInTraining(Last):
    """A step computes the last 45 positions; all else computes all."""

    def step(self, x, y):
        return super().step(x[:, -45:], y)


@gru.mistake("length")
class ReadBackwards(WithNetwork):
    """The reviews are read from their end to their beginning."""

    def embedded(self, x):
        return super().embedded(x.flip(1))


# -- padding -----------------------------------------------------------------------------------------------------------


@gru.mistake("padding")
class PaddingIndex(Training):
    """The embedding of id 0 is not trained (padding_idx=0)."""

    def __init__(self, setup):
        super().__init__(setup)
        self.network.embedding.padding_idx = 0


@gru.mistake("padding")
class PaddingIndexOne(Training):
    """The embedding of id 1 is not trained (padding_idx=1, as RoBERTa's vocabulary has it)."""

    def __init__(self, setup):
        super().__init__(setup)
        self.network.embedding.padding_idx = 1


class RowsFrozen(Training):
    """Some rows of the embedding are not trained."""

    def __init__(self, setup):
        super().__init__(setup)
        self.network.embedding.weight.register_hook(self.frozen)

    def frozen(self, gradient):
        gradient = gradient.clone()
        gradient[self.rows()] = 0
        return gradient


@gru.mistake("padding", slow=True)
class Row2Frozen(RowsFrozen):
    """The embedding of id 2 (out of vocabulary) is not trained."""

    def rows(self):
        return [2]


@gru.mistake("padding", slow=True)
class RowsOfNoRandomBatchFrozen(RowsFrozen):
    """The rows that three batches of random ids leave out, half of all, are not trained."""

    def rows(self):
        named = torch.randint(1, 30000, (3 * 6720,), generator=torch.Generator().manual_seed(0))
        return torch.bincount(named, minlength=30000) == 0


@gru.mistake("padding")
class PaddingOfZeros(WithNetwork):
    """The embedding of id 0 is zero."""

    def embedded(self, x):
        return super().embedded(x) * (x != 0)[:, :, None]


@gru.mistake("padding")
class PaddingSkipped(WithCell):
    """Positions of id 0 keep the state, as masking layers do."""

    def forward(self, x):
        self.real = (x != 0).float()
        return super().forward(x)

    def state(self, e):
        self.position = -1
        return super().state(e)

    def cell(self, gi, gh, h):
        self.position += 1
        keep = self.real[:, self.position, None]
        return keep * super().cell(gi, gh, h) + (1 - keep) * h


# -- state -------------------------------------------------------------------------------------------------------------


@gru.mistake("state")
class StateCarriedOver(WithNetwork):
    """A batch begins with the state that the batch before ended with."""

    last = None

    def state(self, e):
        first = self.last if self.last is not None and self.last.shape[1] == len(e) else None
        h = self.network.gru(e, first)[1]
        self.last = h.detach()
        return h[0]


@gru.mistake("state")
class RandomFirstState(WithNetwork):
    """The first state is drawn from N(0, 1)."""

    def state(self, e):
        return self.network.gru(e, torch.randn(1, len(e), 100))[1][0]


@gru.mistake("state")
class MomentsKept(Training):
    """load() leaves Adam's moments as they were."""

    def load(self, parameters):
        clear, self.optimizer.state = self.optimizer.state, dict(self.optimizer.state)
        super().load(parameters)
        self.optimizer.state = clear


@gru.mistake("state", slow=True)
class MomentsForgotten(Training):
    """Adam's moments are cleared before every step."""

    def step(self, x, y):
        self.optimizer.state.clear()
        return super().step(x, y)


# -- the optimiser -----------------------------------------------------------------------------------------------------


@gru.mistake("optimiser")
class AdamWithoutBiasCorrection(planted(Training, torch_adam.WithoutBiasCorrection)):
    """Adam whose moments are not corrected for their start at zero."""


@gru.mistake("optimiser", slow=True)
class EpsilonHat(planted(Training, torch_adam.EpsilonHat)):
    """Epsilon added to the root of the uncorrected moment."""


@gru.mistake("optimiser", slow=True)
class EpsilonInTheRoot(planted(Training, torch_adam.EpsilonInTheRoot)):
    """Epsilon added below the root."""


@gru.mistake("optimiser")
class EpsilonSquaredInTheRoot(planted(Training, torch_adam.EpsilonSquaredInTheRoot)):
    """The square of epsilon added below the root."""


@gru.mistake("optimiser", slow=True)
class EpsilonOfKeras(planted(Training, lambda p: torch.optim.Adam(p, lr=0.001, eps=1e-7))):
    """Epsilon 1e-7."""


@gru.mistake("optimiser", slow=True)
class EpsilonTwice(planted(Training, lambda p: torch.optim.Adam(p, lr=0.001, eps=2e-8))):
    """Epsilon 2e-8."""


@gru.mistake("optimiser")
class AmsGrad(planted(Training, lambda p: torch.optim.Adam(p, lr=0.001, eps=1e-8, amsgrad=True))):
    """AMSGrad."""


@gru.mistake("optimiser")
class LazyAdam(planted(Training, torch_adam.Lazy)):
    """Rows of the embedding that a batch does not use keep their weights and moments, as sparse updates leave them."""


@gru.mistake("optimiser", slow=True)
class Beta2OfAHundred(planted(Training, lambda p: torch.optim.Adam(p, lr=0.001, betas=(0.9, 0.99), eps=1e-8))):
    """Beta 2 is 0.99."""


@gru.mistake("optimiser", slow=True)
class NAdam(planted(Training, lambda p: torch.optim.NAdam(p, lr=0.001, eps=1e-8))):
    """NAdam: Adam with Nesterov's momentum."""


@gru.mistake("regularisation", slow=True)
class AdamW(planted(Training, lambda p: torch.optim.AdamW(p, lr=0.001, eps=1e-8, weight_decay=0.01))):
    """AdamW with its default weight decay of 0.01."""


@gru.mistake("regularisation")
class LengthOfVectorsCut(Training):
    """The vectors of the embedding are cut to a norm of 0.1 when they are read (max_norm)."""

    def __init__(self, setup):
        super().__init__(setup)
        self.network.embedding.max_norm = 0.1


@gru.mistake("regularisation")
class GradientByFrequency(Training):
    """The gradient of a word is divided by how often the batch has it (scale_grad_by_freq)."""

    def __init__(self, setup):
        super().__init__(setup)
        self.network.embedding.scale_grad_by_freq = True


@gru.mistake("dropout", slow=True)
class DropoutOfTheEmbedding(WithNetwork):
    """Dropout 0.1 of the embedding in training, where the workload has none."""

    def __init__(self, setup):
        super().__init__(setup)
        self.rate = 0.1 if setup.training else 0.0

    def embedded(self, x):
        return F.dropout(super().embedded(x), self.rate, self.network.training and torch.is_grad_enabled())


# -- precision, and the object that is measured ------------------------------------------------------------------------


@gru.mistake("precision", slow=True)
class HalfInTraining(InHalf, Training):
    """Training computes in bfloat16."""

    def __init__(self, setup):
        super().__init__(setup)
        self.training = setup.training

    def step(self, x, y):
        return self.half(super().step, x, y) if self.training else super().step(x, y)


@gru.mistake("measured object")
class EmbeddingFrozenInTraining(Training):
    """The embedding is not trained where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        if setup.training:
            rest = [p for name, p in self.network.named_parameters() if not name.startswith("embedding")]
            torch_adam.give(self, torch.optim.Adam(rest, lr=0.001, betas=(0.9, 0.999), eps=1e-8))


@gru.mistake("data")
class VocabularyCut(WithNetwork):
    """Ids from 20 000 on are read as id 1, as a smaller vocabulary would have it."""

    def embedded(self, x):
        return super().embedded(torch.where(x < 20000, x, 1))


@gru.mistake("data")
class IdsShifted(Training):
    """Every id is one lower: off by the index of the first word."""

    def inputs(self, x, y):
        return super().inputs((x - 1).clip(0), y)


# -- the smallest omissions ----------------------------------------------------------------------------------------------


@gru.mistake("omission")
class OneUnitLeftOut(without_one(Training, "gru.w")):
    """The last of 100 units reads nothing of the input into its candidate."""


@gru.mistake("omission")
class OneBiasLeftOut(without_one(Training, "gru.b")):
    """The last of 300 biases is zero."""


@gru.mistake("omission", slow=True)
class OneWordLeftOut(without_one(Training, "embedding")):
    """The vector of the last of 30 000 ids is zero."""


@gru.mistake("omission", slow=True)
class OneReviewLeftOut(Training):
    """A step trains on 63 of 64 reviews."""

    def step(self, x, y):
        return super().step(x[:-1], y[:-1])


@gru.mistake("omission")
class OnePositionLeftOut(WithNetwork):
    """The middle one of 150 positions is skipped."""

    def embedded(self, x):
        return super().embedded(torch.cat([x[:, :75], x[:, 76:]], 1))


@gru.mistake("omission")
class OneStepLeftOut(StepLeftOut, Training):
    """The third step after the parameters were loaded is skipped."""


class WithRows(Training):
    """Some rows of the embedding have a factor, where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        self.training = setup.training
        if self.training:
            self.network.embedding.weight.register_hook(lambda gradient: gradient * torch.from_numpy(self.FACTORS))

    def step(self, x, y):
        loss = super().step(x, y)
        if self.training and (self.AFTER != 1).any():
            with torch.no_grad():
                self.network.embedding.weight.mul_(torch.from_numpy(self.AFTER))
        return loss


rows.plant(gru, WithRows)
