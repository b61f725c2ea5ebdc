"""Adam written by hand, as the specification has it; a subclass changes one thing."""

import torch


class HandAdam(torch.optim.Optimizer):
    """Algorithm 1 of Kingma and Ba, with a count of steps where PyTorch's own keeps it."""

    BETAS = 0.9, 0.999
    EPSILON = 1e-8

    def __init__(self, parameters, rate=0.001):
        super().__init__(parameters, {"lr": rate})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state.update(step=torch.tensor(0.0), m=torch.zeros_like(parameter), v=torch.zeros_like(parameter))
                state["step"] += 1
                self.update(parameter, parameter.grad, state, group["lr"])

    def update(self, parameter, gradient, state, rate):
        beta1, beta2 = self.BETAS
        state["m"].lerp_(gradient, 1 - beta1)
        state["v"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        parameter.sub_(rate * self.direction(state["m"], state["v"], float(state["step"])))

    def direction(self, m, v, t):
        return m / (1 - self.BETAS[0] ** t) / ((v / (1 - self.BETAS[1] ** t)).sqrt() + self.EPSILON)


class WithoutBiasCorrection(HandAdam):
    def direction(self, m, v, t):
        return m / (v.sqrt() + self.EPSILON)


class EpsilonHat(HandAdam):
    def direction(self, m, v, t):
        return (1 - self.BETAS[1] ** t) ** 0.5 / (1 - self.BETAS[0] ** t) * m / (v.sqrt() + self.EPSILON)


class EpsilonInTheRoot(HandAdam):
    def direction(self, m, v, t):
        return m / (1 - self.BETAS[0] ** t) / (v / (1 - self.BETAS[1] ** t) + self.EPSILON).sqrt()


class EpsilonSquaredInTheRoot(HandAdam):
    def direction(self, m, v, t):
        return m / (1 - self.BETAS[0] ** t) / (v / (1 - self.BETAS[1] ** t) + self.EPSILON**2).sqrt()


class Lazy(HandAdam):
    """Rows without a gradient keep their weights and both moments."""

    def update(self, parameter, gradient, state, rate):
        if parameter.ndim < 2:
            super().update(parameter, gradient, state, rate)
            return
        rows = gradient.abs().amax(1) > 0
        own = {"m": state["m"][rows], "v": state["v"][rows], "step": state["step"]}
        values = parameter[rows]
        super().update(values, gradient[rows], own, rate)
        parameter[rows], state["m"][rows], state["v"][rows] = values, own["m"], own["v"]


def give(training, optimizer):
    """Give an adapter another optimiser."""
    training.optimizer = training.mixed.optimizer = optimizer


def planted(training, make):
    """A subclass of the adapter, whose optimiser is make(parameters)."""

    class Adapter(training):
        def __init__(self, setup):
            super().__init__(setup)
            give(self, make(list(self.network.parameters())))

    return Adapter


class InHalf:
    """A mixin for PyTorch's adapters: `half(call)` runs a call whose forward passes compute in bfloat16."""

    def half(self, call, *arguments):
        own, self.mixed.forward = self.mixed.forward, lambda: torch.autocast("cpu", torch.bfloat16)
        try:
            return call(*arguments)
        finally:
            self.mixed.forward = own
