"""MindSpore's published way: the quick start of its tutorials, and for the GRU the layers of its sentiment classification.

As there: a Cell, CrossEntropyLoss, value_and_grad of a forward function, and a train_step that hands the gradients to the optimiser,
compiled by mindspore.jit, as the tutorial on graph acceleration has it. Other than there: this benchmark's layers and optimisers, and
mini-batches from NumPy.
"""

import mindspore
from mindspore import Tensor, nn


def conv(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, pad_mode="pad", padding=1, has_bias=True)


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.features = nn.SequentialCell(
            *(conv(3, 50), nn.ReLU(), conv(50, 50), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Dropout(p=0.25)),
            *(conv(50, 100), nn.ReLU(), conv(100, 100), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Dropout(p=0.25)),
        )
        self.flatten = nn.Flatten()
        self.dense_relu_sequential = nn.SequentialCell(
            nn.Dense(6400, 512), nn.ReLU(), nn.Dropout(p=0.5), nn.Dense(512, 10)
        )

    def construct(self, x):
        return self.dense_relu_sequential(self.flatten(self.features(x)))


class RNN(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding, self.rnn, self.fc = (
            nn.Embedding(30000, 125),
            nn.GRU(125, 100, batch_first=True),
            nn.Dense(100, 2),
        )

    def construct(self, x):
        _, hidden = self.rnn(self.embedding(x))
        return self.fc(hidden[0])


def loop(model, optimizer, x, y):
    loss_fn = nn.CrossEntropyLoss()

    def forward_fn(data, label):
        logits = model(data)
        return loss_fn(logits, label), logits

    grad_fn = mindspore.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)
    model.set_train()

    @mindspore.jit
    def train_step(data, label):
        (loss, _), grads = grad_fn(data, label)
        optimizer(grads)
        return loss

    return lambda: train_step(Tensor(x), Tensor(y))


def cnn_cifar10(setup, x, y):
    model = Network()
    return loop(model, nn.Momentum(model.trainable_params(), learning_rate=0.01, momentum=0.9), x, y)


def gru_imdb(setup, x, y):
    model = RNN()
    return loop(model, nn.Adam(model.trainable_params(), learning_rate=0.001), x, y)
