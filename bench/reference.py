"""The float64 reference: layers, their gradients and the optimisers in plain NumPy, readable rather than fast.

Each layer returns its output and what its gradient needs. Every output passes through `rounding`, which is the identity for
the reference itself, and a model of finite precision when the bounds of the parity check are derived (bench.arithmetic).
"""

import numpy as np

# -- convolution network ---------------------------------------------------------------------------------------------


def windows(x, size, pad, stride=1, fill=0.0):
    """(N, C, H, W) -> view (N, H', W', C, size, size): what each position of a kernel sees, in (C, kh, kw) order."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="constant", constant_values=fill)
    n, c, h, w = x.shape
    rows, columns = (h - size) // stride + 1, (w - size) // stride + 1
    s = x.strides
    strides = (s[0], s[2] * stride, s[3] * stride, s[1], s[2], s[3])
    return np.lib.stride_tricks.as_strided(x, (n, rows, columns, c, size, size), strides, writeable=False)


def conv2d(x, w, b, pad, rounding, stride=1):
    """Cross-correlation. x (N, C, H, W), w (O, C, k, k), b (O,) or 0 -> (N, O, H', W')."""
    x, w, b = rounding.operand(x), rounding.operand(w), rounding.operand(b)
    receptive = windows(x, w.shape[2], pad, stride)
    patches = receptive.reshape(-1, w[0].size)
    flat = rounding.product(patches, w.reshape(w.shape[0], -1).T, b)
    y = flat.reshape(receptive.shape[:3] + (w.shape[0],)).transpose(0, 3, 1, 2)
    return y, (patches, w, pad, stride, x.shape)


def conv2d_gradient(dy, cache, rounding, need_dx=True):
    """Gradients (dx, dw, db) of a convolution; dx is None where it is not needed (the network's input)."""
    patches, w, pad, stride, shape = cache
    size = w.shape[2]
    dy = rounding.operand(dy)
    flat = dy.transpose(0, 2, 3, 1).reshape(-1, w.shape[0])
    dw = rounding.product(flat.T, patches).reshape(w.shape)
    db = rounding.bias_gradient(flat)
    dx = None
    if need_dx:
        # The transposed convolution: correlate dy with the kernel turned by 180 degrees, channels swapped.
        turned = np.ascontiguousarray(w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))
        rows, columns = (length + 2 * pad - size + 1 for length in shape[2:])  # places of the kernel at stride 1
        spread = np.zeros(dy.shape[:2] + (rows, columns), dy.dtype)
        spread[:, :, ::stride, ::stride] = dy
        dx, _ = conv2d(spread, turned, 0.0, size - 1 - pad, rounding)
    return dx, dw, db


def batch_norm(x, scale, shift, mean, variance, epsilon, rounding):
    """Batch normalisation with running statistics, as in inference. x (N, C, H, W), the rest (C,)."""
    factor = rounding.elementwise(scale / np.sqrt(variance + epsilon))
    return rounding.elementwise((x - mean[:, None, None]) * factor[:, None, None] + shift[:, None, None])


def batch_norm_training(x, scale, shift, epsilon, rounding):
    """Batch normalisation with the batch's own mean and biased variance: (y, mean, variance, cache)."""
    many = x.size // x.shape[1]
    mean = rounding.sum(x, (0, 2, 3)) / many
    centred = x - mean[:, None, None]
    variance = rounding.sum(centred * centred, (0, 2, 3)) / many
    inverse = rounding.elementwise(1.0 / np.sqrt(variance + epsilon))
    normal = centred * inverse[:, None, None]
    y = rounding.elementwise(normal * scale[:, None, None] + shift[:, None, None])
    return y, mean, variance, (normal, inverse * scale)


def batch_norm_gradient(dy, cache, rounding):
    """Gradients (dx, dscale, dshift) of batch_norm_training: the mean and the variance depend on x as well."""
    normal, factor = cache
    many = dy.size // dy.shape[1]
    dscale = rounding.sum(dy * normal, (0, 2, 3))
    dshift = rounding.sum(dy, (0, 2, 3))
    through = (dshift[:, None, None] + normal * dscale[:, None, None]) / many
    return rounding.elementwise(factor[:, None, None] * (dy - through)), dscale, dshift


def mean_pool(x):
    """2 x 2, stride 2, no padding. x (N, C, H, W) with even H and W."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).mean(axis=(3, 5))


def mean_pool_gradient(dy):
    return dy.repeat(2, axis=2).repeat(2, axis=3) / 4.0


def max_pool_overlapping(x):
    """3 x 3, stride 2, padding 1. x (N, C, H, W) with even H and W."""
    pools = windows(x, 3, 1, 2, fill=-np.inf)
    pools = pools.reshape(pools.shape[:4] + (9,)).transpose(0, 3, 1, 2, 4)
    return pools.max(axis=-1), (pools.argmax(axis=-1), x.shape)


def max_pool_overlapping_gradient(dy, cache):
    where, (n, c, h, w) = cache
    padded = np.zeros((n, c, h + 2, w + 2), dy.dtype)
    for place in range(9):
        row, column = divmod(place, 3)
        padded[:, :, row : row + h : 2, column : column + w : 2] += dy * (where == place)
    return padded[:, :, 1:-1, 1:-1]


def max_pool(x):
    """2 x 2, stride 2, no padding: a last row or column that makes no pair is left out. x (N, C, H, W)."""
    n, c, h, w = x.shape[:2] + (x.shape[2] // 2, x.shape[3] // 2)
    blocks = x[:, :, : 2 * h, : 2 * w].reshape(n, c, h, 2, w, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h, w, 4)
    where = blocks.argmax(axis=-1)
    return np.take_along_axis(blocks, where[..., None], -1)[..., 0], (where, x.shape)


def max_pool_gradient(dy, cache):
    where, shape = cache
    n, c, h, w = where.shape
    blocks = np.zeros(where.shape + (4,), dy.dtype)
    np.put_along_axis(blocks, where[..., None], dy[..., None], -1)
    dx = np.zeros(shape, dy.dtype)
    pairs = blocks.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w)
    dx[:, :, : 2 * h, : 2 * w] = pairs
    return dx


def dense(x, w, b, rounding):
    """x (N, in), w (out, in), b (out,) -> (N, out)."""
    x, w, b = rounding.operand(x), rounding.operand(w), rounding.operand(b)
    return rounding.product(x, w.T, b), (x, w)


def dense_gradient(dy, cache, rounding):
    x, w = cache
    dy = rounding.operand(dy)
    return rounding.product(dy, w), rounding.product(dy.T, x), rounding.bias_gradient(dy)


def softmax_cross_entropy(logits, labels, rounding):
    """Mean over the batch of -log softmax(logits)[label]; returns (loss, gradient of the logits, times the loss scale)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    loss = -log_p[rows, labels].mean()
    d = rounding.elementwise(np.exp(log_p))
    d[rows, labels] -= 1.0
    return float(rounding.elementwise(np.array(loss))), rounding.scale * d / len(labels)


def sigmoid_cross_entropy(logits, labels, rounding):
    """Mean over batch and classes of the binary cross-entropy of sigmoid(logits); returns as softmax_cross_entropy does."""
    losses = np.maximum(logits, 0.0) - logits * labels + np.log1p(np.exp(-np.abs(logits)))
    d = rounding.elementwise(sigmoid(logits)) - labels
    return float(rounding.elementwise(np.array(losses.mean()))), rounding.scale * d / labels.size


# -- recurrent network -----------------------------------------------------------------------------------------------


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def gru(x, w, b, u, c, rounding):
    """The GRU that cuDNN computes (reset gate after the recurrent product). x (T, N, in) -> last state (N, H).

    w (3H, in), u (3H, H), b and c (3H,), gates stacked r, z, n; the initial state is zero.
    """
    size = u.shape[1]
    # Without fusion every operation between the products stores its result in the half type.
    half = rounding.half
    x, w, b, u, c = (rounding.operand(factor) for factor in (x, w, b, u, c))
    h = np.zeros((x.shape[1], size), x.dtype)
    steps = []
    for x_t in x:
        gi = rounding.product(x_t, w.T, b)
        gh = rounding.product(h, u.T, c)
        r = half(rounding.elementwise(sigmoid(half(gi[:, :size] + gh[:, :size]))))
        z = half(rounding.elementwise(sigmoid(half(gi[:, size : 2 * size] + gh[:, size : 2 * size]))))
        n = half(rounding.tanh(half(gi[:, 2 * size :] + half(r * gh[:, 2 * size :]))))
        steps.append((x_t, h, r, z, n, gh[:, 2 * size :]))
        h = half(rounding.elementwise(half(half(1.0 - z) * n) + half(z * h)))
    return h, (steps, w, u)


def gru_gradient(dh, cache, rounding):
    """Gradients (dx, dw, db, du, dc) from the gradient of the last state, back through time."""
    steps, w, u = cache
    half = rounding.half
    inputs, states, d_inputs, d_states = [], [], [], []
    for x_t, h, r, z, n, ghn in reversed(steps):
        dn = half(half(dh * half(1.0 - z)) * half(1.0 - n * n))
        dz = half(half(half(dh * h) - half(dh * n)) * half(z * half(1.0 - z)))
        dr = half(half(dn * ghn) * half(r * half(1.0 - r)))
        d_gi = np.concatenate([dr, dz, dn], axis=1)
        d_gh = np.concatenate([dr, dz, half(dn * r)], axis=1)
        inputs.append(x_t)
        states.append(h)
        d_inputs.append(d_gi)
        d_states.append(d_gh)
        dh = half(half(rounding.elementwise(dh * z)) + rounding.product(d_gh, u))
    x, h = np.concatenate(inputs), np.concatenate(states)
    d_gi, d_gh = np.concatenate(d_inputs), np.concatenate(d_states)
    dx = rounding.product(d_gi, w).reshape(len(steps), -1, w.shape[1])[::-1]
    return (
        dx,
        rounding.product(d_gi.T, x),
        rounding.bias_gradient(d_gi),
        rounding.product(d_gh.T, h),
        rounding.bias_gradient(d_gh),
    )


# -- transformer -----------------------------------------------------------------------------------------------------


def layer_norm(x, scale, shift, epsilon, rounding):
    """Normalisation of each row by its own mean and biased variance. x (N, C), scale and shift (C,) -> (y, cache)."""
    centred = x - rounding.sum(x, (1,))[:, None] / x.shape[1]
    variance = rounding.sum(centred * centred, (1,)) / x.shape[1]
    inverse = rounding.elementwise(1.0 / np.sqrt(variance + epsilon))[:, None]
    normal = rounding.elementwise(centred * inverse)
    return rounding.elementwise(normal * scale + shift), (normal, inverse, scale)


def layer_norm_gradient(dy, cache, rounding):
    """Gradients (dx, dscale, dshift)."""
    normal, inverse, scale = cache
    d = dy * scale
    through = rounding.sum(d, (1,))[:, None] + normal * rounding.sum(d * normal, (1,))[:, None]
    dx = rounding.elementwise(inverse * (d - through / dy.shape[1]))
    return dx, rounding.sum(dy * normal, (0,)), rounding.sum(dy, (0,))


GELU_FACTOR, GELU_CUBE = np.sqrt(2.0 / np.pi), 0.044715


def gelu(x, rounding):
    """GELU by the hyperbolic tangent, as GPT-2 has it (Hendrycks and Gimpel 2016, the approximation): (y, cache)."""
    tanh = np.tanh(float(GELU_FACTOR) * (x + GELU_CUBE * x**3))
    return rounding.half(rounding.elementwise(0.5 * x * (1.0 + tanh))), (x, tanh)


def gelu_gradient(dy, cache, rounding):
    x, tanh = cache
    slope = float(GELU_FACTOR) * (1.0 + 3.0 * GELU_CUBE * x * x)
    return rounding.half(rounding.elementwise(dy * 0.5 * (1.0 + tanh + x * (1.0 - tanh * tanh) * slope)))


def rms_norm(x, scale, epsilon, rounding):
    """Each row by the root of its mean square (Zhang and Sennrich 2019). x (N, C), scale (C,) -> (y, cache)."""
    square = rounding.sum(x * x, (1,)) / x.shape[1]
    inverse = rounding.elementwise(1.0 / np.sqrt(square + epsilon))[:, None]
    normal = rounding.elementwise(x * inverse)
    return rounding.elementwise(normal * scale), (normal, inverse, scale)


def rms_norm_gradient(dy, cache, rounding):
    """Gradients (dx, dscale)."""
    normal, inverse, scale = cache
    d = dy * scale
    through = normal * rounding.sum(d * normal, (1,))[:, None] / dy.shape[1]
    return rounding.elementwise(inverse * (d - through)), rounding.sum(dy * normal, (0,))


def rotation(length, size, base, rounding):
    """(cosine, sine) (length, size / 2) of the angles t base^(-2 i / size), i < size / 2 (Su et al. 2021).

    A float32 angle is rounded like any number, and the largest has many radians: so a table of float32 is off by 1e-5.
    """
    frequencies = rounding.elementwise(float(base) ** (-np.arange(0, size, 2) / float(size)))
    angles = rounding.elementwise(np.arange(length)[:, None] * frequencies)
    return rounding.elementwise(np.cos(angles)), rounding.elementwise(np.sin(angles))


def rotate(x, cosine, sine, rounding):
    """Number i of each row (T, size) and number i + size / 2 as a pair, turned by the position's angle i. -sine turns back."""
    half = x.shape[1] // 2
    a, b = x[:, :half], x[:, half:]
    return rounding.elementwise(np.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=1))


def swiglu(gate, up, rounding):
    """silu(gate) up, silu(x) = x sigmoid(x) (Shazeer 2020): (y, cache)."""
    slope = sigmoid(gate)
    silu = rounding.half(rounding.elementwise(gate * slope))
    return rounding.half(rounding.elementwise(silu * up)), (gate, up, slope, silu)


def swiglu_gradient(dy, cache, rounding):
    """Gradients (dgate, dup)."""
    gate, up, slope, silu = cache
    dgate = dy * up * slope * (1.0 + gate * (1.0 - slope))
    return rounding.half(rounding.elementwise(dgate)), rounding.half(rounding.elementwise(dy * silu))


def softmax(x, rounding):
    """Of each row of x (N, C)."""
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    return rounding.elementwise(weights / rounding.sum(weights, (1,))[:, None])


def causal_attention(q, k, v, rounding):
    """softmax(q k' / sqrt(D)) v, each position over itself and those before it. q, k, v (T, D) of one head -> (T, D)."""
    q, k, v = (rounding.operand(factor) for factor in (q, k, v))
    factor = 1.0 / float(np.sqrt(q.shape[1]))
    scores = rounding.product(q, k.T) * factor
    scores[np.triu_indices(len(q), 1)] = -np.inf
    weights = softmax(scores, rounding)
    return rounding.product(rounding.operand(weights), v), (q, k, v, weights, factor)


def causal_attention_gradient(dy, cache, rounding):
    """Gradients (dq, dk, dv)."""
    q, k, v, weights, factor = cache
    dy = rounding.operand(dy)
    dv = rounding.product(rounding.operand(weights).T, dy)
    d = rounding.product(dy, v.T)
    d = rounding.elementwise(weights * (d - rounding.sum(weights * d, (1,))[:, None])) * factor
    d = rounding.operand(d)
    return rounding.product(d, k), rounding.product(d.T, q), dv


# -- optimisers ------------------------------------------------------------------------------------------------------


class Momentum(object):
    """v <- m v + g + d w; w <- w - lr v: no unit gain, no dampening, no Nesterov; d is the weight decay, and `rate` may change."""

    def __init__(self, rate, momentum, decay=0.0):
        self.rate, self.momentum, self.decay, self.v = rate, momentum, decay, {}

    def update(self, parameters, gradients, rounding):
        for name, g in gradients.items():
            g = g + self.decay * parameters[name]
            self.v[name] = rounding.elementwise(self.momentum * self.v.get(name, 0.0) + g)
            parameters[name] = rounding.stored(parameters[name], parameters[name] - self.rate * self.v[name])


class Adam(object):
    """Kingma and Ba 2015, algorithm 1: bias-corrected moments, epsilon outside the square root.

    decay: of AdamW (Loshchilov and Hutter 2019), decoupled: w <- w - rate decay w, of tensors of two axes and more.
    """

    def __init__(self, rate, beta1, beta2, epsilon, decay=0.0):
        self.rate, self.beta1, self.beta2, self.epsilon, self.decay = rate, beta1, beta2, epsilon, decay
        self.step, self.m, self.v = 0, {}, {}

    def update(self, parameters, gradients, rounding):
        self.step += 1
        correction1 = rounding.difference(1.0 - self.beta1**self.step)
        correction2 = rounding.difference(1.0 - self.beta2**self.step)
        for name, g in gradients.items():
            self.m[name] = self.beta1 * self.m.get(name, 0.0) + (1.0 - self.beta1) * g
            self.v[name] = self.beta2 * self.v.get(name, 0.0) + (1.0 - self.beta2) * g * g
            m = self.m[name] / correction1
            v = self.v[name] / correction2
            moved = self.rate * rounding.elementwise(m / (np.sqrt(v) + self.epsilon))
            if self.decay and parameters[name].ndim > 1:
                moved = moved + self.rate * self.decay * parameters[name]
            parameters[name] = rounding.stored(parameters[name], parameters[name] - moved)
