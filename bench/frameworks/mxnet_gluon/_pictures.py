"""What the deep networks on pictures have of their own: normalisations that keep statistics, of each context its own."""

from mxnet import nd

from bench.frameworks.mxnet_gluon import _loop


class Trained(_loop.Trained):
    """A subclass gives OPTIMIZER, and own_name(name, value), Gluon's name of a parameter."""

    ON_STORE = False  # the optimiser's state is here, so that set_rate() can reach it

    def load(self, parameters):
        own = self.network._collect_params_with_prefix()  # by attribute, as load_parameters(file) names them
        self.parameters = {name: own[self.own_name(name, value)] for name, value in parameters.items()}
        super().load(parameters)
        if len(self.contexts) > 1:
            # A Trainer's first call hands the first context's parameters to all of them, running statistics too: not after a step
            self.trainer.allreduce_grads()

    def share_statistics(self):
        for parameter in self.parameters.values():
            if parameter.grad_req == "null" and len(self.contexts) > 1:
                parameter.set_data(
                    nd.add_n(*(each.as_in_context(self.context) for each in parameter.list_data())) / len(self.contexts)
                )

    def inputs(self, x, y):
        return x, y  # (N, C, H, W) and contiguous as it comes (A1, B10)
