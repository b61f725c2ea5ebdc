"""Canonical parameters that a framework keeps as one array: (out, in) matrices one below another.

Where a framework has matrices as (in, out), or several of them as (..., in, out), the array has that shape.
"""

import numpy as np


def joined(parameters, names, shape=None):
    """One array of the named canonical ones; shape: (..., in, out) where the framework has its matrices so."""
    array = np.concatenate([parameters[name] for name in names])
    if shape is None:
        return array
    outer, (inputs, outputs) = tuple(shape[:-2]), shape[-2:]
    return np.ascontiguousarray(array.reshape(outer + (outputs, inputs)).swapaxes(-1, -2))


def parts(array, names, rows, turned):
    """name -> canonical array, the inverse of joined(). rows: name -> its length; turned: whether a shape was given."""
    if turned:
        array = array.swapaxes(-1, -2).reshape(-1, array.shape[-2])
    return dict(zip(names, np.split(array, np.cumsum([rows[name] for name in names[:-1]]))))
