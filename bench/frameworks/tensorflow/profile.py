"""TensorFlow's profiler: kernels by the type of their operation."""

import glob
import os
import tempfile

import tensorflow as tf

from bench.profiling import Span, own_time, without_copies


def operations(run, device):
    """[Operation] of `run()`: TensorFlow's kernels on the CPU, the kernels of every stream on a GPU."""
    return own_time(_traced(run, device))


def kernels(run):
    """[Span] of the GPU's kernels during `run()`."""
    return without_copies(_traced(run, "cuda"))


def _traced(run, device):
    """A list of spans for each thread or stream."""
    # The profiler's format has no public reader. TensorBoard's plugin reads it with this module.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        try:
            run()
        finally:
            tf.profiler.experimental.stop()
        # The profiler names the file after the time and the host.
        (path,) = glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.xplane.pb"))
        space = xplane_pb2.XSpace()
        with open(path, "rb") as file:
            space.ParseFromString(file.read())
    prefix = "/device:GPU" if device == "cuda" else "/host:CPU"
    planes = [plane for plane in space.planes if plane.name.startswith(prefix)]
    return [_spans(plane, line, device) for plane in planes for line in plane.lines]


def _spans(plane, line, device):
    """The calls of kernels. A GPU's streams hold nothing else; on the CPU a kernel is named `node:type`."""
    if device == "cuda" and not line.name.startswith("Stream"):
        return []
    spans = []
    for event in line.events:
        name = plane.event_metadata[event.metadata_id].name
        if device == "cpu":
            node, _, name = name.rpartition(":")
            if not node or " " in name or node.endswith(":") or not event.duration_ps:
                continue
        begin = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
        spans.append(Span(name, device, begin, event.duration_ps / 1e12))
    return spans
