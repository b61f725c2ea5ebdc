"""PyTorch, and Keras on it."""

import functools
from unittest import mock

import torch
import torch.nn.functional as F

from bench.frameworks.torch import _llama, gpt2_decode
from bench.frameworks.torch._mixed import Mixed
from tests.contract.experts.registry import variant


def with_optimizer(training, setup, optimizer):
    training.optimizer, training.mixed = optimizer, Mixed(setup, optimizer)
    return training


@variant(
    "torch", "cnn-cifar10", "gru-imdb", "mlp-mnist", "cnn-mnist", "gpt-bytes", "llama-bytes", "moe-bytes", "gpt2-decode"
)
def compiled(adapter, setup):
    """torch.compile of the network with its defaults: the mode compile."""
    return adapter(setup._replace(mode="compile"))


@variant("torch", "cnn-cifar10")
def fused_sgd(adapter, setup):
    """SGD as one fused kernel."""
    training = adapter(setup)
    parameters = training.network.parameters()
    return with_optimizer(training, setup, torch.optim.SGD(parameters, lr=0.01, momentum=0.9, fused=True))


@variant("torch", "gru-imdb", "mlp-mnist", "cnn-mnist", "gpt-bytes", "llama-bytes", "moe-bytes")
def foreach_adam(adapter, setup):
    """Adam by one call for all parameters of each operation, in place of its fused kernel."""
    training = adapter(setup)
    constants = {name: training.optimizer.defaults[name] for name in ("lr", "betas", "eps")}
    return with_optimizer(training, setup, torch.optim.Adam(training.network.parameters(), foreach=True, **constants))


def of_calls(adapter, setup, *names, replaced):
    """The adapter, in whose methods of these names something takes another's place: mock.patch.object's arguments."""

    def patched(method):
        def run(self, *arguments):
            with mock.patch.object(*replaced):
                return method(self, *arguments)

        return run

    return type("Patched", (adapter,), {name: patched(getattr(adapter, name)) for name in names})(setup)


def with_repeated_heads(attend, q, k, v, is_causal, enable_gqa):
    many = q.shape[1] // k.shape[1]
    return attend(q, k.repeat_interleave(many, 1), v.repeat_interleave(many, 1), is_causal=is_causal)


@variant("torch", "llama-bytes", "moe-bytes")
def heads_repeated(adapter, setup):
    """The heads of keys and values are repeated before the attention, as LLaMA's own code does."""
    attend = functools.partial(with_repeated_heads, F.scaled_dot_product_attention)
    return of_calls(adapter, setup, "loss", "predict", replaced=(F, "scaled_dot_product_attention", attend))


def as_complex(x, cosine, sine):
    """The same rotation, of number i and number i + D / 2 as a complex number."""
    a, b = x.chunk(2, -1)
    half = cosine.shape[-1] // 2
    turned = torch.complex(a, b) * torch.complex(cosine[..., :half], sine[..., :half])
    return torch.cat((turned.real, turned.imag), -1)


@variant("torch", "llama-bytes", "moe-bytes")
def rotated_as_complex(adapter, setup):
    """Queries and keys are rotated as complex numbers, as LLaMA's own code does."""
    return of_calls(adapter, setup, "loss", "predict", replaced=(_llama, "rotated", as_complex))


def on_all_bytes(self, x):
    flat = x.flatten(0, 1)
    numbers = self.router(flat)
    top, places = numbers.topk(self.chosen, -1)
    weights = torch.zeros_like(numbers).scatter(1, places, top.softmax(-1))
    shares = F.one_hot(places, len(self.experts)).float().mean((0, 1))
    self.spread = len(self.experts) * (shares * numbers.softmax(-1).mean(0)).sum()
    return sum(weights[:, e, None] * expert(flat) for e, expert in enumerate(self.experts)).view_as(x)


@variant("torch", "moe-bytes")
def experts_on_all_bytes(adapter, setup):
    """Each expert computes all bytes, without an index, and counts where it was chosen."""
    return of_calls(adapter, setup, "loss", "predict", replaced=(_llama.Experts, "forward", on_all_bytes))


def over_what_is_written(attention, x, cache, places, seen):
    many, length, width = x.shape
    parts = attention.qkv(x).split(width, 2)
    q, k, v = (part.view(many, length, attention.heads, -1).transpose(1, 2) for part in parts)
    end = int(places[-1]) + 1
    cache[0][:, :, end - length : end], cache[1][:, :, end - length : end] = k, v
    y = F.scaled_dot_product_attention(q, cache[0][:, :, :end], cache[1][:, :, :end], is_causal=seen is None)
    return attention.proj(y.transpose(1, 2).reshape(many, length, width))


@variant("torch", "gpt2-decode")
def sees_what_is_written(adapter, setup):
    """A step attends to the positions that are there, and not to the whole cache under a mask."""
    return of_calls(adapter, setup, "prefill", "step", replaced=(gpt2_decode, "attend", over_what_is_written))


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


@variant("keras_torch", "gru-imdb", "mlp-mnist", "cnn-mnist", "gpt-bytes", "llama-bytes", "moe-bytes")
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
        options = {"lr": 0.001, "beta1": 0.9, "beta2": own.beta_2, "weight_decay": 0.0, "eps": 1e-8}
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
