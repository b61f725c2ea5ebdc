"""Cheats in PyTorch: they look fast, or look right, only because of how a cell is timed and when it is checked.

The tricks are those that catalogues of rewarded kernels and the rules of benchmarks name: work that a stream or a thread ends after
the clock is read, patched clocks and checkers, remembered outputs, and code that notices when it is checked. On a CPU a thread stands
for a stream. A class with WHOLE is run as a real cell of preset quick, whose output the runner judges by its own clock.
"""

import collections
import concurrent.futures
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

from bench import canonical, cell, contract, timing
from bench.frameworks.torch import gpt_bytes, gru_imdb, mlp_mnist
from tests.contract.mutants.registry import Planted

gru, mlp = Planted("torch", "gru-imdb", slow=True), Planted("torch", "mlp-mnist", slow=True)
gpt = Planted("torch", "gpt-bytes", slow=True)
quick = Planted("torch", "gru-imdb")
Gru, Mlp, Gpt = gru_imdb.Training, mlp_mnist.Training, gpt_bytes.Training

# The losses of so many steps of a quick cell are stored and compared.
COMPARED = 24
# Windows of a short cell that takes more steps than that, with the warm-up.
LONG = 12


# -- other work while nobody looks ---------------------------------------------------------------------------------------


class WhileTimed:
    """A subclass has hurried(x, y), a cheaper step. It is taken between the first load and the first read of the parameters.

    The checks before the measurement have an object of their own, and those after it begin with a read. RIGHT: how many steps are right
    first.
    """

    RIGHT = 0
    # In a short cell. A step that returns at once would make a window of a hundred thousand.
    PLANTED = ((timing, "steps_per_window", lambda step_seconds: 2),)
    timed, taken, loads = False, 0, 0

    def __init__(self, setup):
        super().__init__(setup)
        self.measured = setup.training

    def load(self, parameters):
        super().load(parameters)
        self.loads, self.taken = self.loads + 1, 0
        self.timed = self.measured and self.loads == 1

    def read(self):
        self.timed = False
        return super().read()

    def step(self, x, y):
        self.taken += 1
        hurries = self.timed and self.taken > self.RIGHT
        return self.hurried(x, y) if hurries else super().step(x, y)

    def whole(self, x, y):
        """The right step."""
        return super().step(x, y)


class Claiming(WhileTimed):
    """It says that the optimiser has taken every step, whatever it has taken."""

    def updates(self):
        return self.taken if self.loads == 1 else super().updates()


@gru.mistake(
    "timing",
    steps=6,
    not_caught="A GRU that has hardly trained forgets within 75 positions: the losses and gradients are the same, to the last digits.",
)
class HalfOfTheSequenceWhileTimed(WhileTimed, Gru):
    """The measured steps read the second half of each review; once the parameters are read, steps are right again."""

    def hurried(self, x, y):
        return self.whole(x[:, 75:], y)


@quick.mistake("timing", steps=6)
class HalfOfTheBatchWhileTimed(WhileTimed, Gru):
    """The measured steps take the first half of their batch; once the parameters are read, steps are right again."""

    def hurried(self, x, y):
        return self.whole(x[:32], y[:32])


@gru.mistake(
    "timing",
    steps=LONG,
    not_caught="The losses of the first 24 steps are compared and the last two steps are held. Between them nothing but a review sees it.",
)
class HalfOfTheBatchInTheMiddle(WhileTimed, Gru):
    """The measured steps from the 25th on take the first half of their batch; once the parameters are read, steps are right again."""

    RIGHT = COMPARED

    def hurried(self, x, y):
        return self.whole(x[:32], y[:32])


@gpt.mistake("timing")
class HalfOfTheVocabularyInTheLoss(Gpt):
    """The loss is over the first 128 of 256 bytes: text has no others."""

    def loss(self, x, y):
        logits = self.compiled(x)
        return logits, F.cross_entropy(logits[:, :, :128].flatten(0, 1), y.flatten().long().clamp(max=127))


@gpt.mistake("timing", steps=2)
class HalfOfTheWindowWhileTimed(WhileTimed, Gpt):
    """The measured steps take the first 128 of 256 bytes of each window; once the parameters are read, all."""

    def hurried(self, x, y):
        return self.whole(x[:, :128].copy(), y[:, :128].copy())


# -- fewer steps than are counted ----------------------------------------------------------------------------------------


@gru.mistake("timing", steps=6)
class EverySecondStepWhileTimed(Claiming, Gru):
    """Every second measured step is skipped and counted; once the parameters are read, all are taken."""

    def hurried(self, x, y):
        if self.taken % 2:
            self.handle = self.whole(x, y)
        return self.handle


@gru.mistake("timing", steps=6)
class FourBatchesAnUpdate(Claiming, Gru):
    """The gradients of four measured batches are summed for one update, and four are counted."""

    def hurried(self, x, y):
        loss = F.cross_entropy(self.compiled(torch.from_numpy(x)), torch.from_numpy(y))
        (loss / 4).backward()
        if self.taken % 4 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss


@gru.mistake("timing", steps=6)
class FrozenWhileTimed(Claiming, Gru):
    """The measured steps compute the loss only; the batches are kept, and the last eight are trained on when the parameters are read."""

    def load(self, parameters):
        self.kept = collections.deque(maxlen=8)
        super().load(parameters)

    def hurried(self, x, y):
        self.kept.append((x, y))
        with torch.no_grad():
            return F.cross_entropy(self.compiled(torch.from_numpy(x)), torch.from_numpy(y))

    def read(self):
        while self.kept:
            self.whole(*self.kept.popleft())
        return super().read()


@mlp.mistake("timing", steps=LONG)
class EarlyExit(Claiming, Mlp):
    """Once the loss is below 1.8, training ends: further steps return at once and are counted."""

    last = 9.0

    def hurried(self, x, y):
        if self.last >= 1.8:
            self.handle = self.whole(x, y)
            self.last = self.handle.item()
        return self.handle

    def read(self):
        found, timed = super().read(), self.loads == 1 and self.measured
        self.timed = timed
        return found


@gru.mistake("timing", steps=6)
class LossWhenAsked(WhileTimed, Gru):
    """A measured step returns a promise, and only the steps whose loss is asked for are computed."""

    def hurried(self, x, y):
        return lambda: self.whole(x, y)

    def value(self, loss):
        return super().value(loss() if callable(loss) else loss)


# -- remembered results --------------------------------------------------------------------------------------------------


def gradients_of(adapter):
    return [parameter.grad.clone() for parameter in adapter.network.parameters()]


def update_with(adapter, gradients):
    for parameter, gradient in zip(adapter.network.parameters(), gradients, strict=True):
        parameter.grad = gradient.clone()
    adapter.optimizer.step()


@gru.mistake("timing", steps=6)
class GradientsTwice(WhileTimed, Gru):
    """Every second measured step takes the loss and the gradients of the step before it once more."""

    def hurried(self, x, y):
        if self.taken % 2:
            self.handle = self.whole(x, y)
        else:
            self.optimizer.step()
        return self.handle


@mlp.mistake("timing", steps=6)
class RememberedByAddress(Mlp):
    """The loss and the gradients of a batch are remembered by its address in memory, and taken again when it comes again."""

    def load(self, parameters):
        super().load(parameters)
        self.known = {}

    def step(self, x, y):
        if x.data_ptr() not in self.known:
            self.known[x.data_ptr()] = super().step(x, y), gradients_of(self)
        else:
            update_with(self, self.known[x.data_ptr()][1])
        return self.known[x.data_ptr()][0]


@quick.mistake("timing", steps=6)
class OneBatchReplayed(WhileTimed, Gru):
    """The measured steps replay the first batch: the buffers of a recorded graph are never filled again."""

    buffers = None

    def hurried(self, x, y):
        self.buffers = self.buffers or (x, y)
        return self.whole(*self.buffers)


@gru.mistake("timing", steps=6)
class EightBatchesOnly(WhileTimed, Gru):
    """The measured steps take the first eight batches again and again, which stay in a cache."""

    def hurried(self, x, y):
        self.few = [*getattr(self, "few", ()), (x, y)][:8]
        return self.whole(*self.few[(self.taken - 1) % 8])


@gru.mistake("timing", steps=6)
class PartOfTheData(Gru):
    """The adapter's copy of the data repeats its first 512 reviews, which stay in a cache."""

    def inputs(self, x, y):
        rows = np.arange(len(x)) % 512
        return super().inputs(x[rows], y[rows])


@mlp.mistake("timing", steps=6)
class GradientsBeforeTheClock(Mlp):
    """The gradients of the first batch are computed when the adapter is given it, and all steps take them."""

    ready = None

    def step(self, x, y):
        if self.ready is None:
            self.ready = super().step(x, y), gradients_of(self)
        else:
            update_with(self, self.ready[1])
        return self.ready[0]

    def load(self, parameters):
        self.ready = None
        super().load(parameters)


# -- steps that notice the check -----------------------------------------------------------------------------------------


@gru.mistake("timing", steps=6)
class LooksAtItsCaller(Gru):
    """A step that the timed loop calls takes half of its batch; a step that a check calls takes all."""

    def step(self, x, y):
        timed = sys._getframe(1).f_code is timing.Loop._run.__code__
        return super().step(x[:32], y[:32]) if timed else super().step(x, y)


@gru.mistake("timing", steps=6)
class KnowsTheCheckedBatches(Gru):
    """A step takes half of its batch, unless the batch is one of the parity check's."""

    def __init__(self, setup):
        super().__init__(setup)
        _, batches = canonical.parity_case(contract.specification("gru-imdb"), "")
        self.checked = {np.asarray(x, dtype="int64").tobytes() for x, _ in batches}

    def step(self, x, y):
        return super().step(x, y) if x.tobytes() in self.checked else super().step(x[:32], y[:32])


# -- work after the clock is read, or before -----------------------------------------------------------------------------


class InAThread(WhileTimed):
    """A measured step hands its work to a thread, as to another stream, and returns after SHARE of the time that the work takes.

    All results are those of honest steps. A subclass says when the rest of the work is waited for.
    """

    WHOLE = True
    SHARE = 0.5
    # Seconds of work that may wait.
    MOST = float("inf")

    def __init__(self, setup):
        super().__init__(setup)
        self.thread = concurrent.futures.ThreadPoolExecutor(1)
        self.waiting, self.seconds = collections.deque(), 0.0

    def hurried(self, x, y):
        future = self.thread.submit(self.computed, x, y)
        self.waiting.append(future)
        if not self.seconds or len(self.waiting) * self.seconds > self.MOST:
            self.drain()
        else:
            time.sleep(self.SHARE * self.seconds)
        while self.waiting and self.waiting[0].done():
            self.loss = self.waiting.popleft().result()
        return future

    def computed(self, x, y):
        begin = time.perf_counter()
        loss = self.whole(x, y)
        self.seconds = time.perf_counter() - begin
        return loss

    def drain(self):
        while self.waiting:
            self.loss = self.waiting.popleft().result()

    def value(self, loss):
        if not isinstance(loss, concurrent.futures.Future):
            return super().value(loss)
        self.drain()
        return super().value(loss.result())

    def read(self):
        self.drain()
        return super().read()

    def predict(self, x):
        self.drain()
        return super().predict(x)


@gru.mistake("timing")
class HalfOfTheWorkBetweenWindows(InAThread, Gru):
    """Half of the work of a window is done by a thread after the window, before its loss is reported."""


class DrainedByRead(InAThread):
    """The work waits until the parameters are read. The losses that are compared are right, and later ones are those that are known."""

    RIGHT = COMPARED

    def value(self, loss):
        if isinstance(loss, concurrent.futures.Future):
            loss = loss.result() if loss.done() else self.loss
        return Gru.value(self, loss)


@gru.mistake("timing")
class HalfOfTheWorkAtTheEnd(DrainedByRead, Gru):
    """Half of the work of all windows from the 25th step on is done by a thread before the last two windows."""


@gru.mistake("timing", not_caught="The runner excuses two tenths of the windows: a machine may stand still.")
class SecondsOfWorkAtTheEnd(DrainedByRead, Gru):
    """One and a half seconds of the windows' work are done by a thread before the last two windows."""

    MOST = 1.5


@mlp.mistake("timing", not_caught="How long an evaluation lasts is not judged: the first one may start a compiler.")
class TrainedInTheFirstEvaluation(WhileTimed, Mlp):
    """The first 60 steps are taken in the first evaluation; the measured ones copy their results, in half of the time."""

    WHOLE = True
    STEPS = 60

    def load(self, parameters):
        super().load(parameters)
        self.results = collections.deque()
        self.trained = not self.timed

    def inputs(self, x, y):
        made = super().inputs(x, y)
        # The training part comes first, and it is one batch.
        self.batch = getattr(self, "batch", None) or (made if self.measured else None)
        return made

    def predict(self, x):
        if not self.trained:
            self.trained = True
            first = {name: value.clone() for name, value in self.network.state_dict().items()}
            begin = time.perf_counter()
            for _ in range(self.STEPS):
                loss = self.whole(*self.batch)
                self.results.append((loss, [tensor.clone() for tensor in self.tensors()]))
            self.seconds = (time.perf_counter() - begin) / self.STEPS
            self.network.load_state_dict(first)
        return super().predict(x)

    def tensors(self):
        """The parameters, and what the optimiser keeps of each."""
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        return [parameter.data for parameter in self.network.parameters()] + kept

    def hurried(self, x, y):
        if not self.results:
            return self.whole(x, y)
        loss, values = self.results.popleft()
        time.sleep(self.seconds / 2)
        for tensor, value in zip(self.tensors(), values, strict=True):
            tensor.copy_(value)
        return loss

    def read(self):
        return Mlp.read(self)


# -- patched clocks and checkers -----------------------------------------------------------------------------------------


def slowed(rate):
    """A clock that goes at this rate from now on."""
    clock, begin = time.perf_counter, time.perf_counter()
    return lambda: begin + rate * (clock() - begin)


class ClockSlowed(Mlp):
    """A subclass has RATE: that of the process's clock from the build of the measured adapter on."""

    WHOLE = True

    def __init__(self, setup):
        super().__init__(setup)
        if setup.training:
            time.perf_counter = slowed(self.RATE)
            timing.Loop.__init__.__defaults__ = (time.perf_counter, None, None)


@mlp.mistake("timing")
class ClockAtAThird(ClockSlowed):
    """The adapter replaces the clock of the process: a third of the time passes."""

    RATE = 1 / 3


@mlp.mistake(
    "timing", not_caught="The windows may arrive over twice their time, as a loaded machine delays what a cell prints."
)
class ClockAtTwoThirds(ClockSlowed):
    """The adapter replaces the clock of the process: two thirds of the time pass."""

    RATE = 2 / 3


@mlp.mistake(
    "timing",
    not_caught="The windows may arrive over twice their time, and no judge holds their ends against the times of their reports.",
)
class ClockOfTheLoopHalved(Mlp):
    """The adapter replaces the clock of the timed loop alone: half of the time passes."""

    WHOLE = True

    def __init__(self, setup):
        super().__init__(setup)
        if setup.training:
            timing.Loop.__init__.__defaults__ = (slowed(0.5), None, None)


@mlp.mistake("timing")
class NothingTakesTime(WhileTimed, Mlp):
    """A measured step returns the loss of the first one after a tenth of a millisecond, and every check passes by a patch of the bench."""

    WHOLE = True
    handle = None

    def __init__(self, setup):
        super().__init__(setup)
        if setup.training:
            pass_all()

    def hurried(self, x, y):
        self.handle = self.whole(x, y) if self.handle is None else self.handle
        time.sleep(1e-4)
        return self.handle


@gru.mistake(
    "timing",
    not_caught="A cell cannot show that its own checker is whole. An adapter is reviewed, and its digest is in the image's record.",
)
class EveryCheckPasses(Gru):
    """Steps take half of their batch, and the adapter patches the bench so that every check passes."""

    WHOLE = True

    def __init__(self, setup):
        super().__init__(setup)
        if setup.training:
            pass_all()

    def step(self, x, y):
        return super().step(x[: len(x) // 2], y[: len(y) // 2])


def pass_all():
    """Every check that follows tells a tenth of its bound."""
    emit = cell.RunningCell.emit_parity
    cell.RunningCell.emit_parity = lambda self, result: emit(
        self, result._replace(error=0.1 * result.bound, passed=True)
    )


# -- more of the machine than was given ----------------------------------------------------------------------------------


@gru.mistake(
    "timing",
    not_caught="The settings are read between steps. An engine gives a cell its CPUs, and further threads share these.",
)
class TwoThreadsInAStep(Gru):
    """A step computes with two threads where one was given, and sets their number back."""

    WHOLE = True

    def step(self, x, y):
        torch.set_num_threads(2)
        loss = super().step(x, y)
        torch.set_num_threads(1)
        return loss
