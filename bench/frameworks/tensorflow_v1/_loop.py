"""Training with a graph: build it once, run it in a session."""

import tensorflow.compat.v1 as tf

from bench import contract
from bench.frameworks.tensorflow_v1 import framework


class Trained(contract.Training):
    """A graph with a training step, and the session that runs it.

    A subclass has network(x, training), which computes the logits from self.variables. It is called once for training and once for
    evaluation.
    """

    def __init__(self, setup, shape, dtype, shapes, optimizer):
        """shape, dtype: of the inputs. shapes: name -> shape of the variables."""
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(setup.seed)
            (x, fed_x), (y, fed_y) = self.source(dtype, shape), self.source(tf.int32, shape[:1])
            self.variables = {
                name: tf.get_variable(name, shapes[name], initializer=tf.zeros_initializer()) for name in sorted(shapes)
            }
            logits = self.network(x, setup.training)
            # The loss takes logits: there is exactly one softmax. Labels as class numbers: no one-hot arrays.
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            names = sorted(shapes)
            pairs = optimizer.compute_gradients(loss, [self.variables[name] for name in names])
            # The gradient of an embedding is sparse, Adam's moments are dense.
            pairs = [(tf.convert_to_tensor(gradient), variable) for gradient, variable in pairs]
            # The optimiser counts its steps in it.
            self.taken = tf.train.create_global_step()
            train = optimizer.apply_gradients(pairs, self.taken)
            # Evaluation has no dropout, and no gradients: they cost memory and time.
            evaluated = self.network(x, False)
            fresh = tf.variables_initializer(optimizer.variables() + [self.taken])
            self.session = framework.session(graph)
            # A callable fixes its feeds and fetches once. feed_dict would look them up in every step.
            self.fresh = self.session.make_callable(fresh)
            self.train_step = self.session.make_callable([loss, train], [fed_x, fed_y])
            found = [logits, loss, dict(zip(names, [g for g, _ in pairs]))]
            self.probed = self.session.make_callable(found, [fed_x, fed_y])
            self.evaluated = self.session.make_callable(evaluated, [fed_x])

    def source(self, dtype, shape):
        """(a tensor, what a run is fed for it)."""
        fed = tf.placeholder(dtype, shape)
        return fed, fed

    def to_own(self, parameters):
        """Canonical arrays in TensorFlow's layouts."""
        return {name: to_own(value) for name, value in parameters.items()}

    def canonical(self, values):
        return {name: canonical(value) for name, value in values.items()}

    def load(self, parameters):
        for name, value in self.to_own(parameters).items():
            self.variables[name].load(value, self.session)
        self.fresh()

    def read(self):
        return self.canonical(self.session.run(self.variables))

    def probe(self, x, y):
        logits, loss, gradients = self.probed(x, y)
        return logits, float(loss), self.canonical(gradients)

    def step(self, x, y):
        # A session's run returns when its results are computed.
        return self.train_step(x, y)[0]

    def updates(self):
        return int(self.session.run(self.taken))

    def predict(self, x):
        return self.evaluated(x)


class Resident(Trained):
    """Training on batches that lie on the device before the first step.

    A session keeps a tensor on its device from one run to the next, under a handle. A run is fed the handle, a short text.
    """

    def __init__(self, *arguments):
        self.kept = []  # (the operation that keeps an array, the array) of x and of y
        self.looked_up = []  # (the tensor under a handle, the handle) of x and of y
        self.handles = []  # a tensor is deleted with its handle
        super(Resident, self).__init__(*arguments)

    def source(self, dtype, shape):
        array, handle = tf.placeholder(dtype, shape), tf.placeholder(tf.string, [])
        self.kept.append((tf.raw_ops.GetSessionHandle(value=array), array))
        tensor = tf.raw_ops.GetSessionTensor(handle=handle, dtype=dtype)
        tensor.set_shape(shape)
        self.looked_up.append((tensor, handle))
        return tensor, handle

    def inputs(self, x, y):
        handles = [self.session.run(keep, {array: value}) for (keep, array), value in zip(self.kept, (x, y))]
        self.handles += handles
        return tuple(handle.handle for handle in handles)

    def array_of(self, value):
        # The handles are of x and of y in turn.
        place = [handle.handle for handle in self.handles].index(value) % 2
        tensor, handle = self.looked_up[place]
        return self.session.run(tensor, {handle: value})


def to_own(value):
    """A canonical parameter in TensorFlow's layout: kernels (kh, kw, in, out), dense (in, out)."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def canonical(value):
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
