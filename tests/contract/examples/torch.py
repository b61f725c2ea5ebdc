"""PyTorch's published way: mnist/main.py of pytorch/examples, and the layers of other examples and tutorials.

The GRU is of word_language_model/model.py, the perceptron of the tutorial "Quickstart", ResNet-50 of imagenet/main.py, which takes it from
torchvision.

As there: a Module with log_softmax, nll_loss, and in each step the mini-batch to the device, zero_grad, backward, step; the perceptron and
ResNet-50 with cross_entropy. Images and convolutions are channels_last, as the tutorial "Channels Last Memory Format in PyTorch" has them.
Other than there: this benchmark's layers and optimisers, and mini-batches from NumPy.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def loop(model, optimizer, x, y, criterion=F.nll_loss):
    device = torch.device("cpu")
    y = y.astype("int64")
    if x.ndim == 4:
        model = model.to(device, memory_format=torch.channels_last)
        x = torch.from_numpy(x).to(memory_format=torch.channels_last).numpy()

    def step():
        model.train()
        data, target = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = criterion(output, target)
        loss.backward()
        optimizer.step()
        return loss

    return step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 50, 3, 1, 1), nn.Conv2d(50, 50, 3, 1, 1)
        self.conv3, self.conv4 = nn.Conv2d(50, 100, 3, 1, 1), nn.Conv2d(100, 100, 3, 1, 1)
        self.dropout1, self.dropout2, self.dropout3 = nn.Dropout(0.25), nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(6400, 512), nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = self.dropout1(F.max_pool2d(F.relu(self.conv2(x)), 2))
        x = F.relu(self.conv3(x))
        x = self.dropout2(F.max_pool2d(F.relu(self.conv4(x)), 2))
        x = self.dropout3(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(30000, 125)
        self.rnn = nn.GRU(125, 100, batch_first=True)
        self.decoder = nn.Linear(100, 2)

    def forward(self, x):
        output, _ = self.rnn(self.encoder(x))
        return F.log_softmax(self.decoder(output[:, -1]), dim=1)


class MNIST(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 2), nn.Conv2d(16, 8, 2)
        self.fc = nn.Linear(288, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


class Bottleneck(nn.Module):
    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inplanes, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, planes * 4, 1, bias=False), nn.BatchNorm2d(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inplanes != planes * 4:
            shortcut = nn.Conv2d(inplanes, planes * 4, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(planes * 4))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        identity = x if self.downsample is None else self.downsample(x)
        return self.relu(out + identity)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inplanes = 64
    for planes, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inplanes, planes, stride if block == 0 else 1))
            inplanes = planes * 4
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(2048, 1000))


def cnn_cifar10(setup, x, y):
    model = Net()
    return loop(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), x, y)


def gru_imdb(setup, x, y):
    model = RNNModel()
    return loop(model, torch.optim.Adam(model.parameters(), lr=0.001), x.astype("int64"), y)


def cnn_mnist(setup, x, y):
    model = MNIST()
    return loop(model, torch.optim.Adam(model.parameters(), lr=0.001), x, y)


def mlp_mnist(setup, x, y):
    model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    return loop(model, optimizer, x.reshape(len(x), 784), y, F.cross_entropy)


def resnet50_imagenet(setup, x, y):
    model = resnet50()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0125, momentum=0.9, weight_decay=1e-4)
    return loop(model, optimizer, x, y, F.cross_entropy)
