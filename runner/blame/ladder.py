"""A ladder: two images and those between them, each a whole folder, whose locks differ from one to the next by one step."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from bench import identity
from runner import trees
from runner.blame import pins
from runner.blame.pins import PinnedImage, pinned_image
from runner.catalog.images import BASES, CatalogError, Image, load_catalog, load_image, lock_command, read_pins
from runner.catalog.names import suggest
from runner.errors import UserError, naming
from runner.images import lock_facts, locking
from runner.paths import cache_folder

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
    folder = cache_folder() / "ladders" / f"{first.name:.60}..{second.name:.60}-{_digest_of_ends(first, second)}"
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
    return Ladder(folder, images, tuple(pins.title(*pair) for pair in itertools.pairwise(steps)))


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
    names = pins.parts(first, second)
    if not names:
        raise LadderError(f"the locks of {first.image.name} and {second.image.name} hold the same packages")
    say(f"packages in which the two locks differ: {sum(map(len, names))}; resolving the images between them")
    scratch = folder / "resolving"
    scratch.mkdir()
    resolves = _resolver(first, second, scratch)
    found = pins.steps(first, second, resolves)
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


def _write_between(first: PinnedImage, second: PinnedImage, changed: pins.Step, target: Path) -> None:
    """Write an image between the two: the packages of `changed` are the second's."""
    sides = pins.mixed(first, second, changed)
    # image.toml is that of the side whose framework it has.
    framework = pins.framework_of(first, second)
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
