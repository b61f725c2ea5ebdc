"""Stored runs to one HTML file that holds all it needs: styles, script, plots and Plotly itself.

What a cell printed reaches the page in two ways only: through the template, where every value is made visible and then
escaped, and through the figures, which are compressed and of letters and digits only. A content security policy lets
no other script run than ours, by digest, and lets the page ask no one for anything.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reports import text
from reports.answers import across, findings, history, scaling
from reports.data import ceilings, curves, operators, profiles, tables, telemetry
from reports.data.environments import environments
from reports.data.model import Group, MeasuredCell, MeasuredWorkload, Repeat, Tables
from reports.page import charts, rosetta, summary
from reports.page.plots import Plots, packed
from runner.results import store
from runner.results.statistics import Estimate

# All repeats share these, so that a page of a thousand cells stays one that opens.
LISTED_IN_ALL = 20_000
LISTED_FOR_ONE = 200
ANSWERED = 12  # cells in one answer: more are a table


def render(folders: Sequence[Path], output: Path, bench_sha256: str | None = None) -> None:
    """Write the report on the runs in `folders` to `output`. Raises StoreError where one is no readable run.

    `bench_sha256` is the digest of this checkout's bench: its code is shown beside cells that had the same.
    """
    if not folders:
        raise store.StoreError("no run was given; `runner report RUN` takes the folder of one or more runs")
    store.write_bytes(output, page(tables.load(folders), bench_sha256).encode("utf-8"))


def page(data: Tables, bench_sha256: str | None = None) -> str:
    """The whole HTML document."""
    plots = Plots(data)
    colours = charts.colours(sorted({cell.framework for cell in data.cells}))
    scripts = {name: _resource("reports.page.templates", f"{name}.js") for name in ("theme", "plots", "page")}
    template = _engine().get_template("report.html.j2")
    answers = findings.findings(data)
    ladders = across.ladders(data)
    # The body is put together first: it is what fills `plots`.
    body = (
        _engine()
        .get_template("body.html.j2")
        .render(
            tables=data,
            title=findings.title(data),
            lead=findings.lead(data),
            findings=answers,
            shared=findings.shared(answers),
            changes=findings.changes(data, ladders),
            names=findings.names,
            environments=environments(data),
            plots=plots,
            listed=functools.partial(listed, most=_listed_limit(data)),
            colours=colours,
            most_answered=ANSWERED,
            marks=charts.symbols(data.cells),
            matrix=matrix(data),
            columns=[workload.anchor for workload in data.ranked for _ in workload.groups],
            hover=hover,
            absent=absent(data),
            ladders=ladders,
            precisions=across.precisions,
            devices=across.devices,
            time_to=curves.time_to,
            costs=costs,
            scalings=scaling.scalings(data),
            by_class=curves.by_class,
            history=history.history(data) if len(data.runs) > 1 else None,
            operator_curves=lambda group: operators.curves(group, data.operations),
            ceilings=ceilings.ceilings,
            beside=telemetry.beside(data),
            profiles=lambda group: profiles.shown(group, data.profiles),
            sources=lambda workload: sources(workload, bench_sha256),
        )
    )
    return template.render(
        title=findings.title(data),
        body=Markup(body),
        style=Markup(_resource("reports.page.templates", "page.css")),
        code=_code_styles(),
        scripts={name: Markup(script) for name, script in scripts.items()},
        policy=_policy([_digest(script) for script in scripts.values()] + [_plotly()[1]]),
        palette=charts.PALETTE,
        plotly=Markup(_plotly()[0]),
        summary=Markup(packed(summary.markdown(data, answers))),
        figures=Markup(plots.packed({"colours": colours, "palette": charts.PALETTE})),
    )


def sources(workload: MeasuredWorkload, bench_sha256: str | None) -> list[rosetta.Source]:
    """The code that measured a workload's cells, a file a framework: where it is this checkout's, and not another."""
    cells = (cell for group in workload.groups for cell in group.cells)
    return rosetta.sources(
        workload.name,
        {cell.framework for cell in cells if bench_sha256 and cell.row.get("bench_sha256") == bench_sha256},
    )


Cost = tuple[str, str, Callable[[MeasuredCell], str]]


def costs(cells: Sequence[MeasuredCell]) -> list[Cost]:
    """The columns of memory, energy and heat that some of the cells have: name, unit and what stands there."""
    columns: list[Cost] = [
        ("Host memory", "peak", lambda cell: text.size(cell.costs.get("host_peak_bytes"))),
        ("Device memory", "peak", lambda cell: text.size(cell.costs.get("device_peak_bytes"))),
        ("Energy", "joules an item", lambda cell: text.number(cell.costs.get("joules_per_item"))),
        ("Power", "watts, mean", lambda cell: text.number(cell.costs.get("mean_power_watts"))),
        ("Temperature", "°C, highest", lambda cell: text.number(cell.costs.get("max_temperature_celsius"))),
        ("Waiting for data", "share of the time", lambda cell: text.percent(cell.costs.get("data_waiting_share"))),
    ]
    names = (*tables.COSTS, "data_waiting_share")
    return [column for column, name in zip(columns, names, strict=True) if any(name in cell.costs for cell in cells)]


def _engine() -> Environment:
    engine = Environment(
        loader=PackageLoader("reports.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    for name in ("number", "duration", "size", "percent", "between", "listing", "plural", "framework_name"):
        engine.filters[name] = getattr(text, name)
    engine.filters["subject"] = across.subject
    engine.filters["changed"] = history.changed
    engine.filters["brief"] = lambda value: text.visible(str(value), 80)
    engine.filters["log"] = lambda value, longest=text.LONGEST_LOG: Markup(escape(text.visible(str(value), longest)))
    engine.filters["code"] = lambda source: Markup(source.highlighted)
    engine.filters["moment"] = moment
    engine.filters["size_class"] = operators.size_class
    engine.filters["shell"] = shlex.join
    return engine


def _shown(value: Any) -> Any:
    """Whatever the template prints goes through here before it is escaped; markup is the template's own."""
    return text.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _code_styles() -> dict[str, Markup]:
    """The styles of highlighted code: for the light page, the dark one, and one that is dark because its system is."""
    light, dark = rosetta.styles(".code", ':root[data-theme="dark"] .code')
    by_system = rosetta.styles(".code", ':root:not([data-theme="light"]) .code')[1]
    return {"light": Markup(light), "dark": Markup(dark), "system": Markup(by_system)}


def _resource(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text("utf-8")


@functools.cache
def _plotly() -> tuple[str, str]:
    """Plotly, packed, and the digest of what it unpacks to."""
    script = _resource("plotly.package_data", "plotly.min.js")
    return packed(script), _digest(script)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _policy(digests: Iterable[str]) -> str:
    """The content security policy: our scripts by digest, inline styles (Plotly sets them), no request at all."""
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    rules = ("default-src 'none'", f"script-src {allowed}", "style-src 'unsafe-inline'", "img-src data: blob:")
    return "; ".join((*rules, "base-uri 'none'", "form-action 'none'"))


def moment(unix: float | None) -> str:
    """A time on the wall clock, in UTC; of a clock that tells no year at all, nothing."""
    try:
        return "–" if unix is None else f"{datetime.fromtimestamp(unix, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return "–"


def _listed_limit(data: Tables) -> int:
    repeats = max(1, sum(len(cell.repeats) for cell in data.cells))
    return max(20, min(LISTED_FOR_ONE, LISTED_IN_ALL // repeats))


def listed(repeat: Repeat, most: int) -> str:
    """The windows of a repeat as comma-separated lines, the first `most` of them."""
    windows = repeat.windows
    lines = ["index,stage,begin_seconds,seconds,steps,items"]
    for at in range(min(most, len(windows))):
        index, steps, items = (int(column[at]) for column in (windows.index, windows.steps, windows.items))
        lines.append(f"{index},{windows.stage[at]},{windows.begin[at]:.6f},{windows.seconds[at]:.6f},{steps},{items}")
    if len(windows) > most:
        lines.append(f"… {len(windows) - most} more in the stored file")
    return "\n".join(lines)


Entry = tuple[
    MeasuredCell | None, Estimate | None, str
]  # a cell, its ratio where it is ranked, and why it was left out


@dataclass(frozen=True)
class MatrixRow:
    """One row of the overview: a label and, for each group of comparable cells, what stands there."""

    label: str
    framework: str
    cells: tuple[Entry, ...]


def matrix(data: Tables) -> tuple[MatrixRow, ...]:
    """The overview: a row for each labelled image, a column for each group."""
    labels = list(dict.fromkeys(cell.label for cell in data.cells))
    framework = {cell.label: cell.framework for cell in data.cells}
    rows = [(label, framework[label]) for label in labels]
    for entry in data.skipped:
        for row in entry.rows:
            here = any(_fits(row, group) for group in data.groups)
            name = _name_of(row)
            if here and name not in framework:
                framework[name] = str(row["framework"])
                rows.append((name, str(row["framework"])))
    rows.sort(key=lambda row: (row[1], row[0]))
    columns = [_column(group, data) for group in data.groups]
    nothing = (None, None, "")
    return tuple(
        MatrixRow(label, family, tuple(column.get(label, nothing) for column in columns)) for label, family in rows
    )


def hover(cell: MeasuredCell, ratio: Estimate) -> str:
    """What an entry of the overview says to a pointer: the step time and both intervals."""
    said = f"{cell.label}: {text.duration(cell.step.value if cell.step else None)} a step, {text.between(cell.step, 1e3)} ms"
    return (
        said if ratio.method == "itself" else f"{said}; {text.number(ratio.value)} × the fastest, {text.between(ratio)}"
    )


def _name_of(row: Any) -> str:
    return text.cell_name(str(row["image"]), str(row["framework"]), row["mode"])


def _fits(row: Any, group: Group) -> bool:
    """Whether a combination that was left out would have stood in this group; the plan does not say its preset."""
    names = ("workload", "precision", "device_kind", "device_model")
    return all(row[name] == getattr(group.key, name) for name in names)


def _column(group: Group, data: Tables) -> dict[str, Entry]:
    """What stands in a group's column, by row."""
    left_out = {
        _name_of(row): (None, None, skipped.reason)
        for skipped in reversed(data.skipped)
        for row in skipped.rows
        if _fits(row, group)
    }
    shown: dict[str, Entry] = {cell.label: (cell, None, "") for cell in group.others}
    return {**left_out, **shown, **{entry.cell.label: (entry.cell, entry.ratio, "") for entry in group.ranked}}


def absent(data: Tables) -> tuple[str, ...]:
    """Images that the plan left out altogether."""
    shown = {row.label for row in matrix(data)} | {cell.image for cell in data.cells}
    images = {str(row["image"]): _name_of(row) for entry in data.skipped for row in entry.rows}
    return tuple(sorted(image for image, name in images.items() if not shown & {image, name}))
