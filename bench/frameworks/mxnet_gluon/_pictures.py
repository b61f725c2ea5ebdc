"""What the deep networks on pictures share: normalisations, whose running statistics each context keeps for itself."""

from mxnet import nd

from bench.frameworks.mxnet_gluon import _loop


class Trained(_loop.Trained):
    """A subclass has OPTIMIZER and own_name(name, value), Gluon's name of a parameter."""

    # The optimiser's state is in this process, so that set_rate() can change it.
    ON_STORE = False

    def load(self, parameters):
        # The names are those of the attributes, as in load_parameters(file).
        own = self.network._collect_params_with_prefix()
        self.parameters = {name: own[self.own_name(name, value)] for name, value in parameters.items()}
        super().load(parameters)
        if len(self.contexts) > 1:
            # A Trainer's first call copies the first context's parameters to all, running statistics too. Not after a step, so now.
            self.trainer.allreduce_grads()

    def share_statistics(self):
        for parameter in self.parameters.values():
            if parameter.grad_req == "null" and len(self.contexts) > 1:
                values = [value.as_in_context(self.context) for value in parameter.list_data()]
                parameter.set_data(nd.add_n(*values) / len(self.contexts))

    def inputs(self, x, y):
        # Channels first, the layout that cuDNN computes in.
        return x, y
