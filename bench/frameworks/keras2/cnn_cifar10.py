"""The CIFAR-10 network in Keras 2: a Sequential of layers, compile, train_on_batch; the same file on Theano and CNTK.

Idiomatic here: data_format tells every layer that images are N, C, H, W, the order of both backends. The loss takes logits: the softmax
layer that people put last would cost precision.
"""

from keras import backend, layers, models, optimizers

from bench.frameworks.keras2._loop import Trained

NAMES = [layer + end for layer in ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2") for end in (".w", ".b")]


def network(dropout):
    model = models.Sequential()

    # Channels first, the layout that cuDNN computes in.
    # Stride and padding are explicit: defaults differ among frameworks. "same" pads a 3 x 3 kernel of stride 1 by 1.
    def conv(filters, **first):
        model.add(layers.Conv2D(filters, 3, padding="same", data_format="channels_first", **first))

    def pool():
        model.add(layers.MaxPooling2D(2, strides=2, data_format="channels_first"))

    # Dropout only in training.
    def relu(rate=0.0):
        model.add(layers.Activation("relu"))
        if rate and dropout:
            model.add(layers.Dropout(rate))

    conv(50, input_shape=(3, 32, 32))
    relu()
    conv(50)
    # ReLU after the pooling: the same values, a quarter of the work.
    pool()
    relu(0.25)
    conv(100)
    relu()
    conv(100)
    pool()
    relu(0.25)
    # Flattened in C, H, W order.
    model.add(layers.Reshape((6400,)))
    model.add(layers.Dense(512))
    relu(0.5)
    model.add(layers.Dense(10))
    return model


class Training(Trained):
    def __init__(self, setup):
        # Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov. Keras stores -rate v in place of v.
        super(Training, self).__init__(setup, network(setup.training), optimizers.SGD(lr=0.01, momentum=0.9))

    def to_own(self, parameters):
        """Kernels (kh, kw, in, out), dense (in, out)."""
        return [turn(parameters[name], (2, 3, 1, 0)) for name in NAMES]

    def canonical(self, values):
        return {name: turn(value, (3, 2, 0, 1)) for name, value in zip(NAMES, values)}


def turn(value, order):
    """A parameter between the specification's layout and Keras'. Theano convolves (others correlate): its kernels are flipped."""
    if value.ndim != 4:
        return value.T
    value = value.transpose(order)
    if backend.backend() != "theano":
        return value
    return value[::-1, ::-1] if order[0] == 2 else value[:, :, ::-1, ::-1]
