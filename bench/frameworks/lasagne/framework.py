"""Lasagne: Theano's switches, and a module that Lasagne 0.1 needs and Theano 1 does not have."""

import sys
import types

from bench.frameworks.theano import framework as shared

NAME = "lasagne"

device = shared.device
settings = shared.settings


def configure(setup):
    shared.configure(setup)
    # Theano renamed `downsample` to `pool` after Lasagne 0.1, the last release. Lasagne imports the old name.
    from theano.tensor.signal import pool

    def max_pool_2d(input, ds, st=None, padding=(0, 0), ignore_border=True, mode="max"):
        return pool.pool_2d(input, ws=ds, stride=st, pad=padding, ignore_border=ignore_border, mode=mode)

    old = types.ModuleType("theano.tensor.signal.downsample")
    old.max_pool_2d = max_pool_2d
    sys.modules[old.__name__] = old
    sys.modules["theano.tensor.signal"].downsample = old


def versions():
    import lasagne

    return dict(shared.versions(), framework=lasagne.__version__, lasagne=lasagne.__version__)
