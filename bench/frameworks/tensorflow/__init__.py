"""TensorFlow 2 (tensorflow) with Keras 3 layers and a training step under tf.function."""
