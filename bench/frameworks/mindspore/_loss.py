"""The loss of both networks in MindSpore, exact to float32."""

import mindspore as ms
from mindspore import mint


def cross_entropy(logits, labels):
    """(N, C), (N,) -> the mean cross-entropy. The loss takes logits: there is exactly one softmax. Labels are class numbers.

    It is written out, in float64, which costs nothing for so few numbers. mint.nn.functional.cross_entropy calls oneDNN on a CPU, whose
    approximate exponential is wrong by 4e-6 (measured with 2.10.0), ten times float32's own error.
    """
    shifted = (logits - mint.max(logits, 1, True)[0]).astype(ms.float64)
    chosen = mint.gather(shifted, 1, mint.unsqueeze(labels, 1).astype(ms.int64))
    return mint.mean(mint.log(mint.sum(mint.exp(shifted), 1)) - mint.squeeze(chosen, 1))
