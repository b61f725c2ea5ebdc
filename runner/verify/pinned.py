"""The pinned image that an installation is held against, and what a difference of their releases explains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bench import rules
from reports.data.groups import field_of
from reports.data.model import MeasuredCell
from reports.data.tables import ANSWER, load
from reports.wording import framework_name
from runner.catalog.addresses import ForeignImage
from runner.catalog.images import Image, load_catalog
from runner.catalog.names import suggest, unknown_name
from runner.engines import foreign_images
from runner.engines.base import DISK_BYTES_A_BYTE, DISK_BYTES_A_BYTE_FOR_GPUS, Settings
from runner.engines.process.installed import ENGINE
from runner.engines.process.interpreters import NEAREST, NONE, nearest
from runner.errors import BadFileError, CannotBeginError, UserError
from runner.machine.detect import detect
from runner.results.on_disk.image_names import is_address, is_of_no_catalog
from runner.results.rank.ranking import Pair
from runner.results.statistics import of_kind
from runner.run.options import Options
from runner.text import number
from runner.verify.references.facts import DifferentFact
from runner.verify.references.measured import Measured
from runner.verify.verdict import MARGINS

# The gap that another release of a framework may explain.
#
# The limit is chosen, not measured: no healthy release was seen to take more than 1.21 times as long as another one, beside which it ran
# on a CPU, and these intervals are wide (docs/verify.md has the table). Nothing was measured on a GPU.

EXPLAINED = 1.5

# The facts whose difference has this limit. Another processor, other data or other code explain any gap.
_LIMITED = frozenset({"framework_version"})


def explained_up_to(device_kind: str, excuses: Iterable[DifferentFact]) -> float | None:
    """The largest ratio that these differences explain; None where they may explain any."""
    return EXPLAINED if device_kind == "cpu" and {excuse.name for excuse in excuses} <= _LIMITED else None


# An installation beside the pinned image that its run measured as well, in the same blocks: the verdict that needs no stored reference.
#
# Both were measured on one machine at one time, so neither the machine nor the day is between them. What is between them is what `runner
# compare` says of two cells of a run. Another release may be slower by itself, so it may explain a gap up to a limit.

# ok: as fast as the pinned image, or as its release explains.
BesideVerdict = Literal["ok", "slow", "open"]


@dataclass(frozen=True)
class PinnedBeside:
    """An installation's cell beside that of a pinned image. Without numbers: why there are none."""

    image: str
    release: str  # of the framework in the image
    cell_id: str = ""  # of the image's cell in the same run
    seconds: float | None = None  # a step of the image
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None  # a ratio up to this is explained
    verdict: BesideVerdict = "open"
    reason: str = ""


def is_installation(measured: Measured) -> bool:
    """True if the cell ran in an interpreter that was there, or in an image of no catalog."""
    return measured.facts.engine == ENGINE or is_address(measured.facts.image)


def pinned_beside(cells: Sequence[Measured]) -> dict[str, Measured]:
    """The cell of the pinned image beside each installation's, by its id: of the same run and computation."""
    pinned = {_computation(one): one for one in cells if not is_installation(one)}
    found = ((one.cell.cell_id, pinned.get(_computation(one))) for one in cells if is_installation(one))
    return {cell_id: other for cell_id, other in found if other is not None}


def _computation(measured: Measured) -> tuple[object, ...]:
    cell = measured.cell
    # A cell that failed early does not say where its data came from.
    return cell.run_id, cell.framework, cell.mode, replace(cell.key, data_source="")


def ratios(
    folder: Path, pairs: Mapping[str, Measured], installed: Iterable[Measured], margin: float | None
) -> dict[str, PinnedBeside]:
    """Each installation's cell of a run beside its pinned image, by the cell's id. Raises StoreError."""
    groups = [group for workload in load([folder], ANSWER).workloads for group in workload.groups]
    cells = {cell.cell_id: cell for group in groups for cell in group.cells}
    return {
        one.cell.cell_id: _beside(
            cells, one, pairs[one.cell.cell_id], of_kind(MARGINS, one.facts.device_kind) if margin is None else margin
        )
        for one in installed
        if one.cell.cell_id in pairs
    }


def _beside(cells: Mapping[str, MeasuredCell], installed: Measured, pinned: Measured, margin: float) -> PinnedBeside:
    image, release = pinned.facts.image, pinned.facts.framework_version or "of an unknown release"
    sides = [cells[one.cell.cell_id] for one in (installed, pinned)]
    if why := sides[1].unsound:
        return PinnedBeside(
            image, release, reason=f"the pinned {image} beside it has no step time: {_first_line(why)}{_takes(image)}"
        )
    if why := sides[0].unsound:
        return PinnedBeside(image, release, reason=f"it is not held against the pinned {image}: {why}")
    pair = field_of(sides, cells.values()).between(sides[0].anchor, sides[1].anchor, margin)
    return _judged(installed, pinned, sides[1], pair, margin)


def _first_line(text: str) -> str:
    """The cause of a failure; what follows is in the run's log."""
    return text.strip().partition("\n")[0]


def _takes(name: str) -> str:
    """The cost of an image, as the end of a sentence; empty of one that the catalog has no more."""
    image = load_catalog().get(name)
    if image is None:
        return ""
    disk = image.download_gb * (DISK_BYTES_A_BYTE_FOR_GPUS if image.accelerator == "cuda" else DISK_BYTES_A_BYTE)
    return (
        f"; it takes {number(image.download_gb, 2)} GB from the package index and about {number(disk, 2)} GB of disk, and `runner verify "
        f"--against none` leaves it out"
    )


def _judged(installed: Measured, pinned: Measured, cell: MeasuredCell, pair: Pair, margin: float) -> PinnedBeside:
    facts, ratio = installed.facts, pair.ratio
    ours, theirs = facts.framework_version or "", pinned.facts.framework_version or ""
    same = _release(ours) == _release(theirs)
    limit = 1 + margin if same else EXPLAINED
    low, high = ratio.low or 0.0, math.inf if ratio.high is None else ratio.high
    verdict: BesideVerdict = "open"
    if low > limit:
        verdict = "slow"
    elif ratio.value <= limit and high < limit * (1 + margin):
        verdict = "ok"
    name = framework_name(facts.framework)
    said = (
        f"takes {number(ratio.value, 3)} times as long as the pinned {name} {_release(theirs, 3)} on this machine, at this moment "
        f"({number(low, 3)} to {number(high, 3)})"
    )
    return PinnedBeside(
        image=pinned.facts.image,
        release=theirs,
        cell_id=pinned.cell.cell_id,
        seconds=cell.step.value if cell.step else None,
        ratio=ratio.value,
        low=ratio.low,
        high=ratio.high,
        limit=limit,
        verdict=verdict,
        reason=said + _explained(verdict, low, limit, f"{name} {_release(ours, 3)}", same),
    )


def _explained(verdict: BesideVerdict, low: float, limit: float, ours: str, same: bool) -> str:
    """The part of the release in it, as the end of the sentence."""
    most = f"another release may explain up to {number(limit, 3)} times"
    if verdict == "slow":
        return "" if same else f": its release, {ours}, does not explain that: {most}"
    if verdict == "ok":
        return f": its release, {ours}, may explain that: {most}" if not same and low > 1 else ""
    return f": the interval reaches across {number(limit, 3)}; more --repeats may tell"


def _release(version: str, parts: int = 2) -> str:
    """The first numbers of a release: 2.13 of 2.13.0+cpu."""
    return ".".join(version.partition("+")[0].split(".")[:parts])


def without_pinned(manifest: Mapping[str, Any]) -> str:
    """Why a run that was to measure a pinned image has none of it, from its plan; empty where it was not to."""
    if (manifest.get("options") or {}).get("against", "none") == "none":
        return ""
    skips = manifest.get("skips") or ()
    why = next((f"{skip['image']}: {skip['reason']}" for skip in skips if not is_of_no_catalog(str(skip["image"]))), "")
    return (
        f"nothing was measured beside it: {why or 'the catalog has no image of its framework for this kind of device'}"
    )


# The pinned images that a foreign image is verified beside: of each of its frameworks the one with the nearest release, or a named one.


def beside(options: Options, address: str) -> Options:
    """The options with the images to measure in one run, and the frameworks that they share. Raises UserError."""
    images = foreign_images(options.engine, Settings(foreign=(address,)))
    image = images.images(bool(detect(options.gpus, options.share).gpus))[address]
    assert isinstance(image, ForeignImage)
    if image.refusal:
        error = BadFileError if image.is_bad_file else CannotBeginError
        raise error(f"{address}: {image.refusal}")
    if why := unknown_name("--frameworks", options.frameworks, rules.framework_names()):
        raise UserError(why)
    frameworks = [name for name in image.frameworks if name in (options.frameworks or image.frameworks)]
    if not frameworks:
        raise CannotBeginError(f"--frameworks: {address} has {', '.join(image.frameworks)} only; name one of these")
    pinned = dict.fromkeys(one.name for framework in frameworks if (one := _pinned(image, framework, options.against)))
    if not pinned and options.against not in (NEAREST, NONE):
        raise UserError(f"--against {options.against}: it has none of the frameworks of {address}; name another")
    return options.model_copy(update={"images": (address, *pinned), "frameworks": tuple(frameworks)})


def _pinned(image: ForeignImage, framework: str, against: str) -> Image | None:
    """The image of the catalog beside one framework; None where there is none, or none is wanted."""
    catalog = load_catalog()
    if against == NONE:
        return None
    if against == NEAREST:
        one = image.model_copy(update={"frameworks": (framework,), "framework_version": image.version_of(framework)})
        return nearest(one, catalog.values())
    if against not in catalog:
        raise UserError(
            f"--against: {against!r:.200} is no image of the catalog{suggest(against, catalog)}; `runner images list` shows them"
        )
    return catalog[against] if framework in catalog[against].frameworks else None
