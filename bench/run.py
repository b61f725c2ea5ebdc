"""One cell, from import to end. However it ends, it emits `end`."""

import sys
import traceback

from bench import contract, rules
from bench.decoding import DecodingCell
from bench.errors import BenchError
from bench.inference import InferenceCell
from bench.operators import OperatorsCell
from bench.own_cell import OwnCell
from bench.protocol import MAX_STRING
from bench.training import TrainingCell

# a workload's task -> what measures it
TASKS = {
    "train": TrainingCell,
    "infer": InferenceCell,
    "decode": DecodingCell,
    "operators": OperatorsCell,
    rules.OWN: OwnCell,
}


def error_kind(error, framework):
    """The protocol's kind of an exception. The frame that raised it shows whether the bug is the bench's or the framework's."""
    if isinstance(error, BenchError):
        return error.kind
    if isinstance(error, MemoryError) or (framework is not None and framework.is_out_of_memory(error)):
        return "out-of-memory"
    frames = traceback.extract_tb(error.__traceback__)
    inside = frames and frames[-1][0].startswith(rules.BENCH)
    return "bug" if inside else "framework"


def _unicode(words):
    """These words, of which an event holds no lone surrogate. Python makes them of bytes that are no text, such as a file's name."""
    return words.encode("utf-8", "backslashreplace").decode("utf-8")


def run(options, emitter):
    """Run a cell; returns the process's exit status."""
    cell = None
    try:
        cell = TASKS[rules.workload_declaration(options.workload)["task"]](options, emitter)
        cell.run()
    except Exception as error:  # the boundary: the host must learn of every error
        loaded = sys.modules.get("bench.frameworks.%s.framework" % options.framework)
        framework = loaded and contract.Framework(loaded)
        emitter.emit(
            "error",
            kind=error_kind(error, framework),
            message=_unicode(str(error))[:MAX_STRING] or type(error).__name__,
            traceback=_unicode(traceback.format_exc())[-MAX_STRING:],
        )
        emitter.emit("end", status="failed", stop="none", noise=None, steps=cell.steps if cell else 0)
        return 1
    emitter.emit("end", status="ok", stop=cell.stop, noise=cell.noise, steps=cell.steps)
    return 0
