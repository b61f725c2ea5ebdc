"""Adam in Keras 2, in the form of the paper's algorithm 1."""

from keras import backend as K
from keras.optimizers import Adam


class ExactAdam(Adam):
    """Epsilon is added to the corrected root of the second moment.

    Keras' own adds it to the uncorrected one ("epsilon hat"), which makes it 30 times as large in the first step.
    """

    def get_updates(self, loss, params):
        self.updates = [K.update_add(self.iterations, 1)]
        step = K.cast(self.iterations, K.floatx()) + 1
        correct1, correct2 = 1.0 - K.pow(self.beta_1, step), 1.0 - K.pow(self.beta_2, step)
        self.weights = [self.iterations]
        for parameter, gradient in zip(params, self.get_gradients(loss, params)):
            m, v = (K.zeros(K.int_shape(parameter), dtype=K.dtype(parameter)) for _ in range(2))
            self.weights += [m, v]
            new_m = self.beta_1 * m + (1.0 - self.beta_1) * gradient
            new_v = self.beta_2 * v + (1.0 - self.beta_2) * K.square(gradient)
            change = self.lr * (new_m / correct1) / (K.sqrt(new_v / correct2) + self.epsilon)
            self.updates += [K.update(m, new_m), K.update(v, new_v), K.update(parameter, parameter - change)]
        return self.updates
