"""JAX (jax) with Flax NNX modules, Optax optimisers and one jitted, donating training step."""
