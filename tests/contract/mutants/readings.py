"""Mistakes in how an adapter reads items and labels: ids, positions, classes, channels, the range of pictures; and in what it answers."""

import numpy as np

from tests.contract.mutants.anywhere import Mixin


class Reading(Mixin):
    """A subclass changes all items that the adapter is given."""

    def inputs(self, x, y):
        return super().inputs(*self.changed(x, y))


class ReadingInTraining(Mixin):
    """A subclass changes the items of a step, where setup.training is True."""

    def __init__(self, setup):
        super().__init__(setup)
        self.measured = setup.training

    def step(self, x, y):
        return super().step(*(self.changed(x, y) if self.measured else (x, y)))


class IdsShifted(Reading):
    """Every id is one lower: off by the index of the first word."""

    def changed(self, x, y):
        return (x - 1).clip(0), y


class IdsHashed(Reading):
    """Ids are taken modulo 2^14, as a table of fewer rows takes them."""

    def changed(self, x, y):
        return x % 2**14, y


class VocabularyCut(Reading):
    """Ids from 20 000 on are read as id 1, as a smaller vocabulary would have it."""

    def changed(self, x, y):
        return np.where(x < 20000, x, 1).astype(x.dtype), y


class StartLeftOut(Reading):
    """The start token, id 1, is read as padding."""

    def changed(self, x, y):
        return np.where(x == 1, 0, x).astype(x.dtype), y


class UnknownLeftOut(Reading):
    """Id 2, out of vocabulary, is read as padding."""

    def changed(self, x, y):
        return np.where(x == 2, 0, x).astype(x.dtype), y


class PositionsRolled(Reading):
    """The last position is read first, and all others one later."""

    def changed(self, x, y):
        return np.roll(x, 1, axis=1), y


class WordsOnce(Reading):
    """A word that a review has twice or more is padding but for the first time, as in a bag of words."""

    def changed(self, x, y):
        once = np.zeros_like(x)
        for row, ids in zip(once, x, strict=True):
            places = np.unique(ids, return_index=True)[1]
            row[places] = ids[places]
        return once, y


class LabelsTurned(Reading):
    """Positive is negative: labels by the order of the folders' names."""

    def changed(self, x, y):
        return x, 1 - y


class IdsShiftedInTraining(ReadingInTraining):
    """Every id is one lower in training only: the evaluation reads other files."""

    def changed(self, x, y):
        return (x - 1).clip(0), y


class RareWordsUnknownInTraining(ReadingInTraining):
    """Ids from 25 000 on are read as id 2, out of vocabulary, in training only."""

    def changed(self, x, y):
        return np.where(x < 25000, x, 2).astype(x.dtype), y


class WordDropoutInTraining(ReadingInTraining):
    """One word of a hundred is read as id 2, out of vocabulary, in training."""

    def changed(self, x, y):
        return np.where(np.random.random_sample(x.shape) < 0.01, 2, x).astype(x.dtype), y


class PositionsRolledInTraining(ReadingInTraining):
    """The last position is read first, and all others one later, in training only."""

    def changed(self, x, y):
        return np.roll(x, 1, axis=1), y


class ChannelsReversed(Reading):
    """Blue, green, red in place of red, green, blue, as OpenCV reads pictures."""

    def changed(self, x, y):
        return np.ascontiguousarray(x[:, ::-1]), y


class PicturesUpsideDown(Reading):
    """The rows of a picture are read from the last to the first, as bitmaps lie in files."""

    def changed(self, x, y):
        return np.ascontiguousarray(x[:, :, ::-1]), y


class HeightAndWidthExchanged(Reading):
    """Height and width are exchanged."""

    def changed(self, x, y):
        return x.swapaxes(2, 3), y


class LabelsFromOne(Reading):
    """Classes are counted from 1, and the last one is the first."""

    def changed(self, x, y):
        return x, ((y + 1) % 10).astype(y.dtype)


class LastClassIsTheFirst(Reading):
    """The last class has the first one's number."""

    def changed(self, x, y):
        return x, np.where(y == 9, 0, y).astype(y.dtype)


class LabelsFromOneInTraining(ReadingInTraining):
    """Classes are counted from 1 in training only, and the last one is the first."""

    def changed(self, x, y):
        return x, ((y + 1) % 10).astype(y.dtype)


class PicturesNotScaled(Reading):
    """Pictures have the range of bytes: 0 to 255."""

    def changed(self, x, y):
        return x * np.float32(255), y


class PicturesScaledTwice(Reading):
    """Pictures are divided by 255 once more."""

    def changed(self, x, y):
        return x / np.float32(255), y


class PicturesCentred(Reading):
    """A half is taken off all numbers of a picture."""

    def changed(self, x, y):
        return x - np.float32(0.5), y


class PicturesAsBytes(Reading):
    """The numbers of a picture are cut to 256 levels."""

    def changed(self, x, y):
        return np.floor(x * np.float32(255)) / np.float32(255), y


class MeanPictureTakenOff(Reading):
    """The mean picture of what was given together is taken off."""

    def changed(self, x, y):
        return x - x.mean(axis=0, dtype=np.float32), y


class OneBorderCut(Reading):
    """The last column of a picture is zero: a crop that is one too small."""

    def changed(self, x, y):
        x = x.copy()
        x[..., -1] = 0
        return x, y


class ProbabilitiesEvaluated(Mixin):
    """The evaluation answers with probabilities in place of logits: the accuracy is the same."""

    def predict(self, x):
        shares = np.exp(np.array(super().predict(x)))
        return shares / shares.sum(axis=1, keepdims=True)


class HalfEvaluated(Mixin):
    """The evaluation computes the first half of a batch, and answers with its logits twice."""

    def predict(self, x):
        logits = np.array(super().predict(x[: len(x) // 2]))
        return np.concatenate([logits, logits])[: len(x)]


class ClassesRolledInEvaluation(Mixin):
    """The evaluation's classes are counted from 1, and the last one is the first."""

    def predict(self, x):
        return np.roll(np.array(super().predict(x)), 1, axis=1)


class AnswersCut(Mixin):
    """The evaluation writes its logits with two decimals."""

    def predict(self, x):
        return np.round(np.array(super().predict(x)), 2)


def _of(family, *mistakes):
    return tuple((family, mistake) for mistake in mistakes)


OF_IDS = _of("padding", IdsHashed, StartLeftOut, UnknownLeftOut) + _of("length", PositionsRolled)
OF_IDS_IN_STEPS = _of("padding", WordsOnce, IdsShiftedInTraining, RareWordsUnknownInTraining, WordDropoutInTraining)
OF_IDS_IN_STEPS += _of("length", PositionsRolledInTraining)
# PyTorch has them as mistakes of its network.
OF_IDS_TOO = _of("data", IdsShifted, VocabularyCut)
OF_LABELS = _of("data", LabelsTurned)
OF_PICTURES = (
    _of("data", ChannelsReversed, PicturesUpsideDown, HeightAndWidthExchanged, LabelsFromOne, LastClassIsTheFirst)
    + _of("data", PicturesNotScaled, PicturesScaledTwice, PicturesCentred, PicturesAsBytes, MeanPictureTakenOff)
    + _of("data", LabelsFromOneInTraining)
    + _of("omission", OneBorderCut)
)
OF_ANSWERS = _of("evaluation", ProbabilitiesEvaluated, HalfEvaluated, ClassesRolledInEvaluation, AnswersCut)
