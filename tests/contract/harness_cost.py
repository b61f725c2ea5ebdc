"""What the harness costs: the CIFAR-10 network in PyTorch under the bench, and in a loop that a person would write, in turn.

Runs in an interpreter that has torch (an image's own). Prints JSON: the ratio bench / plain of each pair of windows.
"""

import itertools
import json
import time

import numpy as np
import torch
from torch import nn

from bench import environment, timing
from bench.frameworks.torch import cnn_cifar10, framework
from bench.run import mini_batches
from bench.setup import Setup

PAIRS, STEPS = 24, 2


def plain_network():
    return nn.Sequential(
        nn.Conv2d(3, 50, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(50, 50, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Conv2d(50, 100, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(100, 100, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(6400, 512),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(512, 10),
    )


def plain_steps(network, optimizer, criterion, x, y, order, steps):
    """Seconds of `steps` steps of the loop in any tutorial."""
    network.train()
    begin = time.perf_counter()
    for i in range(steps):
        pick = order[64 * i : 64 * (i + 1)]
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
    network = plain_network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def run_plain():
        order = random.permutation(len(x))
        return plain_steps(network, optimizer, nn.CrossEntropyLoss(), x, y, order, STEPS) / STEPS

    def run_bench():
        return bench.window("steady", STEPS)

    for run in (run_plain, run_bench, run_plain, run_bench):  # warm both
        run()
    ratios = []
    for turn in itertools.islice(itertools.cycle([0, 1]), PAIRS):  # who goes first changes
        if turn:
            plain, measured = run_plain(), run_bench()
        else:
            measured, plain = run_bench(), run_plain()
        ratios.append(measured / plain)
    print(json.dumps(ratios))


main()
