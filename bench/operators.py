"""Cells that measure single operations over their size: warm up, calibrate how many runs fill a window, then windows."""

import math
import time

import numpy as np

from bench import parity, timing
from bench.cell import Cell
from bench.errors import Unsupported
from bench.workloads import ops

WARM_UP_RUNS = 20  # dl_bench's; fewer where they would take longer than the point's own time
LEAST_WARM_UP_RUNS = 3
# Inputs that fit a cache take turns, so that a run finds its inputs where a network's step would: in memory.
CACHE_BYTES = 64 * 1024 * 1024
MOST_BUFFERS = 16

ITEMSIZE = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
# precision -> (unit roundoff of sums and results, unit roundoff to which inputs are rounded first)
ROUNDOFF = {
    "fp64": (2.0**-53, 0.0),
    "fp32": (2.0**-24, 2.0**-24),
    "tf32": (2.0**-24, 2.0**-11),
    "fp16": (2.0**-11, 2.0**-11),
    "bf16": (2.0**-8, 2.0**-8),
}


class OperatorsCell(Cell):
    """Every point of the preset. What a framework or the device cannot do is told as left out, with the reason."""

    def load_data(self):
        return None  # inputs are drawn for each point

    def fill(self, operators, data, random):
        pass

    def check_parity(self, operators):
        for result in check(operators, self.options.precision):
            self.tell_parity(result)

    def measure(self, framework, operators, data, random):
        precision, seconds = self.options.precision, self.preset["seconds"]
        points = ops.points(ITEMSIZE[precision], self.preset["most_mop"])
        self.tell_plan(len(points) * self.preset["windows"], 1, len(points) * seconds, self.options.preset == "quick")
        refused = {}  # (operation, direction) -> why no larger size is tried
        with self.phase("train"):
            for point in points:
                key = point.operation, point.direction
                try:
                    if key not in refused:
                        self.measure_point(framework, operators, point, random)
                except Unsupported as error:
                    refused[key] = str(error)
                    self.emit("left-out", what="%s %s" % key, reason=str(error))
                except Exception as error:
                    if not isinstance(error, MemoryError) and not framework.is_out_of_memory(error):
                        raise
                    refused[key] = "out of memory"
                    what = "%s %s from %s" % (key + (size_text(point.size),))
                    self.emit("left-out", what=what, reason="it did not fit in the device's memory")
        self.stop = "time"

    def measure_point(self, framework, operators, point, random):
        refuse(point.operation, self.options.precision)
        count = max(1, min(MOST_BUFFERS, CACHE_BYTES // max(point.bytes, 1)))
        runs = operators.runs(point.operation, point.direction, self.buffers(point, count, random))
        turns = Turns(framework.synchronize, runs)
        seconds = self.preset["seconds"]
        per_run = turns.warm_up(seconds)
        per_window = max(1, int(seconds / self.preset["windows"] / max(per_run, 1e-9)))
        times = []
        begin = time.perf_counter()
        while len(times) < self.preset["windows"] or time.perf_counter() - begin < seconds:
            at = time.perf_counter()
            times.append(turns.window(per_window) / per_window)
            self.tell_window(point, count, len(times) - 1, at, times[-1] * per_window, per_window)
            reached = timing.noise(times)
            spent = time.perf_counter() - begin
            if len(times) >= self.preset["windows"] and reached is not None and reached <= self.preset["noise"]:
                break
            if spent > 3 * seconds:  # a single run can be longer than all the windows should be together
                break
        self.steps += len(times) * per_window

    def buffers(self, point, count, random):
        if point.direction == ops.COPY:
            return [{"x": random.uniform(0.0, 1.0, point.size[0] // 4)} for _ in range(count)]
        operation = ops.OPERATIONS.get(point.operation) or ops.OPTIMIZERS[point.operation]
        return [ops.draw_inputs(operation, point.size, random) for _ in range(count)]

    def tell_window(self, point, buffers, index, begin, seconds, runs):
        self.emit(
            "operation",
            operation=point.operation,
            direction=point.direction,
            size=size_text(point.size),
            mop=point.mop,
            bytes=point.bytes,
            buffers=buffers,
            index=index,
            begin=begin - self.emitter.zero,
            seconds=seconds,
            runs=runs,
        )


def check(operators, precision):
    """Each operation at its smallest size, the result and its gradients by the inputs, against NumPy in float64: a list of parity.Result.

    What the adapter says it has not is left out here, and told when it is to be measured.
    """
    found = []
    for name, operation in list(ops.OPERATIONS.items()) + list(ops.OPTIMIZERS.items()):
        for direction in (ops.STEP,) if name in ops.OPTIMIZERS else (ops.FORWARD, ops.GRADIENT):
            try:
                error, bound = error_of(operators, name, operation, direction, precision)
            except Unsupported:
                continue
            found.append(parity.Result("operation", "%s %s" % (name, direction), error, bound, error <= bound))
    return found


def error_of(operators, name, operation, direction, precision):
    """(relative error, its bound) of one operation at its smallest size.

    A gradient is held by its slope along a random direction, which needs no gradient of ours to compare with.
    """
    refuse(name, precision)
    size = operation.sizes[0]
    unit, operand = ROUNDOFF[precision]
    bound = parity.MARGIN * (unit * (2.0 + math.sqrt(operation.terms(*size))) + operand * math.sqrt(2.0))
    random = np.random.RandomState(20210927)
    p = ops.draw_inputs(operation, size, random)
    (run,) = operators.runs(name, direction, [p])
    values = [np.asarray(value, dtype=np.float64) for value in operators.values(name, direction, run())]
    if direction != ops.GRADIENT:
        return parity.relative_error(values[0], operation.compute(p)), bound
    errors = []
    for key, value in zip(p, values):
        along, slope = ops.slope(operation, p, key, random)
        scale = np.linalg.norm(value) * np.linalg.norm(along)
        errors.append(abs(float((value * along).sum()) - slope) / scale if value.shape == along.shape else float("inf"))
    return float(max(errors)), bound + ops.SLOPE_ERROR


def refuse(operation, precision):
    """Raises Unsupported for what no framework is asked to do."""
    if (operation, precision) in ops.UNFIT:
        raise Unsupported(ops.UNFIT[operation, precision])


class Turns(object):
    """Runs that take turns over several sets of inputs; a window ends when the device has done all it was given."""

    def __init__(self, synchronize, runs, clock=time.perf_counter):
        self._synchronize, self._runs, self._clock = synchronize, runs, clock

    def window(self, count):
        """Seconds of `count` runs."""
        runs = (self._runs * (count // len(self._runs) + 1))[:count]
        self._synchronize()
        begin = self._clock()
        for run in runs:
            run()
        self._synchronize()
        return self._clock() - begin

    def warm_up(self, limit_seconds):
        """Run up to WARM_UP_RUNS times and each set of inputs once; returns the expected seconds of a run."""
        spent, done, last = 0.0, 0, 0.0
        while done < LEAST_WARM_UP_RUNS or (done < WARM_UP_RUNS and spent < limit_seconds):
            last = self.window(1)
            spent, done = spent + last, done + 1
        several = max(1, min(len(self._runs), int(limit_seconds / max(last, 1e-9))))
        return self.window(several) / several


def size_text(size):
    return "x".join(str(number) for number in size)
