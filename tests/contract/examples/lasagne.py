"""Lasagne's published way: examples/mnist.py of its repository, in the form of release 0.1.

As there: Conv2DLayer with pad "same" and its nonlinearity, softmax as the last layer, mean categorical cross-entropy, and one
theano.function that returns the loss and updates. Other than there: this benchmark's layers and plain momentum.
"""


def build(setup):
    import lasagne  # after the adapter's configure(): it gives Theano's flags, and the module that Lasagne 0.1 misses
    import theano
    import theano.tensor as T
    from lasagne import layers

    x_, y_ = T.tensor4("inputs"), T.ivector("targets")

    def conv(net, filters):
        return layers.Conv2DLayer(net, filters, (3, 3), pad="same", nonlinearity=lasagne.nonlinearities.rectify)

    net = layers.InputLayer((None, 3, 32, 32), x_)
    net = layers.MaxPool2DLayer(conv(conv(net, 50), 50), (2, 2))
    net = layers.dropout(net, p=0.25)
    net = layers.MaxPool2DLayer(conv(conv(net, 100), 100), (2, 2))
    net = layers.dropout(net, p=0.25)
    net = layers.DenseLayer(net, 512, nonlinearity=lasagne.nonlinearities.rectify)
    net = layers.DenseLayer(layers.dropout(net, p=0.5), 10, nonlinearity=lasagne.nonlinearities.softmax)

    prediction = layers.get_output(net)
    loss = lasagne.objectives.categorical_crossentropy(prediction, y_).mean()
    parameters = layers.get_all_params(net, trainable=True)
    updates = lasagne.updates.momentum(loss, parameters, learning_rate=0.01, momentum=0.9)
    return theano.function([x_, y_], loss, updates=updates)
