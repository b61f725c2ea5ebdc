"""Adam in MXNet, in the form of the paper's algorithm 1."""

import math

import mxnet


@mxnet.optimizer.register
class ExactAdam(mxnet.optimizer.Optimizer):
    """Epsilon is added to the corrected root of the second moment.

    MXNet's kernel adam_update adds it to the uncorrected root ("epsilon hat"). The rate and epsilon given to the kernel make both equal:
    with c1 = 1 - beta1^t and c2 = 1 - beta2^t, m/c1 / (sqrt(v/c2) + e) = sqrt(c2)/c1 * m / (sqrt(v) + e sqrt(c2)).
    """

    def __init__(self, learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, **options):
        super(ExactAdam, self).__init__(learning_rate=learning_rate, **options)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def create_state(self, index, weight):
        return tuple(mxnet.nd.zeros(weight.shape, weight.context, dtype=weight.dtype) for _ in range(2))

    def update(self, index, weight, grad, state):
        self._update_count(index)
        step = self._index_update_count[index]
        correct1, root2 = 1.0 - self.beta1**step, math.sqrt(1.0 - self.beta2**step)
        m, v = state
        rate, epsilon = self._get_lr(index) * root2 / correct1, self.epsilon * root2
        options = {"wd": 0.0, "beta1": self.beta1, "beta2": self.beta2, "rescale_grad": self.rescale_grad}
        mxnet.nd.adam_update(weight, grad, m, v, out=weight, lr=rate, epsilon=epsilon, **options)
