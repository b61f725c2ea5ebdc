"""TensorFlow 1's published way: mnist_deep.py of its tutorials, release 1.8, and for the GRU the dynamic_rnn of its text classification.

As there: variables, tf.nn operations on N, H, W, C, a cell of contrib, sparse labels, and session.run with a feed_dict in each step. Other
than there: this benchmark's layers and optimisers, CudnnCompatibleGRUCell for GRUCell, and the loss fetched with the step.
"""

import numpy as np
import tensorflow.compat.v1 as tf


def loop(setup, network, optimizer, x, y):
    with tf.Graph().as_default():
        x_, y_ = tf.placeholder(x.dtype, [None, *x.shape[1:]]), tf.placeholder(tf.int64, [None])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y_, logits=network(x_)))
        train = optimizer.minimize(loss)
        session = tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=setup.threads))
        session.run(tf.global_variables_initializer())
    return lambda: session.run([train, loss], feed_dict={x_: x, y_: y})[1]


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
