"""GPT-2 token by token in ONNX operators, by an ordinary InferenceSession of ONNX Runtime: one graph for a prompt and for a step.

Idiomatic here, as in onnxruntime-genai, whose past and present share a buffer: the parameters are constants. Each block's keys and values
are an input and an output of a fixed size in one memory on the device (IO binding), and ScatterND writes into it in place. A step sees the
whole cache under a mask. Only the last position of a prompt goes through the head. Tokens and their positions come from the host.

The attention is written out: no fused operator has float32 and such a cache on CPUs and GPUs alike. GroupQueryAttention has no float32 on a
GPU, Attention shares none on a CPU. MultiHeadAttention copies the cache to append to it, and some versions refuse its causal mask on a GPU.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from bench import contract, stacked
from bench.frameworks.onnxruntime_training._graph import Graph
from bench.frameworks.onnxruntime_training.framework import place, session, where
from bench.transformer import EPSILON
from bench.workloads.gpt2_decode import GENERATED, NETWORK, PROMPT, VOCABULARY

CAPACITY = PROMPT + GENERATED
LAYERS, HEADS, WIDTH = NETWORK.layers, NETWORK.heads, NETWORK.width
SIZE = WIDTH // HEADS
OWN = "com.microsoft"


class Decoder(Graph):
    """The graph from "tokens" (N, T), at the positions "places" (T,), to "token" (N,) and "logits" (N, vocabulary), for any N and T.

    cache: past -> present, the names of the keys and values of each block before and after it, (capacity, N, heads, size).
    """

    def __init__(self, parameters):
        super().__init__()
        self.parameters, self.cache = parameters, {}
        self.outputs.append(helper.make_tensor_value_info("token", TensorProto.INT64, ("N",)))
        self.output("logits", ("N", VOCABULARY))
        self._write(self.input("tokens", ("N", "T"), "int64"), self.input("places", ("T",), "int64"))

    def _write(self, tokens, places):
        add = self.add
        wte, wpe = self.parameter(["wte"]), self.parameter(["wpe"])
        h = add("Add", add("Gather", wte, tokens), add("Gather", wpe, places))
        rows = add("Unsqueeze", places, self.constant(np.array([1])))
        seen = add("LessOrEqual", self.constant(np.arange(CAPACITY)), rows)
        mask = add("Where", seen, self.constant(np.float32(0)), self.constant(np.float32(-np.inf)))
        for layer in range(LAYERS):
            name = "h%d." % layer
            h = add("Add", h, self.attend(self.norm(h, name + "ln1"), name, rows, mask))
            # FastGelu is the one by tanh, and takes the bias of the layer before it.
            curve = add("FastGelu", *self.product(self.norm(h, name + "ln2"), [name + "fc"]), domain=OWN)
            h = add("Add", h, self.dense(curve, [name + "out"]))
        last = self.norm(add("Gather", h, self.constant(np.array(-1)), axis=1), "lnf")
        # Gemm reads the embedding as it lies; a transposed copy of it would be another 154 MB.
        logits = add("Gemm", last, wte, transB=1, name="logits")
        add("ArgMax", logits, axis=1, keepdims=0, name="token")

    def attend(self, x, name, rows, mask):
        """rows (T, 1): where x's keys and values go in the cache; mask (T, capacity): 0 at a position that is seen, else minus infinity."""
        add = self.add
        heads = add(
            "Reshape", self.dense(x, [name + part for part in "qkv"]), self.constant(np.array([0, 0, 3 * HEADS, SIZE]))
        )
        q, k, v = add("Split", heads, axis=2, outputs=3)
        keys, values = self.cached(k, rows, name + "keys"), self.cached(v, rows, name + "values")
        # The session makes one product of this, its transposed factors and the scale.
        scores = add("MatMul", add("Transpose", q, perm=(0, 2, 1, 3)), add("Transpose", keys, perm=(1, 2, 3, 0)))
        scores = add("Add", add("Mul", scores, self.constant(np.float32(SIZE**-0.5))), mask)
        y = add("MatMul", add("Softmax", scores, axis=-1), add("Transpose", values, perm=(1, 2, 0, 3)))
        y = add("Reshape", add("Transpose", y, perm=(0, 2, 1, 3)), self.constant(np.array([0, 0, WIDTH])))
        return self.dense(y, [name + "proj"])

    def cached(self, part, rows, name):
        """The cache of the keys or the values of a block, with those of x."""
        past = self.input(name, (CAPACITY, "N", HEADS, SIZE))
        present = self.add("ScatterND", past, rows, self.add("Transpose", part, perm=(1, 0, 2, 3)))
        self.cache[past] = self.output(present, (CAPACITY, "N", HEADS, SIZE))
        return present

    def norm(self, x, name):
        gain, bias = self.parameter([name + ".g"]), self.parameter([name + ".b"])
        return self.add("LayerNormalization", x, gain, bias, epsilon=EPSILON)

    def dense(self, x, names):
        return self.add("Add", *self.product(x, names))

    def product(self, x, names):
        """[product, bias] of a layer that is made of the named ones. MatMul's weights are (in, out)."""
        weight = self.parameter([name + ".w" for name in names], turned=True)
        bias = self.parameter([name + ".b" for name in names])
        return [self.add("MatMul", x, weight), bias]

    def parameter(self, names, turned=False):
        """The name of a constant: canonical parameters one below another, turned where the graph has a matrix as (in, out)."""
        array = stacked.joined(self.parameters, names)
        # Not by constant(): it keeps the bytes of each array.
        self.constants[names[0]] = numpy_helper.from_array(array.T if turned else array, names[0])
        return names[0]

    def model(self):
        """Opset 15: older releases have CUDA kernels of ScatterND as opset 13 defines it, and none of its form of 16.

        The session checks the graph: onnx.checker would serialise 495 MB once more.
        """
        graph = helper.make_graph(self.nodes, "decode", self.inputs, self.outputs, list(self.constants.values()))
        opsets = [helper.make_opsetid("", 15), helper.make_opsetid(OWN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


class Decoding(contract.Decoding):
    def __init__(self, setup):
        self.session = self.binding = None

    def load(self, parameters):
        # The session before goes first: two would hold their parameters at once.
        self.session = self.binding = None
        graph = Decoder(parameters)
        self.cache, self.many = graph.cache, 0
        self.session = session(graph.model().SerializeToString())

    def bind(self, many):
        """Bind a cache for so many sequences, and the results. Only tokens and positions change from run to run."""
        self.binding, self.many = self.session.io_binding(), many
        # Without a device this is the host's memory.
        self.binding.bind_output("token")
        self.binding.bind_output("logits", where())
        # Kept here: on a CPU a value lies in the array's memory, which the binding does not keep alive.
        self.values = [place(np.zeros((CAPACITY, many, HEADS, SIZE), "float32")) for _ in self.cache]
        for (past, present), value in zip(self.cache.items(), self.values):
            self.binding.bind_ortvalue_input(past, value)
            # In the memory of its input, so ScatterND copies nothing.
            self.binding.bind_ortvalue_output(present, value)

    def prefill(self, prompts):
        # The cache of an earlier sequence stays: a step sees no position before it has written it.
        if self.many != len(prompts):
            self.bind(len(prompts))
        self.length = 0
        return self.take(prompts)

    def step(self, tokens):
        return self.take(tokens[:, None])

    def take(self, x):
        begin, self.length = self.length, self.length + x.shape[1]
        self.binding.bind_cpu_input("tokens", x.astype("int64"))
        self.binding.bind_cpu_input("places", np.arange(begin, self.length, dtype="int64"))
        self.session.run_with_iobinding(self.binding)
        return self.binding.get_outputs()[0].numpy().astype("int32")

    def logits(self):
        # A copy: the next run writes into the same memory.
        return np.array(self.binding.get_outputs()[1].numpy())

    def cached(self):
        return [value.numpy() for value in self.values]
