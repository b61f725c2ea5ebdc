"""The 2 x 2 maximum in MXNet, with the right gradient on every device."""

from mxnet import gluon


def max_pool(F, x, on_gpu, odd=False):
    """N, C, H, W -> N, C, H/2, W/2; F is mx.nd or mx.sym. If H and W are `odd`, the last row and column are left out.

    On a GPU this is cuDNN's pooling. On a CPU Pooling is oneDNN's, whose gradient is wrong in MXNet 1.9.1 after a convolution: it goes
    to the wrong places, and conv4.w's gradient is off by half its norm (measured with and without static memory, for every
    instruction set). The larger of every two rows, then of every two columns, has the right gradient.
    """
    if on_gpu:
        # The stride is explicit: defaults differ among frameworks.
        return F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
    return larger_of_pairs(F, larger_of_pairs(F, x, 2, odd), 3, odd)


def larger_of_pairs(F, x, axis, odd):
    """The larger of every two neighbours along an axis, which becomes half as long."""

    def every_other(first):
        begin, end, step = [None] * 4, [None] * 4, [1] * 4
        begin[axis], step[axis] = first, 2
        end[axis] = -1 if odd and first == 0 else None
        return F.slice(x, begin=begin, end=end, step=step)

    return F.broadcast_maximum(every_other(0), every_other(1))


class MaxPool(gluon.HybridBlock):
    def __init__(self, context, odd=False):
        super().__init__()
        self.on_gpu, self.odd = context.device_type == "gpu", odd

    def hybrid_forward(self, F, x):
        return max_pool(F, x, self.on_gpu, self.odd)
