"""The list of the variants. Each is a function; its docstring says in one sentence what an expert would do."""

VARIANTS = {}


def variant(framework, *workloads):
    """A decorator of make(adapter_class, setup), which builds the variant of each of these workloads' adapters."""

    def register(make):
        VARIANTS.update(((framework, workload, make.__name__), make) for workload in workloads)
        return make

    return register
