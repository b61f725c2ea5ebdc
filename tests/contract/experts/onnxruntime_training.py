"""ONNX Runtime, training."""

from tests.contract.experts.registry import variant


@variant("onnxruntime_training", "gru-imdb")
def mixed_states(adapter, setup):
    """The new state as two products and a sum, as papers write it, in place of one product of a difference."""

    class AsWritten(adapter):
        def network(self, graph, training):
            add = graph.add

            def other(operator, *inputs, **options):
                if operator == "Mul" and len(inputs) == 2 and inputs[1] in graph_differences:
                    h, n = graph_differences[inputs[1]]
                    return add("Sub", add("Mul", inputs[0], h), add("Mul", inputs[0], n))
                result = add(operator, *inputs, **options)
                if operator == "Sub":
                    graph_differences[result] = inputs
                return result

            graph_differences = {}
            graph.add = other
            try:
                return super().network(graph, training)
            finally:
                graph.add = add

    return AsWritten(setup)
