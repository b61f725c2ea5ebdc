"""Mixed precision in PyTorch: torch.autocast around the forward pass and the loss; for float16 a GradScaler around the step.

PyTorch's recipe "Automatic Mixed Precision" shows both. At other precisions both are off and do nothing.
"""

import torch

from bench import mixed
from bench.errors import Unsupported


class Mixed:
    def __init__(self, setup, optimizer):
        half = mixed.half(setup.precision)
        self.half = getattr(torch, half) if half else None
        self.kind, self.optimizer = setup.device, optimizer
        self.steps = self.taken = 0
        self.scaler = None
        if half == "float16":
            if not hasattr(torch.amp, "GradScaler"):
                raise Unsupported("torch %s has no torch.amp.GradScaler; PyTorch 2.3 is the first" % torch.__version__)
            scale = {"init_scale": mixed.INITIAL_SCALE, "growth_interval": mixed.GROWTH_STEPS}
            self.scaler = torch.amp.GradScaler(setup.device, **scale)
            optimizer.register_step_post_hook(self._count)

    def _count(self, *_):
        self.taken += 1

    def forward(self):
        """The context of the forward pass and the loss. Autocast computes the loss in float32 by itself."""
        return torch.autocast(self.kind, self.half, enabled=self.half is not None)

    def backward(self, loss):
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def gradient(self, parameter):
        """The gradient from backward(), divided by the loss scale, as a NumPy array."""
        gradient = parameter.grad / self.scaler.get_scale() if self.scaler else parameter.grad
        return gradient.cpu().numpy()

    def update(self):
        """One step of the optimiser. If a scaled gradient overflows, the step is skipped and the scale halved."""
        if not self.scaler:
            self.optimizer.step()
            return
        self.steps += 1
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def skipped(self):
        """How many steps so far were skipped."""
        return self.steps - self.taken
