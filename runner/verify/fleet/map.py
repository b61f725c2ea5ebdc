"""A map of nodes and their GPUs for a terminal of 80 columns: each GPU beside the median of all, the slowest node first. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runner.text import plural, visible
from runner.verify.outliers import FleetFinding

WIDTH = 80
# The most nodes with a line.
MOST_LINES = 24
_NAME, _NODE = 20, 8


@dataclass(frozen=True)
class Rack:
    """One comparison of nodes, and of the GPUs within them."""

    nodes: FleetFinding
    gpus: FleetFinding

    @property
    def slowest(self) -> float:
        """The largest deviation of all."""
        return max((one.value for one in (*self.nodes.deviations, *self.gpus.deviations)), default=0.0)

    @property
    def named(self) -> int:
        return len(self.nodes.fleet.slow) + len(self.gpus.fleet.slow)


def racks(fleets: Sequence[FleetFinding]) -> list[Rack]:
    """The comparisons of nodes, each with that of its GPUs."""
    pairs = itertools.pairwise(fleets)
    return [Rack(nodes, gpus) for nodes, gpus in pairs if nodes.of == "node" and gpus.of == "GPU" and gpus.spots]


def lines(fleets: Sequence[FleetFinding], width: int = WIDTH) -> Iterator[str]:
    """The map of each model: of the comparison that names most, and of these the one with the slowest. None without nodes."""
    models: dict[str, list[Rack]] = {}
    for rack in racks(fleets):
        models.setdefault(rack.gpus.device_model, []).append(rack)
    for each in models.values():
        yield from _map(max(each, key=lambda rack: (rack.named, rack.slowest)), width)


def _map(rack: Rack, width: int) -> Iterator[str]:
    cells = _cells(rack.gpus)
    columns = sorted({column for of_node in cells.values() for column in of_node})
    named = {slow.device for slow in rack.nodes.fleet.slow}
    weak = {rack.gpus.spots[slow.device].node for slow in rack.gpus.fleet.slow if slow.device in rack.gpus.spots}
    order = [one.device for one in rack.nodes.deviations]
    order.sort(key=lambda node: node not in named | weak)
    values = {one.device: one.value for one in rack.nodes.deviations}
    each = (width - _NAME - _NODE) // max(1, len(columns))
    yield ""
    yield visible(f"{rack.gpus.name} on {rack.gpus.device_model}")[:width]
    yield "step time beside the median of all, in %; ! slow; one column a GPU"[:width]
    if each >= 2:
        yield f"{'node':{_NAME}}{'all':>{_NODE - 1}} " + "".join(f"{column:>{each}}" for column in columns)
    for node in order[:MOST_LINES]:
        of_node = cells.get(node, {})
        mark = "!" if node in named else " "
        head = f"{_cut(visible(node), _NAME - 1):{_NAME}}{_per_cent(values[node], 6)}{mark} "
        row = "".join(_cell(of_node.get(column), each) for column in columns)
        for start in range(0, len(row), width - _NAME - _NODE):
            yield ((head if start == 0 else " " * len(head)) + row[start : start + width - _NAME - _NODE]).rstrip()
    if rest := [values[node] for node in order[MOST_LINES:]]:
        yield f"{plural(len(rest), 'more node')}, from {100 * min(rest):+.1f} to {100 * max(rest):+.1f}"
    yield ""


def _cells(finding: FleetFinding) -> dict[str, dict[int, tuple[float, bool]]]:
    """Node -> column -> (the deviation of its GPU, whether it is slow). A GPU without an index comes after the others."""
    slow = {each.device for each in finding.fleet.slow}
    cells: dict[str, dict[int, tuple[float, bool]]] = {}
    spots = finding.spots
    placed = [one for one in finding.deviations if one.device in spots]
    for one in sorted(placed, key=lambda one: (spots[one.device].index is None, spots[one.device].index or 0)):
        of_node, index = cells.setdefault(spots[one.device].node, {}), spots[one.device].index
        column = index if index is not None and index not in of_node else max(of_node, default=-1) + 1
        of_node[column] = (one.value, one.device in slow)
    return cells


def _cell(cell: tuple[float, bool] | None, width: int) -> str:
    """A GPU in so many columns; a sign where there is no room for a number."""
    if cell is None:
        return f"{'-':>{max(1, width)}}"
    value, slow = cell
    if width >= 6:
        return f"{_per_cent(value, width - 1)}{'!' if slow else ' '}"
    if width >= 4:
        return f"{max(-99, min(99, round(100 * value))):+{width - 1}d}{'!' if slow else ' '}"
    return f"{'!' if slow else '+' if value > 0.02 else '.':>{max(1, width)}}"


def _per_cent(value: float, width: int) -> str:
    text = f"{100 * value:+.1f}"
    return f"{text if len(text) <= width else '>999'[:width]:>{width}}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
