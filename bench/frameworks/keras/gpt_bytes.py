"""GPT-2's network on bytes in Keras 3: a Model of own layers; the same file on every backend.

Idiomatic here: one Dense gives q, k and v. keras.ops.dot_product_attention is PyTorch's fused attention on that backend, JAX's on JAX, and
two products and a softmax on TensorFlow. The embedding's weight is the head's, too.
"""

import keras
from keras import layers, ops

from bench.errors import Unsupported
from bench.frameworks.keras import _stacked

EPSILON = 1e-5  # Keras' default is 1e-3.


class Block(layers.Layer):
    def __init__(self, width, heads, **options):
        super().__init__(**options)
        self.heads = heads
        self.ln1, self.ln2 = (layers.LayerNormalization(epsilon=EPSILON) for _ in range(2))
        self.qkv, self.proj = layers.Dense(3 * width), layers.Dense(width)
        self.fc, self.out = layers.Dense(4 * width), layers.Dense(width)

    def build(self, shape):
        for part in (self.ln1, self.qkv, self.proj, self.ln2, self.fc):
            part.build(shape)
        self.out.build((*shape[:-1], 4 * shape[-1]))

    def attend(self, x):
        many, length, width = ops.shape(x)
        parts = ops.split(self.qkv(x), 3, axis=-1)
        q, k, v = (ops.reshape(part, (many, length, self.heads, width // self.heads)) for part in parts)
        return self.proj(ops.reshape(ops.dot_product_attention(q, k, v, is_causal=True), (many, length, width)))

    def call(self, h):
        h = h + self.attend(self.ln1(h))
        # Keras' GELU is the exact one unless it is told.
        return h + self.out(ops.gelu(self.fc(self.ln2(h)), approximate=True))


class Network(keras.Model):
    def __init__(self, vocabulary, length, depth, heads, width):
        if not hasattr(ops, "dot_product_attention"):
            raise Unsupported("Keras %s has no dot_product_attention; Keras 3.7 is the first" % keras.__version__)
        super().__init__()
        self.wte, self.wpe = layers.Embedding(vocabulary, width), layers.Embedding(length, width)
        self.blocks = [Block(width, heads) for _ in range(depth)]
        self.lnf = layers.LayerNormalization(epsilon=EPSILON)
        for part in (self.wte, self.wpe):
            part.build((None, length))
        for part in (*self.blocks, self.lnf):
            part.build((None, length, width))
        self.built = True

    # Keras hands `training` to the model; nothing here depends on it.
    def call(self, x, training=None):
        h = self.wte(x) + self.wpe(ops.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return ops.matmul(self.lnf(h), ops.transpose(ops.cast(self.wte.embeddings, self.compute_dtype)))

    def places(self):
        """(the weight, the canonical names of its parts, whether it is (in, out)). q, k and v are thirds of one."""
        yield from ((self.wte.embeddings, ["wte"], False), (self.wpe.embeddings, ["wpe"], False))
        norms = {"lnf": self.lnf}
        for number, block in enumerate(self.blocks):
            at = "h%d." % number
            norms.update({at + "ln1": block.ln1, at + "ln2": block.ln2})
            dense = {"proj": block.proj, "fc": block.fc, "out": block.out}
            for layer, names in [(block.qkv, "qkv"), *((layer, [name]) for name, layer in dense.items())]:
                yield layer.kernel, [at + name + ".w" for name in names], True
                yield layer.bias, [at + name + ".b" for name in names], False
        for name, layer in norms.items():
            yield layer.gamma, [name + ".g"], False
            yield layer.beta, [name + ".b"], False


def network():
    return Network(vocabulary=256, length=256, depth=6, heads=6, width=384)


class Training(_stacked.Training):
    network_of = staticmethod(network)
