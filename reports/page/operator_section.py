"""Single operations on the page: tables of rates, shares of the ceiling by size, and all rates under the roofs that bound them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from markupsafe import Markup

from reports.data import operators
from reports.data.model import Group, MeasuredCell, Rate, Rates
from reports.data.operators import RateCurve
from reports.data.roofline import Ceiling, ceilings
from reports.page import signs
from reports.page.drawing import Axis, Chart, LegendEntry, Picture, reaching
from reports.page.page import OperatorGroup, RateRow, RateTable
from reports.wording import duration, number, percent


def section(group: Group, stored: Mapping[tuple[str, str], Rates]) -> OperatorGroup:
    """The tables and pictures of one group of comparable cells. `stored` are the rates of all cells."""
    measured = operators.curves(group, stored)
    roofs = ceilings(measured)
    tables = (
        RateTable(
            curve,
            operator(f"operation-{group.anchor}-{at}", curve, roofs),
            tuple(_rate_rows(curve, roofs)),
        )
        for at, curve in enumerate(measured, start=1)
    )
    return OperatorGroup(
        group,
        tuple(roofs.values()),
        roofline(f"roofs-{group.anchor}", measured, roofs.values()),
        tuple(tables),
    )


def _rate_rows(curve: RateCurve, roofs: Mapping[str, Ceiling]) -> Iterator[RateRow]:
    for size, rates in curve.rows():
        best = curve.best(rates)
        entries = tuple(
            _rate(curve, rate, rate is best, roofs.get(cell.run_id)) if rate else None
            for (cell, _), rate in zip(curve.cells, rates, strict=True)
        )
        yield size, operators.size_class(next(rate.mop for rate in rates if rate)), entries


def _rate(curve: RateCurve, rate: Rate, best: bool, ceiling: Ceiling | None) -> tuple[str, str]:
    """The table's text, and the one below it."""
    if curve.refused(rate):
        return "refused", Markup("above the device's peak")
    share, bus = curve.share(rate), curve.bus_bandwidth(rate)
    of_ceiling = ceiling.share(curve, rate) if ceiling else None
    below = [duration(rate.seconds), *rate.kernels]
    below += [] if share is None else [percent(share) + (" of the peak" if ceiling else "")]
    below += [] if of_ceiling is None else [f"{percent(of_ceiling)} of the ceiling"]
    below += [] if bus is None else [f"bus {number(bus)} GB/s"]
    return number(curve.value(rate)) + "*" * best + "†" * (rate.shift is not None), ", ".join(below)


def operator(place: str, curve: RateCurve, roofs: Mapping[str, Ceiling]) -> Chart | None:
    """One operation by size, a line for each cell: its share of the measured ceiling or of the datasheet's peak, from 0 to 1.

    If neither is known, its rate. The size is in operations, or in bytes as the rate.
    """
    believed = [(cell, [rate for rate in rates if not curve.refused(rate)]) for cell, rates in curve.cells]
    shares = [
        (cell, [(rate, _share(curve, rate, roofs.get(cell.run_id))) for rate in rates]) for cell, rates in believed
    ]
    known = [(cell, [(rate, share) for rate, share in each if share is not None]) for cell, each in shares]
    by_share = any(each for _, each in known)
    if not by_share:
        known = [(cell, [(rate, curve.value(rate)) for rate in rates]) for cell, rates in believed]
    known = [(cell, [(rate, y) for rate, y in each if _size(curve, rate) > 0]) for cell, each in known]
    points = [(_size(curve, rate), y) for _, each in known for rate, y in each]
    if not points:
        return None
    top = 1.05 * max(y for _, y in points)
    y_axis = Axis(0.0, max(1.0, top) if by_share else top, 120, 0)
    picture = Picture(120, reaching((x for x, _ in points), 0, 100, log=True), y_axis)
    picture.grid(
        "bytes a run" if curve.by_traffic else "million operations a run", "of the ceiling" if by_share else curve.unit
    )
    if by_share:
        picture.line([(0, picture.at(1)), (100, picture.at(1))], "dotted muted")
    for cell, each in known:
        shape, tone = signs.of(cell)
        places = [(picture.x(_size(curve, rate)), picture.at(y)) for rate, y in each]
        if len(places) > 1:
            picture.line(places, f"line {tone}", cell.label)
        for (x, y), (rate, value) in zip(places, each, strict=True):
            rated = f"{number(curve.value(rate))} {curve.unit}" + (
                f", {percent(value)} of the ceiling" if by_share else ""
            )
            picture.mark(x, y, shape, tone, f"{cell.label}, {rate.size}: {rated}")
    caption, words = f"{curve.operation}, {curve.direction}", f"{curve.operation} {curve.direction}: "
    words += ("share of the ceiling" if by_share else curve.unit) + " by size, a line for each cell; "
    return picture.chart(place, words + "the table below has the numbers.", caption, _keys(cell for cell, _ in known))


def _share(curve: RateCurve, rate: Rate, ceiling: Ceiling | None) -> float | None:
    """Of the measured ceiling where there is one, else of the datasheet's peak."""
    return ceiling.share(curve, rate) if ceiling else curve.share(rate)


def _size(curve: RateCurve, rate: Rate) -> float:
    return rate.bytes if curve.by_traffic else rate.mop


def roofline(place: str, curves: Sequence[RateCurve], ceilings: Iterable[Ceiling]) -> Chart | None:
    """Each operation at its fastest size, by its operations a byte, under the measured roofs and those of the datasheet.

    Both axes are logarithmic (Williams, Waterman and Patterson 2009, "Roofline"). None where no roof is known.
    """
    points = []
    for curve in curves:
        for cell, rates in curve.cells:
            believed = [rate for rate in rates if rate.mop and not curve.refused(rate)]
            if believed:
                points.append((curve, cell, max(believed, key=lambda rate: rate.gflops)))
    across = [rate.mop * 1e6 / rate.bytes for _, _, rate in points]
    roofs = [(f"measured in {ceiling.run_id}", _measured(ceiling), "line dashed") for ceiling in ceilings]
    peak = next((curve.peak for curve in curves if curve.peak), None)
    if peak is not None:
        roofs.append(("datasheet", (peak.flops, peak.bytes), "dotted"))
    lines = [(name, _roof(*bounds, across), kind) for name, bounds, kind in roofs if any(bounds)]
    if not points or not lines:
        return None
    levels = [rate.gflops for _, _, rate in points] + [y for _, line, _ in lines for _, y in line]
    picture = Picture(260, reaching(across, 0, 100, log=True), reaching(levels, 260, 0, log=True))
    picture.grid("operations a byte", "GFLOP/s")
    for name, line, kind in lines:
        picture.line([(picture.x(x), picture.at(y)) for x, y in line], kind, name)
    for (curve, cell, rate), x in zip(points, across, strict=True):
        shape, tone = signs.of(cell)
        hover = f"{cell.label}: {curve.operation} {curve.direction} {rate.size}, {number(rate.gflops)} GFLOP/s"
        picture.mark(picture.x(x), picture.at(rate.gflops), shape, tone, hover)
    words = "GFLOP/s of each operation by its operations a byte, under the device's roofs; the tables below have the numbers."
    caption = "A marker is an operation of a cell at the size where it was fastest. Dashed: the roof that was measured in this run"
    caption += "; dotted: the datasheet's." if peak is not None else "."
    return picture.chart(place, words, caption, _keys(cell for _, cell, _ in points))


def _keys(cells: Iterable[MeasuredCell]) -> list[LegendEntry]:
    return [LegendEntry(*signs.of(cell), cell.label) for cell in {cell.anchor: cell for cell in cells}.values()]


def _measured(ceiling: Ceiling) -> tuple[float | None, float | None]:
    return ceiling.work.value if ceiling.work else None, ceiling.traffic.value if ceiling.traffic else None


def _roof(work: float | None, traffic: float | None, across: Sequence[float]) -> list[tuple[float, float]]:
    """The line that no rate crosses: the memory bounds it on the slope, the arithmetic on the level. Only what is known is drawn."""
    low, high = min(across, default=1.0), max(across, default=1.0)
    knee = [work / traffic] if work and traffic and low < work / traffic < high else []
    return [(at, min(bound for bound in (work, traffic and traffic * at) if bound) / 1e9) for at in (low, *knee, high)]
