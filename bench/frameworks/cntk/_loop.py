"""What both workloads do with a CNTK function: a loss, a learner, a trainer."""

import cntk as C
import numpy as np


class Trained(object):
    """A subclass gives: parameters (canonical name -> C.parameter), to_own(name, value), canonical(name, value)."""

    def __init__(self, x, logits, evaluated, classes):
        """x: input; logits: function as trained; evaluated: the same without dropout."""
        self.x, self.y = x, C.input_variable(())
        self.logits, self.evaluated = logits, evaluated
        # A7: one softmax; A19: labels are fed sparse, and made one-hot where the computing is
        self.loss = C.cross_entropy_with_softmax(logits, C.one_hot(self.y, classes))
        self.trainer = None

    def load(self, parameters):
        for name, parameter in self.parameters.items():
            parameter.value = np.ascontiguousarray(self.to_own(name, parameters[name]))
        self.trainer = C.Trainer(self.logits, (self.loss,), [self.learner(list(self.parameters.values()))])

    def read(self):
        return {name: self.canonical(name, parameter.value) for name, parameter in self.parameters.items()}

    def inputs(self, x, y):
        return x.astype("float32"), y.astype("float32")  # CNTK takes no other numbers, ids included

    def probe(self, x, y):
        wanted = list(self.parameters.values())
        gradients, losses = self.loss.grad({self.x: x, self.y: y}, wanted, [self.loss.output])  # of the losses' sum
        own = {name: self.canonical(name, np.asarray(gradients[p]) / len(x)) for name, p in self.parameters.items()}
        return np.asarray(self.logits.eval({self.x: x})), float(np.mean(losses)), own

    def step(self, x, y):
        self.trainer.train_minibatch({self.x: x, self.y: y})
        return self.trainer.previous_minibatch_loss_average

    def value(self, loss):
        return float(loss)

    def predict(self, x):
        return np.asarray(self.evaluated.eval({self.x: x}))
