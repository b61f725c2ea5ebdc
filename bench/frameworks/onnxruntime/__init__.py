"""ONNX Runtime as most people install it: the package for inference, without the gradient builder."""
