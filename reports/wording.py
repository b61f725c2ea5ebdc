"""Words and numbers for the page: names as people write them, and figures rounded to what they are worth."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reports.specifications import titles
from runner.results.statistics import Estimate
from runner.text import number as number
from runner.text import plural as plural

LONGEST_LOG = 6000  # of a log's end
FARTHEST = 3.0  # times the median: an interval of two repeats that ends farther away only says that they are two
WIDEST = 10.0  # times its lower end: an interval that ends farther away only says that a few repeats lie far apart


def framework_name(framework: str | None) -> str:
    """The framework as people write it."""
    return titles().get(framework or "", framework or "no framework").replace(", ", " ")


_NO_INTERVAL = "no interval"

# <family>-<version>-<platform>: cu128 is CUDA 12.8.
_IMAGE = re.compile(
    r"(?P<family>[a-z][a-z0-9-]*?)-(?P<version>\d[\w.]{0,30})-(?:cpu|cu(?P<major>\d{2})(?P<minor>\d{1,2}))"
)


def image_name(image: str, framework: str) -> str:
    """The framework, its version and CUDA, from the image's name: `PyTorch 2.9.1 · CUDA 12.8`; of a CPU image `PyTorch 2.13.0`.

    An image that is named in another way keeps its name, with the framework where that does not say it.
    """
    parts = _IMAGE.fullmatch(image)
    title = framework_name(framework)
    if parts is None:
        return image if image.startswith(framework + "-") else f"{image} · {title}"
    cuda = f" · CUDA {parts['major']}.{parts['minor']}" if parts["major"] else ""
    return _versioned(title, parts["family"].replace("-", "_"), framework, parts["version"]) + cuda


def _versioned(title: str, family: str, framework: str, version: str) -> str:
    """A framework's title with the version of its image's family: a framework may run on another one, or name its own generation."""
    words, _, generation = title.rpartition(" ")
    if generation.isdigit():
        return f"{words} {version}" if version.startswith(generation + ".") else f"{title} on {version}"
    said = family == framework or family.replace("_", "") in title.casefold().replace(" ", "")
    return f"{title} {version}" if said else f"{title} on {family.capitalize()} {version}"


def cell_name(image: str, framework: str, mode: str | None) -> str:
    """The image's display name, and the mode where it is not the default."""
    name = image_name(image, framework)
    return f"{name} · {mode}" if mode and mode != "default" else name


def gpu_name(uuid: str, devices: Iterable[Mapping[str, Any]] = ()) -> str:
    """A GPU by its index in the run's list of devices and the last four characters of its UUID: `GPU 5 (4af1)`."""
    index = next((device.get("index") for device in devices if device.get("uuid") == uuid), None)
    return f"GPU {index} ({uuid[-4:]})" if isinstance(index, int) else f"GPU {uuid[-4:]}"


def device_name(model: str) -> str:
    """A device's model without its maker, its memory and its clock: `NVIDIA A100-SXM4-80GB` is `A100-SXM4`."""
    short = re.sub(r"\((R|TM|C)\)|\s+CPU\b|\s+Processor$|\s*@.*$", "", model)
    short = re.sub(r"^(NVIDIA|Intel|AMD)\s+", "", short.strip())
    return re.sub(r"[- ]\d+ ?GB\b.*$", "", short) or model


def duration(seconds: float | None) -> str:
    """Seconds in the unit that people would use."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    factor, unit = _unit(seconds)
    return f"{number(seconds * factor)}\u00a0{unit}"


def _unit(seconds: float) -> tuple[float, str]:
    """How many of the unit that people would use are a second, and its name."""
    units = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (180.0, 1.0, "s"), (7200.0, 1 / 60, "min"))
    return next(((factor, unit) for limit, factor, unit in units if abs(seconds) < limit), (1 / 3600, "h"))


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


def times(ratio: float) -> str:
    """How many times as long the longer of two times is, by the ratio of either one to the other: `1.20`, and of 1/1.2 the same.

    What it is more than 1 has at least two digits, so that it is not written as 1.
    """
    more = max(ratio, 1 / ratio) - 1
    small = max(0, -1 - math.floor(math.log10(more))) if more > 5e-5 else 0
    return number(1 + more, 3 + small)


def apart(ratio: float) -> str:
    """How far one time is from another, by its ratio to it, with the same number in both directions: `takes 1.20 times as long`, and
    of 1/1.2 `is 1.20 times as fast`."""
    return f"takes {times(ratio)} times as long" if ratio >= 1 else f"is {times(ratio)} times as fast"


def apart_in(ratios: Sequence[float]) -> str:
    """`apart` of several ratios on one side of 1, as the least and the most: `takes 1.20 to 1.35 times as long`."""
    ends = dict.fromkeys(times(ratio) for ratio in sorted(ratios, key=lambda ratio: abs(math.log(ratio))))
    nearest, *_, farthest = (*ends, *ends)
    said = apart(ratios[0])
    return said.replace(times(ratios[0]), nearest if len(ends) == 1 else f"{nearest} to {farthest}")


def between(estimate: Estimate | None, factor: float = 1.0) -> str:
    """The two ends of an interval, with just enough digits that they differ."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return _NO_INTERVAL
    low, high = estimate.low * factor, estimate.high * factor
    for digits in (3, 4, 5):
        if number(low, digits) != number(high, digits) or low == high:
            break
    return f"{number(low, digits)} to {number(high, digits)}"


def step_interval(step: Estimate | None, factor: float | None = None, unit: str = "") -> str:
    """The two ends of a step time's interval in the unit that `duration` gives the step, or of its rate in another one; or why the
    interval says nothing."""
    if step is None or step.low is None or step.high is None:
        return between(step)
    if says_nothing(step):
        return _too_few(step.repeats)
    if factor is None:
        factor, own = _unit(step.value)
        unit = f" {own}"
    return between(step, factor) + unit


def says_nothing(step: Estimate) -> bool:
    """True if the ends of the interval of a step time, or of its rate, only show how few its repeats are."""
    if step.low is None or step.high is None or step.repeats < 2:
        return False
    near = 0 < step.value / FARTHEST <= step.low and step.high <= FARTHEST * step.value
    return too_wide(step.low, step.high) or (step.repeats == 2 and not near)


def too_wide(low: float, high: float) -> bool:
    """True if the far end of an interval is no figure, since the ends lie so far apart."""
    return high > WIDEST * low


def wide_ratio(low: float, high: float, few: str) -> str:
    """The interval of a ratio that is too wide, in words: on which side of 1 it lies, where it lies on one. `few` says why it is."""
    if low > 1:
        return f"more than {number(low)}; {few} how much"
    return f"less than {number(high)}; {few} how much" if high < 1 else few


def _too_few(repeats: int) -> str:
    return f"{'two' if repeats == 2 else repeats} repeats: too few to tell"


def between_ratios(ratio: Estimate | None) -> str:
    """The two ends of a ratio's interval. If a side has one repeat, they say how its windows scatter, and no more."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return _NO_INTERVAL
    # The other side of a ratio may have more repeats: then its cell is not one of one run.
    once = "" if ratio.repeats != 1 else "one run on one side, " if "one side has" in ratio.note else "one run, "
    if too_wide(ratio.low, ratio.high):
        few = f"{once}and its windows lie too far apart to tell" if once else _too_few(ratio.repeats)
        return wide_ratio(ratio.low, ratio.high, few)
    # An end that is not 1 is not written as if it were, as far as seven digits show that.
    for digits in range(3, 8):
        ends = [number(end, digits) for end in (ratio.low, ratio.high)]
        shown = [
            round(end, digits - 1 - math.floor(math.log10(end))) if end > 0 else end for end in (ratio.low, ratio.high)
        ]
        apart = ends[0] != ends[1] or ratio.low == ratio.high
        if apart and all((end == 1) == (at == 1) for end, at in zip(shown, (ratio.low, ratio.high), strict=True)):
            break
    return once + " to ".join(ends)


def bound(ratio: float | None) -> str:
    """The near end of an interval above 1, which is not written as if it were 1."""
    return number(ratio, next((digits for digits in range(3, 7) if ratio and round(ratio, digits - 1) > 1), 7))


def ended(sentence: str) -> str:
    """A sentence with its full stop."""
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."


def listing(parts: Iterable[str]) -> str:
    """`a`, `a and b`, or `a, b and c`."""
    *most, last = list(parts) or [""]
    return f"{', '.join(most)} and {last}" if most else last
