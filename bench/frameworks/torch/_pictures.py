"""What the deep networks on pictures do with a module whose normalisations keep statistics: load, step, read."""

import torch
from torch import distributed

from bench.frameworks.torch.framework import compiled, to_device, torch_device


class Trained:
    """A subclass gives optimizer, and loss(logits, y). Of several processes each normalises its own part of a batch."""

    def __init__(self, setup, network):
        self.device, self.devices = torch_device(setup), setup.devices
        self.network = network.to(self.device, memory_format=torch.channels_last)
        self.compiled = compiled(setup, self.network, broadcast_buffers=False)

    def load(self, parameters):
        state = {name: torch.from_numpy(value) for name, value in parameters.items()}
        counters = [name for name in self.network.state_dict() if name.endswith("num_batches_tracked")]
        state.update((name, torch.tensor(0)) for name in counters)  # of a running mean that weighs all batches alike
        self.network.load_state_dict(state)
        self.optimizer.state.clear()

    def set_rate(self, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def read(self):
        return {name: value.cpu().numpy() for name, value in self.network.state_dict().items()}

    def share_statistics(self):
        if self.devices == 1:
            return
        for name, buffer in self.network.named_buffers():
            if not name.endswith("num_batches_tracked"):
                distributed.all_reduce(buffer)
                buffer /= self.devices

    def inputs(self, x, y):
        """Contiguous in the layout that the convolutions take: (N, H, W, C) in memory, seen as (N, C, H, W)."""
        return torch.from_numpy(x).to(memory_format=torch.channels_last).numpy(), y

    def _backward(self, x, y):
        self.network.train()  # the normalisations take the batch's statistics and move the running ones
        x, y = to_device(self.device, x, y)
        self.optimizer.zero_grad()
        logits = self.compiled(x)
        loss = self.loss(logits, y)  # A7: from logits
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(x, y)
        gradients = {name: p.grad.cpu().numpy() for name, p in self.network.named_parameters()}
        return logits.detach().cpu().numpy(), loss.item(), gradients

    def step(self, x, y):
        _, loss = self._backward(x, y)
        self.optimizer.step()
        return loss

    def value(self, loss):
        return loss.item()

    @torch.no_grad()  # A21
    def predict(self, x):
        self.network.eval()  # D6: the running statistics
        (x,) = to_device(self.device, x)
        return self.compiled(x).cpu().numpy()
