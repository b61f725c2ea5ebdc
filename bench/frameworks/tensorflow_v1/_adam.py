"""Adam in TensorFlow 1, in the form of the paper's algorithm 1."""

import tensorflow.compat.v1 as tf


class Adam(tf.train.AdamOptimizer):
    """Epsilon is added to the corrected root of the second moment.

    TensorFlow's kernel adds it to the uncorrected root ("epsilon hat"). The epsilon given to the kernel makes both equal.
    """

    def _apply_dense(self, gradient, variable):
        beta1_power, beta2_power = self._get_beta_accumulators()
        return tf.raw_ops.ApplyAdam(
            var=variable._ref(),
            m=self.get_slot(variable, "m")._ref(),
            v=self.get_slot(variable, "v")._ref(),
            beta1_power=beta1_power,
            beta2_power=beta2_power,
            lr=self._lr_t,
            beta1=self._beta1_t,
            beta2=self._beta2_t,
            epsilon=self._epsilon_t * tf.sqrt(1 - beta2_power),
            grad=gradient,
        ).op
