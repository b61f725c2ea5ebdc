"""What the results of the reference's operations are rounded to: not at all, or by a model of a precision that bounds are derived from."""

import collections

import numpy as np


class Exact(object):
    """No rounding: float64 as it is. `scale` is what the loss is multiplied with before its gradient is taken."""

    scale = 1.0

    def operand(self, value):
        return value

    def half(self, value):
        return value

    def matmul(self, value, terms):
        return value

    def elementwise(self, value):
        return value

    def sum(self, value, terms):
        return value

    def difference(self, value):
        return value


class MonteCarlo(object):
    """Monte Carlo arithmetic (Parker 1997): each result gets a random error as large as the precision's own.

    A float32 sum of n terms in any order has an error of about unit * sqrt(n) * rms(result): rounding each partial sum s_i
    errs by unit * |s_i|, and for terms of random sign |s_i| grows as sqrt(i), so the root of the summed squares is
    unit * sqrt(n / 2) * rms(result); for terms of one sign it is smaller in relation. `operand` is the unit roundoff to which
    the factors of a product are rounded first (tf32, bf16): it adds operand * sqrt(2) * rms(result). A sum of zeros has no error in any
    precision: the gradient of a unit that no input of the batch lights stays 0, and Adam, which divides by its size, leaves it in peace.
    """

    scale = 1.0

    def __init__(self, random, unit, operand):
        self.random = random
        self.unit = unit
        self.operand_unit = operand

    def operand(self, value):
        """A factor of a product, as it goes in: here its rounding is part of the product's error."""
        return value

    def half(self, value):
        """What mixed precision computes in the half type beside products."""
        return value

    def matmul(self, value, terms):
        scale = (self.unit * np.sqrt(terms) + self.operand_unit * np.sqrt(2.0)) * np.sqrt(np.mean(value * value))
        return value + scale * self.random.standard_normal(value.shape) * (value != 0)

    def sum(self, value, terms):
        """A sum, or mean, of numbers that are no products: its factors are not rounded."""
        scale = self.unit * np.sqrt(terms) * np.sqrt(np.mean(value * value))
        return value + scale * self.random.standard_normal(value.shape)

    def elementwise(self, value):
        return value * (1.0 + 2.0 * self.unit * self.random.standard_normal(value.shape))

    def difference(self, value):
        """1 - p for a p near 1 that was rounded before: the error is that of p, however small the difference."""
        return value + self.unit * self.random.standard_normal()


# A floating-point type of 16 bits: its significand's bits with the hidden one, the exponent of its least normal number, its largest number.
HalfType = collections.namedtuple("HalfType", "bits least_exponent most")
FLOAT16 = HalfType(11, -14, 65504.0)
BFLOAT16 = HalfType(8, -126, (2.0 - 2.0**-7) * 2.0**127)
_EXPONENT = np.int64(0x7FF0000000000000)  # its bits in a float64


class Mixed(MonteCarlo):
    """Mixed precision: factors rounded to a half type, summed in float32, stored in the half type; losses and optimisers in float32.

    Factors are rounded to nearest, as every framework rounds them. What is stored goes up or down at random, up the more often the
    nearer that is, so that it is right on average (Parker's random rounding). Its variance is twice that of rounding to nearest: a
    product's, and that of the bias that many add afterwards. What a recurrent cell computes between its products is rounded twice so: as
    often as four operations of the half type, of which h' = (1 - z) n + z h takes the most, where nothing fuses them. `scale` is the
    loss scale: float16 loses gradients below 6e-8 and has none above 65 504, which raises OverflowError.
    """

    def __init__(self, random, kind, scale):
        super(Mixed, self).__init__(random, 2.0**-24, 0.0)
        self.kind = kind
        self.scale = scale

    def operand(self, value):
        quantum = self._quantum(value)
        return np.rint(value / quantum) * quantum

    def half(self, value):
        return self._stored(self._stored(value))

    def matmul(self, value, terms):
        return self._stored(super(Mixed, self).matmul(value, terms))

    def _stored(self, value):
        quantum = self._quantum(value)
        return np.floor(value / quantum + self.random.uniform(size=np.shape(value))) * quantum

    def _quantum(self, value):
        """The distance between a value's neighbours in the half type."""
        value = np.asarray(value, dtype=np.float64)
        if np.max(np.abs(value)) > self.kind.most:
            raise OverflowError("%g is beyond the half type; take a smaller loss scale" % np.max(np.abs(value)))
        powers = (value.view(np.int64) & _EXPONENT).view(np.float64)  # of two, the largest below each value
        return np.maximum(powers, 2.0**self.kind.least_exponent) * 2.0 ** (1 - self.kind.bits)
