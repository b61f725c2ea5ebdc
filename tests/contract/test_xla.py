"""XLA has no kernel for cuDNN's GRU: where TensorFlow has a GPU, no network that takes this GRU is compiled by XLA."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_xla_compiles_no_network_with_cudnn_s_gru(run_in: Callable[..., str]) -> None:
    found = json.loads(run_in("tensorflow-2.21.0-cpu", "xla_choice.py").splitlines()[-1])
    assert found == {
        "keras_tensorflow gru-imdb": False,
        "keras_tensorflow mlp-mnist": True,
        "keras_tensorflow cnn-cifar10": True,
        "tensorflow gru-imdb default: cuDNN": "auto",
        "tensorflow gru-imdb xla: cuDNN": False,
    }
