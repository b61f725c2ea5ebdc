"""What the harness costs: one network in PyTorch trained by the bench, and by the loop that a person would write, in turn.

Runs in an interpreter that has torch (an image's own). Prints JSON: the ratio bench / plain of the seconds per step. Each side is the lower
quartile of its single steps: what a neighbour on the machine takes only adds to a step, so the quick ones tell what the code costs.
Both train the same module in memory: two copies differ by several per cent on their own, by where they lie.
"""

import json
import time

import numpy as np
import torch
from torch import nn

from bench import environment, timing
from bench.contract import Setup
from bench.feeds import mini_batches
from bench.frameworks.torch import cnn_cifar10, framework

PAIRS = 32


def plain_step(network, optimizer, criterion, x, y, pick):
    """Seconds of one step of the loop in any tutorial."""
    begin = time.perf_counter()
    inputs, labels = torch.from_numpy(x[pick]), torch.from_numpy(y[pick])
    optimizer.zero_grad()
    loss = criterion(network(inputs), labels)
    loss.backward()
    optimizer.step()
    return time.perf_counter() - begin


def main():
    setup = Setup("cpu", "fp32", "default", environment.cpu_count(), 1, True)
    framework.configure(setup)
    random = np.random.RandomState(1)
    x = random.uniform(size=(2048, 3, 32, 32)).astype("float32")
    y = random.randint(0, 10, 2048)

    training = cnn_cifar10.Training(setup)
    bench = timing.Loop(
        training.step, mini_batches(x, y, 64, random), framework.synchronize, lambda sample, loss: training.value(loss)
    )
    network = training.network.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    plain, measured = [], []
    for pair in range(PAIRS):
        pick = random.permutation(len(x))[:64]
        turns = [
            lambda pick=pick: plain.append(plain_step(network, optimizer, criterion, x, y, pick)),
            lambda: measured.append(bench.window("steady", 1)),
        ]
        for turn in turns if pair % 2 else reversed(turns):  # who goes first changes
            turn()
    print(json.dumps(np.percentile(measured[4:], 25) / np.percentile(plain[4:], 25)))


main()
