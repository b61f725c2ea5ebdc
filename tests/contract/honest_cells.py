"""Sends adapters as they are through all gates of short cells, and prints as JSON the largest error of each, in bounds.

    PYTHONPATH=. ENVIRONMENT/bin/python tests/contract/honest_cells.py FRAMEWORK PRECISION SEEDS [WORKLOAD]...

SEEDS are numbers with commas between them. A short cell is that of tests/contract/mutants/run.py: preset quick, few steps. Without a
workload all are run that the framework has at this precision on a CPU. A process has one precision, as a cell has.
"""

import functools
import json
import os
import sys
import time

from bench import data, rules
from bench.__main__ import parser
from bench.errors import BenchError
from tests.contract.mutants.each_workload import TOO_LARGE
from tests.contract.mutants.run import Collected, RefusedError, bounds, short_cell


def able(framework, precision):
    """The workloads that the framework has at this precision on a CPU, but for those whose step takes minutes."""
    unable, found = rules.framework_declaration(framework).get("half", {}).get(precision, {}), []
    for name in rules.workload_names():
        declared = rules.workload_declaration(name)
        has = rules.adapter_module(framework, rules.module_of(name, declared)) is not None
        fits = precision in declared["precisions"] and not declared.get("gpu_only") and not {"cpu", name} & set(unable)
        if has and fits and name not in TOO_LARGE:
            found.append(name)
    return found


def cell(framework, precision, seed, workload):
    """{"failed": [quantity, tensor, bounds] of each row, "error": the bench's refusal, "worst": bounds, "where", "rows", "seconds"}."""
    begin, emitter, error = time.perf_counter(), Collected(), ""
    words = ["run", workload, "--framework", framework, "--precision", precision, "--seed", seed]
    words += ["--threads", str(min(2, len(os.sched_getaffinity(0))))]
    # The host draws this moment; a golden ratio spreads those of a few seeds.
    words += ["--proved-at", "%.3f" % (0.618 * int(seed) % 1)]
    try:
        short_cell(parser().parse_args(words), emitter, 0).run()
    except RefusedError:
        pass
    except BenchError as raised:
        error = str(raised)
    failed = [[row["quantity"], row["tensor"], bounds(row)] for row in emitter.rows if not row["passed"]]
    # "moved" is a share whose bound says only that it is not all.
    sizes = {
        row["quantity"] + " " + row["tensor"]: bounds(row) or 0.0 for row in emitter.rows if row["quantity"] != "moved"
    }
    where = max(sizes, key=sizes.get) if sizes else ""
    return {
        "framework": framework,
        "workload": workload,
        "precision": precision,
        "seed": int(seed),
        "failed": failed,
        "error": error,
        "worst": sizes.get(where, 0.0),
        "where": where,
        "rows": len(emitter.rows),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def main(framework, precision, seeds, *workloads):
    # All seeds of a workload have the same stand-in's size, and none is drawn twice.
    data.load = functools.lru_cache(data.load)
    found = []
    for workload in workloads or able(framework, precision):
        for seed in seeds.split(","):
            found.append(cell(framework, precision, seed, workload))
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    output, sys.stdout = sys.stdout, sys.stderr
    json.dump(main(*sys.argv[1:]), output)
