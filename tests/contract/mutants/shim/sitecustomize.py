"""Every Python that has this folder on its path computes with the mutant that DLBENCH_MUTANT names, in place of the real adapter.

The name is "FRAMEWORK WORKLOAD CLASS", as the registry has it. The class is put in when the adapter's module has been imported.
"""

import importlib.abc
import importlib.util
import os
import sys

FRAMEWORK, WORKLOAD, CLASS = os.environ["DLBENCH_MUTANT"].split()
MODULE = "bench.frameworks.%s.%s" % (FRAMEWORK, WORKLOAD.replace("-", "_"))


def plant(module):
    from tests.contract.mutants import registry

    chosen = [m for m in registry.load(FRAMEWORK) if (m.workload, m.adapter.__name__) == (WORKLOAD, CLASS)]
    module.Training = chosen[0].adapter


class AfterTheAdapter(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            plant(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, AfterTheAdapter())
