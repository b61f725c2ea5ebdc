"""ONNX Runtime as most people have it: the package for inference, without the gradient builder."""
