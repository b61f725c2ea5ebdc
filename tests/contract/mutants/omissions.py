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
