"""Caffe2's published way: of its repository's tutorials, the one on MNIST, and for the GRU caffe2/python/examples/char_rnn.py.

As there: brew's helpers on a ModelHelper, initialised by its param_init_net, AddGradientOperators, optimizer.build_*, the net created
once; in each step blobs are fed and the net is run. Other than there: the loss is not fetched in each step, this benchmark's layers and
optimisers, the GRU's reset gate after the product, an Adam that updates all rows of the embedding, and mini-batches from NumPy.
"""

import numpy as np
from caffe2.python import brew, core, gru_cell, optimizer, workspace
from caffe2.python.model_helper import ModelHelper


def loop(network, build, x, y):
    """Every blob is in the scope "example/": the workspace is the adapter's too."""
    feeds = [("example/data", x), ("example/label", y)]
    with core.NameScope("example"):
        model = ModelHelper("example_train", arg_scope={"order": "NCHW"})
        logits = network(model)
        _, loss = model.net.SoftmaxWithLoss([logits, "label"], ["softmax", "loss"])
        model.AddGradientOperators([loss])
        build(model)
    for blob, value in feeds:
        workspace.FeedBlob(blob, value)
    workspace.RunNetOnce(model.param_init_net)
    workspace.CreateNet(model.net)

    def step():
        for blob, value in feeds:
            workspace.FeedBlob(blob, value)
        workspace.RunNet(model.net)

    return step


def cnn(model):
    def conv(x, name, inputs, outputs):
        return brew.relu(
            model, brew.conv(model, x, name, dim_in=inputs, dim_out=outputs, kernel=3, pad=1), name + "_relu"
        )

    def pool(x, name):
        return brew.dropout(
            model, brew.max_pool(model, x, name, kernel=2, stride=2), name + "_drop", ratio=0.25, is_test=False
        )

    x = pool(conv(conv("data", "conv1", 3, 50), "conv2", 50, 50), "pool1")
    x = pool(conv(conv(x, "conv3", 50, 100), "conv4", 100, 100), "pool2")
    x = brew.relu(model, brew.fc(model, x, "fc5", dim_in=6400, dim_out=512), "fc5_relu")
    return brew.fc(model, brew.dropout(model, x, "fc5_drop", ratio=0.5, is_test=False), "pred", dim_in=512, dim_out=10)


def sentiment(model):
    table = model.param_init_net.XavierFill([], "embedding", shape=(30000, 125))
    model.AddParameter(table)
    words = model.net.Reshape(
        model.net.Gather([table, "data"], "flat", dense_gradient=True), ["words", "words_shape"], shape=(150, 64, 125)
    )[0]
    for blob, value in (("lengths", np.full(64, 150, "int32")), ("start", np.zeros((1, 64, 100), "float32"))):
        workspace.FeedBlob("example/" + blob, value)
    _, last = gru_cell.GRU(
        *(model, words, "lengths", ("start",), 125, 100, "gru"), outputs_with_grads=(1,), linear_before_reset=True
    )
    last = model.net.Reshape(last, ["last", "last_shape"], shape=(64, 100))[0]
    return brew.fc(model, last, "pred", dim_in=100, dim_out=2)


def cnn_cifar10(setup, x, y):
    return loop(cnn, lambda model: optimizer.build_sgd(model, base_learning_rate=0.01, momentum=0.9), x, y)


def gru_imdb(setup, x, y):
    ids = np.ascontiguousarray(x.T).ravel()  # time first
    return loop(sentiment, lambda model: optimizer.build_adam(model, base_learning_rate=0.001), ids, y)
