"""A block of attention on 64 tokens, in JAX."""

import jax
import jax.numpy as jnp
import numpy as np

FRAMEWORK, ITEMS = "jax", 32
SHAPES = {"embed": (100, 64), "q": (64, 64), "k": (64, 64), "v": (64, 64), "up": (64, 256), "down": (256, 64)}


def batch(random):
    tokens = random.randint(0, 100, (ITEMS, 65))
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(p, x, y):
    x = p["embed"][x]
    scores = jnp.einsum("btc,bsc->bts", x @ p["q"], x @ p["k"]) / 8
    x = x + jax.nn.softmax(jnp.where(jnp.tri(64) > 0, scores, -1e9)) @ (x @ p["v"])
    x = x + jax.nn.gelu(x @ p["up"]) @ p["down"]
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ p["embed"].T), y[..., None], -1).mean()


@jax.jit
def train(p, momentum, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(p, x, y)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return jax.tree.map(lambda w, m: w - 0.01 * m, p, momentum), momentum, loss


class Network:
    def __init__(self, setup):
        random = np.random.RandomState(setup.seed)
        self.parameters = {k: jnp.asarray(random.normal(0, s[0] ** -0.5, s), "float32") for k, s in SHAPES.items()}
        self.momentum = jax.tree.map(jnp.zeros_like, self.parameters)

    def step(self, x, y):
        self.parameters, self.momentum, loss = train(self.parameters, self.momentum, x, y)
        return loss
