"""PyTorch's published way: mnist/main.py of pytorch/examples, and for the GRU the layers of its word_language_model/model.py.

As there: a Module with log_softmax, nll_loss, and in each step the mini-batch to the device, zero_grad, backward, step. Other than there:
this benchmark's layers and optimisers, and mini-batches from NumPy.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def loop(model, optimizer, x, y):
    device = torch.device("cpu")
    model = model.to(device)
    y = y.astype("int64")

    def step():
        model.train()
        data, target = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
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


def cnn_cifar10(setup, x, y):
    model = Net()
    return loop(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), x, y)


def gru_imdb(setup, x, y):
    model = RNNModel()
    return loop(model, torch.optim.Adam(model.parameters(), lr=0.001), x.astype("int64"), y)
