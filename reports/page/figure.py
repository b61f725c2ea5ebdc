"""The parts of all plots: Plotly figures as plain dicts. They have no colours: a trace says which framework it shows (`meta`),
and the page's script colours it for the light or the dark theme. Plotly interprets some HTML in its texts, so every text is escaped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from runner.results.statistics import Array
from runner.text import visible

Figure = dict[str, Any]

TICK = 28  # characters on a line of a label beside an axis
MOST_POINTS = 400  # per repeat: a screen shows no more, and the file stays small


def text(value: str, longest: int = 60) -> str:
    """A text that Plotly shows as it is."""
    return html.escape(visible(value, longest))


def tick(label: str) -> str:
    """A cell's label beside an axis: its image on one line, the rest below. A long label is cut, because the plot needs the room,
    on a phone above all. The table has the whole name."""
    image, _, rest = visible(label).partition(" · ")
    return "<br>".join(html.escape(_brief(part)) for part in (image, rest) if part)


def _brief(part: str) -> str:
    return part if len(part) <= TICK else part[: TICK - 1] + "…"


def thinned(count: int, most: int = MOST_POINTS) -> slice:
    """Every k-th point, so that at most `most` are left."""
    return slice(None, None, max(1, math.ceil(count / most)))


def json_numbers(values: Array | Sequence[float], digits: int = 6) -> list[float | None]:
    """Numbers for JSON with `digits` significant digits: a screen shows no more. Null where a number is not finite."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in map(float, values)]


def scatter(mode: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> Figure:
    return {"type": "scatter", "mode": mode, "x": x, "y": y, **more}


def cell_axis(labels: Sequence[str], margin: float) -> Figure:
    """A vertical axis with a row for each cell, the first on top."""
    rows = range(len(labels))
    ends = [len(labels) - margin, -margin]
    return {"tickvals": list(rows), "ticktext": labels, "range": ends, "title": {"text": ""}, "showgrid": False}


def plot_layout(height: int, x: str, y: str, **more: Any) -> Figure:
    axis = {"automargin": True, "zeroline": False, "title": {"standoff": 8}}
    layout: Figure = {
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 40},
        "xaxis": {**axis, "title": {"text": x, "standoff": 8}},
        "yaxis": {**axis, "title": {"text": y, "standoff": 8}},
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
    }
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(layout.get(name), dict):
            layout[name] = {**layout[name], **value}
        else:
            layout[name] = value
    return layout


def level(value: float) -> Figure:
    place = {"xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value}
    return {"type": "line", **place, "line": {"width": 1, "dash": "dot"}}


def number_of(value: float) -> float:
    """The value to three digits, so that an axis ends at a short number."""
    return float(f"{value:.3g}")
