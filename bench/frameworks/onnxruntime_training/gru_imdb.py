"""The IMDB network in ONNX operators, trained by ONNX Runtime: Gather, a GRU unrolled over 150 positions, Gemm, Adam.

Idiomatic here: the operator GRU would be it, but ONNX Runtime 1.19 builds its gradient (GRUGrad) and then refuses it for float32.
So the cell is written out and unrolled. The input's product is taken for all positions before it.
"""

import numpy as np

from bench.frameworks.onnxruntime_training._graph import Trained
from bench.workloads.gru_imdb import PARAMETERS


class Training(Trained):
    # recurrent weights lie (in, out), as MatMul takes them
    SHAPES = {spec.name: spec.shape[::-1] if spec.name in ("gru.w", "gru.u") else spec.shape for spec in PARAMETERS}
    SCALARS = {name + "/step": "int64" for name in SHAPES}  # one each: the optimiser counts its own up in place

    def __init__(self, setup):
        super(Training, self).__init__(setup, (64, 150), "int64", 2)

    def network(self, graph, training):
        add = graph.add
        words = add("Gather", "embedding", add("Transpose", "x", perm=(1, 0)))  # (150, 64, 125): time first (C3)
        projected = add("Add", add("MatMul", words, "gru.w"), "gru.b")
        positions = add("Split", projected, axis=0, outputs=150)
        h = graph.constant(np.zeros((64, 100), "float32"))  # C6
        for position in positions:
            x = add("Split", add("Squeeze", position, graph.constant(np.array([0]))), axis=1, outputs=3)
            u = add("Split", add("Gemm", h, "gru.u", "gru.c"), axis=1, outputs=3)
            r, z = (add("Sigmoid", add("Add", x[gate], u[gate])) for gate in (0, 1))
            n = add(
                "Tanh", add("Add", x[2], add("Mul", r, u[2]))
            )  # C8: the reset gate after the product, as cuDNN has it
            h = add("Add", n, add("Mul", z, add("Sub", h, n)))
        return add("Gemm", h, "dense.w", "dense.b", transB=1)  # C5: the state at position 150

    def scalars(self, step):
        return dict.fromkeys(self.SCALARS, step)

    def update(self, graph, name, shape):
        """ONNX Runtime's own Adam: C9, every constant set; mode 0 corrects both moments before epsilon is added (the paper's algorithm 1),
        mode 1 has "epsilon hat". No document names the operator: parity holds it to the specification."""
        rate = graph.constant(np.float32(0.001))
        _, m, v, new = graph.add(
            "AdamOptimizer",
            *(rate, name + "/step", name, name + "_grad", name + "/m", name + "/v"),
            outputs=4,
            domain="com.microsoft",
            alpha=0.9,
            beta=0.999,
            epsilon=1e-8,
            do_bias_correction=1,
            weight_decay_mode=0,
        )
        return {name + "/m": m, name + "/v": v, name: new}

    def inputs(self, x, y):
        return x.astype("int64"), y.astype("int64")

    def to_own(self, parameters):
        return {name: value.T if name in ("gru.w", "gru.u") else value for name, value in parameters.items()}

    canonical = to_own
