"""The pictures of whether every GPU performs as the others of its model do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from reports.answers.health import FleetHealth, GpuHealth, Health
from reports.page.drawing import Axis, Chart, Picture

# GPUs of a strip and strips of a model at most: more become grids of GPUs and workloads, as wide as a telephone shows.
MOST_IN_A_STRIP, MOST_STRIPS, COLUMNS = 16, 4, 4
_ROW, _REASON = 22, 16  # pixels
_SHORT = 32  # characters of a reason in the picture; the caption has all of it


def gpus(health: Health) -> tuple[Chart, ...]:
    """A strip for each fleet; of a model with more GPUs or more fleets, a grid for every four fleets."""
    charts = []
    for at, (model, each) in enumerate(groupby(health.fleets, key=lambda fleet: fleet.model), start=1):
        fleets = [fleet for fleet in each if fleet.gpus]
        if len(fleets) > MOST_STRIPS or any(len(fleet.gpus) > MOST_IN_A_STRIP for fleet in fleets):
            parts = [fleets[start : start + COLUMNS] for start in range(0, len(fleets), COLUMNS)]
            charts += [_grid(f"gpus-{at}-{place}", model, part) for place, part in enumerate(parts, start=1)]
        else:
            charts += [_strip(f"gpus-{at}-{place}", fleet) for place, fleet in enumerate(fleets, start=1)]
    return tuple(charts)


def _strip(place: str, fleet: FleetHealth) -> Chart:
    """A row for each GPU: its deviation with the interval, over the band of normal deviations."""
    ends = [end for gpu in fleet.gpus for end in (gpu.deviation, gpu.low, gpu.high) if end is not None]
    ends += [end for end in (fleet.low, fleet.high) if end is not None]
    reach = 1.1 * max([abs(end) for end in ends if math.isfinite(end)] or [0.0]) or 0.01
    axis = Axis(min([-0.3 * reach, *(1.1 * end for end in ends if math.isfinite(end))]), reach)
    height = sum(_ROW + (_REASON if gpu.named and gpu.reason else 0) for gpu in fleet.gpus)
    picture = Picture(height, axis, named=True)
    if fleet.low is not None and fleet.high is not None:
        picture.bar(axis(fleet.low), axis(fleet.high), 0, height, "area normal", "the normal band")
    ticks = [(value, "median" if value == 0 else f"{100 * value:+.3g} %") for value in axis.ticks]
    picture.grid("", "", ticks)
    top = 0
    for gpu in fleet.gpus:
        tone, y = "alarm" if gpu.named else "", top + _ROW / 2
        picture.beside(y + 4, _name(gpu), tone)
        if gpu.low is not None and gpu.high is not None:
            picture.interval(axis(gpu.low), axis(gpu.high), y, f"line {tone}")
        picture.mark(axis(gpu.deviation), y, "diamond" if gpu.named else "circle", tone, _said(gpu))
        top += _ROW
        if gpu.named and gpu.reason:
            picture.words(100, top + 10, f"{_signed(gpu.deviation)} %: {gpu.reason}", f"end {tone}", _SHORT)
            top += _REASON
    words = f"{fleet.sentence} " + "; ".join(map(_said, fleet.gpus))
    caption = f"{fleet.cell} on {fleet.model}: each GPU's step time beside the median of {len(fleet.gpus)}."
    caption += " Shaded: normal deviations; ◆ slow." if fleet.high is not None else " Too few GPUs for a normal band."
    caption += "".join(f" {_name(gpu)}: {gpu.reason}." for gpu in fleet.gpus if gpu.named and gpu.reason)
    return picture.chart(place, words, caption)


def _grid(place: str, model: str, fleets: Sequence[FleetHealth]) -> Chart:
    """A row for each GPU, a column for each fleet: the deviation, and a mark where the GPU is slow."""
    rows = sorted({(_order(gpu), _name(gpu)) for fleet in fleets for gpu in fleet.gpus})
    picture = Picture(20 * len(rows) + 20, Axis(0, len(fleets)), named=True)
    named = []
    for column, fleet in enumerate(fleets):
        picture.words(picture.x(column + 0.5), 12, fleet.workload, "mid tick", 28 // len(fleets))
        places = {_name(gpu): gpu for gpu in fleet.gpus}
        for at, (_, name) in enumerate(rows):
            gpu = places.get(name)
            if gpu is None:
                continue
            y, left = 20 + 20 * at, picture.x(column)
            kind = "area alarm" if gpu.named else "area wash"
            picture.bar(left + 0.3, picture.x(column + 1) - 0.3, y + 1, 18, kind, f"{fleet.cell}: {_said(gpu)}")
            label = ("◆ " if gpu.named else "") + _signed(gpu.deviation)
            picture.words(picture.x(column + 0.5), y + 14, label, "mid over" if gpu.named else "mid")
            if gpu.named:
                named.append(f"{_said(gpu)} in {fleet.cell}")
    for at, (_, name) in enumerate(rows):
        picture.beside(20 + 20 * at + 14, name)
    words = (
        f"Step time of each {model} beside the median of all, by workload. Slow: " + ("; ".join(named) or "none") + "."
    )
    caption = f"{model}: each GPU's step time beside the median of all, in per cent; ◆ slow. Columns: "
    caption += "; ".join(fleet.cell for fleet in fleets) + "."
    return picture.chart(place, words, caption)


def _order(gpu: GpuHealth) -> int:
    return -1 if gpu.index is None else gpu.index


def _name(gpu: GpuHealth) -> str:
    index = "" if gpu.index is None else f" {gpu.index}"
    return f"GPU{index} …{gpu.uuid_end}"


def _signed(share: float) -> str:
    """A share in per cent, without its sign of per cent. Nothing is -0.0."""
    return f"{round(100 * share, 1) + 0.0:+.1f}"


def _said(gpu: GpuHealth) -> str:
    """One GPU in words."""
    interval = "" if gpu.low is None or gpu.high is None else f" ({_signed(gpu.low)} % to {_signed(gpu.high)} %)"
    slow = f", slow{': ' + gpu.reason if gpu.reason else ''}" if gpu.named else ""
    return f"{_name(gpu)} {_signed(gpu.deviation)} %{interval}{slow}"
