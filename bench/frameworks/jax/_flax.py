"""What Flax NNX calls differently in the versions that the images hold: 0.8, of JAX 0.4, and the present one."""

from flax import nnx

# Flax 0.8 has `value`, an attribute. Later versions have `variable[...]` and set_value(), and warn of the attribute.
_HAS_ATTRIBUTE_ONLY = not hasattr(nnx.Variable, "set_value")


def get_value(variable):
    """The array of a variable."""
    return variable.value if _HAS_ATTRIBUTE_ONLY else variable[...]


def set_value(variable, array):
    """Give a variable another array of the same shape. The variable may hold a shape only, of nnx.eval_shape."""
    if _HAS_ATTRIBUTE_ONLY:
        variable.value = array
    else:
        variable.set_value(array)


def flat_state(state):
    """Path -> variable."""
    return dict(nnx.to_flat_state(state) if hasattr(nnx, "to_flat_state") else state.flat_state())


def merge_copy(structure, *states):
    """nnx.merge with new variables: only the trace that made a variable may change it. Flax 0.8 always makes new ones."""
    return nnx.merge(structure, *states) if _HAS_ATTRIBUTE_ONLY else nnx.merge(structure, *states, copy=True)
