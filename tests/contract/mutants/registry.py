"""The lists of the planted mistakes and of the rewrites. Each is a class; its docstring says in one sentence what it changes."""

import collections
import importlib

# framework -> the modules of this folder that plant mistakes in its adapters
MODULES = {
    "torch": (
        "torch_cnn",
        "torch_gru",
        "torch_mlp",
        "torch_deep",
        "torch_gpt",
        "torch_llama",
        "torch_decode",
        "torch_timing",
    ),
    "jax": ("jax_cnn", "jax_gru", "jax_mlp", "jax_llama", "jax_decode", "jax_more"),
    "tensorflow": ("tensorflow_cnn", "tensorflow_gru", "tensorflow_mlp", "tensorflow_more"),
}

# The modules that plant(framework) mistakes in several workloads: texts that take another's place, and two kinds in every workload.
TABLES = ("edits", "edits_of_each_kind", "each_workload")

# The classes of mistakes, in the table's order. An "omission" is the smallest thing that can be left out of a workload.
FAMILIES = (
    "network",
    "loss",
    "dropout",
    "evaluation",
    "data",
    "padding",
    "length",
    "optimiser",
    "schedule",
    "regularisation",
    "precision",
    "state",
    "measured object",
    "shape",
    "timing",
    "omission",
)
REWRITE = "rewrite"

# Five kinds that a check of the parameters and of three steps alone does not see -> the classes of mistakes that are of this kind.
KINDS = {
    "arithmetic, and what dropout hides": ("precision", "dropout"),
    "what an index selects": ("padding", "length"),
    "what begins later, and what is kept": ("measured object", "state", "schedule"),
    "what the shape decides": ("shape",),
    "evaluation, data and omissions": ("evaluation", "data", "omission"),
}

# steps: how many steps the cell takes at least before its proof. not_caught: the reason why no gate refuses it; "" where one does.
# slow: it runs with DLBENCH_FAULTS=all only.
Mutant = collections.namedtuple("Mutant", "framework workload family adapter not_caught steps slow")

MUTANTS = []


def sentence_of(mutant):
    return " ".join(mutant.adapter.__doc__.split())


class Planted:
    """Registers the classes of one framework's workload."""

    def __init__(self, framework, workload, slow=False):
        self.framework, self.workload, self.slow = framework, workload, slow

    def mistake(self, family, not_caught="", steps=0, slow=False):
        """A decorator of a class with a mistake of this family."""
        assert family in FAMILIES, family

        def register(adapter):
            return self._add(family, adapter, not_caught, steps, slow)

        return register

    def rewrite(self, adapter):
        """A decorator of a class that computes the same in another way, and must pass."""
        return self._add(REWRITE, adapter, "", 0, False)

    def slow_rewrite(self, adapter):
        return self._add(REWRITE, adapter, "", 0, True)

    def of_any_framework(self, training, mistakes, not_caught=""):
        """Plant mistakes that need only the contract's methods into an adapter class. not_caught: where it is not the mistake's own."""
        for family, mixin in mistakes:
            adapter = type(
                mixin.__name__, (mixin, training), {"__doc__": mixin.__doc__, "__module__": training.__module__}
            )
            self._add(family, adapter, not_caught or mixin.NOT_CAUGHT, mixin.STEPS, False)

    def _add(self, family, adapter, not_caught, steps, slow):
        slow = slow or self.slow
        MUTANTS.append(Mutant(self.framework, self.workload, family, adapter, not_caught, steps, slow))
        return adapter


def load(framework):
    """The mutants of a framework; importing them imports the framework. Raises StaleEditError where an edit fits its adapter no more."""
    if not any(mutant.framework == framework for mutant in MUTANTS):
        for module in MODULES[framework]:
            importlib.import_module("tests.contract.mutants." + module)
        for table in TABLES:
            importlib.import_module("tests.contract.mutants." + table).plant(framework)
    return [mutant for mutant in MUTANTS if mutant.framework == framework]
