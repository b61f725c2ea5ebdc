"""The steps, items and seconds of a cell's windows, held against every other count that it prints.

A figure is items over seconds. The plan says how many steps a window has. The warm-up says how long a step takes. Each metric says after
how many steps and seconds it was, and `end` how many steps there were. All of them come from one loop, so they agree to the last step.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench import rules
from runner.results.gpu_facts import ABOVE_PEAK, FEWER_IN_CONVOLUTION, datasheet

# The arithmetic of a step: no device computes it faster than its datasheet says.


def _of_a_gpt(tokens: int, multiplied: int, layers: int, width: int) -> float:
    """Of a window: every parameter multiplies each token once, and attention 2 L C T is counted whole, as published.

    A table that is only looked up does not count, nor do experts that are not chosen. So a training step is 6 N + 12 L C T a token
    (Chowdhery et al. 2022, appendix B). A causal kernel computes half of the second term.
    """
    return float(tokens * (multiplied + 2 * layers * width * tokens))


# Multiply-adds of an item on its way forward, by the workload's layers; of the two large networks as their authors count them.
MULTIPLY_ADDS = {
    "cnn-cifar10": 62.26e6,
    "cnn-mnist": 16 * 4 * 27 * 27 + 8 * 16 * 4 * 12 * 12 + 288 * 10,
    "mlp-mnist": 784 * 32 + 32 * 10,
    # 3 gates x 100 units x (125 + 100) inputs at each of 150 positions.
    "gru-imdb": 150 * 3 * 100 * (125 + 100),
    "resnet50-imagenet": 4.09e9,
    "resnet50-features": 4.09e9,
    "densenet121-chestxray": 2.83e9,
    "gpt-bytes": _of_a_gpt(tokens=256, multiplied=10_745_856, layers=6, width=384),
    "gpt2-124m": _of_a_gpt(tokens=1024, multiplied=123_689_472, layers=12, width=768),
    # Of a token: a step sees at least 192 positions in the mean of a sequence, its own with them.
    "gpt2-decode": 123_689_472 + 2 * 12 * 768 * 192,
    "llama-bytes": _of_a_gpt(tokens=256, multiplied=9_540_480, layers=6, width=384),
    "moe-bytes": _of_a_gpt(tokens=256, multiplied=9_549_696, layers=6, width=384),
}
# Of a step that computes one token of each sequence, in float32: the bytes of the parameters, but for the table of positions, of which it
# reads a row; and the bytes of one sequence's keys and values at the 191.5 positions before it, in the mean of a sequence.
BYTES_READ = {"gpt2-decode": (4 * 123_689_472.0, 191.5 * 2 * 12 * 768 * 4)}
# Of single operations: GeForce multiplies fp8 twice as fast as its figure says where the sums may be rounded.
_FEWER_IN_OPERATIONS = 2.0
_WITHOUT_CONVOLUTION = ("mlp-mnist", "gru-imdb", "gpt-bytes", "gpt2-124m", "gpt2-decode", "llama-bytes", "moe-bytes")

# Of a CPU, an upper limit that no CPU reaches: operations a cycle of one core (two units of 512 bits; for half types Intel's AMX), and Hz.
_CPU_OPERATIONS = 64.0
_CPU_HALF_OPERATIONS = 2048.0
_CPU_HERTZ = 6.5e9


@functools.cache
def least_operations(workload: str) -> float | None:
    """The fewest floating-point operations that a step takes for each of its items; None where nobody counted them.

    Of training, forward and the gradients of the parameters: the first layer needs no gradient of its input.
    """
    name, trained = _network(workload)
    if name not in MULTIPLY_ADDS:
        return None
    fewer = 1.0 if name in _WITHOUT_CONVOLUTION else FEWER_IN_CONVOLUTION
    return (4.0 if trained else 2.0) * MULTIPLY_ADDS[name] / fewer


def model_operations(workload: str) -> float | None:
    """The floating-point operations of an item as its network is written: forward, and twice as many backward; None where nobody
    counted them."""
    if workload not in rules.workload_names():
        return None
    name, trained = _network(workload)
    return (6.0 if trained else 2.0) * MULTIPLY_ADDS[name] if name in MULTIPLY_ADDS else None


def least_bytes(workload: str, batch: float, precision: str) -> float | None:
    """The bytes that a step of `batch` items reads at least; None where nobody counted them. Half types are half as many.

    A cache that holds them all reads them faster than memory.
    """
    if workload not in rules.workload_names() or (name := _network(workload)[0]) not in BYTES_READ:
        return None
    parameters, of_an_item = BYTES_READ[name]
    return (parameters + batch * of_an_item) / (2.0 if precision in rules.MIXED.values() else 1.0)


def _network(workload: str) -> tuple[str, bool]:
    """The workload whose network this one computes, and whether it is trained."""
    return rules.network_of(workload), rules.workload_declaration(workload)["task"] == "train"


def most_operations(device_kind: str, model: str, devices: int, cpus: int, precision: str) -> float | None:
    """The most floating-point operations a second of a cell's devices; None where that is not known.

    `model` is NVML's name of the GPU, `cpus` how many logical CPUs the cell had, 0 where that is not known.
    """
    if device_kind == "cpu":
        return cpus * _CPU_HERTZ * (_CPU_OPERATIONS if precision == "fp32" else _CPU_HALF_OPERATIONS) or None
    known, single = datasheet(model, precision), datasheet(model, "fp32")
    if not known or not known.flops:
        return None
    # GPUs like the GTX 1080 Ti have few units of half precision: libraries store halves there and compute in fp32.
    return max(known.flops, single.flops or 0.0 if single else 0.0) * devices * ABOVE_PEAK


def too_fast(samples: Sequence[Mapping[str, Any]], workload: str, most: float | None) -> str | None:
    """The fault if the steady windows hold more arithmetic than the devices can do in them: a sentence. `most` is of
    `most_operations`.
    """
    each = least_operations(workload)
    steady = [sample for sample in samples if sample["stage"] == "steady"]
    if each is None or most is None or not steady:
        return None
    work, seconds = sum(sample["items"] for sample in steady) * each, sum(sample["seconds"] for sample in steady)
    if work <= most * seconds:
        return None
    took = f"its windows took {seconds:.3g} s for {work / 1e9:.3g} GFLOP"
    return f"{took}, and its devices compute {most / 1e9:.3g} GFLOP/s at most"


def operations_too_fast(operations: Sequence[Mapping[str, Any]], most: float | None) -> str | None:
    """The fault if the windows of a point hold more arithmetic than the devices can do in them: a sentence. `most` is of
    `most_operations`.

    Only forward: a compiler may find the gradient of a sum with less work than the count says.
    """
    points: dict[tuple[str, str], list[float]] = {}
    for row in operations:
        if row["direction"] == "forward":
            fewer = FEWER_IN_CONVOLUTION if "conv" in row["operation"] else _FEWER_IN_OPERATIONS
            point = points.setdefault((row["operation"], row["size"]), [0.0, 0.0])
            point[0] += row["mop"] * 1e6 * row["runs"] / fewer
            point[1] += row["seconds"]
    for (operation, size), (count, seconds) in points.items():
        if most is not None and count > most * seconds:
            took = f"its windows of {operation} {size} took {seconds:.3g} s for {count / 1e9:.3g} GFLOP"
            return f"{took}, and its devices compute {most / 1e9:.3g} GFLOP/s at most"
    return None


# After the last window a cell may take so many more steps, whose parameters are held. They have no window.
_MOST_FURTHER = 8

# Sums of the same float64 numbers in the same order are equal. A cell in another language may add them up otherwise.
_ROUNDING = 1e-6

# A window has as many steps as make this time, by the last windows of the warm-up (bench.timing). Steps may be faster later, and so many
# times as many are believed.
_WINDOW_SECONDS = 0.1
_MOST_STEPS = 4.0
_GROUP = 3
# Warm-up ends when its windows stop getting faster. A steady step that takes less than this part of a step then is not believed.
_LEAST_STEP = 1 / 3
# The same where other work took much of a CPU then: threads that wait for one another lose more than their share.
_LEAST_DISTURBED_STEP = 1 / 8

# Before the first token of a sequence a cell prints the window before it, or a phase. So much of the time since then may be other work.
_MOST_BEFORE_TOKEN = 0.1
_SECONDS_BEFORE_TOKEN = 0.005


class Counts:
    """Collects what the events of one cell count."""

    def __init__(self) -> None:
        self._steps, self._seconds, self._runs = 0, 0.0, 0
        # Of the windows so far: (stage, seconds, steps).
        self._windows: list[tuple[str, float, int]] = []
        # True until the loss of the last window is printed.
        self._owes_loss = False
        self._lacks_loss: str | None = None
        # A step that a metric counts and no window has: None, or the sentence.
        self._further: str | None = None
        self._plan: Mapping[str, Any] | None = None
        self._end: int | None = None
        self._problem: str | None = None
        # The clock of the event before, and of each first token (the time since that event, what the cell says).
        self._before = 0.0
        self._first_tokens: list[tuple[float, float]] = []
        self._between: dict[str, float] = {}

    def note(self, event: Mapping[str, Any]) -> None:
        """Take the next event of the cell."""
        kind = event["event"]
        if kind == "sample":
            self._window(event)
        elif kind == "operation":
            self._runs += event["runs"]
        elif kind == "metric":
            self._metric(event)
        elif kind == "plan":
            self._plan = event
        elif kind == "end":
            self._end = event["steps"]
        self._before = event["t"]

    def _window(self, event: Mapping[str, Any]) -> None:
        if self._owes_loss:
            self._lacks_loss = self._lacks_loss or f"it printed no loss of the window before window {event['index']}"
        self._owes_loss = True
        # Steps without a window come after the last one.
        self._problem = self._problem or self._further
        if event["stage"] == "first" and event["steps"] != 1:
            self._problem = self._problem or f"its first window has {event['steps']} steps, and it has one"
        self._steps += event["steps"]
        self._seconds += event["seconds"]
        self._windows.append((event["stage"], event["seconds"], event["steps"]))

    def _metric(self, event: Mapping[str, Any]) -> None:
        name, step, seconds = event["name"], event["step"], event["seconds"]
        if name == "loss":
            self._owes_loss = False
        if name == rules.FIRST_TOKEN and event["value"] is not None:
            self._first_tokens.append((event["t"] - self._before, event["value"]))
        if name in (rules.BETWEEN_TOKENS, rules.BETWEEN_TOKENS_99) and event["value"] is not None:
            self._between[name] = event["value"]
        if step != self._steps:
            why = f"it printed {name} after {step} steps, and the windows before it have {self._steps}"
            if self._steps < step <= self._steps + _MOST_FURTHER:
                self._further = self._further or why
            else:
                self._problem = self._problem or why
        if abs(seconds - self._seconds) > _ROUNDING * (1.0 + self._seconds):
            why = f"it printed {name} after {seconds:.6g} s of training, and the windows before it lasted {self._seconds:.6g} s"
            self._problem = self._problem or why

    def implausible(self, task: str, batch: int, disturbed: bool = False) -> str | None:
        """The contradiction among the counts, as a sentence; None where they agree.

        `batch`: the items in a step of all devices. `disturbed`: other work slowed the warm-up, which says less of later steps then.
        """
        if task == "operators":
            return self._wrong_end(self._runs, "runs", 0)
        why = self._problem or (self._lacks_loss if task in ("train", rules.OWN) else None) or self._wrong_plan(batch)
        why = why or self._wrong_end(self._steps, "steps", _MOST_FURTHER if task in ("train", rules.OWN) else 0)
        least = _LEAST_DISTURBED_STEP if disturbed else _LEAST_STEP
        return why or self._unlike_warm_up(least) or self._wrong_tokens()

    def _wrong_end(self, due: int, name: str, further: int) -> str | None:
        if self._end is None or due <= self._end <= due + further:
            return None
        return f"its `end` counts {self._end} {name}, and its windows have {due}"

    def _wrong_plan(self, batch: int) -> str | None:
        """Steady windows have the steps of the plan, or fewer: a loss scaler skips some, and a run ends with what is left."""
        if self._plan is None:
            return None
        each, items = self._plan["steps_per_window"], self._plan["items_per_step"]
        if items != batch:
            return f"its plan has {items} items in a step, and the cell has {batch}"
        most = max((steps for stage, _, steps in self._windows if stage == "steady"), default=0)
        return f"a steady window has {most} steps, and its plan has {each} in each" if most > each else None

    def _unlike_warm_up(self, least: float) -> str | None:
        """The reason if the steady windows cannot follow the warm-up: they have too many steps, or these are too fast."""
        warm_up = [seconds / steps for stage, seconds, steps in self._windows if stage == "warm-up" and steps]
        steady = [(seconds / steps, steps) for stage, seconds, steps in self._windows if stage == "steady" and steps]
        if len(warm_up) < 2 * _GROUP or not steady:
            return None
        last, typical = statistics.median(warm_up[-_GROUP:]), statistics.median(step for step, _ in steady)
        if typical < least * last:
            return (
                f"a step took {last:.3g} s at the end of its warm-up, and {typical:.3g} s by the windows after it: no step becomes so much "
                "faster by itself; if something else was slow then, measure it again"
            )
        most = max(steps for _, steps in steady)
        if (most - 1) * last * least > _MOST_STEPS * _WINDOW_SECONDS * _LEAST_STEP:
            return f"a window has {most} steps of {last:.3g} s each by its warm-up, and it has as many as make {_WINDOW_SECONDS:g} s"
        return None

    def _wrong_tokens(self) -> str | None:
        """The reason if the times of tokens are not those of the events around them, or of the windows."""
        if self._first_tokens:
            whole, said = (statistics.median(values) for values in zip(*self._first_tokens, strict=True))
            if said > whole + _SECONDS_BEFORE_TOKEN or whole > said * (1 + _MOST_BEFORE_TOKEN) + _SECONDS_BEFORE_TOKEN:
                return f"it says that a first token takes {said:.3g} s, and {whole:.3g} s lie between its events"
        steady = [(seconds, steps) for stage, seconds, steps in self._windows if stage == "steady" and steps]
        if not self._between or not steady:
            return None
        # Half of the tokens take at least the median, so it is twice the mean at most.
        mean = sum(seconds for seconds, _ in steady) / sum(steps for _, steps in steady)
        least = min(seconds / steps for seconds, steps in steady) / 2
        half = self._between.get(rules.BETWEEN_TOKENS, mean)
        if not least <= half <= 2 * mean or self._between.get(rules.BETWEEN_TOKENS_99, half) < half:
            return f"it says that a token takes {half:.3g} s, and in its windows one takes {mean:.3g} s"
        return None


def miscounted(operations: Sequence[Mapping[str, Any]], precision: str, devices: int) -> str | None:
    """The fault if a run of a single operation does not have the arithmetic and the bytes of its size: a sentence."""
    if not operations:
        return None
    # Imported here: commands that judge no single operation start faster without NumPy.
    from bench.workloads import ops

    for row in operations:
        point = ops.point_of(row["operation"], row["direction"], row["size"], precision, devices)
        name = f"{row['operation']} {row['direction']} {row['size']}"
        if point is None:
            return f"it measured {name}, which the workload does not have"
        for unit, said, due in (("million operations", row["mop"], point.mop), ("bytes", row["bytes"], point.bytes)):
            if abs(said - due) > _ROUNDING * due:
                return f"it counts {said:.6g} {unit} in a run of {name}, and it has {due:.6g}"
    return None
