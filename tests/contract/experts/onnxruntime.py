"""ONNX Runtime, inference."""

import onnxruntime

from tests.contract.experts.registry import variant


def with_options(adapter, setup, **options):
    """The adapter, whose session has these options set."""

    class WithOptions(adapter):
        def load(self, parameters):
            own = onnxruntime.SessionOptions

            def made():
                found = own()
                for name, value in options.items():
                    setattr(found, name, value)
                return found

            onnxruntime.SessionOptions = made
            try:
                super().load(parameters)
            finally:
                onnxruntime.SessionOptions = own

    return WithOptions(setup)


@variant("onnxruntime", "resnet50-features", "gpt2-decode")
def without_pattern(adapter, setup):
    """Memory is not planned for the shapes of the run before (enable_mem_pattern)."""
    return with_options(adapter, setup, enable_mem_pattern=False)


@variant("onnxruntime", "resnet50-features", "gpt2-decode")
def without_layouts(adapter, setup):
    """The optimisations of a graph without those of layouts (ORT_ENABLE_EXTENDED)."""
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return with_options(adapter, setup, graph_optimization_level=level)


@variant("onnxruntime", "resnet50-features")
def without_binding(adapter, setup):
    """Arrays are handed to run(), without IO binding."""
    return type("Unbound", (adapter,), {"predict": lambda self, x: self.session.run(None, {"x": x})[0]})(setup)
