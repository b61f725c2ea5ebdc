"""ResNet-50's features in ONNX Runtime: the graph and the session are those of its training package, which computes them alike."""

from bench.frameworks.onnxruntime_training.resnet50_features import Inference

__all__ = ["Inference"]
