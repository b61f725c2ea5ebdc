"""PyTorch, and Keras on it."""

import torch

from bench.frameworks.torch._mixed import Mixed
from tests.contract.experts.registry import variant

ADAM = {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8}


def with_optimizer(training, setup, optimizer):
    training.optimizer, training.mixed = optimizer, Mixed(setup, optimizer)
    return training


@variant("torch", "cnn-cifar10", "gru-imdb", "mlp-mnist", "cnn-mnist")
def compiled(adapter, setup):
    """torch.compile of the network with its defaults: the mode compile."""
    return adapter(setup._replace(mode="compile"))


@variant("torch", "cnn-cifar10")
def fused_sgd(adapter, setup):
    """SGD as one fused kernel."""
    training = adapter(setup)
    parameters = training.network.parameters()
    return with_optimizer(training, setup, torch.optim.SGD(parameters, lr=0.01, momentum=0.9, fused=True))


@variant("torch", "gru-imdb", "mlp-mnist", "cnn-mnist")
def foreach_adam(adapter, setup):
    """Adam by one call for all parameters of each operation, in place of its fused kernel."""
    training = adapter(setup)
    return with_optimizer(training, setup, torch.optim.Adam(training.network.parameters(), foreach=True, **ADAM))


@variant("torch", "cnn-cifar10")
def channels_first(adapter, setup):
    """Pictures and weights lie in memory with the channels first: the mode channels-first."""
    return adapter(setup._replace(mode="channels-first"))


@variant("torch", "gru-imdb")
def reviews_first(adapter, setup):
    """The GRU takes the reviews before the positions (batch_first)."""
    training = adapter(setup)
    network = training.network
    network.gru.batch_first = True
    network.forward = lambda x: network.dense(network.gru(network.embedding(x))[1][0])
    return training


@variant("keras_torch", "gru-imdb", "mlp-mnist", "cnn-mnist")
def fused_adam(adapter, setup):
    """PyTorch's Adam as one fused kernel, in place of Keras' optimiser."""
    training = adapter(setup)
    variables = training.network.trainable_variables
    own = training.optimizer
    moments = {}

    def apply(gradients, trained):
        if not moments or int(own.iterations) == 0:
            zeros = [torch.zeros_like(variable.value) for variable in variables]
            moments.update(m=zeros, v=[zero.clone() for zero in zeros], steps=[torch.zeros(()) for _ in zeros])
        torch._foreach_add_(moments["steps"], 1)
        values = [variable.value for variable in trained]
        options = {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 1e-8}
        torch._fused_adam_(
            values,
            gradients,
            moments["m"],
            moments["v"],
            [],
            moments["steps"],
            amsgrad=False,
            maximize=False,
            **options,
        )
        own.iterations.assign_add(1)

    own.apply = apply
    return training
