"""The training loop of a Keras 2 model: compile, load, read, step, probe, predict."""

import numpy as np
from keras import backend as K

from bench import contract


def cross_entropy(labels, logits):
    """The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays."""
    return K.sparse_categorical_crossentropy(labels, logits, from_logits=True)


class Trained(contract.Training):
    """A subclass gives to_own(parameters), a list in the order of the model's weights, and canonical(values), its inverse."""

    def __init__(self, setup, model, optimizer):
        np.random.seed(setup.seed)
        self.model, self.optimizer = model, optimizer
        model.compile(loss=cross_entropy, optimizer=optimizer)
        self._gradients = None

    def compile(self):
        """Keras makes its training function. Theano compiles it as a C++ program, which takes long: it is a phase of its own."""
        self.model._make_train_function()

    def load(self, parameters):
        self.model.set_weights(self.to_own(parameters))
        # The optimiser has no state before compile() or the first train_on_batch makes the training function.
        K.batch_set_value([(state, np.zeros_like(K.get_value(state))) for state in self.optimizer.weights])

    def read(self):
        return self.canonical(self.model.get_weights())

    def probe(self, x, y):
        if self._gradients is None:
            self._gradients = gradient_function(self.model)
        loss, gradients = self._gradients(x, y)
        return self.predict(x), loss, self.canonical(gradients)

    def step(self, x, y):
        return self.model.train_on_batch(x, y)

    def updates(self):
        return int(K.get_value(self.optimizer.iterations))

    def predict(self, x):
        return self.model.predict_on_batch(x)


def gradient_function(model):
    """(x, y) -> mean loss, gradients in the order of the model's weights."""
    if K.backend() == "cntk":
        return _cntk_gradients(model)
    loss = model.total_loss
    inputs = model.inputs + model.targets + model.sample_weights
    function = K.function(inputs, [loss] + K.gradients(loss, model.trainable_weights))

    def compute(x, y):
        results = function([x, y[:, None], np.ones(len(x), "float32")])
        return float(results[0]), results[1:]

    return compute


def _cntk_gradients(model):
    """Keras gives CNTK's gradients to the learner only. The CNTK function of the model returns them."""
    import cntk

    logits, (x_,) = model.outputs[0], model.inputs
    labels = cntk.input_variable(())
    loss = cntk.cross_entropy_with_softmax(logits, cntk.one_hot(labels, logits.shape[-1]))

    def compute(x, y):
        weights = model.trainable_weights
        gradients, losses = loss.grad({x_: x.astype("float32"), labels: y.astype("float32")}, weights, [loss.output])
        # CNTK's gradients are of the sum of the losses; the specification's are of their mean.
        dense = [np.asarray(gradients[weight]) / len(x) for weight in weights]
        return float(np.mean(losses)), dense

    return compute
