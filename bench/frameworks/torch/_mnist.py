"""Training of the two networks on MNIST. Their batches lie on the device before the first step."""

import torch
import torch.nn.functional as F

from bench.frameworks.torch._mixed import Mixed, WithAdam
from bench.frameworks.torch._steps import steps_of
from bench.frameworks.torch.cnn_cifar10 import canonical_name, torch_name
from bench.frameworks.torch.framework import adam, compiled, to_device, torch_device


class Trained(WithAdam):
    def __init__(self, setup, network):
        torch.manual_seed(setup.seed)
        self.device = torch_device(setup)
        self.network = network.to(self.device)
        self.compiled = compiled(setup, self.network)
        self.optimizer = adam(setup, self.network, 0.001)
        self.mixed = Mixed(setup, self.optimizer)
        self.run = steps_of(setup, self.device, self._step)

    def load(self, parameters):
        state = {torch_name(name): torch.from_numpy(value) for name, value in parameters.items()}
        self.network.load_state_dict(state)
        self.mixed.restart()
        self.run.restart(self.optimizer)

    def read(self):
        return {canonical_name(name): p.detach().cpu().numpy() for name, p in self.network.named_parameters()}

    def inputs(self, x, y):
        return tuple(to_device(self.device, x, y.astype("int64")))

    def probe(self, x, y):
        self.optimizer.zero_grad()
        with self.mixed.forward():
            logits = self.compiled(x)
            loss = F.cross_entropy(logits, y)
        self.mixed.backward(loss)
        gradients = {canonical_name(name): self.mixed.gradient(p) for name, p in self.network.named_parameters()}
        return logits.detach().float().cpu().numpy(), loss.item(), gradients

    def _step(self, x, y):
        self.optimizer.zero_grad()
        with self.mixed.forward():
            # The loss takes logits: there is exactly one softmax.
            loss = F.cross_entropy(self.compiled(x), y)
        self.mixed.backward(loss)
        self.mixed.update()
        return loss

    # No gradients in evaluation: they cost memory and time.
    @torch.no_grad()
    def predict(self, x):
        with self.mixed.forward():
            return self.compiled(x).float().cpu().numpy()
