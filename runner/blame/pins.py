"""The pins in which two locks differ, in steps of which each leaves pins that resolve. Pure, but for asking whether they do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from runner.catalog.images import CatalogError, Image, Pin, read_pins
from runner.images import lock_facts

# A ladder has at most so many steps where neighbouring packages may be changed together: to halve it again and again instead would
# take as many images, three a run.
MOST_STEPS = 6

# The pins that belong together, in the order in which they are tried; any other package is a part by itself.
PARTS = ("framework", "CUDA", "cuDNN", "NCCL")

# Names of packages that change from one image to the next.
Step = frozenset[str]
# True if the packages of a step, beside those that have changed before, leave pins that resolve.
Resolves = Callable[[Step], bool]


@dataclass(frozen=True)
class PinnedImage:
    """One of the two images, with its pins by name and the extras with which its requirements.in asks for them."""

    image: Image
    pins: Mapping[str, Pin]
    extras: Mapping[str, str]

    def line(self, name: str) -> str:
        """The pin as a line of requirements.in."""
        return f"{name}{self.extras.get(name, '')}=={self.pins[name].version}"


def pinned_image(image: Image) -> PinnedImage:
    """An image with its pins. Raises CatalogError."""
    extras: dict[str, str] = {}
    path = image.folder / "requirements.in"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CatalogError(f"{path}: not UTF-8: {error}; fix that byte") from None
    for line in text.splitlines():
        try:
            asked = Requirement(re.split(r"(?:^|\s)#", line)[0])
        except InvalidRequirement:
            continue
        if asked.extras:
            extras[str(canonicalize_name(asked.name))] = f"[{','.join(sorted(asked.extras))}]"
    return PinnedImage(image, {pin.name: pin for path in image.locks for pin in read_pins(path)}, extras)


def mixed(first: PinnedImage, second: PinnedImage, changed: Step) -> dict[str, PinnedImage]:
    """The side that each pin of an image between the two is of: the second's for the packages that have changed."""
    sides = {name: second if name in changed else first for name in (*first.pins, *second.pins)}
    return {name: side for name, side in sides.items() if name in side.pins}


def part_of(name: str, side: PinnedImage) -> str:
    """The part that a package is changed with. The framework's packages are those of the framework's version."""
    stem = lock_facts.stem(name)
    if lock_facts.is_nvidia(name):
        return {"nvidia-cudnn": "cuDNN", "nvidia-nccl": "NCCL"}.get(stem, "CUDA")
    public = side.pins[name].version.partition("+")[0]
    own = lock_facts.same_version(public, side.image.framework_version)
    return "framework" if own else name


def _differing(first: PinnedImage, second: PinnedImage) -> dict[str, set[str]]:
    """The packages in which two images differ, by their part."""
    found: dict[str, set[str]] = {part: set() for part in PARTS}
    for name in sorted({*first.pins, *second.pins}):
        sides = [side for side in (first, second) if name in side.pins]
        if len({side.line(name) for side in sides}) == 2 or len(sides) == 1:
            # Another package may happen to have the framework's version on one side.
            of = sorted({part_of(name, side) for side in sides} - {"framework"}) or ["framework"]
            found.setdefault(of[0], set()).add(name)
    return found


def parts(first: PinnedImage, second: PinnedImage) -> list[Step]:
    """The packages in which two images differ, those of a part together, in the order in which they are tried."""
    return [frozenset(names) for names in _differing(first, second).values() if names]


def framework_of(first: PinnedImage, second: PinnedImage) -> Step:
    """The packages of the framework in which two images differ."""
    return frozenset(_differing(first, second)["framework"])


def steps(first: PinnedImage, second: PinnedImage, resolves: Resolves) -> list[Step]:
    """The steps from the first image to the second: a part each, or several that only resolve together."""
    left, found, changed = parts(first, second), list[Step](), frozenset[str]()
    while left:
        before = len(found)
        for part in list(left):
            if len(left) == 1 or resolves(changed | part):
                left.remove(part)
                found.append(part)
                changed |= part
        if left and len(found) == before:
            step = _least(left, changed, resolves)
            left = [part for part in left if not part <= step]
            found.append(step)
            changed |= step
    return _fewer(first, second, found)


def _least(left: Sequence[Step], changed: Step, resolves: Resolves) -> Step:
    """As few of the parts as resolve together: all of them do, being the second image, and those are left out that can wait."""
    chosen = list(left)
    for part in reversed(left):
        rest = [other for other in chosen if other != part]
        if rest and resolves(changed.union(*rest)):
            chosen = rest
    return frozenset().union(*chosen)


def _fewer(first: PinnedImage, second: PinnedImage, found: Sequence[Step]) -> list[Step]:
    """A package that is only added is changed with the step after it, one that only goes with the step before; then further neighbours
    together, those with the fewest packages first, until there are MOST_STEPS. The parts that have names stay by themselves."""
    ladder = list(found)

    def join(at: int) -> None:
        ladder[at : at + 2] = [ladder[at] | ladder[at + 1]]

    for at in range(len(ladder) - 2, -1, -1):
        if ladder[at].isdisjoint(first.pins) or ladder[at + 1].isdisjoint(second.pins):
            join(at)
    named = frozenset().union(*(step for step in parts(first, second) if _named(step, first, second)))
    while len(ladder) > MOST_STEPS:
        pairs = [at for at in range(len(ladder) - 1) if not named & (ladder[at] | ladder[at + 1])]
        if not pairs:
            break
        join(min(pairs, key=lambda at: len(ladder[at] | ladder[at + 1])))
    return ladder


def _named(step: Step, first: PinnedImage, second: PinnedImage) -> bool:
    return any(part_of(name, side) in PARTS for name in step for side in (first, second) if name in side.pins)


def title(before: PinnedImage, after: PinnedImage) -> str:
    """The change from one image to the next, in words: of a part its versions, else the packages."""
    words = []
    for step in parts(before, after):
        name = min(step, key=lambda each: (each not in before.pins or each not in after.pins, len(each), each))
        part = part_of(name, before if name in before.pins else after)
        versions = [getattr(side.image, part.lower(), None) for side in (before, after)]
        if part not in PARTS or None in versions or versions[0] == versions[1]:
            part = name
            versions = [side.pins[name].version if name in side.pins else None for side in (before, after)]
        more = f" with {len(step) - 1} more" if len(step) > 1 else ""
        words.append(f"{part} {versions[0] or 'none'} → {versions[1] or 'none'}{more}")
    hidden = f" and {len(words) - 4} more packages" if len(words) > 4 else ""
    return ", ".join(words[:4]) + hidden
