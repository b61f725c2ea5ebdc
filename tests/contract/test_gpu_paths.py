"""What an adapter does only on a GPU computes the same, as far as a CPU can do it: JAX's donated memory, TensorFlow's channels first."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow

JAX, TENSORFLOW = "jax-0.10.2-cpu", "tensorflow-2.21.0-cpu"
ALWAYS = [
    (JAX, "jax", "mlp-mnist"),
    (JAX, "keras_jax", "mlp-mnist"),
    (TENSORFLOW, "tensorflow", "cnn-mnist"),
    (TENSORFLOW, "keras_tensorflow", "cnn-mnist"),
    (TENSORFLOW, "tensorflow_v1", "cnn-mnist"),
]
# These take longer.
LARGER = [(JAX, "jax", "cnn-mnist"), (JAX, "jax", "cnn-cifar10"), (TENSORFLOW, "tensorflow", "cnn-cifar10")]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("image", "framework", "workload"), [*ALWAYS, *LARGER])
def test_what_a_framework_does_only_on_a_gpu_computes_the_same(
    run_in: Callable[..., str], image: str, framework: str, workload: str
) -> None:
    if (image, framework, workload) not in ALWAYS and os.environ.get("DLBENCH_CURVES") != "all":
        pytest.skip("one network of each framework is always checked; DLBENCH_CURVES=all checks the others")
    verdict = json.loads(run_in(image, "gpu_paths.py", framework, workload).splitlines()[-1])
    assert verdict["taken"]
    assert verdict["failed"] == []
    assert verdict["worst"] <= 1
