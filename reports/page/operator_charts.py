"""The plots of single operations: rates by size, and all rates under the roofs that bound them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reports.data.ceilings import Ceiling
from reports.data.model import MeasuredCell
from reports.data.operators import RateCurve
from reports.data.peaks import Peak
from reports.page.charts import symbols
from reports.page.figure import Figure, json_numbers, plot_layout, scatter, text


def operator(curve: RateCurve) -> Figure | None:
    """One operation's rate by size, a line for each cell, both axes logarithmic. The size is in operations, or in bytes as the rate."""
    marks = symbols([cell for cell, _ in curve.cells])
    traces: list[Figure] = []
    for cell, rates in curve.cells:
        across = [rate.bytes if curve.by_traffic else rate.mop for rate in rates]
        pairs = zip(across, rates, strict=True)
        kept = [(x, curve.value(rate), rate.size) for x, rate in pairs if x > 0 and not curve.refused(rate)]
        x, y, sizes = (list(column) for column in zip(*kept, strict=True)) if kept else ([], [], [])
        traces.append(_points("lines+markers", cell, marks, x, y, sizes, curve.unit))
    if not any(trace["x"] for trace in traces):
        return None
    title = "bytes a run" if curve.by_traffic else "million operations a run"
    layout = plot_layout(280, title, curve.unit, xaxis={"type": "log"}, yaxis={"type": "log"})
    return {"data": traces, "layout": layout}


def roofline(curves: Sequence[RateCurve], ceilings: Iterable[Ceiling]) -> Figure | None:
    """Each operation at its fastest size, by its operations a byte, under the measured roofs and those of the datasheet.

    Both axes are logarithmic (Williams, Waterman and Patterson 2009, "Roofline"). None where no roof is known.
    """
    marks = symbols([cell for curve in curves for cell, _ in curve.cells])
    points = []
    for curve in curves:
        for cell, rates in curve.cells:
            believed = [rate for rate in rates if rate.mop and not curve.refused(rate)]
            if believed:
                points.append((curve, cell, max(believed, key=lambda rate: rate.gflops)))
    across = [_intensity(rate.mop, rate.bytes) for _, _, rate in points]
    roofs = [_roof(f"measured in {ceiling.run_id}", *_measured(ceiling), "dash", across) for ceiling in ceilings]
    peak = next((curve.peak for curve in curves if curve.peak), None)
    if peak is not None:
        roofs.append(_roof("datasheet", *_promised(peak), "dot", across))
    traces: list[Figure] = [roof for roof in roofs if roof["x"]]
    if not points or not traces:
        return None
    for cell in {cell.anchor: cell for _, cell, _ in points}.values():
        own = [(curve, rate) for curve, owner, rate in points if owner.anchor == cell.anchor]
        names = [f"{curve.operation} {curve.direction} {rate.size}" for curve, rate in own]
        x = [_intensity(rate.mop, rate.bytes) for _, rate in own]
        traces.append(_points("markers", cell, marks, x, [rate.gflops for _, rate in own], names, "GFLOP/s"))
    axes = {"xaxis": {"type": "log"}, "yaxis": {"type": "log"}}
    return {"data": traces, "layout": plot_layout(320, "operations a byte", "GFLOP/s", **axes)}


def _points(
    mode: str,
    cell: MeasuredCell,
    marks: Mapping[str, str],
    x: Sequence[float],
    y: Sequence[float],
    names: Sequence[str],
    unit: str,
) -> Figure:
    """A cell's points, each with its name."""
    points = scatter(mode, json_numbers(x), json_numbers(y), name=text(cell.label), text=[text(name) for name in names])
    points |= {"marker": {"symbol": marks[cell.framework], "size": 8}, "meta": {"framework": cell.framework}}
    return points | {"hovertemplate": f"{text(cell.label)}<br>%{{text}}: %{{y:.3g}} {unit}<extra></extra>"}


def _intensity(mop: float, traffic: float) -> float:
    return mop * 1e6 / traffic


def _measured(ceiling: Ceiling) -> tuple[float | None, float | None]:
    return ceiling.work.value if ceiling.work else None, ceiling.traffic.value if ceiling.traffic else None


def _promised(peak: Peak) -> tuple[float | None, float | None]:
    return peak.flops, peak.bytes


def _roof(name: str, work: float | None, traffic: float | None, dash: str, across: Sequence[float]) -> Figure:
    """The line that no rate crosses: the memory bounds it on the slope, the arithmetic on the level. Only what is known is drawn."""
    low, high = min(across, default=1.0), max(across, default=1.0)
    knee = [work / traffic] if work and traffic and low < work / traffic < high else []
    x = [low, *knee, high] if work or traffic else []
    y = [min(bound for bound in (work, traffic and traffic * at) if bound) / 1e9 for at in x]
    hover = f"{text(name)}<br>%{{y:.4g}} GFLOP/s<extra></extra>"
    line = scatter("lines", json_numbers(x), json_numbers(y), name=text(name), hovertemplate=hover)
    return {**line, "line": {"width": 2, "dash": dash}, "meta": {}}
