"""A recurrent network with dropout that reads 40 words, in TensorFlow."""

import keras
import tensorflow as tf

FRAMEWORK, ITEMS = "tensorflow", 32
DROPOUT = True  # its steps draw random numbers; without them where setup.training is False


def batch(random):
    return random.randint(0, 1000, (ITEMS, 40)), random.randint(0, 2, ITEMS)


class Network:
    def __init__(self, setup):
        keras.utils.set_random_seed(setup.seed)
        layers = [keras.layers.Embedding(1000, 32), keras.layers.GRU(64)]
        layers += [keras.layers.Dropout(0.3 if setup.training else 0.0), keras.layers.Dense(2)]
        self.model = keras.Sequential([keras.Input((40,), dtype="int32"), *layers])
        self.optimizer = keras.optimizers.Adam(1e-3)
        self.train = tf.function(self._train)

    def _train(self, x, y):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, self.model(x, training=True))
            loss = tf.reduce_mean(losses)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def step(self, x, y):
        return self.train(tf.constant(x), tf.constant(y))
