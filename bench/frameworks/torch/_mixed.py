"""Mixed precision in PyTorch: torch.autocast around the forward pass and the loss; for float16 a GradScaler around the step.

PyTorch's recipe "Automatic Mixed Precision" shows both. At other precisions both are off and do nothing.
"""

import torch

try:
    from torch.func import functional_call
except ImportError:
    # PyTorch 1
    from torch.nn.utils.stateless import functional_call

from bench import contract, mixed
from bench.errors import Unsupported

__all__ = ["Mixed", "WithAdam", "functional_call", "half_on_a_cpu", "updates"]

# From PyTorch 2.4 on.
_TAKES_A_KIND = hasattr(torch, "get_autocast_dtype")


def updates(optimizer):
    """How many steps Adam counts, of the parameter that had the fewest. SGD counts none."""
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return min(int(optimizer.state.get(parameter, {}).get("step", 0)) for parameter in parameters)


def scaler(kind, **options):
    """A GradScaler. Before PyTorch 2.3 it is for CUDA only, and has another name."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind, **options)
    return torch.cuda.amp.GradScaler(**options)


def half_on_a_cpu():
    """The type into which autocast casts on a CPU; None where it is off."""
    if _TAKES_A_KIND:
        return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


class Mixed:
    def __init__(self, setup, optimizer):
        half = mixed.half(setup.precision)
        self.half = getattr(torch, half) if half else None
        self.kind, self.optimizer = setup.device, optimizer
        if half == "float16":
            if not hasattr(torch.amp, "GradScaler") and setup.device == "cpu":
                raise Unsupported("torch %s scales no loss on a CPU; PyTorch 2.3 is the first" % torch.__version__)
            self._count_steps()
        self.restart()

    def restart(self):
        """The loss scale begins afresh. One that has grown for thousands of steps may overflow on other parameters."""
        self.steps = self.taken = 0
        scale = {"init_scale": mixed.INITIAL_SCALE, "growth_interval": mixed.GROWTH_STEPS}
        self.scaler = scaler(self.kind, **scale) if self.half == torch.float16 else None

    def _count_steps(self):
        if hasattr(self.optimizer, "register_step_post_hook"):
            self.optimizer.register_step_post_hook(self._count)
            return
        # PyTorch 1 has no hooks of a step.
        step = self.optimizer.step

        def counted(*arguments):
            step(*arguments)
            self._count()

        self.optimizer.step = counted

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


class WithAdam(contract.Training):
    """Training with Adam at any precision. A subclass has `run` (_steps.steps_of), `mixed` and `optimizer`."""

    def step(self, x, y):
        return self.run(x, y)

    def skipped(self):
        return self.mixed.skipped()

    def updates(self):
        return updates(self.optimizer)

    def value(self, loss):
        return loss.item()
