"""Causal attention in PyTorch: scaled_dot_product_attention with its own choice or with one backend allowed, and written out.

Idiomatic here: q, k and v are views with the heads first of what a projection leaves. sdpa_kernel allows one backend, and PyTorch raises
an error if that one cannot do it. Its warnings then say why. The written form is the "eager" one of Hugging Face's Transformers: the key
heads are repeated, and the softmax is in fp32.
"""

import functools
import warnings

import torch
import torch.nn.functional as F

from bench.errors import Unsupported

# The end of the operation's name -> the member of SDPBackend.
BACKENDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}


def function(operation):
    """The function of (q, k, v) for a name such as attention_d64_flash. Raises Unsupported."""
    if operation.endswith("_written"):
        return written
    if not hasattr(F, "scaled_dot_product_attention"):
        raise Unsupported(
            "PyTorch %s has no scaled_dot_product_attention; PyTorch 2.0 is the first" % torch.__version__
        )
    backend = BACKENDS.get(operation.rpartition("_")[2])
    if backend is None:
        return fused
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        return functools.partial(allowing, sdpa_kernel, getattr(SDPBackend, backend))
    except (ImportError, AttributeError):
        raise Unsupported("PyTorch %s has no torch.nn.attention.SDPBackend.%s" % (torch.__version__, backend))


def written(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[3] ** -0.5
    seen = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril()
    scores = scores.masked_fill(~seen, float("-inf"))
    exact = scores.dtype if scores.dtype == torch.float64 else torch.float32
    weights = F.softmax(scores, -1, dtype=exact).to(q.dtype)
    return torch.matmul(weights, v).transpose(1, 2)


def fused(q, k, v):
    grouped = {"enable_gqa": True} if q.shape[2] > k.shape[2] else {}
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped).transpose(1, 2)


def allowing(sdpa_kernel, backend, q, k, v):
    with sdpa_kernel(backend):
        return fused(q, k, v)


def kernel(operation, make):
    """The kernel of the run that `make` makes, such as "flash attention". Raises Unsupported.

    It is the fused operator that PyTorch's dispatcher gets from the run. "math", SDPBackend's word, is products and softmax one by one.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            names = _dispatched(make)
        except TypeError as error:
            if "enable_gqa" not in str(error):
                raise
            raise Unsupported("PyTorch %s has no enable_gqa; PyTorch 2.5 is the first" % torch.__version__)
        except RuntimeError as error:
            # Only a person who allows a single backend gets an error instead of another backend.
            if operation.rpartition("_")[2] not in BACKENDS or "out of memory" in str(error).lower():
                raise
            reasons = [str(warning.message).partition(" (Triggered")[0] for warning in told]
            raise Unsupported("; ".join([str(error).partition("\n")[0]] + reasons)[:1000])
    prefix = "_scaled_dot_product_"
    fused_names = [name for name in names if name.startswith(prefix) and "backward" not in name]
    return fused_names[0][len(prefix) :].replace("_", " ") if fused_names else "math"


def _dispatched(make):
    from torch.utils._python_dispatch import TorchDispatchMode

    names = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, arguments=(), options=None):
            names.append(operator.__name__.partition(".")[0])
            return operator(*arguments, **(options or {}))

    with Names():
        make()()
    return names
