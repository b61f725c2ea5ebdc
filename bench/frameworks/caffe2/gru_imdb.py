"""The IMDB network in Caffe2: Gather, the GRU of gru_cell, FC, Adam.

Idiomatic here: gru_cell.GRU is a RecurrentNetwork operator, a net that is run for each position, with the input's product taken for all
positions before it; linear_before_reset is cuDNN's convention (C8), with both biases.
"""

import math

import numpy as np
from caffe2.python import gru_cell

from bench.frameworks.caffe2._loop import Trained

# gru_cell's own blobs: one product for the input, one for each gate of the state
GATES = ("gru/reset_gate_t", "gru/update_gate_t", "gru/output_gate_t")
SHAPES = {"embedding": (30000, 125), "gru/i2h_w": (300, 125), "gru/i2h_b": (300,), "dense.w": (2, 100), "dense.b": (2,)}
SHAPES.update((gate + "_w", (100, 100)) for gate in GATES)
SHAPES.update((gate + "_b", (100,)) for gate in GATES)
# C9: every constant set
CONSTANTS = {
    "beta1": 0.9,
    "beta1_rest": 0.1,
    "beta2": 0.999,
    "beta2_rest": 0.001,
    "one": 1.0,
    "rate": 0.0,
    "epsilon": 0.0,
}


class Training(Trained):
    def __init__(self, setup):
        super(Training, self).__init__(setup, sorted(SHAPES), (((64, 150), "int32"), ((64,), "int32")))

    def network(self, model, training):
        add = model.net
        # the ids are turned, not the embedded words, so that time comes first (C3)
        ids = add.FlattenToVec(add.Transpose("data", "turned", axes=(1, 0)), "ids")
        words = add.Reshape(
            add.Gather(["embedding", ids], "flat_words"), ["words", "words_shape"], shape=(150, 64, 125)
        )[0]
        # C6: it starts from zero; C5: its second output is the state at position 150
        _, last = gru_cell.GRU(
            *(model, words, "lengths", ("start",), 125, 100, "gru"),
            outputs_with_grads=(1,),
            linear_before_reset=True,
            forward_only=model is not self.train,
        )
        return add.FC([add.Reshape(last, ["last", "last_shape"], shape=(64, 100))[0], "dense.w", "dense.b"], "logits")

    def update(self, model, gradients):
        """Adam in the form of the paper's algorithm 1, from operators: Caffe2's own adds epsilon to the uncorrected root.

        m / c1 / (sqrt(v / c2) + e) is sqrt(c2) / c1 * m / (sqrt(v) + e sqrt(c2)): two numbers, fed before each step.
        """
        add = model.net
        state = {name: np.array([value], "float32") for name, value in CONSTANTS.items()}
        state["lengths"], state["start"] = np.full(64, 150, "int32"), np.zeros((1, 64, 100), "float32")
        for name, gradient in gradients.items():
            m, v, change = name + "_m", name + "_v", name + "_change"
            add.WeightedSum([m, "beta1", gradient, "beta1_rest"], m)
            add.WeightedSum([v, "beta2", add.Sqr(gradient, change), "beta2_rest"], v)
            add.Add([add.Sqrt(v, change), "epsilon"], change, broadcast=1)
            ratio = add.Div([m, change], name + "_ratio")
            add.WeightedSum([name, "one", ratio, "rate"], name)
            state[m], state[v] = np.zeros(SHAPES[name], "float32"), np.zeros(SHAPES[name], "float32")
        return state

    def prepare(self, step):
        root = math.sqrt(1 - 0.999**step)
        self._feed("rate", np.array([-0.001 * root / (1 - 0.9**step)], "float32"))
        self._feed("epsilon", np.array([1e-8 * root], "float32"))

    def to_own(self, parameters):
        own = {name: parameters[name] for name in ("embedding", "dense.w", "dense.b")}
        own["gru/i2h_w"], own["gru/i2h_b"] = parameters["gru.w"], parameters["gru.b"]
        for gate, u, c in zip(GATES, np.split(parameters["gru.u"], 3), np.split(parameters["gru.c"], 3)):
            own[gate + "_w"], own[gate + "_b"] = u, c
        return own

    def canonical(self, values):
        found = {name: values[name] for name in ("embedding", "dense.w", "dense.b")}
        found["gru.w"], found["gru.b"] = values["gru/i2h_w"], values["gru/i2h_b"]
        found["gru.u"] = np.concatenate([values[gate + "_w"] for gate in GATES])
        found["gru.c"] = np.concatenate([values[gate + "_b"] for gate in GATES])
        return found
