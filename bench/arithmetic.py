"""The rounding of the reference's operations: none, or a model of a precision that bounds are derived from."""

import collections
import math

import numpy as np


class Exact(object):
    """No rounding: float64 as it is. `scale` is what the loss is multiplied with before its gradient is taken."""

    scale = 1.0

    def __init__(self):
        self.choices = []

    def operand(self, value):
        """A factor of a product, as it goes in. Of float32 its rounding is part of the product's error."""
        return value

    def half(self, value):
        """A result that mixed precision has in the half type, beside products."""
        return value

    def parameter(self, value):
        """A parameter as the network holds it."""
        return value

    def carried(self, value):
        """The sum that a network hands from block to block."""
        return self.elementwise(value)

    def largest(self, value, many):
        """The places (rows, many) of the largest numbers of each row, the largest first.

        Rounding may turn a choice, and then nothing after it can be compared. So `choices` has of each (what was chosen from, by how much
        the last chosen number of each row is larger than the next).
        """
        order = np.argsort(-value, axis=1, kind="mergesort")
        last, next_one = (np.take_along_axis(value, order[:, place : place + 1], 1)[:, 0] for place in (many - 1, many))
        self.choices.append((value, last - next_one))
        return order[:, :many]

    def product(self, a, b, added=0.0):
        """a (rows, k) times b (k, columns), plus a bias."""
        return a.dot(b) + added

    def bias_gradient(self, d):
        """The sum over the rows of d (rows, columns): a bias is a product's factor of ones."""
        return d.sum(axis=0)

    def elementwise(self, value):
        return value

    def tanh(self, value):
        """The hyperbolic tangent in a recurrent layer."""
        return self.elementwise(np.tanh(value))

    def sum(self, value, axes):
        """A sum of numbers that are no products."""
        return value.sum(axis=axes)

    def scatter(self, ids, d, count):
        """(count, columns): each row is the sum of the rows of d (..., columns) whose id (...) is its number."""
        total = np.zeros((count, d.shape[-1]), d.dtype)
        np.add.at(total, ids, d)
        return total

    def stored(self, before, after):
        """A tensor that a step has moved from `before` to `after`, as memory holds it."""
        return after

    def difference(self, value):
        return value


class MonteCarlo(Exact):
    """Monte Carlo arithmetic (Parker 1997): each result gets a random error as large as the precision's own.

    A float32 sum of n terms t errs by about unit * sqrt(n) * sqrt(sum(t)^2 / 3 + sum(t^2) / 2), in any order. Rounding each partial sum
    s_i errs by unit * |s_i|. If the terms have random signs |s_i| grows as sqrt(i), and the squared errors sum to
    unit^2 * n / 2 * sum(t^2). If they have one sign it grows as i, and they sum to unit^2 * n / 3 * sum(t)^2.

    Each element is disturbed by what its own terms make of it: rows of a gradient may differ in size by 10^8, and Adam divides each by its
    size. `operand` is the unit roundoff to which the factors of a product are rounded first (tf32): it adds operand * sqrt(2) *
    sqrt(sum(t^2)). A sum of zeros has no error in any precision: the gradient of a unit that no input of the batch lights stays 0, and
    Adam leaves it in peace.
    """

    def __init__(self, random, unit, operand):
        super(MonteCarlo, self).__init__()
        self.random = random
        self.unit = unit
        self.operand_unit = operand

    def product(self, a, b, added=0.0):
        return self._disturbed(a.dot(b) + added, (a * a).dot(b * b), a.shape[1], self.operand_unit)

    def bias_gradient(self, d):
        return self._disturbed(d.sum(axis=0), (d * d).sum(axis=0), len(d), self.operand_unit)

    def sum(self, value, axes):
        total = value.sum(axis=axes)
        return self._disturbed(total, (value * value).sum(axis=axes), value.size // total.size, 0.0)

    def scatter(self, ids, d, count):
        terms = np.bincount(ids.ravel(), minlength=count)[:, None]
        total, squares = np.zeros((2, count, d.shape[-1]))
        np.add.at(total, ids, d)
        np.add.at(squares, ids, d * d)
        return self._disturbed(total, squares, terms, 0.0)

    def _disturbed(self, total, squares, terms, operand_unit):
        """`squares` is the sum of the squared terms of each total."""
        variance = self.unit**2 * terms * (total * total / 3.0 + squares / 2.0) + 2.0 * operand_unit**2 * squares
        return total + np.sqrt(variance) * self._noise(total) * (squares != 0)

    def elementwise(self, value):
        return value * (1.0 + 2.0 * self.unit * self._noise(value))

    def tanh(self, value):
        return self.elementwise(np.tanh(value))

    def stored(self, before, after):
        # A value that did not move is not rounded again.
        return after + self.unit * after * self._noise(after) * (after != before)

    def difference(self, value):
        """1 - p for a p near 1 that was rounded before: the error is that of p, however small the difference."""
        return value + self.unit * self._noise(value)

    def _noise(self, value):
        """Numbers of mean 0 and variance 1 in the value's shape, uniform as Parker has them: drawn faster than normal ones."""
        return self.random.uniform(-math.sqrt(3.0), math.sqrt(3.0), np.shape(value))


class ApproximateTanh(MonteCarlo):
    """float32 whose recurrent layers take an approximation of the hyperbolic tangent, as cuDNN's do.

    Held against float64 on an H200 (cuDNN 9 in PyTorch 2.11, tf32 off), the tangent inside cuDNN's GRU errs by up to 180 units of 2^-24 of
    itself, by 75 in the square mean for arguments of 0.5 to 2, and PyTorch's own by at most 2.6 (docs/h200). Its sigmoid errs by 8 at most.
    An approximation errs alike for like arguments: its error changes its sign several times within 0.1. Here it is a wave of the
    argument, with a length and a phase of each run.
    """

    def __init__(self, random, unit, operand):
        super(ApproximateTanh, self).__init__(random, unit, operand)
        self.waves, self.phase = random.uniform(60.0, 600.0), random.uniform(0.0, 2.0 * math.pi)

    def tanh(self, value):
        errs = math.sqrt(2.0) * 75.0 * self.unit * np.sin(self.waves * np.abs(value) + self.phase)
        return self.elementwise(np.tanh(value) * (1.0 + errs))


class Truncated(MonteCarlo):
    """Each factor of a product loses all but the first `bits` bits of its fraction, as some GPUs' matrix units read float32.

    Truncation errs on one side, so the errors of a sum's terms may add up, which those of rounding to nearest do not.
    """

    def __init__(self, random, unit, bits):
        super(Truncated, self).__init__(random, unit, 0.0)
        self.mask = np.int64(-1) << np.int64(52 - bits)

    def product(self, a, b, added=0.0):
        return super(Truncated, self).product(self._truncated(a), self._truncated(b), added)

    def _truncated(self, value):
        return (np.asarray(value, dtype=np.float64).view(np.int64) & self.mask).view(np.float64)


# A floating-point type of 16 bits: its significand's bits with the hidden one, the exponent of its least normal number, its largest number.
HalfType = collections.namedtuple("HalfType", "bits least_exponent most")
FLOAT16 = HalfType(11, -14, 65504.0)
BFLOAT16 = HalfType(8, -126, (2.0 - 2.0**-7) * 2.0**127)
_EXPONENT = np.int64(0x7FF0000000000000)  # its bits in a float64


class Mixed(MonteCarlo):
    """Mixed precision: factors rounded to a half type, summed in float32, stored in the half type; losses and optimisers in float32.

    Factors are rounded to nearest, as every framework rounds them. A stored value goes up or down at random, up the more often the
    nearer that is, so that it is right on average (Parker's random rounding). Its variance is twice that of rounding to nearest: a
    product's, and that of the bias that many add afterwards. With `nearest` what is stored is rounded to nearest too, as the hardware
    does it: then a state that changes by less than half a unit stands still, position after position, which no random rounding shows.
    `scale` is the loss scale: float16 loses gradients below 6e-8 and has none above 65 504, which raises OverflowError.
    """

    def __init__(self, random, kind, scale, nearest=False):
        super(Mixed, self).__init__(random, 2.0**-24, 0.0)
        self.kind = kind
        self.scale = scale
        self.nearest = nearest

    def operand(self, value):
        quantum = self._quantum(value)
        return np.rint(value / quantum) * quantum

    def half(self, value):
        return self._in_half(value)

    def product(self, a, b, added=0.0):
        return self._in_half(super(Mixed, self).product(a, b, added))

    def bias_gradient(self, d):
        return self._in_half(super(Mixed, self).bias_gradient(d))

    def _in_half(self, value):
        quantum = self._quantum(value)
        upwards = 0.5 if self.nearest else self.random.uniform(size=np.shape(value))
        return np.floor(value / quantum + upwards) * quantum

    def _quantum(self, value):
        """The distance between a value's neighbours in the half type."""
        value = np.asarray(value, dtype=np.float64)
        if np.max(np.abs(value)) > self.kind.most:
            raise OverflowError("%g is beyond the half type; take a smaller loss scale" % np.max(np.abs(value)))
        powers = (value.view(np.int64) & _EXPONENT).view(np.float64)  # of two, the largest below each value
        return np.maximum(powers, 2.0**self.kind.least_exponent) * 2.0 ** (1 - self.kind.bits)


class Half(Mixed):
    """A network of inference that is a half type's as a whole: its parameters and what a layer gives. Inside a layer sums are float32."""

    def __init__(self, random, kind, nearest=False):
        super(Half, self).__init__(random, kind, 1.0, nearest)

    def parameter(self, value):
        return self.operand(value)

    def carried(self, value):
        return self._in_half(self.elementwise(value))
