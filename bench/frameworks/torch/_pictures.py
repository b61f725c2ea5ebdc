"""Training of the deep networks on pictures, whose normalisations keep running statistics."""

import torch
from torch import distributed

from bench import contract
from bench.frameworks.torch._steps import steps_of
from bench.frameworks.torch.framework import compiled, memory_format, to_device, torch_device


class Trained(contract.Training):
    """A subclass has `optimizer` and loss(logits, y). Each of several processes normalises its own part of a batch."""

    def __init__(self, setup, network):
        self.device, self.devices, self.format = torch_device(setup), setup.devices, memory_format(setup)
        self.network = network.to(self.device, memory_format=self.format)
        self.compiled = compiled(setup, self.network, broadcast_buffers=False)
        self.run = steps_of(setup, self.device, self._step)

    def load(self, parameters):
        state = {name: torch.from_numpy(value) for name, value in parameters.items()}
        counters = [name for name in self.network.state_dict() if name.endswith("num_batches_tracked")]
        # PyTorch counts batches for a running mean that weighs all of them alike; it is not used here.
        state.update((name, torch.tensor(0)) for name in counters)
        self.network.load_state_dict(state)
        self.run.restart(self.optimizer)

    def set_rate(self, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.run.forget()

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
        # Seen as (N, C, H, W), however it lies in memory.
        return torch.from_numpy(x).to(memory_format=self.format).numpy(), y

    def _backward(self, x, y):
        # The normalisations use the batch's statistics and update the running ones.
        self.network.train()
        self.optimizer.zero_grad()
        logits = self.compiled(x)
        loss = self.loss(logits, y)
        loss.backward()
        return logits, loss

    def probe(self, x, y):
        logits, loss = self._backward(*to_device(self.device, x, y))
        gradients = {name: p.grad.cpu().numpy() for name, p in self.network.named_parameters()}
        return logits.detach().cpu().numpy(), loss.item(), gradients

    def step(self, x, y):
        return self.run(x, y)

    def _step(self, x, y):
        _, loss = self._backward(x, y)
        self.optimizer.step()
        return loss

    def value(self, loss):
        return loss.item()

    # No gradients in evaluation: they cost memory and time.
    @torch.no_grad()
    def predict(self, x):
        # Evaluation uses the running statistics.
        self.network.eval()
        (x,) = to_device(self.device, x)
        return self.compiled(x).cpu().numpy()
