"""JAX, and Keras on it."""

import functools
from unittest import mock

import jax
import optax

from bench.frameworks.jax import _attention, _gpt
from tests.contract.experts.registry import variant


def of_loss(adapter, patched):
    """The adapter whose loss is traced with something in place of another: patched() is mock.patch.object(...)."""

    class Patched(adapter):
        def loss(self, *arguments):
            with patched():
                return super().loss(*arguments)

    return Patched


@variant("jax", "gru-imdb")
def unrolled(adapter, setup):
    """lax.scan unrolled by five positions."""
    scan = jax.lax.scan

    # The adapter itself says how far the scan is unrolled.
    def by_five(*words, **options):
        return scan(*words, **{**options, "unroll": 5})

    return of_loss(adapter, lambda: mock.patch.object(jax.lax, "scan", by_five))(setup)


@variant("jax", "gru-imdb")
def product_first(adapter, setup):
    """The product of all inputs with their weights as one large one before the scan."""
    return of_loss(adapter, lambda: mock.patch.object(jax, "default_backend", return_value="gpu"))(setup)


@variant("jax", "cnn-cifar10")
def quick_generator(adapter, setup):
    """Dropout's masks by the generator rbg."""
    training = adapter(setup)
    training.key = jax.random.key(setup.seed, impl="rbg") if setup.training else None
    return training


@variant("jax", "gru-imdb", "mlp-mnist", "cnn-mnist", "gpt-bytes", "llama-bytes", "moe-bytes")
def donated(adapter, setup):
    """The memory of parameters and state is donated to the step."""
    training = adapter(setup)
    # What is checked without dropout is never measured.
    if setup.training:
        step = functools.partial(adapter.train_step.__wrapped__, training)
        training.train_step = jax.jit(step, donate_argnums=(0, 1))
    return training


@variant("jax", "gpt-bytes", "llama-bytes", "moe-bytes")
def attention_as_einsums(adapter, setup):
    """Attention as two einsums and a softmax, in place of jax.nn.dot_product_attention."""
    return of_loss(adapter, lambda: mock.patch.object(_gpt, "attention", _attention.written))(setup)


@variant("jax", "gpt-bytes", "llama-bytes", "moe-bytes")
def flat_adam(adapter, setup):
    """Adam of one long vector of all parameters (optax.flatten)."""
    training = adapter(setup)
    training.optimizer = optax.flatten(training.optimizer)
    training.state = training.optimizer.init(training.parameters)
    return training


@variant("jax", "gpt2-decode")
def donated_cache(adapter, setup):
    """The memory of the cache is donated to the step on a CPU, too."""
    decoding = adapter(setup)
    decoding.decode = jax.jit(decoding.decode.__wrapped__, donate_argnums=1)
    return decoding


@variant("keras_jax", "gpt2-decode")
def donated_cache_of_keras(adapter, setup):
    """The memory of the cache is donated to the step on a CPU, too."""
    decoding = adapter(setup)
    decoding.decoder.decode = jax.jit(decoding.decoder.decode.__wrapped__, donate_argnums=1)
    return decoding


@variant("keras_jax", "gru-imdb", "mlp-mnist", "gpt-bytes", "llama-bytes", "moe-bytes")
def donated_state(adapter, setup):
    """The memory of weights and moments is donated to the step."""
    training = adapter(setup)
    training.loop.train_step = jax.jit(training.loop._train_step, donate_argnums=0)
    return training
