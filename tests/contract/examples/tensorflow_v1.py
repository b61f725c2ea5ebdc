"""TensorFlow 1's published way: tensorflow/examples/tutorials/mnist/mnist_deep.py of its repository, release 1.8.

As there: variables, tf.nn operations on N, H, W, C, sparse labels, and session.run with a feed_dict in each step. Other than there:
this benchmark's layers, MomentumOptimizer, and the loss fetched with the step.
"""


def build(setup):
    import tensorflow.compat.v1 as tf

    graph = tf.Graph()
    with graph.as_default():
        x_, y_ = tf.placeholder(tf.float32, [None, 32, 32, 3]), tf.placeholder(tf.int64, [None])

        def weight(shape):
            return tf.Variable(tf.truncated_normal(shape, stddev=0.1))

        def bias(size):
            return tf.Variable(tf.constant(0.1, shape=[size]))

        def conv(x, inputs, outputs):
            return tf.nn.relu(
                tf.nn.conv2d(x, weight([3, 3, inputs, outputs]), strides=[1, 1, 1, 1], padding="SAME") + bias(outputs)
            )

        def pool(x):
            return tf.nn.max_pool(x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")

        h = tf.nn.dropout(pool(conv(conv(x_, 3, 50), 50, 50)), rate=0.25)
        h = tf.nn.dropout(pool(conv(conv(h, 50, 100), 100, 100)), rate=0.25)
        h = tf.nn.relu(tf.matmul(tf.reshape(h, [-1, 6400]), weight([6400, 512])) + bias(512))
        logits = tf.matmul(tf.nn.dropout(h, rate=0.5), weight([512, 10])) + bias(10)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y_, logits=logits))
        train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
        session = tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=setup.threads))
        session.run(tf.global_variables_initializer())

    def step(x, y):
        return session.run([train, loss], feed_dict={x_: x.transpose(0, 2, 3, 1), y_: y})[1]

    return step
