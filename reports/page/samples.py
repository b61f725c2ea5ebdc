"""The windows of one repeat with the telemetry below them: packed numbers, which the page's script draws when a reader opens them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from reports.data import telemetry_signals
from reports.data.model import MeasuredCell, Repeat, Signal
from reports.page import signs
from reports.page.drawing import Chart, thinned
from reports.wording import duration
from runner.results.statistics import Array
from runner.text import visible

_STEPS = 4000  # of a scale: a screen shows no more
_HEIGHT = 190


def sequence(cell: MeasuredCell, repeat: Repeat, most: int) -> Chart | None:
    """Milliseconds a step against seconds since the process began, and below them what the devices did."""
    windows = repeat.windows
    stages = np.array(windows.stage, dtype=object)
    if not (stages != "first").any():
        return None
    times = 1e3 * windows.seconds / windows.steps
    middle = windows.begin + windows.seconds / 2
    points = []
    for stage in ("warm-up", "steady"):
        at = np.flatnonzero(stages == stage)
        at = at[thinned(len(at), most)]
        points.append([_packed(middle[at]), _packed(times[at])])
    steady = repeat.steady_step_seconds
    levels = [float(np.median(steady))] if len(steady) else []
    if repeat.shift is not None:
        levels = [repeat.shift.before, repeat.shift.after]
    top = max([1.5e3 * level for level in levels] + [1.1 * float(np.quantile(times[stages != "first"], 0.97))])
    data = {
        "points": points,
        "levels": [float(f"{1e3 * level:.5g}") for level in levels],
        "top": float(f"{top:.3g}"),
        "signals": _signals(repeat),
    }
    sampled = telemetry_signals.described(repeat)
    words = (
        f"Windows of {cell.label}, repeat {repeat.number}, in their order; the list below has the numbers. {sampled}"
    )
    said = "their median" if repeat.shift is None else "their level before and after the change"
    lines = f"; the dashed line is {said}: {' and '.join(map(duration, levels))}" if levels else ""
    caption = f"Steady windows ● and warm-up ○ in their order{lines}. {sampled}"
    place = Markup('<div class="samples {}" role="img" aria-label="{}" data-samples="{}"></div>').format(
        signs.of(cell)[1], visible(words, 2000), packed(json.dumps(data, allow_nan=False, separators=(",", ":")))
    )
    return Chart(f"plot-{cell.anchor}-{repeat.number}", place, visible(words, 2000), caption, _HEIGHT)


def _signals(repeat: Repeat) -> list[dict[str, Any]]:
    """The lines of the devices that are drawn, of each its unit, its name, its places and its values."""
    gpus = dict.fromkeys(signal.device for signal in repeat.signals if signal.device != "cpu")
    shown = {"cpu", *list(gpus)[: telemetry_signals.MOST_DEVICES]}
    return [_signal(signal) for signal in repeat.signals if signal.device in shown and len(signal.values)]


def _signal(signal: Signal) -> dict[str, Any]:
    device = "" if signal.device == "cpu" else f"{signal.device} "
    held = {"held": 1} if signal.name == telemetry_signals.HELD_BACK else {}
    return {
        "unit": visible(signal.unit, 40),
        "name": visible(device + signal.name, 80),
        "x": _packed(signal.seconds),
        "y": _packed(signal.values),
        **held,
    }


def _packed(values: Array | Sequence[float]) -> list[float | list[int]]:
    """[unit, the first value and the differences in that unit]: such numbers are small, and compress well."""
    column = np.asarray(values, dtype="float64")
    column = column[np.isfinite(column)]
    most = float(np.max(np.abs(column))) if len(column) else 0.0
    unit = float(f"{most / _STEPS:.4g}") or 1.0
    return [unit, np.diff(np.rint(column / unit).astype(np.int64), prepend=0).tolist()]


def packed(content: str) -> str:
    """A text as an HTML page can hold it without reading it: gzip in base64, the same bytes for the same text."""
    return base64.b64encode(gzip.compress(content.encode("utf-8"), 6, mtime=0)).decode("ascii")
