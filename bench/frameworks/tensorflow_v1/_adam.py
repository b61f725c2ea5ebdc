"""Adam in TensorFlow 1, in the form of the paper's algorithm 1."""

import tensorflow.compat.v1 as tf


class Adam(tf.train.AdamOptimizer):
    """Epsilon is added to the corrected root of the second moment.

    TensorFlow's kernel adds it to the uncorrected root ("epsilon hat"). The epsilon given to the kernel makes both equal.
    """

    def _apply_dense(self, gradient, variable):
        m, v = (self.get_slot(variable, name)._ref() for name in "mv")
        power1, power2 = self._get_beta_accumulators()
        betas = {"beta1": self._beta1_t, "beta2": self._beta2_t, "beta1_power": power1, "beta2_power": power2}
        epsilon = self._epsilon_t * tf.sqrt(1 - power2)
        state = {"var": variable._ref(), "m": m, "v": v, "grad": gradient}
        return tf.raw_ops.ApplyAdam(lr=self._lr_t, epsilon=epsilon, **dict(state, **betas)).op
