"""ONNX Runtime, CNTK's successor, training: a graph of ONNX operators, its gradient made by ONNX Runtime's own builder."""
