"""Words and numbers for the page: names as people write them, and figures rounded to what they are worth."""

from __future__ import annotations

import math
from collections.abc import Iterable

from reports.specifications import titles
from runner.results.statistics import Estimate

LONGEST_LOG = 6000  # of a log's end

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def framework_name(framework: str | None) -> str:
    """The framework as people write it."""
    return titles().get(framework or "", framework or "no framework")


def cell_name(image: str, framework: str, mode: str | None) -> str:
    """A cell's image, with the framework where the image's name does not say it, and the mode where it is not the default."""
    parts = [image]
    if not image.startswith(framework + "-"):
        parts.append(framework_name(framework))
    if mode and mode != "default":
        parts.append(mode)
    return " · ".join(parts)


def number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits, thousands parted by a thin space."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    if abs(rounded) >= 1e-4:
        return f"{rounded:,.{max(0, places)}f}".replace(",", "\u2009")
    mantissa, exponent = f"{rounded:.{digits - 1}e}".split("e")
    return f"{mantissa}\u2009·\u200910{str(int(exponent)).translate(_RAISED)}"


def duration(seconds: float | None) -> str:
    """Seconds in the unit that people would use."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (180.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if abs(seconds) < limit:
            return f"{number(seconds * factor)}\u00a0{unit}"
    return f"{number(seconds / 3600)}\u00a0h"


def size(count: float | None) -> str:
    """Bytes in binary units."""
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{number(count)}\u00a0{unit}"
        count /= 1024
    return f"{number(count)}\u00a0TiB"


def percent(share: float | None, digits: int = 3) -> str:
    return "–" if share is None or not math.isfinite(share) else f"{number(100 * share, digits)}\u00a0%"


def between(estimate: Estimate | None, factor: float = 1.0) -> str:
    """The two ends of an interval, with just enough digits that they differ."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "no interval"
    low, high = estimate.low * factor, estimate.high * factor
    for digits in (3, 4, 5):
        if number(low, digits) != number(high, digits) or low == high:
            break
    return f"{number(low, digits)} to {number(high, digits)}"


def listing(parts: Iterable[str]) -> str:
    """`a`, `a and b`, or `a, b and c`."""
    *most, last = list(parts) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def plural(count: int, word: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{count} {word if count == 1 else word + 's'}"
