"""From stored runs to one HTML file that holds all it needs: styles, scripts, pictures, and the library that draws samples.

A cell's output reaches the page in two ways only. The templates make every value visible and escape it. The figures
are compressed and then consist of letters and digits only. A content security policy names our scripts by digest: no
other script runs, and the page can request nothing.
"""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reports import wording
from reports.answers.health import NOT_JUDGED, Health
from reports.answers.overview import overview
from reports.answers.to_loss import CLOCK
from reports.data import tables
from reports.data.model import PHASES, Tables
from reports.page import markdown_report, results, rosetta_stone, signs
from reports.page.assembly import page_of
from reports.page.cache import Compiled
from reports.page.samples import packed
from runner import text as words
from runner.results import store
from runner.results.on_disk.image_names import NO_LOCK, is_address
from runner.results.on_disk.isolation import CONTAINER_ENGINES
from runner.results.parity import QUANTITIES
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
    data = tables.load(folders, to_loss=to_loss)
    write(data, output, health)


def write(data: Tables, output: Path, health: Health = NOT_JUDGED) -> None:
    """The same of runs that were read."""
    store.write_bytes(output, page(data, health).encode("utf-8"))


def page(data: Tables, health: Health = NOT_JUDGED) -> str:
    """The whole HTML document."""
    answers = overview(data)
    shown, parts = page_of(answers, health), Parts()
    _PARTS.set(parts)
    library = _resource("reports.page.vendor", "uPlot.iife.min.js")
    return filled(
        "report.html.j2",
        ("theme", "plots", "page"),
        styles(),
        (library,),
        page=shown,
        parts=parts,
        uplot=Markup(packed(library)),
        summary=Markup(packed(markdown_report.markdown(answers))),
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
        return packed(json.dumps(self._parts, separators=(",", ":")))


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
    engine.filters["moment"] = moment
    engine.filters["shell"] = shlex.join
    engine.filters["later"] = lambda content: _PARTS.get().add(content)
    engine.globals |= {"phases": PHASES, "palette": signs.PALETTE}
    engine.globals |= {"quantities": QUANTITIES, "measures": MEASURES}
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


def moment(unix: float | None) -> str:
    """A time of the wall clock in UTC. A dash where the clock's time is no date."""
    try:
        return "–" if unix is None else f"{datetime.fromtimestamp(unix, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return "–"
