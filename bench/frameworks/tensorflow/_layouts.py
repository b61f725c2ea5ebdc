"""TensorFlow's layouts of parameters and of padding."""


def to_own(value):
    """A canonical parameter in TensorFlow's layout: kernels (kh, kw, in, out), dense (in, out)."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def canonical(value):
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T


def padding(size, order):
    """Padding is explicit: with stride 2 "SAME" pads one row less before than after, or none."""
    image, none = [[size, size]] * 2, [[0, 0]]
    return none * 2 + image if order == "NCHW" else none + image + none
