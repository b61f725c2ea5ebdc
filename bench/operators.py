"""Cells that measure single operations over their size: warm up, calibrate how many runs fill a window, then windows."""

import collections
import math
import time

import numpy as np

from bench import bounds, collectives, parallel, parity, rules, timing
from bench.cell import RunningCell
from bench.errors import Unsupported
from bench.workloads import ops, slices

# As in dl_bench; fewer where they would take longer than the point's own time.
WARM_UP_RUNS = 20
LEAST_WARM_UP_RUNS = 3
# A point runs before it is measured for as long as the GPU was idle before, and so long at most: while inputs are drawn and kernels are
# compiled its clock falls. It is not measured how long the clock needs to rise.
SPIN_SECONDS = {"cpu": 0.0, "cuda": 0.3}
# Inputs that fit into a cache take turns, so that a run reads its inputs from memory, as a network's step does. The second-level caches of
# GPUs have up to 126 MB (B200).
CACHE_BYTES = {"cpu": 64 * 2**20, "cuda": 256 * 2**20}
MOST_BUFFERS = 16

# A point is given up after this multiple of its expected time.
TOO_LONG = 3.0
# No larger size is tried where the fastest run took TOO_LONG, and longer than this.
LONG_RUN_SECONDS = 0.5

# precision -> (unit roundoff of sums, unit roundoff of stored values: of the inputs, or at fp8 of the result). At fp8 the reference gets
# the inputs rounded to e4m3: fp8 loses nothing there, so the error shows whether the factors were in e4m3 or in another type.
ROUNDOFF = {
    "fp64": (2.0**-53, 0.0),
    "fp32": (2.0**-24, 2.0**-24),
    "tf32": (2.0**-24, 2.0**-11),
    "fp16": (2.0**-11, 2.0**-11),
    "bf16": (2.0**-8, 2.0**-8),
    "fp8": (2.0**-24, 2.0**-8),
}
# PyTorch's CPU kernels add up the gradients of a layer_norm's weights row by row in the half type itself. A rounding errs by 0.41 of the
# unit roundoff in the square mean, and the square of a running sum of n terms of any sign is n / 2 of a term's in the mean of its steps: so
# the sum errs by 0.29 sqrt(n) units. PyTorch 2.13 with one thread errs by 0.29 of them at 1 024 rows and by 0.31 at 64. A sum of terms of
# one sign stands still near the reciprocal of the unit roundoff, where a term is less than half of the sum's last digit: there the gradient
# of the bias is 512 in bfloat16 whatever the rows, of 4 096 rows a quarter of what it should be. So larger sums are not held.
RUNNING_SUM = 0.29

# By so much of it the movement of all steps of an optimiser may be off beside what the parameter's rounding explains: Adam's second moment
# in float32 stands still where it lacks a ten-thousandth. A step in fifty that is skipped is off by twice as much.
MOST_OFF = 0.01

NO_ATTENTION = "nobody has written attention for %s yet"
NO_COLLECTIVE = "nobody has written it for %s yet"


class OperatorsCell(RunningCell):
    """Every point of the preset. An operation that a framework or the device cannot do is emitted as left out, with the reason."""

    # On the clock of time.perf_counter.
    worked_until = float("-inf")
    # (what of, inputs) that were drawn last.
    _drawn = (None, None)

    def __init__(self, options, emitter):
        super(OperatorsCell, self).__init__(options, emitter)
        # A parity.Result of the last run of each point.
        self.held = []

    def load_data(self):
        return None  # inputs are drawn for each point

    def fill(self, operators, data, random):
        pass

    def proved(self, operators):
        """The last run of each point was held when its windows ended, before its inputs were thrown away."""
        return self.held

    def check_parity(self, operators):
        results = check(operators, self.options.precision, self.options.devices, self.group.rank)
        for result in parallel.worst(self.group, results):
            self.emit_parity(result)

    def points(self):
        """The points to measure. Operations that are left out are emitted with the reason."""
        precision, most_bytes = self.options.precision, self.preset.get("most_bytes")
        if self.options.devices > 1:
            reason = "each uses one device: they are measured with --devices 1"
            self.emit("left-out", what="all operations but the collectives", reason=reason)
            return ops.among(self.options.devices, precision, most_bytes, self.preset.get("most_sizes"))
        if precision == "fp8":
            reason = "networks use fp8 for the factors of products, and nothing else computes in it"
            self.emit("left-out", what="all operations but products of matrices", reason=reason)
        of_attention = self.preset["attention_mop"][self.options.device]
        return ops.points(precision, self.preset["most_mop"], most_bytes, self.preset.get("most_sizes"), of_attention)

    def measure(self, framework, operators, data, random):
        points, seconds, random = self.points(), self.preset["seconds"], ops.Pool(random)
        if not operators.ATTENTION and any(point.operation in ops.ATTENTION for point in points):
            self.emit("left-out", what="attention", reason=NO_ATTENTION % self.options.framework)
            points = [point for point in points if point.operation not in ops.ATTENTION]
        for name in collectives.COLLECTIVES if self.options.devices > 1 else ():
            if name not in operators.COLLECTIVES:
                self.emit("left-out", what=name, reason=NO_COLLECTIVE % self.options.framework)
                points = [point for point in points if point.operation != name]
        self.emit_plan(len(points) * self.preset["windows"], 1, len(points) * seconds, self.options.preset == "quick")
        refused = {}  # (operation, direction) -> why no larger size is tried
        with self.phase("train"):
            for point in points:
                key = point.operation, point.direction
                try:
                    if key not in refused:
                        per_run = self.measure_point(framework, operators, point, random)
                        if per_run > max(TOO_LONG * seconds, LONG_RUN_SECONDS) and has_larger(points, point):
                            refused[key] = "its fastest run took %.2g s, longer than a point should take" % per_run
                            what = "%s %s beyond %s" % (key + (size_text(point.size),))
                            self.emit("left-out", what=what, reason=refused[key])
                except Unsupported as error:
                    refused[key] = str(error)
                    self.emit("left-out", what="%s %s" % key, reason=str(error))
                except Exception as error:
                    if not isinstance(error, MemoryError) and not framework.is_out_of_memory(error):
                        raise
                    # The other processes may have had enough memory, and would wait for this one.
                    if self.group.count > 1:
                        raise
                    refused[key] = "out of memory"
                    what = "%s %s from %s" % (key + (size_text(point.size),))
                    self.emit("left-out", what=what, reason="it did not fit in the device's memory")
        self.stop = "time"

    def measure_point(self, framework, operators, point, random):
        """Emit the windows of a point. Returns the seconds of its fastest run. Raises Unsupported."""
        refuse(point.operation, self.options.precision)
        device = self.options.device
        count = max(1, min(MOST_BUFFERS, CACHE_BYTES[device] // max(point.bytes, 1)))
        buffers = self.buffers(point, count, random)
        # A step writes into its parameter, in some frameworks into the array that it was given.
        first = [p["w"].copy() for p in buffers] if point.direction == ops.STEP else None
        runs = operators.runs(point.operation, point.direction, buffers)
        if operators.kernel:
            place = {"operation": point.operation, "direction": point.direction, "size": size_text(point.size)}
            self.emit("dispatch", kernel=operators.kernel, **place)
        turns = Turns(framework.synchronize, runs, self.agreed)
        seconds = self.preset["seconds"]
        per_run = turns.warm_up(seconds)
        idle = min(SPIN_SECONDS[device], time.perf_counter() - self.worked_until)
        per_run = turns.spin(self.agreed(idle), per_run)
        per_window = max(1, int(seconds / self.preset["windows"] / max(per_run, 1e-9)))
        times = []
        begin = time.perf_counter()
        spent = 0.0
        while len(times) < self.preset["windows"] or spent < seconds:
            at = time.perf_counter()
            times.append(turns.window(per_window) / per_window)
            self.emit_window(point, count, len(times) - 1, at, times[-1] * per_window, per_window)
            reached = timing.noise(times)
            spent = self.agreed(time.perf_counter() - begin)
            if len(times) >= self.preset["windows"] and reached is not None and reached <= self.preset["noise"]:
                break
            # A single run can take longer than all windows together should.
            if spent > TOO_LONG * seconds:
                break
        self.worked_until = time.perf_counter()
        if point.operation not in collectives.COLLECTIVES and point.direction != ops.COPY:
            at, result = turns.last
            values = operators.values(point.operation, point.direction, result)
            p = dict(buffers[at], w=first[at]) if first else buffers[at]
            self.held.append(last_run(point, values, p, self.options.precision, self.options.seed, turns.done[at]))
        return turns.fastest

    def agreed(self, seconds):
        """The first process's seconds. Every run needs all processes, so all must take the same number of runs: one clock decides."""
        return self.group.gather(seconds)[0]

    def buffers(self, point, count, random):
        if point.operation in collectives.COLLECTIVES:
            # A sum may replace the buffer, and would grow with every run. Zeros stay zeros.
            items = point.size[0] // ops.ITEMSIZE[self.options.precision]
            zeros = np.broadcast_to(np.zeros(1), (self.options.devices, items))
            return [{"x": zeros} for _ in range(count)]
        if point.direction == ops.COPY:
            return [{"x": random.uniform(0.0, 1.0, point.size[0] // 4)} for _ in range(count)]
        operation = ops.OPERATIONS.get(point.operation) or ops.OPTIMIZERS[point.operation]
        # Of attention, many points of the same inputs follow each other, and to draw them takes longer than a point.
        key = operation.inputs, point.size, count, operation.weighted and point.direction
        if self._drawn[0] != key:
            drawn = [ops.draw_inputs(operation, point.size, random, point.direction) for _ in range(count)]
            self._drawn = key, drawn
        return self._drawn[1]

    def emit_window(self, point, buffers, index, begin, seconds, runs):
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
        self.steps += runs


def check(operators, precision, devices=1, rank=0):
    """Each operation at its smallest size, the result and its gradients by the inputs, against NumPy in float64: a list of parity.Result.

    Of several devices the collectives: `rank` is the first device of this process. Operations that the adapter refuses are left out here,
    and emitted as left out when they are to be measured. Raises Unsupported where it refuses all.
    """
    if precision == "fp8" and devices > 1:
        raise Unsupported("gradients are added up in other types than fp8; ask for bf16")
    if devices > 1:
        return check_collectives(operators, precision, devices, rank)
    results, reason = [], ""
    for name, operation in list(ops.OPERATIONS.items()) + list(ops.OPTIMIZERS.items()):
        for direction in ops.directions(name):
            try:
                error, bound = error_of(operators, name, operation, direction, precision)
            except Unsupported as refusal:
                reason = reason if precision == "fp8" and name not in ops.PRODUCTS else str(refusal)
                continue
            results.append(parity.Result("operation", "%s %s" % (name, direction), error, bound, error <= bound))
    if not results:
        raise Unsupported(reason)
    return results


def check_collectives(operators, precision, devices, rank=0):
    """The collectives that the adapter has, of random buffers: what each device of this process has afterwards, the first being `rank`.

    Twice, of other buffers: a result that was kept from the run before is wrong. Raises Unsupported where the adapter refuses all.
    """
    unit, stored = ROUNDOFF[precision]
    random, results, reason = np.random.RandomState(20210927), [], ""
    for name in operators.COLLECTIVES:
        collective, direction = collectives.COLLECTIVES[name], collectives.direction(name)
        items = collectives.items(name, devices, ops.BUFFER_SIZES[0] // ops.ITEMSIZE[precision])
        buffers = [random.uniform(-1.0, 1.0, (devices, items)) for _ in range(2)]
        errors = []
        try:
            runs = operators.runs(name, direction, [{"x": x} for x in buffers])
        except Unsupported as refusal:
            reason = str(refusal)
            continue
        for x, run in zip(buffers, runs):
            values = operators.values(name, direction, run())
            for at, value in enumerate(values, rank):
                value = np.asarray(value, dtype=np.float64).reshape(-1)
                errors.append(parity.relative_error(value, collective.result(x, at)))
        # A move rounds nothing but what is put into the buffer. At fp64 that loses nothing, and a bound of 0 has no share: one rounding.
        bound = bounds.MARGIN * (unit * (2.0 + math.sqrt(devices)) + stored if collective.sums else max(unit, stored))
        error = max(errors)
        results.append(parity.Result("operation", "%s of %d devices" % (name, devices), error, bound, error <= bound))
    if not results:
        raise Unsupported(reason)
    return results


def last_run(point, values, p, precision, seed, runs=1):
    """The check of the last run that was measured of a point, at its size: a parity.Result, whose error is in bounds.

    values: the result or the gradients; p: the inputs of that run. Parts are held, which the seed draws (bench.workloads.slices).
    Of an optimiser, whose parameter has taken all `runs` of it: each of some numbers went where its gradient says, and as far.
    """
    random = np.random.RandomState(seed)
    tensor = "%s %s %s%s" % (point.operation, point.direction, size_text(point.size), rules.LAST_RUN)
    try:
        if point.direction == ops.STEP:
            error = _wrong_moves(point.operation, np.asarray(values[0], dtype=np.float64), p, precision, runs, random)
        else:
            error = _worst_part(point, values, p, precision, random)
    except (IndexError, ValueError):
        # A result of another shape.
        error = float("inf")
    return parity.Result("operation", tensor, error, 1.0, error <= 1.0)


def _wrong_moves(name, w, p, precision, runs, random):
    """How many of some numbers went the other way, or by how many bounds the one that is furthest off went too far or not far enough.

    A step is one number of one sign, so a half type rounds each of them alike, and in the end to nothing: there only the way is held.
    """
    at = random.randint(0, len(p["g"]), 1000)
    clear = at[np.abs(p["g"][at]) > 0.5]
    moved, g = p["w"][clear] - w[clear], p["g"][clear]
    wrong = float(np.count_nonzero(~(moved * g > 0)))
    if wrong or precision in ("fp16", "bf16"):
        return wrong
    due = ops.moved_by(name, g, runs)
    # Each step rounds a parameter to half of its last digit, all of them alike at worst.
    bound = MOST_OFF + runs * ROUNDOFF[precision][0] * (1.0 + np.abs(p["w"][clear] / due))
    return float(np.max(np.abs(moved / due - 1.0) / bound))


def _worst_part(point, values, p, precision, random):
    """The largest error of all parts, in bounds."""
    operation, worst = ops.OPERATIONS[point.operation], 0.0
    if precision == "fp8":
        p = collections.OrderedDict((key, ops.to_fp8(value)) for key, value in p.items())
    for part in slices.parts(point.operation, point.direction, p, random):
        value = np.asarray(values[part.number], dtype=np.float64)[part.index]
        if isinstance(part, slices.Slope):
            along, slope = ops.slope(operation, part.p, part.name, random)
            error = abs(float((value * along).sum()) - slope) / (np.linalg.norm(value) * np.linalg.norm(along))
            bound = bound_of(operation, precision, point.size) + ops.SLOPE_ERROR
        else:
            error = (
                parity.relative_error(value, part.expected) if value.shape == np.shape(part.expected) else float("inf")
            )
            bound = bound_of(operation, precision, point.size, part.terms)
            if operation.weighted and part.number and precision in ("fp16", "bf16"):
                unit = ROUNDOFF[precision][0]
                if np.abs(part.expected).max() > 1.0 / unit:
                    continue
                bound = max(bound, bounds.MARGIN * unit * RUNNING_SUM * math.sqrt(point.size[0]))
        worst = max(worst, error / bound if error == error else float("inf"))
    return float(worst)


def bound_of(operation, precision, size=None, terms=None):
    """The largest relative error of an operation, at its smallest size if no other is given; of a gradient by slopes, ops.SLOPE_ERROR
    more. terms: of the longest sum, where that is not the operation's own.
    """
    unit, stored = ROUNDOFF[precision]
    factors = 1.0 if precision == "fp8" else math.sqrt(2.0)  # one result is rounded, or two factors are
    terms = max(terms or 0, operation.terms(*(size or operation.sizes[0])))
    return bounds.MARGIN * (min(unit, operation.sums or unit) * (2.0 + math.sqrt(terms)) + stored * factors)


def error_of(operators, name, operation, direction, precision):
    """(relative error, its bound) of one operation at its smallest size.

    A gradient is compared by its slope along a random direction, so the reference needs no gradients, unless the operation has them.
    """
    refuse(name, precision)
    if name in ops.ATTENTION and not operators.ATTENTION:
        raise Unsupported(NO_ATTENTION % "it")
    size, bound = operation.sizes[0], bound_of(operation, precision)
    random = np.random.RandomState(20210927)
    p = ops.draw_inputs(operation, size, random, direction)
    if precision == "fp8":
        p = collections.OrderedDict((key, ops.to_fp8(value)) for key, value in p.items())
    (run,) = operators.runs(name, direction, [p])
    values = [np.asarray(value, dtype=np.float64) for value in operators.values(name, direction, run())]
    if direction != ops.GRADIENT:
        return parity.relative_error(values[0], operation.compute(p)), bound
    if operation.gradients:
        return _largest_error(values, operation.gradients(p)), bound
    # A slope is too blunt to tell two types of 8 bits apart.
    if precision == "fp8":
        d = np.ones(operation.result(*size))
        return _largest_error(values, (d.dot(p["b"].T), p["a"].T.dot(d))), bound
    errors = [0.0 if len(values) == len(p) else float("inf")]
    for key, value in zip(p, values):
        along, slope = ops.slope(operation, p, key, random)
        scale = np.linalg.norm(value) * np.linalg.norm(along)
        errors.append(abs(float((value * along).sum()) - slope) / scale if value.shape == along.shape else float("inf"))
    return float(max(errors)), bound + ops.SLOPE_ERROR


def _largest_error(values, expected):
    """Of all gradients; inf where one is missing."""
    return max(map(parity.relative_error, values, expected)) if len(values) == len(expected) else float("inf")


def has_larger(points, point):
    """True if a point of the same operation and direction follows."""
    return any(other[:2] == point[:2] for other in points[points.index(point) + 1 :])


def refuse(operation, precision):
    """Raises Unsupported for operations that no framework has to compute in this precision."""
    if (operation, precision) in ops.UNFIT:
        raise Unsupported(ops.UNFIT[operation, precision])
    if precision == "fp8" and operation not in ops.PRODUCTS:
        raise Unsupported("fp8 is of the factors of products, and this is none")


class Turns(object):
    """Runs that take turns over several sets of inputs. A window ends when the device has finished all its runs.

    `agree(seconds)` gives each of several processes the time of the first.
    """

    def __init__(self, synchronize, runs, agree=lambda seconds: seconds, clock=time.perf_counter):
        self._synchronize, self._runs, self._agree, self._clock = synchronize, runs, agree, clock
        self.fastest = float("inf")  # seconds of a run, of all windows so far
        # (number of its inputs, result) of the last run; how many runs each of the inputs has had.
        self.last, self.done = None, [0] * len(runs)

    def window(self, count):
        """Seconds of `count` runs."""
        runs = (self._runs * (count // len(self._runs) + 1))[:count]
        # The memory of a result is free while the next one is computed, as in a loop that keeps none.
        self.last = None
        self._synchronize()
        begin = self._clock()
        for run in runs[:-1]:
            run()
        result = runs[-1]()
        self._synchronize()
        seconds = self._agree(self._clock() - begin)
        self.done = [done + len(range(at, count, len(self._runs))) for at, done in enumerate(self.done)]
        self.last = (count - 1) % len(self._runs), result
        self.fastest = min(self.fastest, seconds / count)
        return seconds

    def warm_up(self, limit_seconds):
        """Run up to WARM_UP_RUNS times and each set of inputs once; returns the expected seconds of a run."""
        spent, done, last = 0.0, 0, 0.0
        while done < LEAST_WARM_UP_RUNS or (done < WARM_UP_RUNS and spent < limit_seconds):
            last = self.window(1)
            spent, done = spent + last, done + 1
        several = max(1, min(len(self._runs), int(limit_seconds / max(last, 1e-9))))
        return self.window(several) / several

    def spin(self, seconds, per_run):
        """Run for so long; returns the expected seconds of a run, which are `per_run` before."""
        spent = 0.0
        while spent < seconds:
            count = max(1, int(0.1 * seconds / max(per_run, 1e-9)))
            last = self.window(count)
            spent, per_run = spent + last, last / count
        return per_run


def size_text(size):
    return "x".join(str(number) for number in size)
