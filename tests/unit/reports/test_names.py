"""One name for each cell, everywhere that people read: the framework, its version and CUDA."""

from __future__ import annotations

import pytest

from reports.wording import cell_name, device_name, framework_name, gpu_name
from runner.text import visible


@pytest.mark.parametrize(
    ("image", "framework", "name"),
    [
        ("torch-2.9.1-cu128", "torch", "PyTorch 2.9.1 · CUDA 12.8"),
        ("torch-2.13.0-cpu", "torch", "PyTorch 2.13.0"),
        ("tensorflow-2.21.0-cu128", "tensorflow", "TensorFlow 2.21.0 · CUDA 12.8"),
        ("tensorflow-1.15.5-cu100", "tensorflow_v1", "TensorFlow 1.15.5 · CUDA 10.0"),
        ("tensorflow-2.21.0-cpu", "tensorflow_v1", "TensorFlow 1 on 2.21.0"),
        ("jax-0.12.0.1-cu132", "keras_jax", "Keras on JAX 0.12.0.1 · CUDA 13.2"),
        ("cntk-2.7-cu100", "keras2_cntk", "Keras 2 on CNTK 2.7 · CUDA 10.0"),
        ("theano-1.0.5-cpu", "lasagne", "Lasagne on Theano 1.0.5"),
        ("onnxruntime-1.26.0-cu128", "onnxruntime", "ONNX Runtime inference 1.26.0 · CUDA 12.8"),
        ("onnxruntime-training-1.19.2-cpu", "onnxruntime_training", "ONNX Runtime 1.19.2"),
        ("my-own", "torch", "my-own · PyTorch"),
        ("torch-night", "torch", "torch-night"),
        ("<b>", "torch", "<b> · PyTorch"),
    ],
)
def test_an_image_is_named_by_framework_version_and_cuda(image: str, framework: str, name: str) -> None:
    assert cell_name(image, framework, "default") == cell_name(image, framework, None) == name
    assert cell_name(image, framework, "eager") == f"{name} · eager"


def test_no_name_holds_a_comma_because_names_are_listed_with_commas() -> None:
    assert framework_name("onnxruntime") == "ONNX Runtime inference"


def test_a_gpu_is_named_by_its_index_and_the_last_four_characters_of_its_uuid() -> None:
    devices = [{"index": 5, "uuid": "GPU-00000003-1111-4af1"}, {"index": "6", "uuid": "GPU-x"}]
    assert gpu_name("GPU-00000003-1111-4af1", devices) == "GPU 5 (4af1)"
    assert gpu_name("GPU-00000003-1111-9999", devices) == "GPU 9999"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4"),
        ("NVIDIA H200", "H200"),
        ("Intel(R) Xeon(R) Processor @ 2.10GHz", "Xeon Processor"),
        ("NVIDIA", "NVIDIA"),
    ],
)
def test_a_device_is_named_without_its_maker_and_its_memory(model: str, name: str) -> None:
    assert device_name(model) == name


def test_a_cut_text_keeps_its_commas() -> None:
    assert visible("a, b, " * 1000, 6) == "a, b,  … [cut: 6 000 characters in all]"
