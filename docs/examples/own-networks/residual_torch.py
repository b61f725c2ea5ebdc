"""Residual blocks with group normalisation, in PyTorch."""

import torch
from torch import nn

FRAMEWORK, ITEMS = "torch", 16
PRECISIONS = ("amp-bf16",)


def batch(random):
    return random.uniform(0, 1, (ITEMS, 3, 32, 32)).astype("float32"), random.randint(0, 10, ITEMS)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        half = nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)
        self.layers = nn.Sequential(*half, nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))

    def forward(self, x):
        return x + self.layers(x)


class Network:
    def __init__(self, setup):
        torch.manual_seed(setup.seed)
        self.device, self.half = setup.device, setup.precision == "amp-bf16"
        layers = nn.Conv2d(3, 32, 3, padding=1), Residual(32), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(32 * 64, 10)
        self.model = nn.Sequential(*layers).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, x, y):
        x, y = torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device)
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.half):
            loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss
