"""Newer releases of the catalog's frameworks, as a change of files: a folder for each, made from its newest neighbour.

A package whose pin was the newest on the day of the neighbour's lock is followed to its newest release. One that was held
back then is held back by the neighbour's author, and stays. CUDA stays the neighbour's where the new release runs on it;
else it is the one that the release itself asks for.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from runner import errors, trees
from runner.catalog.architectures import is_asked
from runner.catalog.images import CatalogError, Image, load_catalog
from runner.images import lock_facts
from runner.images.locking import LockError, make_lock, resolve

Say = Callable[[str], None]

# Files of the neighbour's own lock.
_OF_THE_LOCK = ("requirements*.lock", "sources.lock", "requirements*.seal", "*.part")

# A package that is held to one CUDA may ask for another one that is not held yet.
_MOST_ROUNDS = 4


@dataclass(frozen=True)
class Newer:
    """A release that is newer than the newest one in the catalog, and the image that its folder is made from."""

    neighbour: Image
    release: Version  # with the label that the neighbour's pin has, such as +cpu
    # the release of CUDA that is asked for, such as "13.2"; None: the neighbour's where that is possible
    cuda: str | None = None

    @property
    def framework_version(self) -> str:
        return self.release.public

    def name(self, cuda: str | None) -> str:
        """The name of the new image, on this CUDA."""
        ending = f"cu{''.join(cuda.split('.')[:2])}" if cuda else "cpu"
        return f"{_family(self.neighbour)}-{self.framework_version}-{ending}"


@dataclass(frozen=True)
class _Pin:
    """A line of requirements.in that asks for exactly one version."""

    requirement: Requirement

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> Version:
        (specifier,) = self.requirement.specifier
        return Version(specifier.version)

    def asking(self, specifier: str) -> str:
        """The line with another specifier, such as ">=2.0"."""
        extras = f"[{','.join(sorted(self.requirement.extras))}]" if self.requirement.extras else ""
        return f"{self.requirement.name}{extras}{specifier}"


@dataclass(frozen=True)
class _Resolved:
    """The resolution of the new requirements."""

    versions: Mapping[str, str]  # normalised name -> version
    cuda: str | None
    # the packages that would float to another CUDA, and that the neighbour does not pin
    held: tuple[str, ...] = ()


def newest_images(images: Iterable[Image]) -> list[Image]:
    """The images of the newest version of each framework on each kind of device. Without those that have their last release."""
    families: dict[tuple[str, str], list[Image]] = {}
    for image in images:
        families.setdefault((_family(image), image.accelerator), []).append(image)
    newest = []
    for family in families.values():
        version = max(Version(image.framework_version) for image in family)
        newest += [image for image in family if Version(image.framework_version) == version and not image.last_release]
    return newest


def find_newer(image: Image, day: date, say: Say, cuda: str | None = None) -> Newer | None:
    """The newest release that the index has for the image's Python, if it is newer than the image. Raises LockError.

    With a release of CUDA: also the image's own release, where NVIDIA's wheels give the image another one of the same major release.
    """
    own = _own(image, _pins(_requirements(image)))
    if own is None:
        return None
    # The wheels of a label such as +cpu lie in an index of their own. The public one has others under the same version.
    index = ("--index", image.extra_index) if own.version.local and image.extra_index else ()
    asker = image.model_copy(update={"extra_index": None}) if index else image
    versions = _resolve(asker, [own.asking(f">={own.version.public}")], day, say, ("--no-deps", *index))
    release = Version(versions[own.name])
    if release < own.version or release.local != own.version.local:
        release = own.version
    on_another = cuda if cuda and _can_be_on(image, cuda) else None
    return Newer(image, release, on_another) if release > own.version or on_another else None


def make_folder(newer: Newer, day: date, say: Say) -> Image | None:
    """Make the new image's folder, with its lock as of a day. None where the catalog has it. Raises LockError and CatalogError."""
    neighbour = newer.neighbour
    requirements, cuda = _new_requirements(newer, day, say)
    folder = neighbour.folder.with_name(newer.name(cuda))
    if folder.exists():
        say(f"{folder.name} is in the catalog already")
        return None
    try:
        shutil.copytree(neighbour.folder, folder, ignore=shutil.ignore_patterns(*_OF_THE_LOCK))
        toml = folder / "image.toml"
        with errors.naming(folder):
            (folder / "requirements.in").write_text(requirements, encoding="utf-8")
            toml.write_text(_new_toml(newer, toml.read_text(encoding="utf-8"), folder.name), encoding="utf-8")
        image = load_catalog(folder.parent, locks=False)[folder.name]
        make_lock(image, day, say)
    except BaseException:
        # Half a folder would be an image that cannot be read.
        trees.remove(folder)
        raise
    return load_catalog(folder.parent)[folder.name]


def renew(image: Image, day: date, say: Say) -> bool:
    """Follow the newest releases of all but the framework and CUDA, and make the lock of a day. False where nothing is newer.

    Raises LockError, and the image stays as it was.
    """
    own = _own(image, _pins(_requirements(image)))
    if own is None:
        return False
    before = _requirements(image)
    requirements, _ = _new_requirements(Newer(image, own.version), day, say)
    if requirements == before:
        return False
    path = image.folder / "requirements.in"
    with errors.naming(path):
        path.write_text(requirements, encoding="utf-8")
    try:
        make_lock(image, day, say)
    except BaseException:
        with errors.naming(path):
            path.write_text(before, encoding="utf-8")
        raise
    return True


def still_to_do(image: Image, neighbour: Image | None) -> list[str]:
    """The tasks of a person before the image is good, a sentence each. `neighbour`: the image that it was made from."""
    sentences = []
    if neighbour:
        sentences.append("Read `notes` and the comments in image.toml and requirements.in: they are the neighbour's.")
    if neighbour and image.cuda:
        gpus = "min_compute_capability, max_compute_capability, no_code_for and ptx_only"
        sentences.append(f"Compare {gpus} in image.toml with the new wheel: they are those of {neighbour.name}.")
    both = f"{image.name},{neighbour.name}" if neighbour else image.name
    return [
        *sentences,
        f"Check that it computes right: `runner images try {image.name}`, then `runner images files`.",
        f"Measure it: `runner matrix --images {both}`.",
        "Write a line in CHANGELOG.md.",
    ]


def _family(image: Image) -> str:
    """An image's name before its version: "torch" of torch-2.9.1-cu128."""
    return image.name.rpartition(f"-{image.framework_version}-")[0]


def _requirements(image: Image) -> str:
    return (image.folder / "requirements.in").read_text(encoding="utf-8")


def _requirement(line: str) -> Requirement | None:
    """The requirement on a line; None of a comment. Raises CatalogError."""
    line = line.partition("#")[0].strip()
    try:
        return Requirement(line) if line else None
    except InvalidRequirement as error:
        raise CatalogError(
            f"requirements.in: {line!r}: {str(error).splitlines()[0]}; write it like `torch==2.13.0`"
        ) from None


def _pin(line: str) -> _Pin | None:
    """The line as a pin; None where it is a comment, asks for a range, or is for other machines only."""
    requirement = None if _is_elsewhere(line) else _requirement(line)
    operators = [specifier.operator for specifier in requirement.specifier] if requirement else []
    return _Pin(requirement) if requirement and operators == ["=="] and "*" not in str(requirement.specifier) else None


def _is_elsewhere(line: str) -> bool:
    """True if the line asks for a package on other machines only, as for the framework's where that has another name or label."""
    requirement = _requirement(line)
    return requirement is not None and not is_asked(requirement, "")


def _pins(text: str) -> list[_Pin]:
    return [pin for line in text.splitlines() if (pin := _pin(line))]


def _own(image: Image, pins: Iterable[_Pin]) -> _Pin | None:
    """The framework's own package: the first that has the image's version. None where it is no Python package."""
    return next((pin for pin in pins if pin.version.public == image.framework_version), None)


def _resolve(image: Image, lines: Iterable[str], day: date, say: Say, options: tuple[str, ...] = ()) -> dict[str, str]:
    """The resolution of these requirements: normalised name -> version. Raises LockError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{image.name}.in"
        with errors.naming(path):
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            resolved = resolve(image, path, day, say, options)
        except LockError as error:
            # The file is gone when somebody reads its name.
            raise LockError(str(error).replace(str(path), f"{image.name}: its requirements")) from None
    pins = (line.partition(";")[0].strip().split("==") for line in resolved.splitlines() if "==" in line)
    return {canonicalize_name(name): version for name, version in pins}


def _new_requirements(newer: Newer, day: date, say: Say) -> tuple[str, str | None]:
    """The text of the new requirements.in, and its CUDA. Raises LockError."""
    image = newer.neighbour
    text = _requirements(image)
    pins = _pins(text)
    own = _own(image, pins)
    assert own is not None
    free = {
        pin.name: f">={pin.version}"
        for pin in pins
        if not _with_the_framework(pin, own) and not lock_facts.is_nvidia(pin.name)
    }
    say(f"looking for what {image.name} holds back")
    before = _resolve(image, _asking(text, free), image.locked, say)
    asked = {pin.name: free[pin.name] for pin in pins if pin.name in free and before.get(pin.name) == str(pin.version)}
    asked |= {pin.name: f"=={newer.release}" for pin in pins if _with_the_framework(pin, own)}
    say(f"resolving {own.name} {newer.release}")
    if image.cuda and image.cuda_from == "wheels":
        resolved = _on_one_cuda(newer, text, asked, day, say)
    else:
        resolved = _Resolved(_resolve(image, _asking(text, asked), day, say), image.cuda)
    return _written(newer, text, resolved), resolved.cuda


def _with_the_framework(pin: _Pin, own: _Pin) -> bool:
    """True if a package has the framework's releases, as jaxlib has jax's."""
    return pin.name.startswith(own.name) and pin.version.public == own.version.public


def _asking(text: str, asked: Mapping[str, str], extra: Iterable[str] = ()) -> list[str]:
    """The requirements of a requirements.in with other specifiers, by name; "" omits a line. A line that is not named stays."""
    lines = []
    for line in text.splitlines():
        requirement, pin = _requirement(line), _pin(line)
        if requirement is None:
            continue
        specifier = asked.get(pin.name) if pin else None
        if pin is None or specifier is None:
            lines.append(str(requirement))
        elif specifier:
            lines.append(pin.asking(specifier))
    return [*lines, *extra]


def _on_one_cuda(newer: Newer, text: str, asked: Mapping[str, str], day: date, say: Say) -> _Resolved:
    """On the CUDA that is asked for; else on the neighbour's where that is possible; else on that of the release. Raises LockError."""
    image, family = newer.neighbour, newer.cuda
    if family is None:
        try:
            versions = _resolve(image, _asking(text, asked), day, say)
        except LockError:
            versions = {}
        if _is_of(versions, str(image.cuda)):
            return _Resolved(versions, image.cuda)
    nvidia = [pin for pin in _pins(text) if lock_facts.is_nvidia(pin.name)]
    if family is None:
        bare = _resolve(image, _asking(text, {**asked, **{pin.name: "" for pin in nvidia}}), day, say)
        if not (releases := lock_facts.cuda_releases(bare)):
            raise LockError(
                f"{image.name}: the newer release takes no CUDA from NVIDIA's wheels; make its folder by hand"
            )
        family = ".".join(releases[0].split(".")[:2])
    asked = {**asked, **{pin.name: _for_cuda(pin, family) for pin in nvidia}}
    held: dict[str, str] = {}
    for _ in range(_MOST_ROUNDS):
        versions = _resolve(image, _asking(text, asked, held.values()), day, say)
        for cuda in lock_facts.cuda_releases(versions)[:1]:
            if _is_release(cuda, family) and _is_of(versions, cuda):
                return _Resolved(versions, cuda, tuple(held))
        held |= {name: f"{name}=={family}.*" for name in lock_facts.of_another_cuda(versions, family)}
    raise LockError(f"{image.name}: the packages of NVIDIA's cannot be held to CUDA {family}; make the folder by hand")


def _can_be_on(image: Image, cuda: str) -> bool:
    """True if an image may have this release of CUDA in place of its own. The names of packages have the major release."""
    own = image.cuda or ""
    of_wheels = image.cuda_from == "wheels" and own.partition(".")[0] == cuda.partition(".")[0]
    return of_wheels and not _is_release(own, cuda)


def _is_release(cuda: str, family: str | None) -> bool:
    """True if a CUDA such as 13.2.2 is of this release, such as 13.2."""
    return ".".join(cuda.split(".")[:2]) == family


def _is_of(versions: Mapping[str, str], cuda: str) -> bool:
    """True if these packages are of this CUDA, and none of another one."""
    releases = lock_facts.cuda_releases(versions)
    of_it = any(lock_facts.same_version(release, cuda) for release in releases)
    return of_it and not lock_facts.of_another_cuda(versions, cuda)


def _for_cuda(pin: _Pin, family: str) -> str:
    """The requirement of a package of NVIDIA's on another CUDA, such as 13.2; "" if the package is of the older major release."""
    suffix = re.search(r"-cu(\d+)$", pin.name)
    if suffix and suffix[1] != family.partition(".")[0]:
        return ""
    of_cuda = pin.name == "cuda-toolkit" or lock_facts.stem(pin.name) in lock_facts.NUMBERED_AS_CUDA
    return f"=={family}.*" if of_cuda else f">={pin.version}"


def _written(newer: Newer, text: str, resolved: _Resolved) -> str:
    """requirements.in with the versions that were resolved, and the neighbour's comments with the new ones in them.

    What the neighbour does not pin and is held to one CUDA comes after its pins of NVIDIA's.
    """
    image = newer.neighbour
    lines: list[str] = []
    place = 0
    for line in text.splitlines():
        pin = _pin(line)
        if pin and pin.name not in resolved.versions:
            continue
        if pin:
            line = re.sub(r"==\s*[^\s;#,]+", f"=={resolved.versions[pin.name]}", line, count=1)
        elif line.lstrip().startswith("#") or _is_elsewhere(line):
            line = _renewed(line, image.framework_version, newer.framework_version)
            line = _renewed(
                line, *(f"CUDA {'.'.join((cuda or '').split('.')[:2])}" for cuda in (image.cuda, resolved.cuda))
            )
        lines.append(line)
        if pin and (lock_facts.is_nvidia(pin.name) or pin.version.public == image.framework_version):
            place = len(lines)
    lines[place:place] = [f"{name}=={resolved.versions[name]}" for name in resolved.held]
    return "\n".join(lines) + "\n"


def _renewed(text: str, old: str, new: str) -> str:
    """A sentence with another version in it, where the whole of the version stands."""
    return re.sub(rf"(?<![\w.]){re.escape(old)}(?!\.?\d)", lambda _: new, text)


def _new_toml(newer: Newer, text: str, name: str) -> str:
    """The neighbour's image.toml with the new version, and without what is of the neighbour's own image. The lock writes the rest."""
    image = newer.neighbour
    text = re.sub(r"^(published|untested)\s*=.*\n", "", text, flags=re.M)
    fields: dict[str, str | float | date] = {"framework_version": newer.framework_version}
    if image.notes:
        fields["notes"] = _renewed(image.notes, image.framework_version, newer.framework_version)
    twin = f"{_family(image)}-{newer.framework_version}-cpu"
    if image.cuda and name != twin and image.folder.with_name(twin).is_dir():
        fields["cpu_twin"] = twin
    return lock_facts.with_fields(text, fields)
