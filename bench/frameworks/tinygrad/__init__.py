"""tinygrad: lazy tensors, kernels of its own, compiled by clang on a CPU."""
