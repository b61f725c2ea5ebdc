"""ResNet-50 trained in PyTorch: the features' network with torchvision's classifier, SGD with momentum and weight decay.

Idiomatic here: BatchNorm2d's defaults are the specification's (epsilon 1e-5, a step of 0.1, the running variance unbiased), and of several
processes each keeps its own statistics, as DistributedDataParallel leaves them without broadcast_buffers; SGD's weight decay is added
to the gradient; channels-last tensors are what cuDNN's and oneDNN's convolutions take without reordering (PyTorch's channels-last
tutorial); pinned memory lets the copy to a GPU overlap the host's work.
"""

import torch
import torch.nn.functional as F
from torch import distributed, nn

from bench.frameworks.torch import resnet50_features
from bench.frameworks.torch.framework import compiled, to_device, torch_device


class Network(resnet50_features.Network):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x):
        return self.fc(super().forward(x))


class Training:
    def __init__(self, setup):
        self.device, self.devices = torch_device(setup), setup.devices
        self.network = Network().to(self.device, memory_format=torch.channels_last)
        self.compiled = compiled(setup, self.network, broadcast_buffers=False)
        # A10: v <- 0.9 v + (g + 1e-4 w), w <- w - lr v: dampening and Nesterov are off, and the rate is outside v
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.0125, momentum=0.9, weight_decay=1e-4)

    def set_rate(self, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def load(self, parameters):
        state = {name: torch.from_numpy(value) for name, value in parameters.items()}
        counters = [name for name in self.network.state_dict() if name.endswith("num_batches_tracked")]
        state.update((name, torch.tensor(0)) for name in counters)  # of a running mean that weighs all batches alike
        self.network.load_state_dict(state)
        self.optimizer.state.clear()

    def share_statistics(self):
        if self.devices == 1:
            return
        for name, buffer in self.network.named_buffers():
            if not name.endswith("num_batches_tracked"):
                distributed.all_reduce(buffer)
                buffer /= self.devices

    def read(self):
        return {name: value.cpu().numpy() for name, value in self.network.state_dict().items()}

    def inputs(self, x, y):
        """Contiguous in the layout that the convolutions take: (N, H, W, C) in memory, seen as (N, C, H, W)."""
        return torch.from_numpy(x).to(memory_format=torch.channels_last).numpy(), y.astype("int64")

    def _backward(self, x, y):
        self.network.train()  # the normalisations take the batch's statistics and move the running ones
        x, y = to_device(self.device, x, y)
        self.optimizer.zero_grad()
        logits = self.compiled(x)
        loss = F.cross_entropy(logits, y)  # A7: from logits
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
