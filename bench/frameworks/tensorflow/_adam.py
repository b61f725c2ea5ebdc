"""TensorFlow's own kernel for Adam, for the form of the paper's algorithm 1."""

import numpy as np
import tensorflow as tf


def corrections(step, beta1, beta2):
    """1 - beta1^step, and the root of 1 - beta2^step. `step` is counted from 1."""
    # By expm1: the subtraction would cost float32 four digits in the first steps.
    return -tf.math.expm1(step * float(np.log(beta1))), tf.sqrt(-tf.math.expm1(step * float(np.log(beta2))))


def update(variable, m, v, gradient, rate, epsilon, beta1, beta2):
    """One step of TensorFlow's own kernel, which reads and writes each array once.

    The kernel corrects its rate by the powers of the betas. It adds epsilon to the uncorrected root of the second moment ("epsilon
    hat"). Here the powers are 0, so that rate and epsilon are taken as they are: the caller has corrected both.
    """
    dtype = variable.dtype
    if dtype == tf.bfloat16:
        # The kernel takes beta2 in the variable's type. There 0.999 is 1, and the second moment would stay 0.
        m.assign_add((gradient - m) * (1 - beta1))
        v.assign_add((gradient * gradient - v) * (1 - beta2))
        variable.assign_sub(rate * m / (tf.sqrt(v) + epsilon))
        return
    rate, epsilon = tf.cast(rate, dtype), tf.cast(epsilon, dtype)
    # Not by tf.cast: some versions make a float32 of a Python number first.
    beta1, beta2 = tf.constant(beta1, dtype), tf.constant(beta2, dtype)
    zero = tf.zeros([], dtype)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=m.handle,
        v=v.handle,
        beta1_power=zero,
        beta2_power=zero,
        lr=rate,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        grad=tf.convert_to_tensor(gradient),
    )
