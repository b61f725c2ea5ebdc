"""TensorFlow 1's published way: mnist_deep.py of its tutorials, release 1.8, and for the GRU the dynamic_rnn of its text classification.

As there: variables, tf.nn operations on N, H, W, C, a cell of contrib, sparse labels, and session.run in each step. The mini-batches come
from tf.data, as the guide "Importing Data" has it, and not from a feed_dict. Other than there: this benchmark's layers and optimisers,
CudnnCompatibleGRUCell for GRUCell, and every mini-batch the same.
"""

import numpy as np
import tensorflow.compat.v1 as tf


def loop(setup, network, optimizer, x, y):
    with tf.Graph().as_default():
        x_, y_ = tf.placeholder(x.dtype, x.shape), tf.placeholder(tf.int64, y.shape)
        iterator = tf.data.make_initializable_iterator(tf.data.Dataset.from_tensors((x_, y_)).repeat().prefetch(1))
        features, labels = iterator.get_next()
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=network(features)))
        train = optimizer.minimize(loss)
        session = tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=setup.threads))
        session.run(tf.global_variables_initializer())
        session.run(iterator.initializer, feed_dict={x_: x, y_: y})
    return lambda: session.run(train)


def weight(shape):
    return tf.Variable(tf.truncated_normal(shape, stddev=0.1))


def bias(size):
    return tf.Variable(tf.constant(0.1, shape=[size]))


def conv(x, inputs, outputs):
    convolved = tf.nn.conv2d(x, weight([3, 3, inputs, outputs]), strides=[1, 1, 1, 1], padding="SAME")
    return tf.nn.relu(convolved + bias(outputs))


def pool(x):
    return tf.nn.max_pool(x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")


def deepnn(x):
    h = tf.nn.dropout(pool(conv(conv(x, 3, 50), 50, 50)), rate=0.25)
    h = tf.nn.dropout(pool(conv(conv(h, 50, 100), 100, 100)), rate=0.25)
    h = tf.nn.relu(tf.matmul(tf.reshape(h, [-1, 6400]), weight([6400, 512])) + bias(512))
    return tf.matmul(tf.nn.dropout(h, rate=0.5), weight([512, 10])) + bias(10)


def mnist(x):
    h = tf.nn.conv2d(x, weight([2, 2, 1, 16]), strides=[1, 1, 1, 1], padding="VALID") + bias(16)
    h = tf.nn.relu(tf.nn.max_pool(h, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"))
    h = tf.nn.conv2d(h, weight([2, 2, 16, 8]), strides=[1, 1, 1, 1], padding="VALID") + bias(8)
    h = tf.nn.relu(tf.nn.max_pool(h, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"))
    return tf.matmul(tf.reshape(h, [-1, 288]), weight([288, 10])) + bias(10)


def perceptron(x):
    return tf.matmul(tf.nn.relu(tf.matmul(x, weight([784, 32])) + bias(32)), weight([32, 10])) + bias(10)


def rnn(x):
    from tensorflow.contrib.cudnn_rnn import CudnnCompatibleGRUCell  # in TensorFlow 1 only

    words = tf.nn.embedding_lookup(weight([30000, 125]), x)
    _, last = tf.nn.dynamic_rnn(CudnnCompatibleGRUCell(100), words, dtype=tf.float32)
    return tf.matmul(last, weight([100, 2])) + bias(2)


def cnn_cifar10(setup, x, y):
    images = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    return loop(setup, deepnn, tf.train.MomentumOptimizer(0.01, 0.9), images, y)


def gru_imdb(setup, x, y):
    return loop(setup, rnn, tf.train.AdamOptimizer(0.001), x, y)


def cnn_mnist(setup, x, y):
    return loop(setup, mnist, tf.train.AdamOptimizer(0.001), np.ascontiguousarray(x.transpose(0, 2, 3, 1)), y)


def mlp_mnist(setup, x, y):
    return loop(setup, perceptron, tf.train.AdamOptimizer(0.001), x.reshape(len(x), 784), y)
