"""Sends the mutants of a framework through the gates of a cell, and prints as JSON what refused each.

`python -m tests.contract.mutants.run FRAMEWORK [--all | --some] [NAME ...]` in an interpreter that has the framework. A cell here is
one of preset quick that measures a few steps only, and ends with the first phase that refuses. NAME is a class, a workload, or both as
WORKLOAD/CLASS. With the name "none" nothing is run, and the list of mutants is printed. With --some one of ten is run, which their
names decide, beside those that are named. A mutant with WHOLE is left to tests.contract.mutants.table, which runs it as a real cell.
"""

import contextlib
import functools
import json
import math
import os
import sys
import time
import traceback
import zlib
from unittest import mock

from bench import contract, data, rules
from bench.__main__ import parser
from bench.errors import BenchError
from bench.run import TASKS
from tests.contract.mutants import registry

SHARE = 10


class RefusedError(Exception):
    """A gate has refused the mutant; the rest of the cell would only take time."""


class Collected:
    """Stands in for the emitter: keeps the rows of the gates, with the phase that they were emitted in."""

    def __init__(self):
        self.zero, self.rows, self.phase = time.perf_counter(), [], ""

    def emit(self, event, **fields):
        if event == "phase":
            self.phase = fields["name"] if fields["state"] == "begin" else ""
            if fields["state"] == "end" and any(not row["passed"] for row in self.rows):
                raise RefusedError
        elif event == "parity":
            self.rows.append(dict(fields, phase=self.phase))


def short_cell(options, emitter, steps):
    """A cell that measures `steps` steps of the workload's batch; without `steps` a few, of an eighth of it, which cost little."""
    declared = rules.workload_declaration(options.workload)
    cell = TASKS[declared["task"]](options, emitter)
    if steps:
        cell.preset = dict(cell.preset, windows=steps, noise=math.inf, seconds=1e6)
    else:
        cell.preset = dict(cell.preset, seconds=1e-3)
    if declared["task"] == "operators":
        # Of 181 points a hundred are attention's, and no mistake is planted there.
        cell.preset["attention_mop"] = {options.device: (0, 0)}
    if declared["task"] == "train":
        if not steps:
            cell.batch = cell.alone = max(8, declared["batch"] // 8)
        cell.preset["test_items"] = min(64, cell.preset["test_items"])
    return cell


def bounds(row):
    """By how many bounds a row errs; None where the error is not finite, or the bound is 0."""
    if row["error"] is None or not math.isfinite(row["error"]) or not row["bound"]:
        return None
    return row["error"] / row["bound"]


def verdict(mutant):
    """What the gates say of one mutant, as a dict.

    refused: [phase, quantity, tensor, bounds] of each row that failed, the worst first; an error of the bench counts as a row.
    worst: the largest error of all rows, in bounds; without "moved", a share whose bound says only that it is not all.
    whole: True of a mutant that is still to be run as a real cell.
    """
    begin, emitter = time.perf_counter(), Collected()
    adapter, refused = mutant.adapter, []
    whole = getattr(adapter, "WHOLE", False)
    words = [
        "run",
        mutant.workload,
        "--framework",
        mutant.framework,
        "--threads",
        str(min(2, len(os.sched_getaffinity(0)))),
    ]
    contract.load_adapter = lambda framework, workload: adapter
    try:
        with contextlib.ExitStack() as planted:
            for what in getattr(adapter, "PLANTED", ()):
                planted.enter_context(mock.patch.object(*what))
            if not whole:
                short_cell(parser().parse_args(words), emitter, mutant.steps).run()
    except RefusedError:
        pass
    except BenchError as error:
        refused.append([emitter.phase, "error", str(error), None])
    except Exception:
        # A mutant that does not run is a mistake in this folder: nothing refused it.
        traceback.print_exc()
        emitter.rows = []
    failed = [row for row in emitter.rows if not row["passed"]]
    refused += [[row["phase"], row["quantity"], row["tensor"], bounds(row)] for row in failed]
    refused.sort(key=lambda entry: -math.inf if entry[3] is None else -entry[3])
    worst = max([bounds(row) or 0.0 for row in emitter.rows if row["quantity"] != "moved"] or [0.0])
    return {
        **described(mutant),
        "slow": mutant.slow,
        "refused": refused,
        "worst": worst,
        "seconds": round(time.perf_counter() - begin, 1),
        "whole": whole,
    }


def main(framework, *words):
    """{"mutants": all that are planted in the framework, as [framework, workload, class], "unrun": the same described, "verdicts": of
    those that were run, "date"}.
    """
    names = {word for word in words if not word.startswith("--")}
    if {word for word in words if word.startswith("--")} not in ({"--all"}, {"--some"}, set()):
        raise SystemExit("give --all, --some, or neither: %s" % " ".join(words))
    mutants, verdicts = registry.load(framework), []
    every = {name for m in mutants for name in known_as(m)} | {"none"}
    if names - every:
        raise SystemExit("no mutant of %s has the name %s" % (framework, ", ".join(sorted(names - every))))
    # All cells of a workload train on the same data.
    data.load = functools.lru_cache(data.load)
    for mutant in mutants:
        name = mutant.adapter.__name__
        some = zlib.crc32(name.encode()) % SHARE == 0 and not mutant.slow
        if names & known_as(mutant) or (
            some if "--some" in words else not names and ("--all" in words or not mutant.slow)
        ):
            verdicts.append(verdict(mutant))
            show(verdicts[-1])
    planted = [[m.framework, m.workload, m.adapter.__name__] for m in mutants]
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return {"mutants": planted, "unrun": [described(m) for m in mutants], "verdicts": verdicts, "date": date}


def described(mutant):
    """What the document says of a mutant that was not run."""
    return {
        "framework": mutant.framework,
        "workload": mutant.workload,
        "family": mutant.family,
        "name": mutant.adapter.__name__,
        "sentence": registry.sentence_of(mutant),
        "not_caught": mutant.not_caught,
    }


def known_as(mutant):
    """The names by which a mutant can be asked for."""
    name = mutant.adapter.__name__
    return {name, mutant.workload, mutant.workload + "/" + name}


def show(found):
    """One line a mutant on standard error, for a person who waits."""
    print(
        found["name"],
        found["workload"],
        found["seconds"],
        found["refused"][:1] or found["worst"],
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    output, sys.stdout = sys.stdout, sys.stderr
    json.dump(main(*sys.argv[1:]), output)
