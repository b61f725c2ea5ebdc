"""tinygrad's published way: examples/beautiful_mnist.py of its repository.

As there: a class that holds layers and calls them in turn, and a TinyJit step of zero_grad, backward and one schedule for the loss and
the update. Other than there: this benchmark's layers, SGD with momentum, and mini-batches from NumPy, not drawn on the device. It has
no GRU: neither its examples nor its layers do.
"""

from tinygrad import Context, Tensor, TinyJit, nn


class Model:
    def __init__(self):
        self.conv1, self.conv2 = nn.Conv2d(3, 50, 3, padding=1), nn.Conv2d(50, 50, 3, padding=1)
        self.conv3, self.conv4 = nn.Conv2d(50, 100, 3, padding=1), nn.Conv2d(100, 100, 3, padding=1)
        self.l1, self.l2 = nn.Linear(6400, 512), nn.Linear(512, 10)

    def __call__(self, x):
        x = self.conv1(x).relu()
        x = self.conv2(x).relu().max_pool2d().dropout(0.25)
        x = self.conv3(x).relu()
        x = self.conv4(x).relu().max_pool2d().dropout(0.25)
        return self.l2(self.l1(x.flatten(1)).relu().dropout(0.5))


def cnn_cifar10(setup, x, y):
    model = Model()
    optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.01, momentum=0.9)

    @TinyJit
    @Context(TRAINING=1)
    def train_step(x, y):
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    return lambda: train_step(Tensor(x).realize(), Tensor(y).realize())
