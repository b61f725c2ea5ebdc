"""The IMDB network in TensorFlow 1: an embedding, a GRU in a tf.while_loop, one dense layer, Adam.

Idiomatic here: on a GPU the raw operation CudnnRNN is the fused kernel, which TensorFlow 1's contrib.cudnn_rnn calls. On a CPU the GRU is
a loop in the graph, like that of dynamic_rnn; the input's product is taken for all positions before the loop. The cell is written
out: GRUCell applies the reset gate before the product, and TensorFlow 2 has no rnn_cell any more.
"""

import tensorflow.compat.v1 as tf

from bench.frameworks.tensorflow_v1._adam import Adam
from bench.frameworks.tensorflow_v1._loop import Trained
from bench.frameworks.tensorflow_v1.framework import on_gpu

SHAPES = {
    "embedding": (30000, 125),
    "gru.w": (300, 125),
    "gru.b": (300,),
    "gru.u": (300, 100),
    "gru.c": (300,),
    "dense.w": (2, 100),
    "dense.b": (2,),
}


class Training(Trained):
    def __init__(self, setup):
        # Adam's constants are explicit: defaults differ among frameworks.
        optimizer = Adam(learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8)
        super(Training, self).__init__(setup, (64, 150), tf.int32, SHAPES, optimizer)

    def network(self, x, training):
        p = self.variables
        # (150, 64, 125): time first.
        embedded = tf.nn.embedding_lookup(p["embedding"], tf.transpose(x))
        last = self.fused(embedded) if on_gpu() else self.loop(embedded)
        return tf.matmul(last, p["dense.w"], transpose_b=True) + p["dense.b"]

    def loop(self, x):
        """(150, 64, 125) -> the output of the last position."""
        p = self.variables
        projected = tf.reshape(tf.matmul(tf.reshape(x, [-1, 125]), p["gru.w"], transpose_b=True), [150, -1, 300])
        projected = tf.TensorArray(tf.float32, 150).unstack(projected + p["gru.b"])

        def cell(position, h):
            xr, xz, xn = tf.split(projected.read(position), 3, axis=1)
            hr, hz, hn = tf.split(tf.matmul(h, p["gru.u"], transpose_b=True) + p["gru.c"], 3, axis=1)
            r, z = tf.sigmoid(xr + hr), tf.sigmoid(xz + hz)
            # The reset gate after the product, as in cuDNN.
            n = tf.tanh(xn + r * hn)
            return position + 1, n + z * (h - n)

        # The first state is zero and not trained.
        return tf.while_loop(lambda position, _: position < 150, cell, [0, tf.zeros([64, 100])])[1]

    def fused(self, x):
        """The same by cuDNN. Its parameters are one vector: the weights of both products, then both biases, gates r, z, n."""
        # This module registers the gradient of CudnnRNN. Neither version of TensorFlow imports it by itself.
        from tensorflow.python.ops import cudnn_rnn_grad  # noqa: F401

        packed = tf.concat([tf.reshape(self.variables["gru." + name], [-1]) for name in "wubc"], axis=0)
        states = {"input_h": tf.zeros([1, 64, 100]), "input_c": tf.zeros([0])}
        output = tf.raw_ops.CudnnRNN(input=x, params=packed, rnn_mode="gru", is_training=True, **states)
        return output.output_h[0]

    def inputs(self, x, y):
        return x, y

    # The products transpose the weights: all variables have the canonical layout.
    def to_own(self, parameters):
        return parameters

    canonical = to_own
