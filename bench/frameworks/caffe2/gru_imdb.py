"""The IMDB network in Caffe2: Gather, the GRU of gru_cell, FC, Adam.

Idiomatic here: gru_cell.GRU is a RecurrentNetwork operator, not cuDNN's fused GRU. It runs a small net at each position; the product with
the input is taken for all positions before. linear_before_reset applies the reset gate after the recurrent product, as cuDNN does, with
both biases.
"""

import math

import numpy as np
from caffe2.python import gru_cell

from bench.frameworks.caffe2._loop import Trained

# gru_cell's own blobs: one product for the input, and a product of the state for every gate.
GATES = ("gru/reset_gate_t", "gru/update_gate_t", "gru/output_gate_t")
SHAPES = {"embedding": (30000, 125), "gru/i2h_w": (300, 125), "gru/i2h_b": (300,), "dense.w": (2, 100), "dense.b": (2,)}
SHAPES.update((gate + "_w", (100, 100)) for gate in GATES)
SHAPES.update((gate + "_b", (100,)) for gate in GATES)
# Adam's constants are explicit: defaults differ among frameworks. prepare() feeds the rate and epsilon.
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
        # Time comes first: the ids are transposed, not the embedded words.
        ids = add.FlattenToVec(add.Transpose("data", "turned", axes=(1, 0)), "ids")
        flat = add.Gather(["embedding", ids], "flat_words")
        words = add.Reshape(flat, ["words", "words_shape"], shape=(150, 64, 125))[0]
        # The first state is zero and not trained. The second result is the output of the last position.
        _, last = gru_cell.GRU(
            *(model, words, "lengths", ("start",), 125, 100, "gru"),
            outputs_with_grads=(1,),
            linear_before_reset=True,
            forward_only=model is not self.train,
        )
        return add.FC([add.Reshape(last, ["last", "last_shape"], shape=(64, 100))[0], "dense.w", "dense.b"], "logits")

    def update(self, model, gradients):
        """Adam as in the paper's algorithm 1, written in operators: Caffe2's own adds epsilon to the uncorrected root.

        m / c1 / (sqrt(v / c2) + e) equals sqrt(c2) / c1 * m / (sqrt(v) + e sqrt(c2)), so two numbers are fed before every step.
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
        arrays = {name: values[name] for name in ("embedding", "dense.w", "dense.b")}
        arrays["gru.w"], arrays["gru.b"] = values["gru/i2h_w"], values["gru/i2h_b"]
        arrays["gru.u"] = np.concatenate([values[gate + "_w"] for gate in GATES])
        arrays["gru.c"] = np.concatenate([values[gate + "_b"] for gate in GATES])
        return arrays
