"""The plots that compare cells: step times, learning curves, phases, several devices."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from reports.answers.scaling import Scaling
from reports.data.curves import of_class
from reports.data.model import BEFORE_TRAINING, Curve, Group, MeasuredCell, MeasuredWorkload
from reports.page.figure import (
    MOST_POINTS,
    Figure,
    cell_axis,
    json_numbers,
    level,
    plot_layout,
    scatter,
    text,
    thinned,
    tick,
)
from reports.text import between, duration, number
from runner.results.statistics import Estimate

# Okabe and Ito's colours (Color Universal Design, 2008), each darkened or lightened to a contrast of 3:1 with the page.
PALETTE = {
    "vermilion": ("#d0500a", "#f0824a"),
    "amber": ("#a87400", "#e6a520"),
    "blue": ("#0072b2", "#4fa8e0"),
    "green": ("#00835e", "#2fc295"),
    "purple": ("#b0568a", "#dd8fbd"),
    "sky": ("#2a86b8", "#7cc8f0"),
    "olive": ("#77750a", "#cfcb4a"),
    "grey": ("#6b7280", "#9aa3b0"),
}
# Each framework keeps its place here for good: a colour that follows from the list of all names would change with every new name.
# The first seven often stand in one report, and have a colour each.
_PLACES = (
    *("torch", "tensorflow", "jax", "mxnet_gluon", "chainer", "paddle", "keras_tensorflow"),
    *(
        "caffe2",
        "cntk",
        "flux",
        "keras2_cntk",
        "keras2_theano",
        "keras_jax",
        "keras_torch",
        "knet",
        "lasagne",
        "mindspore",
    ),
    *("mxnet_module", "onnxruntime", "onnxruntime_training", "r_keras", "tensorflow_v1", "tinygrad"),
)
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "star", "hexagon")
_COLOURS = [name for name in PALETTE if name != "grey"]
_PAIRS = len(_COLOURS) * len(SYMBOLS)  # the pairs of colour and symbol: 7 and 8 share no divisor, so 56 places differ
DASHES = ("solid", "dash", "dot", "dashdot")


def _place(framework: str) -> int:
    """A framework's place. It has the same signs on every page; where it is not in the list its name alone chooses a place that is free."""
    if framework in _PLACES:
        return _PLACES.index(framework)
    return len(_PLACES) + zlib.crc32(framework.encode()) % (_PAIRS - len(_PLACES))


def colours(frameworks: Iterable[str]) -> dict[str, str]:
    """Framework -> colour name."""
    return {name: _COLOURS[_place(name) % len(_COLOURS)] for name in frameworks}


def symbols(cells: Sequence[MeasuredCell]) -> dict[str, str]:
    """Framework -> marker: colour is never the only sign."""
    return {cell.framework: SYMBOLS[_place(cell.framework) % len(SYMBOLS)] for cell in cells}


def intervals(group: Group, most: int = MOST_POINTS) -> Figure | None:
    """Milliseconds a step of each measured cell: a tick for each window, a marker with its interval for the median."""
    cells = [cell for cell in group.cells if cell.step is not None]
    if not cells:
        return None
    marks = symbols(group.cells)
    traces: list[Figure] = []
    reach = 0.0
    for row, cell in enumerate(cells):
        times = 1e3 * np.concatenate([repeat.steady_step_seconds for repeat in cell.repeats])
        shown = np.sort(times)[thinned(len(times), most)]
        tick_mark = {"symbol": "line-ns-open", "size": 10, "opacity": 0.45, "line": {"width": 1}}
        ticks = scatter("markers", json_numbers(shown), [row + 0.3] * len(shown), marker=tick_mark)
        traces.append({**ticks, "hoverinfo": "skip", "meta": {"framework": cell.framework}})
        if cell.step is not None:
            traces.append(_median_mark(cell, cell.step, row, marks[cell.framework]))
        # An unsteady cell may have an interval of many times its median. It may leave the axis; it must not stretch it.
        reach = max(reach, min(max(float(np.quantile(times, 0.97)), 1e3 * _upper(cell)), 3 * float(np.median(times))))
    labels = [tick(cell.label) + ("" if not cell.unranked else "<br><i>not ranked</i>") for cell in cells]
    layout = plot_layout(70 + 54 * len(cells), "milliseconds a step", "", yaxis=cell_axis(labels, 0.4))
    layout["xaxis"]["range"] = [0, 1.08 * reach]
    return {"data": traces, "layout": layout}


def _upper(cell: MeasuredCell) -> float:
    step = cell.step
    return 0.0 if step is None else step.value if step.high is None else step.high


def _median_mark(cell: MeasuredCell, step: Estimate, row: int, symbol: str) -> Figure:
    bars: Figure = {}
    if step.low is not None and step.high is not None:
        bars = _error_bars([1e3 * (step.high - step.value)], [1e3 * (step.value - step.low)], thickness=2, width=7)
    hover = f"<b>{text(cell.label)}</b><br>{duration(step.value)} a step<br>95 % interval {between(step, 1e3)} ms"
    median = scatter("markers", [1e3 * step.value], [row], hovertemplate=hover + "<extra></extra>")
    median["marker"] = {"symbol": symbol, "size": 10, "line": {"width": 1}}
    return {**median, "meta": {"framework": cell.framework, "ring": True}, **({"error_x": bars} if bars else {})}


def _error_bars(above: Sequence[float | None], below: Sequence[float | None], **drawn: int) -> Figure:
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **drawn}


def beyond_axis(group: Group) -> int:
    """How many windows lie beyond the axis of the interval plot. Rare long windows would compress all others."""
    figure = intervals(group)
    if figure is None:
        return 0
    end = figure["layout"]["xaxis"]["range"][1] / 1e3
    return sum(int(np.sum(repeat.steady_step_seconds > end)) for cell in group.cells for repeat in cell.repeats)


def learning(group: Group, workload: MeasuredWorkload, most: int = MOST_POINTS) -> list[tuple[str, Figure]]:
    """For each metric its curve over training seconds, and over steps for the page's switch. Metrics of single classes have a table."""
    metrics: dict[tuple[str, str], list[tuple[MeasuredCell, Curve]]] = {}
    for cell in group.cells:
        for repeat in cell.repeats:
            for curve in repeat.curves:
                if not of_class(curve):
                    metrics.setdefault((curve.split, curve.name), []).append((cell, curve))
    marks = symbols(group.cells)
    figures = []
    for (split, name), curves in sorted(metrics.items()):
        title = f"{'training' if split == 'train' else split} {name}"
        figures.append((title, _learning_figure(curves, marks, workload if name == workload.metric else None, most)))
    return figures


def _learning_figure(
    curves: Sequence[tuple[MeasuredCell, Curve]], marks: Mapping[str, str], workload: MeasuredWorkload | None, most: int
) -> Figure:
    traces: list[Figure] = []
    images: dict[str, list[str]] = {}
    for cell, curve in curves:
        same = images.setdefault(cell.framework, [])
        if cell.label not in same:
            same.append(cell.label)
        part = thinned(len(curve.values), most)
        few = len(curve.values) <= 12
        # Two points are the beginning and the end. A solid line would suggest a course between them.
        line = {"width": 2, "dash": DASHES[same.index(cell.label) % len(DASHES)]}
        line = {"width": 1, "dash": "dot"} if len(curve.values) < 3 else line
        x, y = json_numbers(curve.seconds[part], 5), json_numbers(curve.values[part], 5)
        trace = scatter("lines+markers" if few else "lines", x, y, line=line, name=text(cell.label))
        trace["marker"] = {"symbol": marks[cell.framework], "size": 8}
        trace["hovertemplate"] = f"<b>{text(cell.label)}</b><br>%{{y:.4g}} at %{{x:.4g}}<extra></extra>"
        trace["meta"] = {"framework": cell.framework, "steps": json_numbers(curve.steps[part], 9)}
        traces.append(trace)
    layout = plot_layout(270, "training seconds", "", meta={"steps": "training steps", "seconds": "training seconds"})
    layout["yaxis"]["rangemode"] = "tozero"
    layout["xaxis"]["rangemode"] = "tozero"
    if workload is not None and workload.chance is not None:
        layout["shapes"] = [level(workload.chance)]
        layout["annotations"] = [_note("chance", workload.chance)]
    return {"data": traces, "layout": layout}


def _note(words: str, value: float) -> Figure:
    place = {"xref": "paper", "x": 1, "xanchor": "right", "y": value, "yanchor": "bottom"}
    return {"text": words, **place, "showarrow": False}


def phases(group: Group) -> Figure | None:
    """Seconds in each phase before a cell trained at its steady rate."""
    cells = [cell for cell in group.cells if cell.phases]
    if not cells:
        return None
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [round(cell.phases.get(name, 0.0), 4) for cell in cells],
            "y": list(range(len(cells))),
            "hovertemplate": f"{name} %{{x:.3g}} s<extra></extra>",
            "meta": {"phase": number},
        }
        for number, name in enumerate(BEFORE_TRAINING, start=1)
        if any(name in cell.phases for cell in cells)
    ]
    yaxis = cell_axis([tick(cell.label) for cell in cells], 0.5)
    layout = plot_layout(70 + 40 * len(cells), "seconds", "", yaxis=yaxis)
    layout.update(barmode="stack", bargap=0.45)
    return {"data": traces, "layout": layout}


def described(group: Group) -> str:
    """The interval plot in words, for readers who do not see it."""
    parts = [
        f"{cell.label}: {number(1e3 * cell.step.value)} milliseconds, interval {between(cell.step, 1e3)}"
        for cell in group.cells
        if cell.step is not None
    ]
    return "Step times with 95 % intervals. " + "; ".join(parts)


def scaling(shown: Scaling) -> Figure | None:
    """Items a second by devices, both axes logarithmic: the measured points, the ideal line, and the prediction as a dashed line."""
    rates = [point.rate for point in shown.points]
    predicted = shown.model.predictions if shown.model else ()
    farthest = max([*(point.devices for point in shown.points), *(prediction.devices for prediction in predicted)])
    unit = f"{text(shown.workload.items)} a second"
    ideal = scatter("lines", [1, farthest], json_numbers([rates[0].value, farthest * rates[0].value]), name="ideal")
    ideal |= {"line": {"width": 1, "dash": "dot"}, "hoverinfo": "skip", "meta": {}}
    measured = scatter(
        "lines+markers", [point.devices for point in shown.points], json_numbers([rate.value for rate in rates])
    )
    above = json_numbers([(rate.high or rate.value) - rate.value for rate in rates])
    below = json_numbers([rate.value - (rate.low or rate.value) for rate in rates])
    symbol = symbols([cell for point in shown.points for cell in point.cells])[shown.framework]
    measured |= {"name": "measured", "error_y": _error_bars(above, below, width=6)}
    measured |= {"marker": {"symbol": symbol, "size": 9}, "meta": {"framework": shown.framework}}
    measured["hovertemplate"] = "%{x} devices: %{y:.4g} " + unit + "<extra></extra>"
    ticks = [2**power for power in range(11) if 2**power <= farthest]
    xaxis = {"type": "log", "tickvals": ticks, "range": [math.log10(0.8), math.log10(1.25 * farthest)]}
    layout = plot_layout(300, "devices", unit, xaxis=xaxis, yaxis={"type": "log"})
    return {"data": [*_predicted(shown, unit), ideal, measured], "layout": layout}


def _predicted(shown: Scaling, unit: str) -> list[Figure]:
    """The model's line within its shaded interval; nothing where there is no model."""
    if shown.model is None:
        return []
    predictions = shown.model.predictions
    counts = [prediction.devices for prediction in predictions]

    def rates(seconds: Iterable[float]) -> list[float | None]:
        return json_numbers([shown.predicted_rate(count, step) for count, step in zip(counts, seconds, strict=True)])

    meta = {"framework": shown.framework}
    edge = {"line": {"width": 0}, "hoverinfo": "skip", "meta": meta}
    low = scatter("lines", counts, rates(prediction.high for prediction in predictions), **edge)
    high = scatter("lines", counts, rates(prediction.low for prediction in predictions), **edge)
    line = scatter(
        "lines", counts, rates(prediction.seconds for prediction in predictions), name="predicted", meta=meta
    )
    line["line"] = {"width": 2, "dash": "dash"}
    line["hovertemplate"] = "predicted, not measured<br>%{x} devices: %{y:.4g} " + unit + "<extra></extra>"
    return [low, {**high, "fill": "tonexty", "opacity": 0.5}, line]
