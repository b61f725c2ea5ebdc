"""Each framework is measured as its documents run it: what the parity check cannot see, read in the environment of its image."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TORCH, TENSORFLOW = "torch-2.13.0-cpu", "tensorflow-2.21.0-cpu"
Asked = Callable[..., Any]


@pytest.fixture
def asked(run_in: Callable[..., str]) -> Asked:
    return lambda image, *question: json.loads(run_in(image, "fairness.py", *question).splitlines()[-1])


@pytest.mark.timeout(1200)
def test_on_a_gpu_keras_compiles_by_xla_what_its_own_auto_would(asked: Asked) -> None:
    """cuDNN's GRU has no kernel for XLA: a step that XLA compiled would fail."""
    assert asked(TENSORFLOW, "keras_tensorflow", "compiled_by_xla") == {"gru-imdb": False, "mlp-mnist": True}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("framework", ["tensorflow", "keras_tensorflow"])
def test_on_a_cpu_xla_compiles_the_gru_and_not_the_cnn(asked: Asked, framework: str) -> None:
    """The GRU's step takes three quarters of the time with XLA, the CNN's three times as long."""
    compiled = asked(TENSORFLOW, framework, "compiled_on_a_cpu")
    assert compiled == {"gru-imdb": True, "mlp-mnist": False, "cnn-cifar10": False}


@pytest.mark.timeout(1200)
def test_pytorch_s_adam_is_one_fused_kernel_except_with_a_loss_scale(asked: Asked) -> None:
    fused = asked(TORCH, "torch", "fused_adam")
    assert {cell for cell, yes in fused.items() if not yes} == {"gru-imdb amp-fp16"}


@pytest.mark.timeout(1200)
def test_pytorch_s_gru_takes_time_first(asked: Asked) -> None:
    assert asked(TORCH, "torch", "time_first") is True


@pytest.mark.timeout(1200)
def test_keras_on_pytorch_updates_all_variables_in_the_same_calls(asked: Asked) -> None:
    calls = asked(TORCH, "keras_torch", "calls_of_torch")
    assert set(calls) == {"Adam", "Momentum"}
    for name, (few, many) in calls.items():
        assert few == many < 60, name


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("framework", ["tensorflow", "keras_tensorflow"])
def test_tensorflow_updates_each_variable_by_its_own_kernel_for_adam(asked: Asked, framework: str) -> None:
    updated, variables = asked(TENSORFLOW, framework, "kernels_of_tensorflow")
    assert updated == variables == 4


@pytest.mark.timeout(1200)
def test_tensorflow_1_has_the_images_of_mnist_on_the_device(asked: Asked) -> None:
    fed = asked("tensorflow-1.15.5-cpu", "tensorflow_v1", "bytes_fed")
    assert set(fed) == {"mlp-mnist", "cnn-mnist"}
    assert all(size < 1000 for size in fed.values()), "four images are 12 544 bytes"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("framework", ["torch", "keras_torch"])
def test_pytorch_s_pictures_lie_channels_last(asked: Asked, framework: str) -> None:
    assert asked(TORCH, framework, "channels_last") is True


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("image", "framework", "at_tf32"),
    [
        (TORCH, "torch", "channels_last"),
        (TORCH, "keras_torch", "channels_last"),
        (TENSORFLOW, "tensorflow", "contiguous_format"),
    ],
)
def test_on_a_gpu_the_table_of_layouts_is_followed(asked: Asked, image: str, framework: str, at_tf32: str) -> None:
    orders = {"fp32": "contiguous_format", "tf32": at_tf32, "amp-bf16": "channels_last"}
    assert asked(image, framework, "layouts_on_a_gpu") == orders


@pytest.mark.timeout(1200)
def test_pytorch_takes_the_strides_of_one_channel_for_channels_last(asked: Asked) -> None:
    """In channels-first order the channel's stride would be the image's 784."""
    assert asked(TORCH, "torch", "strides_of_mnist") == [1, 28, 1]
