"""The IMDB network in CNTK: gather, a recurrence over a sequence, times, Adam as a universal learner.

Idiomatic here: a mini-batch of sequences is CNTK's own form, and past_value over it becomes one loop. The cell is written out, since
layers.GRU applies the reset gate before the recurrent product and has one bias. cuDNN's fused GRU, optimized_rnnstack, runs on a GPU
only: with it the program would differ between devices.
"""

from collections import OrderedDict

import cntk as C

from bench.frameworks.cntk._loop import Trained

SHAPES = OrderedDict(
    [
        ("embedding", (30000, 125)),
        ("gru.w", (125, 300)),
        ("gru.b", (300,)),
        ("gru.u", (100, 300)),
        ("gru.c", (300,)),
        ("dense.w", (100, 2)),
        ("dense.b", (2,)),
    ]
)


class Training(Trained):
    def __init__(self, setup):
        self.parameters = OrderedDict((name, C.parameter(shape)) for name, shape in SHAPES.items())
        x = C.sequence.input_variable((1,))
        logits = self.network(x)
        super(Training, self).__init__(x, logits, logits, 2)

    def network(self, x):
        p = self.parameters
        words = C.reshape(C.gather(p["embedding"], x), (125,))
        # CNTK runs the loop position by position, node by node. What stands outside it runs over all positions at once: the products with
        # the words, and the second bias of r and z, which is only added. The second bias of n stays inside: r multiplies it, as in cuDNN.
        # Every gate has a product of its own. A slice of one product for all three would be copied forward and backward at every position;
        # without these copies a step takes 0.80 of the time.
        (w_r, w_z, w_n), (u_r, u_z, u_n) = gates(p["gru.w"], 1), gates(p["gru.u"], 1)
        (b_r, b_z, b_n), (c_r, c_z, c_n) = gates(p["gru.b"], 0), gates(p["gru.c"], 0)
        x_r, x_z, x_n = C.times(words, w_r) + (b_r + c_r), C.times(words, w_z) + (b_z + c_z), C.times(words, w_n) + b_n

        new = C.placeholder()
        # The first state is zero and not trained.
        h = C.sequence.past_value(new)
        r, z = C.sigmoid(x_r + C.times(h, u_r)), C.sigmoid(x_z + C.times(h, u_z))
        # The reset gate comes after the recurrent product, as in cuDNN.
        n = C.tanh(x_n + r * (C.times(h, u_n) + c_n))
        states = n + z * (h - n)
        states.replace_placeholders({new: states.output})
        # The output of the last position.
        return C.times(C.sequence.last(states), p["dense.w"]) + p["dense.b"]

    def learner(self, parameters):
        return C.universal(adam, parameters)

    def inputs(self, x, y):
        return x.astype("float32")[:, :, None], y.astype("float32")

    def to_own(self, name, value):
        return value.T if value.ndim == 2 and name != "embedding" else value

    canonical = to_own


def gates(parameter, axis):
    """The parts of r, z and n in a canonical parameter."""
    return [C.slice(parameter, axis, first, first + 100) for first in (0, 100, 200)]


def adam(parameters, gradients):
    """Adam as in the paper's algorithm 1: CNTK's own adds epsilon to the uncorrected root.

    Adam's constants are explicit: defaults differ among frameworks. A universal learner gets the gradient of the mini-batch's sum, 64 times
    the mean's. The moments are kept without their factors, M = 64 m / 0.1 and V = 64^2 v / 0.001. The factors go into the rate and epsilon,
    which saves passes over every parameter.
    """
    # beta^t
    power1, power2 = C.constant(1, (1,)), C.constant(1, (1,))
    new1, new2 = power1 * 0.9, power2 * 0.999
    root = C.sqrt((1 - new2) / 0.001)
    rate, epsilon = 0.001 * 0.1 * root / (1 - new1), 64 * 1e-8 * root
    updates = [C.assign(power1, new1), C.assign(power2, new2)]
    for parameter, gradient in zip(parameters, gradients):
        m, v = C.constant(0, parameter.shape), C.constant(0, parameter.shape)
        new_m, new_v = 0.9 * m + gradient, 0.999 * v + C.square(gradient)
        updates += [C.assign(m, new_m), C.assign(v, new_v)]
        updates.append(C.assign(parameter, parameter - rate * (new_m / (C.sqrt(new_v) + epsilon))))
    return C.combine(updates)
