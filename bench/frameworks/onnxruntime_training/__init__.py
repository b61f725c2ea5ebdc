"""ONNX Runtime, CNTK's successor, for training: a graph of ONNX operators, with a gradient from ONNX Runtime's own builder."""
