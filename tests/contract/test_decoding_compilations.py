"""Token by token one program serves all positions: to compile one for each position would take a hundred times as long as a step."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow

JAX, TENSORFLOW = "jax-0.10.2-cpu", "tensorflow-2.21.0-cpu"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("image", "framework"),
    [(JAX, "jax"), (JAX, "keras_jax"), (TENSORFLOW, "tensorflow"), (TENSORFLOW, "keras_tensorflow")],
)
def test_no_later_position_is_compiled(run_in: Callable[..., str], image: str, framework: str) -> None:
    counted = json.loads(run_in(image, "decoding_compilations.py", framework).splitlines()[-1])
    # JAX compiles its first arrays of zeros, too.
    assert counted["first"] == 2 if image == TENSORFLOW else counted["first"] > 2
    assert counted["later"] == 0
    # XLA is faster than TensorFlow's own kernels here. The cell says that it compiled the step.
    assert counted["settings"] == ({"xla": True} if image == TENSORFLOW else {})
