"""A ladder: two images and those between them, each a whole folder, whose locks differ from one to the next by one step."""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from runner import trees
from runner.blame import pins
from runner.blame.pins import PinnedImage, pinned_image
from runner.catalog.images import BASES, CatalogError, Image, load_catalog, read_pins
from runner.errors import UserError, naming
from runner.images import lock_facts, locking
from runner.paths import cache_folder

# No pin holds these: where two images differ in one, no image can be made between them.
_SAME = ("python", "accelerator", "cuda_from", "base", "base_digest", "source_builds", "debian", "julia", "extra_index")
# The files of an image's folder that a ladder writes; the others are copied.
_WRITTEN = ("image.toml", "requirements.in", "requirements.lock", "requirements.seal")


class LadderError(UserError):
    """Two images without any image between them; the message says why."""


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
        return load_catalog(folder.absolute().parent)[folder.absolute().name]
    catalog = load_catalog()
    if word not in catalog:
        raise CatalogError(
            f"{word!r:.200} is no image of the catalog, nor a folder with image.toml; `runner images list` shows the images"
        )
    return catalog[word]


def make(first: Image, second: Image, say: Callable[[str], None]) -> Ladder:
    """The ladder between two images, in the user's cache: made unless it is there. Raises LadderError, LockError."""
    if why := _no_ladder(first, second):
        raise LadderError(f"no image can be made between {first.name} and {second.name}: {why}")
    digest = hashlib.sha256("".join(_text(image) for image in (first, second)).encode()).hexdigest()[:12]
    folder = cache_folder() / "ladders" / f"{first.name}..{second.name}-{digest}"
    if not folder.is_dir():
        aside = folder.with_name(f"{folder.name}.part")
        trees.remove(aside)
        aside.mkdir(parents=True)
        _write(pinned_image(first), pinned_image(second), aside, say)
        aside.replace(folder)
    catalog = load_catalog(folder)
    between = sorted((name for name in catalog if name not in (first.name, second.name)), key=_number)
    images = tuple(catalog[name] for name in (first.name, *between, second.name))
    sides = [pinned_image(image) for image in images]
    return Ladder(folder, images, tuple(pins.title(*pair) for pair in itertools.pairwise(sides)))


def _text(image: Image) -> str:
    """All that a ladder is made of."""
    names = (*_WRITTEN[:3], *(path.name for path in image.locks))
    return "\n".join([image.name, *((image.folder / name).read_text(encoding="utf-8") for name in names)])


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _no_ladder(first: Image, second: Image) -> str | None:
    """Why two images have none between them: a clause, with what to do."""
    if first.name == second.name:
        return "both have one name; name two images, or rename a folder"
    if not set(first.frameworks) & set(second.frameworks):
        return f"one serves {', '.join(first.frameworks)} and the other {', '.join(second.frameworks)}; name two images of one framework"
    for field in _SAME:
        sides = getattr(first, field), getattr(second, field)
        if sides[0] != sides[1]:
            one, other = sides
            return f"image.toml: {field}: one has {one}, the other {other}; no pin holds that, so compare them by `runner compare`"
    files = [{path.name: path.read_bytes() for path in _others(image)} for image in (first, second)]
    if differing := sorted(name for name in files[0] | files[1] if files[0].get(name) != files[1].get(name)):
        return f"their {differing[0]} differs; no pin holds that, so compare them by `runner compare`"
    return None


def _others(image: Image) -> list[Path]:
    return [path for path in image.folder.iterdir() if path.is_file() and path.name not in _WRITTEN]


def _write(first: PinnedImage, second: PinnedImage, folder: Path, say: Callable[[str], None]) -> None:
    """Write all images of a ladder into a folder. Raises LadderError, LockError."""
    names = pins.parts(first, second)
    say(f"the two locks differ in {sum(map(len, names))} packages; resolving the images between them")
    scratch = folder / "resolving"
    scratch.mkdir()
    resolves = _resolver(first, second, scratch)
    found = pins.steps(first, second, resolves)
    trees.remove(scratch)
    if len(found) < 2:
        every = ", ".join(sorted(found[0])[:10]) if found else "nothing"
        raise LadderError(
            f"no image can be made between {first.image.name} and {second.image.name}: they differ in {every}, which can "
            "only be changed at once; `runner matrix` and `runner compare` compare the two"
        )
    bases = first.image.folder.parent / BASES
    if bases.is_file():
        shutil.copyfile(bases, folder / BASES)
    for side in (first, second):
        _copy(side.image, folder / side.image.name)
        _rewrite(folder / side.image.name / "image.toml", ("cpu_twin",), {})
    for number in range(1, len(found)):
        _write_between(first, second, frozenset().union(*found[:number]), folder, number)


def _resolver(first: PinnedImage, second: PinnedImage, scratch: Path) -> pins.Resolves:
    """Asks uv whether pins resolve to nothing but themselves. Raises LockError where one of the two images does not."""
    image = first.image.model_copy(update={"folder": scratch})
    day = max(first.image.locked, second.image.locked)

    def resolved(changed: pins.Step) -> bool:
        sides = pins.mixed(first, second, changed)
        path = scratch / "requirements.in"
        with naming(path):
            path.write_text("".join(f"{side.line(name)}\n" for name, side in sides.items()), encoding="utf-8")
        output = locking.resolve(image, path, day, lambda _: None, ())
        return set(re.findall(r"^([a-z0-9-]+)==", output, flags=re.M)) == set(sides)

    def resolves(changed: pins.Step) -> bool:
        try:
            return resolved(changed)
        except locking.LockError:
            return False

    for side, changed in ((first, frozenset[str]()), (second, frozenset({*first.pins, *second.pins}))):
        # Otherwise a network that fails would look like pins that do not fit together.
        if not resolved(changed):
            raise LadderError(
                f"{side.image.lock_path}: its pins ask for packages that it does not hold; "
                f"make it again with `runner images lock {side.image.name}`"
            )
    return resolves


def _write_between(first: PinnedImage, second: PinnedImage, changed: pins.Step, folder: Path, number: int) -> None:
    """Write an image between the two: the packages of `changed` are the second's."""
    sides = pins.mixed(first, second, changed)
    # image.toml is that of the side whose framework it has.
    framework = [name for name, side in sides.items() if pins.part_of(name, side) == "framework"]
    own = sides[framework[0]] if framework else second
    name = f"{first.image.name}-step-{number}"
    target = folder / name
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
    texts = {
        "requirements.in": "".join(f"{side.line(each)}\n" for each, side in sorted(sides.items())),
        "requirements.lock": f"# Made by `runner blame {first.image.name} {second.image.name}`: step {number}.\n{lock}",
    }
    for file, text in texts.items():
        with naming(target / file):
            (target / file).write_text(text, encoding="utf-8")
    image = own.image.model_copy(update={"folder": target, "name": name})
    day = max(first.image.locked, second.image.locked)
    facts = lock_facts.locked_facts(image, {each: side.pins[each].version for each, side in sides.items()}, day)
    size = max(first.image.download_gb, second.image.download_gb)
    words = f"Step {number} from {first.image.name} to {second.image.name}."
    _rewrite(target / "image.toml", ("cpu_twin", "published"), {**facts, "download_gb": size, "notes": words})
    wheels = lock_facts.wheel_bytes(first.image) | lock_facts.wheel_bytes(second.image)
    held = {f"{each}=={side.pins[each].version}" for each, side in sides.items()}
    locking.write_seal(image, size, {pin: wheels.get(pin) for pin in held})


def _copy(image: Image, target: Path) -> None:
    """Copy the files of an image's folder."""
    target.mkdir()
    for path in image.folder.iterdir():
        if path.is_file():
            shutil.copyfile(path, target / path.name)


def _rewrite(toml: Path, without: Collection[str], fields: Mapping[str, str | float | date]) -> None:
    """Write other values of these fields of an image.toml, and leave others out."""
    text = re.sub(rf"^({'|'.join(without)})[ \t]*=.*\n", "", toml.read_text(encoding="utf-8"), flags=re.M)
    with naming(toml):
        toml.write_text(lock_facts.with_fields(text, fields), encoding="utf-8")
