"""Which package makes one image faster than another: the images between the two, one package at a time, and the judgement on each step."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from bench import identity
from runner import paths, trees
from runner.catalog.images import BASES, CatalogError, Image, Pin, load_catalog, load_image, lock_command, read_pins
from runner.catalog.names import suggest
from runner.errors import UserError, naming
from runner.images import lock_facts, locking
from runner.results.rank.ranking import MARGIN, Field, Pair

# The pins in which two locks differ, in steps of which each leaves pins that resolve. Pure, but for asking whether they do.

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


# Which step of a ladder holds the change between its two ends, of one run that measured all of its images. Pure functions of numbers.

# A step is named where it holds at least this share of the change between the ends: of two steps only one can hold more than half.
SHARE = 0.5

Answer = Literal["named", "same", "open"]


@dataclass(frozen=True)
class LadderJudgement:
    """The last image beside the first, each image beside the one before it, and the place of the step that holds the change."""

    change: Pair
    steps: tuple[Pair, ...]
    answer: Answer
    culprit: int | None = None
    repeats: int | None = None  # that would settle the step which looks largest

    def share(self, step: int) -> float:
        """The share of the change between the ends that a step has."""
        return math.log(self.steps[step].ratio.value) / math.log(self.change.ratio.value)


def judge(field: Field, names: Sequence[Hashable], margin: float = MARGIN) -> LadderJudgement:
    """The judgement on the cells of a ladder that were measured, in its order: two or more.

    A step is named if it differs from the step before in the direction of the whole change, beyond what all pairs of the field might
    show by chance, and has most of that change. All else is open; nothing is open where both ends take the same time.
    """
    change = field.between(names[-1], names[0], margin)
    steps = tuple(field.between(after, before, margin) for before, after in itertools.pairwise(names))
    found = LadderJudgement(change, steps, "same" if change.verdict == "same" else "open")
    if change.verdict not in ("slower", "faster"):
        return found
    largest = max(range(len(steps)), key=found.share)
    if steps[largest].verdict == change.verdict and found.share(largest) > SHARE:
        return LadderJudgement(change, steps, "named", largest)
    return LadderJudgement(
        change, steps, "open", repeats=field.repeats_to_tell(names[largest + 1], names[largest], margin)
    )


# No pin holds these: where two images differ in one, no image can be made between them.
_SAME = ("python", "accelerator", "cuda_from", "base", "base_digest", "source_builds", "debian", "julia", "extra_index")
# How a ladder is made: another number where the same two images would give other images between them.
_FORM = b"2\n"
# The file of a ladder that has the names of its images in order, and the digest of all other files.
_CONTENTS = "ladder.json"


class LadderError(UserError):
    """Two images between which no pin changes alone; the message says why."""


@dataclass(frozen=True)
class Ladder:
    """The folder, the images in their order, and the step in words that leads to each of them but the first."""

    folder: Path
    images: tuple[Image, ...]
    steps: tuple[str, ...]


def named_image(word: str) -> Image:
    """The image of the catalog with this name, or the one whose folder this is. Raises CatalogError."""
    folder = Path(word)
    if (folder / "image.toml").is_file():
        return load_image(folder)
    catalog = load_catalog()
    if word not in catalog:
        raise CatalogError(
            f"{word!r:.200} is no image of the catalog, nor a folder with image.toml{suggest(word, catalog)}; "
            "`runner images list` shows the images"
        )
    return catalog[word]


def make(first: Image, second: Image, say: Callable[[str], None]) -> Ladder:
    """The ladder between two images, in the user's cache: made unless it is there. Raises LadderError, LockError."""
    if why := _no_ladder(first, second):
        raise LadderError(f"no image can be made between {first.name} and {second.name}: {why}")
    sides = pinned_image(first), pinned_image(second)
    folder = paths.cache_folder() / "ladders" / f"{first.name:.60}..{second.name:.60}-{_digest_of_ends(first, second)}"
    if not _is_whole(folder):
        trees.remove(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Of two that make it at once, the later one's stays.
        aside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
        try:
            names = _write(*sides, aside, say)
            load_catalog(aside)
            contents = json.dumps({"images": names, "digest": _digest_of_files(aside)})
            with naming(aside / _CONTENTS):
                (aside / _CONTENTS).write_text(contents, encoding="utf-8")
            trees.remove(folder)
            aside.replace(folder)
        finally:
            trees.remove(aside)
    catalog = load_catalog(folder)
    images = tuple(catalog[name] for name in json.loads((folder / _CONTENTS).read_text())["images"])
    steps = [pinned_image(image) for image in images]
    return Ladder(folder, images, tuple(title(*pair) for pair in itertools.pairwise(steps)))


def _digest_of_ends(first: Image, second: Image) -> str:
    """The digest of all that a ladder is made of."""
    whole = hashlib.sha256(_FORM)
    for image in (first, second):
        whole.update(f"{image.name} {image.base_digest}\n".encode())
        whole.update(_digest_of_files(image.folder).encode())
    return whole.hexdigest()[:12]


def _digest_of_files(folder: Path) -> str:
    """The digest of a folder's files but _CONTENTS, and of those of its folders."""
    names = {path.relative_to(folder).as_posix() for path in trees.files(folder) if path.name != _CONTENTS}
    return str(identity.digest(names, str(folder)))


def _is_whole(folder: Path) -> bool:
    """True if a ladder is there as it was made."""
    try:
        contents = json.loads((folder / _CONTENTS).read_text())
        return bool(contents["digest"] == _digest_of_files(folder))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _no_ladder(first: Image, second: Image) -> str | None:
    """Why two images have none between them: a clause, with what to do."""
    if first.name == second.name:
        return "they have one name; name two images, or rename a folder"
    if not set(first.frameworks) & set(second.frameworks):
        return f"one serves {', '.join(first.frameworks)} and the other {', '.join(second.frameworks)}; name two images of one framework"
    for field in _SAME:
        sides = getattr(first, field), getattr(second, field)
        if sides[0] != sides[1]:
            one, other = sides
            return f"image.toml: {field}: one has {one}, the other {other}; no pin holds that, so measure both with `runner matrix`"
    files = [{path.name: path.read_bytes() for path in _others(image)} for image in (first, second)]
    if differing := sorted(name for name in files[0] | files[1] if files[0].get(name) != files[1].get(name)):
        return f"their {differing[0]} differs; no pin holds that, so measure both with `runner matrix`"
    return None


def _others(image: Image) -> list[Path]:
    """The files of an image's folder that a ladder copies as they are."""
    return [
        path
        for path in image.folder.iterdir()
        if path.is_file() and not path.match("requirements.*") and path.name != "image.toml"
    ]


def _write(first: PinnedImage, second: PinnedImage, folder: Path, say: Callable[[str], None]) -> list[str]:
    """Write all images of a ladder into a folder; their names in order. Raises LadderError, LockError."""
    names = parts(first, second)
    if not names:
        raise LadderError(f"the locks of {first.image.name} and {second.image.name} hold the same packages")
    say(f"packages in which the two locks differ: {sum(map(len, names))}; resolving the images between them")
    scratch = folder / "resolving"
    scratch.mkdir()
    resolves = _resolver(first, second, scratch)
    found = steps(first, second, resolves)
    trees.remove(scratch)
    bases = first.image.folder.parent / BASES
    if bases.is_file():
        shutil.copyfile(bases, folder / BASES)
    for side in (first, second):
        _copy(side.image, folder / side.image.name)
        _rewrite(folder / side.image.name / "image.toml", ("cpu_twin",), {})
    between = [f"{_stem(first.image.name, second.image.name)}{number}" for number in range(1, len(found))]
    for number, name in enumerate(between, start=1):
        _write_between(first, second, frozenset().union(*found[:number]), folder / name)
    return [first.image.name, *between, second.image.name]


def _stem(first: str, second: str) -> str:
    """The names of the images between two, but for their numbers. The second may itself be an image of a ladder from the first."""
    stem = f"{first}-step-"
    while second.startswith(stem):
        stem += "step-"
    return stem


def _resolver(first: PinnedImage, second: PinnedImage, scratch: Path) -> Resolves:
    """Asks uv whether pins resolve to nothing but themselves. Raises LockError where one of the two images does not."""
    image = first.image.model_copy(update={"folder": scratch})
    day = max(first.image.locked, second.image.locked)

    def resolved(changed: Step) -> bool:
        sides = mixed(first, second, changed)
        path = scratch / "requirements.in"
        with naming(path):
            path.write_text("".join(f"{side.line(name)}\n" for name, side in sides.items()), encoding="utf-8")
        output = locking.resolve(image, path, day, lambda _: None, ())
        return set(re.findall(r"^([a-z0-9-]+)==", output, flags=re.M)) == set(sides)

    def resolves(changed: Step) -> bool:
        try:
            return resolved(changed)
        except locking.UnresolvableError:
            return False

    for side, changed in ((first, frozenset[str]()), (second, frozenset({*first.pins, *second.pins}))):
        # Otherwise a network that fails would look like pins that do not fit together.
        if not resolved(changed):
            raise LadderError(
                f"{side.image.lock_path}: its pins ask for packages that it does not hold; "
                f"make it again with `{lock_command(side.image.folder)}`"
            )
    return resolves


def _write_between(first: PinnedImage, second: PinnedImage, changed: Step, target: Path) -> None:
    """Write an image between the two: the packages of `changed` are the second's."""
    sides = mixed(first, second, changed)
    # image.toml is that of the side whose framework it has.
    framework = framework_of(first, second)
    own = second if framework and framework <= changed else first
    _copy(own.image, target)
    # Packages built from source archives are pinned in a file of their own, which is copied.
    built = {pin.name for path in own.image.locks[1:] for pin in read_pins(path)}
    lock = "".join(
        f"{each}=={side.pins[each].version} \\\n"
        + " \\\n".join(f"    --hash=sha256:{digest}" for digest in sorted(side.pins[each].hashes))
        + "\n"
        for each, side in sorted(sides.items())
        if each not in built
    )
    words = f"Made by `runner blame`: {target.name}, from {first.image.name} to {second.image.name}."
    texts = {
        "requirements.in": "".join(f"{side.line(each)}\n" for each, side in sorted(sides.items())),
        "requirements.lock": f"# {words}\n{lock}",
    }
    for file, text in texts.items():
        with naming(target / file):
            (target / file).write_text(text, encoding="utf-8")
    size = max(first.image.download_gb, second.image.download_gb)
    image = own.image.model_copy(update={"folder": target, "name": target.name, "download_gb": size})
    day = max(first.image.locked, second.image.locked)
    facts = lock_facts.locked_facts(image, {each: side.pins[each].version for each, side in sides.items()}, day)
    _rewrite(target / "image.toml", ("cpu_twin", "published"), {**facts, "download_gb": size, "notes": words})
    wheels = lock_facts.wheel_bytes(first.image) | lock_facts.wheel_bytes(second.image)
    held = {f"{each}=={side.pins[each].version}" for each, side in sides.items()}
    locking.write_seal(image, {pin: wheels.get(pin) for pin in held})


def _copy(image: Image, target: Path) -> None:
    """Copy the files of an image's folder. Locks of other architectures stay behind: a ladder replaces pins of requirements.lock."""
    target.mkdir()
    for path in image.folder.iterdir():
        if path.is_file() and not path.match("requirements.*.*"):
            shutil.copyfile(path, target / path.name)


def _rewrite(toml: Path, without: Collection[str], fields: Mapping[str, str | float | date]) -> None:
    """Write other values of these fields of an image.toml, and leave others out."""
    text = re.sub(rf"^({'|'.join(without)})[ \t]*=.*(\n|\Z)", "", toml.read_text(encoding="utf-8"), flags=re.M)
    text = lock_facts.with_fields(text, fields)
    try:
        written = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LadderError(f"image.toml of {toml.parent.name}: {error}; write each of its fields on one line") from None
    if left := [name for name in without if name in written]:
        raise LadderError(f"image.toml of {toml.parent.name}: {left[0]}: write it on one line of its own")
    with naming(toml):
        toml.write_text(text, encoding="utf-8")
