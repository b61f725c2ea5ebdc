"""All that training changes in a person's own network of TensorFlow: models, layers, optimisers and variables among its attributes."""

import keras
import numpy as np
import tensorflow as tf

HOLDS = "set one to a keras.Model or a tf.Variable, such as self.model"


def _variables(network):
    """(name, variable) of each that training changes: numbered within its kind, since Keras names layers anew in each network."""
    holders = [
        (name, value)
        for name, value in sorted(vars(network).items())
        if isinstance(value, (keras.layers.Layer, tf.Module))
    ]
    for name, value in holders:
        learned = list(value.trainable_variables)
        others = [one for one in value.variables if not any(one is each for each in learned)]
        kinds = ("parameter", learned), ("statistic", [one for one in others if _is_float(one)])
        # The seeds of dropout are no numbers of the network's.
        for kind, variables in kinds:
            for place, one in enumerate(variables):
                yield "%s/%s.%d" % (kind, name, place), one
    for name, value in sorted(vars(network).items()):
        if isinstance(value, tf.Variable):
            yield "parameter/%s" % name, value
        elif isinstance(value, keras.optimizers.Optimizer):
            if not getattr(value, "built", True):
                # It makes its variables at its first step.
                value.build([one for _, holder in holders for one in holder.trainable_variables])
            own = value.variables() if callable(value.variables) else value.variables
            for place, one in enumerate(own):
                yield "optimizer/%s.%d" % (name, place), one


def _is_float(variable):
    return "float" in str(variable.dtype)


def started(network, loss):
    """The loss: the device's next synchronisation comes after all of its work."""
    return loss


def values(network):
    return {
        name: np.array(tf.convert_to_tensor(one)).astype("float64" if _is_float(one) else "int64")
        for name, one in _variables(network)
    }


def restore(network, values):
    for name, variable in _variables(network):
        dtype = variable.dtype if isinstance(variable.dtype, str) else variable.dtype.as_numpy_dtype
        variable.assign(np.array(values[name]).astype(dtype))


def in_eval(network):
    """Keras keeps no mode: each call says whether it trains."""
    return []


def widen(network):
    """Keras builds in float64 since before the network was built; what it draws otherwise is set anew."""


def before_import():
    """Before the file of the network is run in float64."""
    keras.backend.set_floatx("float64")
