"""What both training workloads do with a CNTK function: a loss, a learner, a trainer."""

import cntk as C
import numpy as np

from bench import contract


class Trained(contract.Training):
    """The training loop of a network. A subclass gives learner(parameters) and three more:

    parameters: canonical name -> C.parameter. to_own(name, value) and canonical(name, value) go between the canonical layouts and CNTK's.
    """

    def __init__(self, x, logits, evaluated, classes):
        """x: the input. logits: the function in training. evaluated: the function without dropout."""
        self.x, self.y = x, C.input_variable(())
        self.logits, self.evaluated = logits, evaluated
        # The loss takes logits: there is exactly one softmax. Labels are fed as class numbers; CNTK makes them one-hot on the device.
        self.loss = C.cross_entropy_with_softmax(logits, C.one_hot(self.y, classes))
        self.trainer = None

    def load(self, parameters):
        for name, parameter in self.parameters.items():
            parameter.value = np.ascontiguousarray(self.to_own(name, parameters[name]))
        self.trainer = C.Trainer(self.logits, (self.loss,), [self.learner(list(self.parameters.values()))])

    def read(self):
        return {name: self.canonical(name, parameter.value) for name, parameter in self.parameters.items()}

    def inputs(self, x, y):
        # CNTK takes float32 only, for ids and labels too.
        return x.astype("float32"), y.astype("float32")

    def probe(self, x, y):
        parameters = list(self.parameters.values())
        # CNTK's gradients are of the sum of the losses; the specification's are of their mean.
        gradients, losses = self.loss.grad({self.x: x, self.y: y}, parameters, [self.loss.output])
        means = {name: self.canonical(name, np.asarray(gradients[p]) / len(x)) for name, p in self.parameters.items()}
        return np.asarray(self.logits.eval({self.x: x})), float(np.mean(losses)), means

    def step(self, x, y):
        self.trainer.train_minibatch({self.x: x, self.y: y})
        # The trainer keeps the last loss on the device. No value goes back to the host inside the loop.
        return self.trainer

    def updates(self):
        return self.trainer.parameter_learners[0].total_number_of_minibatches_seen()

    def value(self, loss):
        return float(loss.previous_minibatch_loss_average)

    # No gradients in evaluation: they cost memory and time.
    def predict(self, x):
        return np.asarray(self.evaluated.eval({self.x: x}))
