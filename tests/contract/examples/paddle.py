"""PaddlePaddle's published way: of its documentation's tutorials, the MNIST one, the part that trains by hand, and the IMDB one.

As there: a Layer in train mode, cross_entropy, and in each step backward, step, clear_grad. Other than there: this benchmark's layers and
optimisers, and mini-batches from NumPy.
"""

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2D(3, 50, 3, padding=1), nn.Conv2D(50, 50, 3, padding=1)
        self.conv3, self.conv4 = nn.Conv2D(50, 100, 3, padding=1), nn.Conv2D(100, 100, 3, padding=1)
        self.linear1, self.linear2 = nn.Linear(6400, 512), nn.Linear(512, 10)
        self.pool = nn.MaxPool2D(2, 2)
        self.dropout1, self.dropout2, self.dropout3 = nn.Dropout(0.25), nn.Dropout(0.25), nn.Dropout(0.5)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = self.dropout1(self.pool(F.relu(self.conv2(x))))
        x = F.relu(self.conv3(x))
        x = self.dropout2(self.pool(F.relu(self.conv4(x))))
        x = self.dropout3(F.relu(self.linear1(paddle.flatten(x, start_axis=1))))
        return self.linear2(x)


class Sentiment(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embedding, self.gru, self.fc = nn.Embedding(30000, 125), nn.GRU(125, 100), nn.Linear(100, 2)

    def forward(self, x):
        output, _ = self.gru(self.embedding(x))
        return self.fc(output[:, -1])


def loop(model, optimizer, x, y):
    model.train()

    def step():
        images, labels = (paddle.to_tensor(x), paddle.to_tensor(y)) if isinstance(x, np.ndarray) else (x, y)
        predicts = model(images)
        loss = F.cross_entropy(predicts, labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return step


def cnn_cifar10(setup, x, y):
    model = Net()
    return loop(
        model, paddle.optimizer.Momentum(0.01, momentum=0.9, parameters=model.parameters()), x, y.astype("int64")
    )


def gru_imdb(setup, x, y):
    model = Sentiment()
    return loop(model, paddle.optimizer.Adam(learning_rate=0.001, parameters=model.parameters()), x, y.astype("int64"))


def resident(x, y):
    """Arrays that lie on the device before the first step."""
    return paddle.to_tensor(x), paddle.to_tensor(y.astype("int64"))


def cnn_mnist(setup, x, y):
    model = nn.Sequential(
        *(nn.Conv2D(1, 16, 2), nn.MaxPool2D(2, 2), nn.ReLU(), nn.Conv2D(16, 8, 2), nn.MaxPool2D(2, 2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(288, 10)),
    )
    return loop(model, paddle.optimizer.Adam(learning_rate=0.001, parameters=model.parameters()), *resident(x, y))


def mlp_mnist(setup, x, y):
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    return loop(model, paddle.optimizer.Adam(learning_rate=0.001, parameters=model.parameters()), *resident(x, y))
