"""Adam in Chainer, as in the paper's algorithm 1."""

import math

import chainer


class Adam(chainer.optimizers.Adam):
    """Epsilon is added to the corrected root of the second moment.

    Chainer's kernel adds it to the uncorrected root ("epsilon hat"). update() gives the kernel an epsilon that makes both equal.
    """

    def __init__(self, eps, **options):
        super().__init__(eps=eps, **options)
        self.exact_eps = eps

    def update(self, lossfun=None, *args, **kwds):
        self.eps = self.exact_eps * math.sqrt(1.0 - self.beta2 ** (self.t + 1))
        super().update(lossfun, *args, **kwds)
