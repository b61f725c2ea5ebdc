"""Module's published way: example/image-classification/train_mnist.py of MXNet's repository, and for the GRU that of example/rnn.

As there: a Symbol that ends in SoftmaxOutput, and what Module.fit does for every mini-batch, forward_backward and update. Other than
there: this benchmark's layers and optimisers, no metric, and mini-batches from NumPy.
"""

import mxnet as mx
import numpy as np
from mxnet.io import DataBatch


def loop(symbol, optimizer, options, x, y):
    module = mx.mod.Module(mx.sym.SoftmaxOutput(symbol, name="softmax"), context=mx.cpu())
    module.bind([("data", x.shape)], [("softmax_label", y.shape)])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(kvstore="local", optimizer=optimizer, optimizer_params=options)

    def step():
        data, label = (mx.nd.array(x), mx.nd.array(y)) if isinstance(x, np.ndarray) else (x, y)
        batch = DataBatch([data], [label])
        module.forward_backward(batch)
        module.update()
        return module.get_outputs()[0]

    return step


def cnn_cifar10(setup, x, y):
    sym = mx.sym

    def conv(x, filters):
        return sym.Activation(sym.Convolution(x, num_filter=filters, kernel=(3, 3), pad=(1, 1)), act_type="relu")

    def pool(x):
        return sym.Dropout(sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"), p=0.25)

    net = pool(conv(conv(sym.Variable("data"), 50), 50))
    net = pool(conv(conv(net, 100), 100))
    net = sym.Activation(sym.FullyConnected(sym.Flatten(net), num_hidden=512), act_type="relu")
    net = sym.FullyConnected(sym.Dropout(net, p=0.5), num_hidden=10)
    return loop(net, "sgd", {"learning_rate": 0.01, "momentum": 0.9}, x, y)


def gru_imdb(setup, x, y):
    words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=30000, output_dim=125)
    cell = mx.rnn.FusedRNNCell(100, mode="gru", prefix="gru_")
    states, _ = cell.unroll(150, words, layout="NTC", merge_outputs=True)
    last = mx.sym.slice_axis(states, axis=1, begin=-1, end=None)
    return loop(mx.sym.FullyConnected(last, num_hidden=2), "adam", {"learning_rate": 0.001}, x, y)


def cnn_mnist(setup, x, y):
    sym = mx.sym

    def block(x, filters):
        x = sym.Convolution(x, num_filter=filters, kernel=(2, 2))
        return sym.Activation(sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"), act_type="relu")

    net = sym.FullyConnected(sym.Flatten(block(block(sym.Variable("data"), 16), 8)), num_hidden=10)
    return loop(net, "adam", {"learning_rate": 0.001}, mx.nd.array(x), mx.nd.array(y))


def mlp_mnist(setup, x, y):
    sym = mx.sym
    net = sym.Activation(sym.FullyConnected(sym.Flatten(sym.Variable("data")), num_hidden=32), act_type="relu")
    net = sym.FullyConnected(net, num_hidden=10)
    return loop(net, "adam", {"learning_rate": 0.001}, mx.nd.array(x), mx.nd.array(y))
