"""JAX's profiler: the operations of XLA's programs, fused as XLA fused them."""

import glob
import os
import tempfile

import jax

from bench.profiling import Span, own_time, without_copies


def operations(run, device):
    """[Operation] of `run()`: XLA's operations on a CPU, the kernels of every stream on a GPU."""
    return own_time(_traced(run, device))


def kernels(run):
    """[Span] of the GPU's kernels during `run()`."""
    return without_copies(_traced(run, "cuda"))


def _traced(run, device):
    """A list of spans for each thread or stream."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        # The profiler names the file after the time and the host.
        (path,) = glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.xplane.pb"))
        planes = list(jax.profiler.ProfileData.from_file(path).planes)
        return [_spans(line, device) for plane in planes if _of(plane.name, device) for line in plane.lines]


def _of(plane, device):
    return plane.startswith("/device:GPU" if device == "cuda" else "/host:CPU")


def _spans(line, device):
    """The calls of XLA's operations. On a GPU the streams hold nothing else; on a CPU these events have a statistic "hlo_op"."""
    if device == "cuda":
        return [_span(event, device) for event in line.events if line.name.startswith("Stream")]
    return [_span(event, device) for event in line.events if any(name == "hlo_op" for name, _ in event.stats)]


def _span(event, device):
    return Span(event.name, device, event.start_ns / 1e9, event.duration_ns / 1e9)
