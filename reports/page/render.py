"""From stored runs to one HTML file that holds all it needs: styles, scripts, pictures, and the library that draws samples.

A cell's output reaches the page in two ways only. The templates make every value visible and escape it. The figures
are compressed and then consist of letters and digits only. A content security policy names our scripts by digest: no
other script runs, and the page can request nothing.
"""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reports import wording
from reports.answers import comparison as compared
from reports.answers import run_history
from reports.answers.contrast import Contrast
from reports.answers.export import Table
from reports.answers.health import NOT_JUDGED, Health
from reports.answers.overview import moment, overview
from reports.answers.to_loss import CLOCK
from reports.data import tables
from reports.data.model import PHASES, Tables
from reports.page import assembly, markdown_report, plots, results, rosetta_stone
from reports.page.cache import Compiled
from reports.page.drawing import Axis, Chart, Picture
from reports.page.page import PALETTE
from reports.wording import between_ratios, number
from runner import text as words
from runner.results import parity, store
from runner.results.on_disk.image_names import NO_LOCK, is_address
from runner.results.on_disk.isolation import CONTAINER_ENGINES
from runner.text import visible

# The measures of the table of results, in the order of the control bar.
MEASURES = (
    ("x", "× fastest"),
    ("rate", "items/s"),
    ("ms", "ms"),
    ("start", "start-up"),
    ("joules", "joules"),
    ("price", "price"),
)


def render(folders: Sequence[Path], output: Path, health: Health = NOT_JUDGED, to_loss: float | None = None) -> None:
    """Write the report on the runs in `folders` to `output`. Raises StoreError where one is no readable run.

    `to_loss`: the held-out loss to which the training is timed; without it, those that the runs were asked for.
    """
    if not folders:
        raise store.StoreError("no run was given; `runner report RUN` takes the folder of one or more runs")
    store.write_bytes(output, page(tables.load(folders, to_loss=to_loss), health).encode("utf-8"))


def page(data: Tables, health: Health = NOT_JUDGED) -> str:
    """The whole HTML document."""
    answers = overview(data)
    shown, parts = assembly.page_of(answers, health), Parts()
    _PARTS.set(parts)
    library = _resource("reports.page.vendor", "uPlot.iife.min.js")
    return filled(
        "report.html.j2",
        ("theme", "plots", "page"),
        styles(),
        (library,),
        page=shown,
        parts=parts,
        uplot=Markup(results.packed(library)),
        summary=Markup(results.packed(markdown_report.markdown(answers))),
    )


def filled(template: str, scripts: Sequence[str], style: str, further: Sequence[str] = (), **values: Any) -> str:
    """A template with its styles and scripts in it, and the policy that allows these, `further` ones, and what `origins` names."""
    texts = {name: _resource("reports.page.templates", f"{name}.js") for name in scripts}
    allowed = [*map(rosetta_stone.digest, (*texts.values(), *further)), *values.pop("origins", ())]
    return (
        _engine()
        .get_template(template)
        .render(
            style=Markup(style),
            scripts={name: Markup(script) for name, script in texts.items()},
            policy=_policy(allowed, rosetta_stone.digest(style)),
            **values,
        )
    )


def _commands(sentence: str) -> Markup:
    """A sentence whose parts between backticks are commands."""
    parts = enumerate(visible(sentence).split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in parts)


class Parts:
    """The parts that a page unfolds later. A template hands each part over and prints its place; at the end all are printed, packed."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, content: Markup) -> Markup:
        """Keep a part. Its place is empty until the page's script builds it."""
        self._parts.append(str(escape(content)))
        return Markup('<div class="later" data-part="{}"></div>').format(len(self._parts) - 1)

    def __html__(self) -> str:
        return results.packed(json.dumps(self._parts, separators=(",", ":")))


# Of the page that is being written: the templates are compiled once for all pages.
_PARTS: ContextVar[Parts] = ContextVar("parts")


@functools.cache  # compiling the templates takes longer than a small page, and a run writes its page again and again
def _engine() -> Environment:
    engine = Environment(
        loader=PackageLoader("reports.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        # Constants of a template are computed when it is compiled, by these.
        bytecode_cache=Compiled([__file__, wording.__file__, words.__file__]),
    )
    for name in (
        "number",
        "duration",
        "size",
        "percent",
        "between",
        "between_ratios",
        "step_interval",
        "listing",
        "plural",
        "ended",
        "framework_name",
    ):
        engine.filters[name] = getattr(wording, name)
    engine.globals["loss_clock"] = CLOCK
    engine.globals["container_engines"] = CONTAINER_ENGINES
    engine.globals["no_lock"] = NO_LOCK
    engine.tests["address"] = is_address
    engine.filters["commands"] = _commands
    engine.filters["brief"] = lambda value: visible(str(value), 80)
    engine.filters["words"] = str.split
    engine.filters["log"] = lambda value, longest=wording.LONGEST_LOG: Markup(escape(visible(str(value), longest)))
    engine.filters["code"] = lambda source: Markup(source.highlighted)
    engine.filters["moment"] = unix_moment
    engine.filters["shell"] = shlex.join
    engine.filters["later"] = lambda content: _PARTS.get().add(content)
    engine.globals |= {"phases": PHASES, "palette": PALETTE}
    engine.globals |= {"quantities": parity.QUANTITIES, "measures": MEASURES}
    return engine


def _shown(value: Any) -> Any:
    """Every value that a template prints passes here before it is escaped. Markup is the template's own."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def styles() -> str:
    """All styles of the page."""
    sheets = [_resource("reports.page.templates", name) for name in ("page.css", "charts.css")]
    sheets.append(_resource("reports.page.vendor", "uPlot.min.css"))
    # Of highlighted code: for the light page, for the dark page, and for a page that is dark because the system is.
    light, dark = rosetta_stone.styles(".code", ':root[data-theme="dark"] .code')
    system = rosetta_stone.styles(".code", ':root:not([data-theme="light"]) .code')[1]
    code = {"light": Markup(light), "dark": Markup(dark), "system": Markup(system)}
    template = _engine().get_template("styles.css.j2")
    return template.render(
        sheets=Markup("\n".join(sheets)), code=code, percents=range(101), most_heat=results.MOST_HEAT
    )


def _resource(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text("utf-8")


def _policy(scripts: Iterable[str], style: str) -> str:
    """The content security policy: our scripts and styles by their digests, no style of an element's own, no request at all."""
    rules = ("default-src 'none'", f"script-src {' '.join(scripts)}", f"style-src {style}", "img-src data: blob:")
    return "; ".join((*rules, "base-uri 'none'", "form-action 'none'"))


def unix_moment(unix: float | None) -> str:
    """A time of the wall clock in UTC. A dash where the clock's time is no date."""
    try:
        return "–" if unix is None else f"{datetime.fromtimestamp(unix, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return "–"


# The page of an index of references: which device ran which workload on how many machines. The cells lie in files beside it.
#
# A file of cells is loaded when somebody opens it. It is a script that hands over one text, so that a page from disk can load it as well:
# no server is needed. The page makes elements of the text of it, and never markup.

# Its own files, of a server or from disk.
_ORIGINS = ("'self'", "file:")


@dataclass(frozen=True)
class DeviceRow:
    """A device model: the machines that it was measured on, by workload. The keys are names in addresses."""

    slug: str
    name: str
    machines: int
    cells: int
    # Workload -> (cells, machines).
    workloads: Mapping[str, tuple[int, int]]


def references_page(devices: Sequence[DeviceRow], licence: str) -> str:
    """The whole HTML document."""
    style = (resources.files("reports.page.templates") / "page.css").read_text("utf-8")
    return filled(
        "references.html.j2",
        ("theme", "references"),
        style,
        devices=devices,
        workloads=sorted({workload for device in devices for workload in device.workloads}),
        cells=sum(device.cells for device in devices),
        licence=licence,
        origins=_ORIGINS,
    )


# The pages of `runner compare` and `runner history`: the sentence, the picture that a person would draw, the table.

# Pixels of a row of a picture of ratios.
_ROW = 34


def compare_page(comparison: compared.Comparison) -> str:
    """The whole HTML document of two sides."""
    title = f"{comparison.b} beside {comparison.a}"
    table = compared.table(comparison) if comparison.rows else None
    method = [compared.method(comparison)] if comparison.rows else []
    charts = [_ratios(comparison)] if comparison.rows else []
    remarks = [line for line in compared.remarks(comparison) if comparison.summary not in line]
    return _page(comparison.summary, f"{comparison.kind}: {title}", charts, table, [*remarks, *method])


def history_page(history: run_history.History, tables: Tables, *, everything: bool = False) -> str:
    """The whole HTML document of the runs of some months. `everything`: also the cells that did not change."""
    rows = history.rows if everything else history.moved
    days = [
        moment(str(run.manifest["created"])) for run in sorted(tables.runs, key=lambda run: tables.order[run.run_id])
    ]
    span = f"{len(days)} runs, {days[0]} to {days[-1]}" if len(days) > 1 else f"one run, {days[0]}"
    charts = plots.changes_over_time(tables, history.again, history.moved)
    shown = rows or history.rows
    notes = [*(one.line for one in history.broken), *([run_history.HOW] if shown else [])]
    headline = history.together or history.summary
    notes = [history.summary, *notes] if history.together else notes
    return _page(headline, span, charts, run_history.table(shown) if shown else None, notes)


def _page(headline: str, kicker: str, charts: Sequence[Chart], table: Table | None, notes: Sequence[str]) -> str:
    style = styles()
    return filled(
        "changes.html.j2", ("theme",), style, headline=headline, kicker=kicker, charts=charts, table=table, notes=notes
    )


def _ratios(comparison: compared.Comparison) -> Chart:
    """Each cell's ratio with its interval beside the margin, on one scale: to the right of 1 the second side takes longer."""
    shift = [("all cells together", comparison.shift.row)] if comparison.shift else []
    named = [*shift, *((f"{row.cell.name}, {row.cell.key.workload}", row) for row in comparison.rows)]
    rows = [row for _, row in named]
    margin = 1 + comparison.margin
    ends = [end for row in rows if row.ratio for end in (row.ratio.low, row.ratio.value, row.ratio.high) if end]
    low, high = min([1 / margin, *ends]), max([margin, *ends])
    picture = Picture(_ROW * len(rows), Axis(low / 1.05, high * 1.05, log=True))
    picture.bar(picture.x(1 / margin), picture.x(margin), 0, picture.height, "area wash")
    ticks = sorted({low, 1 / margin, 1.0, margin, high})
    picture.grid(f"× the time of {comparison.a}", "", [(tick, number(tick)) for tick in _apart(picture.x, ticks)])
    for at, (name, row) in enumerate(named):
        _ratio(picture, name, row, _ROW * at)
    caption = (
        f"Step time of {comparison.b} as a multiple of {comparison.a}, with its interval. The band is the margin of "
        f"{100 * comparison.margin:g} %: changes inside it do not matter."
    )
    return picture.chart("ratios", caption, caption)


def _apart(axis: Axis, ticks: Sequence[float]) -> list[float]:
    """The ticks whose labels do not cover each other; 1 is always one."""
    kept = [1.0]
    for tick in ticks:
        if all(abs(axis(tick) - axis(other)) > 9 for other in kept):
            kept.append(tick)
    return sorted(kept)


def _ratio(picture: Picture, name: str, row: Contrast, top: float) -> None:
    """A row: its name with the verdict, and below them the ratio with its interval."""
    middle, ratio = top + 22, row.ratio
    tone = ("alarm" if row.slower else "good") if row.real else "muted"
    picture.words(0, top + 12, f"{name}: {row.verdict}", "alarm" if row.real and row.slower else "tick")
    if ratio is None:
        return
    if ratio.low is not None and ratio.high is not None:
        picture.interval(picture.x(ratio.low), picture.x(ratio.high), middle, f"line {tone}")
    picture.mark(
        picture.x(ratio.value), middle, "circle", tone, f"{number(ratio.value, 4)} × ({between_ratios(ratio)})"
    )
