"""The plot under a cell's provenance: one repeat's windows in order and as a histogram, and over the same seconds what its devices did."""

from __future__ import annotations

import numpy as np

from reports.data.model import MeasuredCell, Repeat, Signal
from reports.data.telemetry import HELD_BACK, MOST_DEVICES
from reports.page.figure import MOST_POINTS, Figure, json_numbers, level, number_of, plot_layout, scatter, text, thinned
from runner.results.statistics import Array

_WINDOWS, _ROW, _BETWEEN, _MARGINS = 165, 52, 14, 48  # heights in pixels
_TIME, _FREQUENCIES = [0, 0.74], [0.79, 1]  # shares of the width


def sequence(cell: MeasuredCell, repeat: Repeat, most: int = MOST_POINTS) -> Figure | None:
    """Milliseconds a step against seconds since the process began, their histogram, and below them the telemetry of the devices."""
    windows = repeat.windows
    stages = np.array(windows.stage, dtype=object)
    drawn = stages != "first"
    if not drawn.any():
        return None
    times = 1e3 * windows.seconds / windows.steps
    middle = windows.begin + windows.seconds / 2
    traces = []
    for stage, shape in (("warm-up", "circle-open"), ("steady", "circle")):
        at = np.flatnonzero(stages == stage)
        at = at[thinned(len(at), most)]
        if len(at):
            trace = scatter("markers", json_numbers(middle[at]), json_numbers(times[at], 5), name=stage)
            trace |= {"marker": {"symbol": shape, "size": 5, "opacity": 0.75}, "meta": {"framework": cell.framework}}
            trace["hovertemplate"] = f"{stage}: %{{y:.4g}} ms at %{{x:.4g}} s<extra></extra>"
            traces.append(trace)
    steady = repeat.steady_step_seconds
    levels = [float(np.median(steady))] if len(steady) else []
    if repeat.shift is not None:
        levels = [repeat.shift.before, repeat.shift.after]
    top = max([1.5 * 1e3 * at for at in levels] + [float(np.quantile(times[drawn], 0.97)) * 1.1])
    layout = _stacked(_rows(repeat))
    layout["shapes"] = [{**level(1e3 * at), "xref": "x domain"} for at in levels]
    layout["yaxis"]["range"] = [0, number_of(top)]
    traces += _frequencies(cell, 1e3 * steady, f"y{len(_rows(repeat)) + 2}") + _lines(cell, repeat)
    return {"data": traces, "layout": layout}


def _rows(repeat: Repeat) -> list[str]:
    """The units of the lines. Each unit has an axis."""
    return list(dict.fromkeys(signal.unit for signal in repeat.signals))


def _stacked(units: list[str]) -> Figure:
    """A layout of the windows, with a row for each unit below, over the same seconds."""
    inside = _WINDOWS + len(units) * (_ROW + _BETWEEN)
    layout = plot_layout(inside + _MARGINS, "seconds since the process began", "milliseconds a step")
    axis = layout["yaxis"]
    axis["domain"] = [1 - _WINDOWS / inside, 1]
    for at, unit in enumerate(units):
        top = inside - _WINDOWS - at * (_ROW + _BETWEEN) - _BETWEEN
        placed = {"domain": [max(0.0, (top - _ROW) / inside), top / inside], "nticks": 3, "rangemode": "tozero"}
        layout[f"yaxis{at + 2}"] = {**axis, **placed, "title": {**axis["title"], "text": unit}}
    layout["xaxis"] |= {"domain": _TIME, "anchor": f"y{len(units) + 1}" if units else "y"}
    counted = f"y{len(units) + 2}"
    bare = {"title": {"text": ""}, "showticklabels": False, "zeroline": False, "showgrid": False}
    layout[counted.replace("y", "yaxis")] = {**bare, "domain": axis["domain"], "anchor": "x2"}
    placed = {"domain": _FREQUENCIES, "anchor": counted, "nticks": 3, "tickangle": 0, "title": {"text": ""}}
    layout["xaxis2"] = {**layout["xaxis"], **placed}
    return layout


def _frequencies(cell: MeasuredCell, times: Array, axis: str) -> list[Figure]:
    """A histogram of the steady windows. It leaves out the rare long windows, which would hide the rest: the plot beside it has them."""
    inside = times[times <= 1.05 * np.quantile(times, 0.97)] if len(times) else times
    if len(inside) < 2 or float(np.ptp(inside)) == 0.0:
        return []
    counts, edges = np.histogram(inside, bins=min(24, max(5, int(np.sqrt(len(inside))))))
    bars: Figure = {"type": "bar", "xaxis": "x2", "yaxis": axis, "opacity": 0.75, "y": counts.tolist()}
    bars |= {"x": json_numbers((edges[1:] + edges[:-1]) / 2), "width": float(f"{edges[1] - edges[0]:.4g}")}
    bars["hovertemplate"] = "%{y} windows near %{x:.4g} ms<extra></extra>"
    return [{**bars, "meta": {"framework": cell.framework}}]


def _lines(cell: MeasuredCell, repeat: Repeat) -> list[Figure]:
    """The devices' lines, with crosses where a clock was held back."""
    places = {unit: f"y{at}" for at, unit in enumerate(_rows(repeat), start=2)}
    gpus = dict.fromkeys(signal.device for signal in repeat.signals if signal.device != "cpu")
    shown = {"cpu", *list(gpus)[:MOST_DEVICES]}
    return [_line(cell, signal, places[signal.unit]) for signal in repeat.signals if signal.device in shown]


def _line(cell: MeasuredCell, signal: Signal, axis: str) -> Figure:
    name = text(f"{signal.device} {signal.name}" if signal.device != "cpu" else signal.name)
    trace = scatter("lines", json_numbers(signal.seconds, 4), json_numbers(signal.values, 4), yaxis=axis, name=name)
    trace |= {
        "line": {"width": 1.5},
        "hovertemplate": f"{name}: %{{y:.4g}} {text(signal.unit)} at %{{x:.4g}} s<extra></extra>",
    }
    trace["meta"] = {"tint": "--muted"} if signal.device == "cpu" else {"framework": cell.framework}
    if signal.name == HELD_BACK:
        crosses = {"symbol": "x-thin-open", "size": 6, "line": {"width": 1.5}}
        return {**trace, "mode": "markers", "marker": crosses, "meta": {"tint": "--bad"}}
    if len(signal.values) == 1:
        return {**trace, "mode": "markers", "marker": {"size": 5}}
    return trace
