"""TensorFlow 1 (tensorflow_v1): a graph built once, a session, placeholders; in TensorFlow 1.15 and in TensorFlow 2's v1 mode."""
