"""From stored runs to one HTML file that holds all it needs: styles, script, plots and Plotly itself.

What a cell printed reaches the page in two ways only. The templates make every value visible and escape it. The figures
are compressed and then consist of letters and digits only. A content security policy names our scripts by digest: no
other script runs, and the page can request nothing.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reports import text
from reports.data import tables
from reports.data.model import BEFORE_TRAINING, PHASES, Tables
from reports.page import charts, rosetta, summary
from reports.page.build import page_of
from reports.page.plots import packed, packed_figures
from runner.results import store
from runner.text import visible


def render(folders: Sequence[Path], output: Path) -> None:
    """Write the report on the runs in `folders` to `output`. Raises StoreError where one is no readable run."""
    if not folders:
        raise store.StoreError("no run was given; `runner report RUN` takes the folder of one or more runs")
    store.write_bytes(output, page(tables.load(folders)).encode("utf-8"))


def page(data: Tables) -> str:
    """The whole HTML document."""
    shown = page_of(data)
    scripts = {name: _resource("reports.page.templates", f"{name}.js") for name in ("theme", "plots", "page")}
    signs = {"colours": shown.colours, "palette": charts.PALETTE}
    return (
        _engine()
        .get_template("report.html.j2")
        .render(
            page=shown,
            style=Markup(_resource("reports.page.templates", "page.css")),
            code=_code_styles(),
            scripts={name: Markup(script) for name, script in scripts.items()},
            policy=_policy([_digest(script) for script in scripts.values()] + [_plotly()[1]]),
            plotly=Markup(_plotly()[0]),
            summary=Markup(packed(summary.markdown(data, [answer.finding for answer in shown.answers]))),
            figures=Markup(packed_figures(signs, shown.charts)),
        )
    )


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
    engine.filters["brief"] = lambda value: visible(str(value), 80)
    engine.filters["log"] = lambda value, longest=text.LONGEST_LOG: Markup(escape(visible(str(value), longest)))
    engine.filters["code"] = lambda source: Markup(source.highlighted)
    engine.filters["moment"] = moment
    engine.filters["shell"] = shlex.join
    engine.globals |= {"phases": PHASES, "before_training": BEFORE_TRAINING, "palette": charts.PALETTE}
    return engine


def _shown(value: Any) -> Any:
    """Every value that a template prints passes here before it is escaped. Markup is the template's own."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _code_styles() -> dict[str, Markup]:
    """The styles of highlighted code: for the light page, for the dark page, and for a page that is dark because the system is."""
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
    """A time of the wall clock in UTC. A dash where the clock's time is no date."""
    try:
        return "–" if unix is None else f"{datetime.fromtimestamp(unix, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return "–"
