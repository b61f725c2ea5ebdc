"""What can be left out of any adapter without another line of its code: a row of one tensor."""


def without_one(training, tensor):
    """A subclass of an adapter, whose `load` sets the last row (of a vector: the last number) of a tensor to zero."""

    class WithoutOne(training):
        def load(self, parameters):
            changed = {name: value.copy() for name, value in parameters.items()}
            changed[tensor][-1] = 0
            super().load(changed)

    return WithoutOne


class StepLeftOut:
    """A mixin: the third step after the parameters were loaded is skipped."""

    count = 0

    def load(self, parameters):
        super().load(parameters)
        self.count = 0

    def step(self, x, y):
        self.count += 1
        if self.count != 3:
            self.handle = super().step(x, y)
        return self.handle


class OneItemLeftOut:
    """A step leaves out the last item of its batch."""

    def step(self, x, y):
        return super().step(x[:-1], y[:-1])


class OneStepLeftOut(StepLeftOut):
    """The third step after the parameters were loaded is skipped."""


# (class, sentence, tensor): what each workload can lose
OF_CNN = (
    ("OneChannelLeftOut", "The last of conv2's 50 channels has weights of zero.", "conv2.w"),
    ("OneBiasLeftOut", "The last of conv2's 50 biases is zero.", "conv2.b"),
    ("OneUnitLeftOut", "The last of dense1's 512 units has weights of zero.", "dense1.w"),
)
OF_GRU = (
    ("OneUnitLeftOut", "The last of 100 units reads nothing of the input into its candidate.", "gru.w"),
    ("OneBiasLeftOut", "The last of 300 biases is zero.", "gru.b"),
    ("OneWordLeftOut", "The vector of the last of 30 000 ids is zero.", "embedding"),
)
OF_MLP = (
    ("OneUnitLeftOut", "The last of 32 hidden units has weights of zero.", "dense1.w"),
    ("OneBiasLeftOut", "The last of 32 biases is zero.", "dense1.b"),
)


def plant(planted, training, of_tensors, of_steps=(OneItemLeftOut, OneStepLeftOut)):
    """Plant the omissions of some tensors, and of an item and of a step; training: the adapter class."""
    for name, sentence, tensor in of_tensors:
        words = {"__doc__": sentence, "__module__": training.__module__}
        planted.mistake("omission")(type(name, (without_one(training, tensor),), words))
    for mixin in of_steps:
        words = {"__doc__": mixin.__doc__, "__module__": training.__module__}
        planted.mistake("omission")(type(mixin.__name__, (mixin, training), words))
