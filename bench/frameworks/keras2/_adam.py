"""Adam in Keras 2, as in the paper's algorithm 1."""

from keras import backend as K
from keras.optimizers import Adam


class ExactAdam(Adam):
    """Epsilon is added to the corrected root of the second moment.

    Keras' own adds it to the uncorrected root ("epsilon hat"), where it weighs 30 times as much in the first step. The moments are kept
    without their factors, M = m / (1 - beta_1) and V = v / (1 - beta_2). The factors go into the rate and epsilon, which saves passes over
    every parameter.
    """

    def get_updates(self, loss, params):
        self.updates = [K.update_add(self.iterations, 1)]
        step = K.cast(self.iterations, K.floatx()) + 1
        # The correction of V under the root is taken out of the denominator.
        root = K.sqrt((1.0 - K.pow(self.beta_2, step)) / (1.0 - self.beta_2))
        rate = self.lr * (1.0 - self.beta_1) / (1.0 - K.pow(self.beta_1, step)) * root
        epsilon = self.epsilon * root
        self.weights = [self.iterations]
        for parameter, gradient in zip(params, self.get_gradients(loss, params)):
            m, v = (K.zeros(K.int_shape(parameter), dtype=K.dtype(parameter)) for _ in range(2))
            self.weights += [m, v]
            new_m = self.beta_1 * m + gradient
            new_v = self.beta_2 * v + K.square(gradient)
            change = rate * (new_m / (K.sqrt(new_v) + epsilon))
            self.updates += [K.update(m, new_m), K.update(v, new_v), K.update(parameter, parameter - change)]
        return self.updates
