"""GPT-2 token by token in ONNX operators, by an ordinary InferenceSession of ONNX Runtime: one graph for a prompt and for a step.

Idiomatic here, as in the graphs that onnxruntime-genai exports: the parameters are constants, and each block's keys and values are inputs
and outputs that stay on the device (IO binding). MultiHeadAttention is ONNX Runtime's fused operator. It appends to the cache, so a step
sees the positions before it and needs no mask. GroupQueryAttention, which writes into a cache of a fixed size, has no float32 on a GPU.
Only the last position of a prompt goes through the head. Tokens and their positions come from the host.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from bench import contract, stacked
from bench.frameworks.onnxruntime_training._graph import Graph
from bench.frameworks.onnxruntime_training.framework import place, session, where
from bench.transformer import EPSILON
from bench.workloads.gpt2_decode import NETWORK, VOCABULARY

LAYERS, HEADS, WIDTH = NETWORK.layers, NETWORK.heads, NETWORK.width
OWN = "com.microsoft"


class Decoder(Graph):
    """The graph from "tokens" (N, T), at the positions "places" (T,), to "token" (N,) and "logits" (N, vocabulary), for any N and T.

    cache: past -> present, the names of the keys and values of each block before and after it, (N, heads, positions, size).
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
        for layer in range(LAYERS):
            name = "h%d." % layer
            h = add("Add", h, self.attend(self.norm(h, name + "ln1"), name))
            # FastGelu is the one by tanh, and takes the bias of the layer before it.
            curve = add("FastGelu", *self.product(self.norm(h, name + "ln2"), [name + "fc"]), domain=OWN)
            h = add("Add", h, self.dense(curve, [name + "out"]))
        last = self.norm(add("Gather", h, self.constant(np.array(-1)), axis=1), "lnf")
        # Gemm reads the embedding as it lies; a transposed copy of it would be another 154 MB.
        logits = add("Gemm", last, wte, transB=1, name="logits")
        add("ArgMax", logits, axis=1, keepdims=0, name="token")

    def attend(self, x, name):
        q, k, v = self.add("Split", self.dense(x, [name + part for part in "qkv"]), axis=2, outputs=3)
        size = WIDTH // HEADS
        past = [self.input(name + part, ("N", HEADS, "P", size)) for part in ("keys", "values")]
        # No bias and no masks.
        inputs = [q, k, v, "", "", ""] + past
        own = {"num_heads": HEADS, "unidirectional": 1, "domain": OWN}
        y, keys, values = self.add("MultiHeadAttention", *inputs, outputs=3, **own)
        for old, new in zip(past, (keys, values)):
            self.cache[old] = self.output(new, ("N", HEADS, "P + T", size))
        return self.dense(y, [name + "proj"])

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
        """LayerNormalization needs opset 17. The session checks the graph: onnx.checker would serialise 495 MB once more."""
        graph = helper.make_graph(self.nodes, "decode", self.inputs, self.outputs, list(self.constants.values()))
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(OWN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


class Decoding(contract.Decoding):
    def __init__(self, setup):
        self.session = None

    def load(self, parameters):
        graph = Decoder(parameters)
        self.names = graph.cache
        self.session = session(graph.model().SerializeToString())

    def prefill(self, prompts):
        empty = np.zeros((len(prompts), HEADS, 0, WIDTH // HEADS), "float32")
        self.cache = {past: place(empty) for past in self.names}
        self.length = 0
        return self.take(prompts)

    def step(self, tokens):
        return self.take(tokens[:, None])

    def take(self, x):
        binding = self.session.io_binding()
        binding.bind_cpu_input("tokens", x.astype("int64"))
        begin, self.length = self.length, self.length + x.shape[1]
        binding.bind_cpu_input("places", np.arange(begin, self.length, dtype="int64"))
        for past, value in self.cache.items():
            binding.bind_ortvalue_input(past, value)
        # Without a device this is the host's memory.
        binding.bind_output("token")
        for name in ("logits", *self.names.values()):
            binding.bind_output(name, where())
        self.session.run_with_iobinding(binding)
        token, self.last, *present = binding.get_outputs()
        self.cache = dict(zip(self.names, present))
        return token.numpy().astype("int32")

    def logits(self):
        return self.last.numpy()
