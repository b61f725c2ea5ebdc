"""The pictures of whether every GPU performs as the others of its model do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from reports.answers.health import FleetHealth, GpuHealth, Health, NodeHealth
from reports.page.drawing import Axis, Chart, Picture
from runner.text import visible

# GPUs of a strip and strips of a model at most: more become grids of GPUs and workloads, as wide as a telephone shows.
MOST_IN_A_STRIP, MOST_STRIPS, COLUMNS = 16, 4, 4
_ROW, _REASON = 22, 16  # pixels
_MOST_NAMED = 8  # slow nodes and GPUs in a caption
_SHORT = 32  # characters of a reason in the picture; the caption has all of it


def gpus(health: Health) -> tuple[Chart, ...]:
    """A strip for each fleet; of GPUs in several nodes a map of nodes and GPUs.

    Of a model with more GPUs or more fleets, a grid for every four fleets.
    """
    charts = []
    for at, (model, each) in enumerate(groupby(health.fleets, key=lambda fleet: fleet.model), start=1):
        fleets = [fleet for fleet in each if fleet.gpus]
        if any(fleet.nodes for fleet in fleets):
            charts += [_racks(f"gpus-{at}-{place}", fleet) for place, fleet in enumerate(fleets, start=1)]
        elif len(fleets) > MOST_STRIPS or any(len(fleet.gpus) > MOST_IN_A_STRIP for fleet in fleets):
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
    ticks = [(value, "median" if value == 0 else f"{100 * value:+.3g} %".replace("-", "−")) for value in axis.ticks]
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


def _racks(place: str, fleet: FleetHealth) -> Chart:
    """A row for each node, the slowest first: its own deviation, then that of each of its GPUs; a mark where one is slow."""
    of_node: dict[str, list[GpuHealth]] = {node.name: [] for node in fleet.nodes}
    for gpu in fleet.gpus:
        of_node.setdefault(gpu.node, []).append(gpu)
    columns = 2 + max((len(gpus) for gpus in of_node.values()), default=0)
    picture = Picture(20 * len(fleet.nodes) + 20, Axis(0, columns), named=True)
    picture.words(picture.x(1), 12, "node", "mid tick")
    picture.words(picture.x(1 + columns / 2), 12, "its GPUs", "mid tick")
    named = []
    for at, node in enumerate(fleet.nodes):
        y = 20 + 20 * at
        picture.beside(y + 14, _short_name(node.name), "alarm" if node.named else "tick")
        spans = [(0.0, 2.0, node.deviation, node.named, _said_node(node))]
        spans += [
            (2.0 + column, 3.0 + column, gpu.deviation, gpu.named, f"{node.name}, {_said(gpu)}")
            for column, gpu in enumerate(of_node[node.name])
        ]
        for left, right, deviation, slow, words in spans:
            kind = "area alarm" if slow else "area wash"
            picture.bar(picture.x(left) + 0.3, picture.x(right) - 0.3, y + 1, 18, kind, words)
            # Beside many GPUs there is no room for more, nor for a sign: slow is always plus. The description has the numbers.
            label = _signed(deviation) if right - left > 1 else f"{100 * deviation:.0f}" if slow else ""
            if label:
                picture.words(picture.x((left + right) / 2), y + 14, label, "mid over" if slow else "mid")
            if slow:
                named.append(words)
    words = f"{fleet.sentence} Nodes, the slowest first: " + "; ".join(map(_said_node, fleet.nodes))
    caption = f"{fleet.cell} on {fleet.model}: the median of each node, then each of its GPUs, beside the median of all, in per cent."
    more = f"; and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    caption += f" Coloured: {'; '.join(named[:_MOST_NAMED])}{more}." if named else " None is slow."
    return picture.chart(place, words, caption)


def _said_node(node: NodeHealth) -> str:
    """One node in words."""
    slow = f", slow{': ' + node.reason if node.reason else ''}" if node.named else ""
    return f"{node.name} {_signed(node.deviation)} %{slow}"


def _short_name(name: str) -> str:
    """The name of a node, as long as there is room left of the picture. Names of one fleet differ at their end."""
    shown = visible(name)
    return shown if len(shown) <= 13 else f"{shown[:4]}…{shown[-8:]}"


def _order(gpu: GpuHealth) -> int:
    return -1 if gpu.index is None else gpu.index


def _name(gpu: GpuHealth) -> str:
    index = "" if gpu.index is None else f" {gpu.index}"
    return f"GPU{index} …{gpu.uuid_end}"


def _signed(share: float) -> str:
    """A share in per cent, without its sign of per cent. Nothing is -0.0."""
    return f"{round(100 * share, 1) + 0.0:+.1f}".replace("-", "−")


def _said(gpu: GpuHealth) -> str:
    """One GPU in words."""
    interval = "" if gpu.low is None or gpu.high is None else f" ({_signed(gpu.low)} % to {_signed(gpu.high)} %)"
    slow = f", slow{': ' + gpu.reason if gpu.reason else ''}" if gpu.named else ""
    return f"{_name(gpu)} {_signed(gpu.deviation)} %{interval}{slow}"
