"""XLA compiles a network for seconds, so JAX's parity check compiles its forward and backward pass once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_the_steps_of_the_parity_check_run_the_gradients_that_were_compiled_for_it(run_in: Callable[..., str]) -> None:
    printed = json.loads(run_in("jax-0.10.2-cpu", "jax_compilations.py").splitlines()[-1])
    # The logits, the loss, and the gradient and the movement of each of twelve tensors.
    assert (printed["passed"], printed["rows"]) == (True, 26)
    assert printed["compiled"] == {"gradients": 1, "update": 1, "train_step": 0, "logits": 0}


@pytest.mark.parametrize("framework", ["jax", "keras_jax"])
@pytest.mark.timeout(600)
def test_what_is_only_checked_is_read_where_it_was_compiled_before_and_a_measured_function_is_always_compiled(
    run_in: Callable[..., str], tmp_path: Path, framework: str
) -> None:
    first, second = (
        json.loads(run_in("jax-0.10.2-cpu", "jax_remembered.py", framework, str(tmp_path)).splitlines()[-1])
        for _ in range(2)
    )
    # Keras compiles a function twice, so its first check reads some, too.
    for phase in ("parity", "proof"):
        assert second["read"][phase] > first["read"].get(phase, 0)
    assert set(second["read"]) == {"parity", "proof"}
    # The same program, to the last digit.
    assert second["errors"] == first["errors"]
    assert first["refused"] == second["refused"] == []
