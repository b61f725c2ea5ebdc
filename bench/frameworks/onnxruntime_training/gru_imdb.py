"""The IMDB network in ONNX operators, trained by ONNX Runtime: Gather, a GRU unrolled over 150 positions, Gemm, Adam.

Idiomatic here: the operator GRU cannot be used, since ONNX Runtime 1.19 builds its gradient (GRUGrad) and then refuses it for float32. The
cell is written out and unrolled. The input's product is taken for all positions before it.
"""

import numpy as np

from bench.frameworks.onnxruntime_training._graph import Trained
from bench.workloads.gru_imdb import PARAMETERS


class Training(Trained):
    # The GRU's weights are (in, out), the layout of MatMul.
    SHAPES = {spec.name: spec.shape[::-1] if spec.name in ("gru.w", "gru.u") else spec.shape for spec in PARAMETERS}
    # Each parameter has a step of its own: the optimiser increments it in place.
    SCALARS = {name + "/step": "int64" for name in SHAPES}

    def __init__(self, setup):
        super(Training, self).__init__(setup, (64, 150), "int64", 2)

    def network(self, graph, training):
        add = graph.add
        # (150, 64, 125): time first.
        words = add("Gather", "embedding", add("Transpose", "x", perm=(1, 0)))
        projected = add("Add", add("MatMul", words, "gru.w"), "gru.b")
        positions = add("Split", projected, axis=0, outputs=150)
        # The first state is zero and not trained.
        h = graph.constant(np.zeros((64, 100), "float32"))
        for position in positions:
            x = add("Split", add("Squeeze", position, graph.constant(np.array([0]))), axis=1, outputs=3)
            u = add("Split", add("Gemm", h, "gru.u", "gru.c"), axis=1, outputs=3)
            r, z = (add("Sigmoid", add("Add", x[gate], u[gate])) for gate in (0, 1))
            # The reset gate after the product, as in cuDNN.
            n = add("Tanh", add("Add", x[2], add("Mul", r, u[2])))
            h = add("Add", n, add("Mul", z, add("Sub", h, n)))
        # The output of the last position.
        return add("Gemm", h, "dense.w", "dense.b", transB=1)

    def scalars(self, step):
        return dict.fromkeys(self.SCALARS, step)

    def update(self, graph, name, shape):
        """ONNX Runtime's own Adam. Its constants are explicit: defaults differ among frameworks.

        weight_decay_mode 0 corrects both moments before epsilon is added (the paper's algorithm 1); mode 1 has "epsilon hat". No document
        describes the operator: the parity check proves that it computes the specification.
        """
        rate = graph.constant(np.float32(0.001))
        inputs = (rate, name + "/step", name, name + "_grad", name + "/m", name + "/v")
        adam = {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-8, "do_bias_correction": 1, "weight_decay_mode": 0}
        _, m, v, new = graph.add("AdamOptimizer", *inputs, outputs=4, domain="com.microsoft", **adam)
        return {name + "/m": m, name + "/v": v, name: new}

    def inputs(self, x, y):
        return x.astype("int64"), y.astype("int64")

    def to_own(self, parameters):
        return {name: value.T if name in ("gru.w", "gru.u") else value for name, value in parameters.items()}

    canonical = to_own
