"""The check of the catalog: `runner images check`, offline and fast.

A lock is the only thing that decides what is installed, so what image.toml says of CUDA, cuDNN, NCCL and the framework is
proved from the lock. A fact that no lock proves (a base image's CUDA) is proved from the base image's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from runner.catalog.architectures import ARCHITECTURES, SEALED_ARCHITECTURES, is_asked, with_own_lock
from runner.catalog.cuda import FIRST_RELEASE, LEAST_CAPABILITY, precision_reason
from runner.catalog.images import (
    BASES,
    CatalogError,
    Image,
    lock_command,
    read_bases,
    read_pins,
    requirements_digest,
)
from runner.catalog.workloads import Workload
from runner.images import lock_facts


@dataclass(frozen=True)
class Problem:
    """Something that is wrong: the file, the field, and how to fix it."""

    path: Path
    what: str
    # a digest that nobody could look up yet is wrong only with --strict
    only_strict: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass(frozen=True)
class _Facts:
    """An image and its lock's content, for the rules."""

    image: Image
    pins: Mapping[str, str]  # normalised name -> version

    @property
    def toml(self) -> Path:
        return self.image.folder / "image.toml"

    def wrong(self, field: str, what: str) -> Problem:
        return Problem(self.toml, f"{field}: {what}")


def check(
    images: Iterable[Image], workloads: Iterable[Workload], adapters: Collection[tuple[str, str]]
) -> list[Problem]:
    """Everything that is wrong with the images, in the catalog's order."""
    computed = {framework for framework, module in adapters if module in {workload.module for workload in workloads}}
    # A fault of a base image is found for each image on it, and reported once.
    images = list(images)
    found = dict.fromkeys(problem for image in images for problem in _check_image(image, computed))
    return [*found, *_cuda_alone(images)]


def _cuda_alone(images: Iterable[Image]) -> Iterator[Problem]:
    """Packages outside of CUDA whose releases differ between two images that are to differ in CUDA alone."""
    for older, newer in lock_facts.cuda_alone(images):
        for name, (before, after) in lock_facts.other_releases(older, newer).items():
            fix = f"only CUDA may change from {older.name}: pin it in both requirements.in, and make both locks again"
            yield Problem(newer.lock_path, f"{name} is {after}, and {before} in {older.name}; {fix}")


def _check_image(image: Image, computed: Collection[str]) -> Iterator[Problem]:
    own = {image.on(architecture.name).own_lock_path for architecture in with_own_lock(image)}
    for path in sorted(own.symmetric_difference(image.other_locks)):
        says = "names its architecture" if path in own else "does not name its architecture in a marker"
        yield Problem(path, f"it and requirements.in, which {says}, do not go together; `{lock_command(image.folder)}`")
    for architecture in with_own_lock(image):
        if (there := image.on(architecture.name)).own_lock_path.is_file():
            yield from _check_locks(there, computed)
    yield from _check_locks(image, computed)


def _check_locks(image: Image, computed: Collection[str]) -> Iterator[Problem]:
    """Everything that is wrong with the image on one architecture."""
    try:
        pins = {pin.name: pin for path in image.locks for pin in read_pins(path)}
    except CatalogError as error:
        yield Problem(image.lock_path, str(error).partition(": ")[2])
        return
    yield from _seal(image, {f"{pin.name}=={pin.version}": pin.seal for pin in pins.values()})
    facts = _Facts(image, {pin.name: pin.version for pin in pins.values()})
    for rule in _RULES:
        yield from rule(facts)
    if image.untested is None and not any(framework in computed for framework in image.frameworks):
        fix = "write an adapter for a workload, or say in `untested` why there is none"
        yield facts.wrong("frameworks", f"no workload is computed by {' or '.join(image.frameworks)}; {fix}")


def _seal(image: Image, pins: Mapping[str, str]) -> Iterator[Problem]:
    """Pins and requirements that are not as the last `runner images lock` left them, each by its name."""
    again = f"make the lock again with `{lock_command(image.folder)} --date {image.locked}`"
    if not image.seal_path.is_file():
        yield Problem(image.seal_path, f"it is missing; {again}")
        return
    seal = image.seal_path.read_text(encoding="utf-8")
    yield from _written_with_the_lock(image, lock_facts.read_sealed_size(seal))
    others = (*lock_facts.SEALED_SIZES, *SEALED_ARCHITECTURES)
    lines = [line for line in seal.splitlines() if not line.startswith(others)]
    sealed = dict(line.rsplit(" ", 1) for line in lines if " " in line and not line.startswith("#"))
    requirements = image.folder / "requirements.in"
    if sealed.pop(requirements.name, None) != requirements_digest(requirements):
        yield Problem(requirements, f"it was changed after the lock was made; {again}")
    for pin in sealed.keys() - pins.keys():
        yield Problem(image.lock_path, f"{pin} is not there, or its line was edited; {again}")
    for pin in pins.keys() - sealed.keys():
        yield Problem(image.lock_path, f"{pin} was not locked; {again}")
    for pin in pins.keys() & sealed.keys():
        if pins[pin] != sealed[pin]:
            yield Problem(image.lock_path, f"{pin}: its hashes are not those that were locked; {again}")


def _written_with_the_lock(image: Image, sealed_size: float | None) -> Iterator[Problem]:
    """The day and the gigabytes of image.toml are those that the lock was made with."""
    toml = image.folder / "image.toml"
    header = image.lock_path.read_text(encoding="utf-8").partition("\n")[0]
    day = re.search(r" --date (\d{4}-\d\d-\d\d)\b", header)
    if day is None or day[1] != str(image.locked):
        said = f"was made as of {day[1]}" if day else "says no day in its first line"
        yield Problem(
            toml, f"locked: it says {image.locked}, and {image.lock_path.name} {said}; `runner images lock` writes both"
        )
    if sealed_size is None:
        yield Problem(image.seal_path, "download_gb: it is missing; `runner images lock` writes it")
    elif sealed_size != image.download_gb:
        fix = f"write {sealed_size:g}"
        yield Problem(
            toml, f"download_gb: it says {image.download_gb:g}, and the lock's files weigh {sealed_size:g}; {fix}"
        )


def _names(facts: _Facts) -> Iterator[Problem]:
    """The folder's name ends with the version and what it computes on."""
    image = facts.image
    cuda = "".join((image.cuda or "").split(".")[:2])
    ending = f"-{image.framework_version}-{f'cu{cuda}' if image.accelerator == 'cuda' else 'cpu'}"
    if not image.name.endswith(ending):
        yield Problem(
            image.folder, f"its name does not end with {ending!r}, as image.toml says; rename it, or fix image.toml"
        )


def _machines(facts: _Facts) -> Iterator[Problem]:
    """A name that no architecture has would leave the image where it does not run."""
    for name in facts.image.not_on_machine.keys() - ARCHITECTURES.keys():
        yield facts.wrong("not_on_machine", f"{name!r} is no architecture; write {' or '.join(ARCHITECTURES)}")


def _requirements(facts: _Facts) -> Iterator[Problem]:
    """The lock holds the packages of requirements.in."""
    path = facts.image.folder / "requirements.in"
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            yield Problem(path, f"{line!r}: {str(error).splitlines()[0]}; write it like `torch==2.13.0`")
            continue
        if not is_asked(requirement, facts.image.architecture):
            continue
        version = facts.pins.get(canonicalize_name(requirement.name))
        if version is None:
            yield Problem(facts.image.lock_path, f"{requirement.name} is not in it, and requirements.in asks for it")
        elif not requirement.specifier.contains(version, prereleases=True):
            yield Problem(facts.image.lock_path, f"{requirement.name}=={version} is not the {line} of requirements.in")


def _framework(facts: _Facts) -> Iterator[Problem]:
    image = facts.image
    if image.untested is None and not any(
        version.split("+")[0] == image.framework_version for version in facts.pins.values()
    ):
        yield facts.wrong("framework_version", f"nothing in the lock has version {image.framework_version}")
    if "numpy" not in facts.pins:
        yield Problem(image.lock_path, "numpy is not in it, and the bench needs it; add it to requirements.in")


def _no_nvidia(facts: _Facts) -> Iterator[Problem]:
    """If CUDA is not of the lock's wheels, the lock must not bring a second one."""
    if facts.image.accelerator == "cuda" and facts.image.cuda_from == "wheels":
        return
    for name in facts.pins:
        if lock_facts.is_nvidia(name):
            where = f"CUDA comes from the {facts.image.cuda_from}" if facts.image.cuda else "it is a cpu image"
            yield Problem(facts.image.lock_path, f"{name} is in it, and {where}; leave it out of requirements.in")


def _cuda(facts: _Facts) -> Iterator[Problem]:
    """CUDA, cuDNN and NCCL of the lock are those of image.toml, and nothing of another release is beside them."""
    image = facts.image
    if image.cuda is None or image.cuda_from != "wheels":
        return
    major = image.cuda.partition(".")[0]
    releases = lock_facts.cuda_releases(facts.pins)
    if not any(lock_facts.same_version(version, image.cuda) for version in releases):
        yield facts.wrong("cuda", f"it says {image.cuda}, and the lock holds {' and '.join(releases) or 'none'}")
    for field, field_value in (("cudnn", image.cudnn), ("nccl", image.nccl)):
        version = lock_facts.nvidia_version(facts.pins, f"nvidia-{field}")
        if version != field_value:
            yield facts.wrong(field, f"it says {field_value or 'none'}, and the lock holds {version or 'none'}")
    for name in facts.pins:
        suffix = re.search(r"-cu(\d+)$", name)
        if name.startswith("nvidia-") and suffix and suffix[1] != major:
            yield Problem(image.lock_path, f"{name} is of another CUDA than image.toml's {image.cuda}")
    for name, version in lock_facts.of_another_cuda(facts.pins, image.cuda).items():
        fix = f"pin it in requirements.in to CUDA {image.cuda}'s"
        yield Problem(image.lock_path, f"{name}=={version} is of another CUDA than image.toml's {image.cuda}; {fix}")


def _base(facts: _Facts) -> Iterator[Problem]:
    """A base image's name lists its content: Python, or CUDA and cuDNN."""
    image = facts.image
    tag = image.base.rpartition(":")[2]
    if image.cuda and image.cuda_from == "base":
        cudnn = (image.cudnn or "").partition(".")[0]
        if not re.match(rf"{re.escape(tag.partition('-')[0])}(\.|$)", image.cuda):
            yield facts.wrong("cuda", f"it says {image.cuda}, and the base image is {image.base}")
        if f"-cudnn{cudnn}-" not in tag and "-cudnn-" not in tag:
            yield facts.wrong("cudnn", f"it says {image.cudnn}, and the base image is {image.base}")
    elif image.base.rpartition("/")[2].partition(":")[0] != "python":
        fix = f"name one of Python's, such as python:{image.python}-slim-bookworm"
        yield facts.wrong("base", f"the name {image.base} does not say which Python it holds; {fix}")
    elif tag != image.python and not tag.startswith(f"{image.python}-"):
        yield facts.wrong("python", f"it says {image.python}, and the base image is {image.base}")
    path = image.folder.parent / BASES
    bases = read_bases(path.parent)
    for name in (image.base, *([image.julia.partition("@")[0]] if image.julia else [])):
        if name not in bases:
            yield Problem(path, f'{name}: it is missing; add `"{name}" = ""`, or let `runner images pin` ask for it')
        elif not bases[name]:
            yield Problem(path, f"{name}: it has no digest; `runner images pin '*'` asks the registry for it", True)


def _hardware(facts: _Facts) -> Iterator[Problem]:
    """The least driver and GPU are not older than the image's CUDA takes."""
    image = facts.image
    if image.cuda is None:
        return
    release, major = ".".join(image.cuda.split(".")[:2]), image.cuda.partition(".")[0]
    driver, capability = lock_facts.least_driver(image.cuda), LEAST_CAPABILITY.get(major)
    if driver is None or capability is None:
        table = "LEAST_DRIVER" if driver is None else "LEAST_CAPABILITY"
        yield facts.wrong("cuda", _NO_FIGURE.format(table, image.cuda))
    if image.max_compute_capability not in FIRST_RELEASE:
        yield facts.wrong("max_compute_capability", _NO_FIGURE.format("FIRST_RELEASE", image.max_compute_capability))
    if driver and Version(image.min_driver or "0") != Version(driver):
        yield facts.wrong(
            "min_driver", f"it says {image.min_driver}, and CUDA {release} takes {driver} or newer; write {driver}"
        )
    if capability and Version(image.min_compute_capability or "0") < Version(capability):
        said = image.min_compute_capability
        yield facts.wrong("min_compute_capability", f"it says {said}, and CUDA {major} begins at {capability}")


def _capabilities(facts: _Facts) -> Iterator[Problem]:
    """The newest GPU has the image's precisions, and the image's CUDA compiles for it."""
    image, newest = facts.image, facts.image.max_compute_capability
    if image.cuda is None or newest is None:
        return
    # A generation's later GPUs run the code of its first one.
    first = FIRST_RELEASE.get(f"{newest.partition('.')[0]}.0")
    if first and Version(image.cuda) < Version(first) and newest not in image.ptx_only:
        yield facts.wrong(
            "max_compute_capability", f"it says {newest}, which takes CUDA {first}, and the image has {image.cuda}"
        )
    for precision in image.precisions:
        if reason := precision_reason(precision, f"a GPU of {newest}", newest):
            yield facts.wrong("precisions", f"{reason}; remove it")


def _companions(facts: _Facts) -> Iterator[Problem]:
    """A framework that requirements.in names is served: Keras is in an image because it is measured there."""
    served = " ".join(facts.image.frameworks)
    for package in ("keras", "lasagne"):
        path = facts.image.folder / "requirements.in"
        if re.search(rf"^{package}\b", path.read_text(encoding="utf-8"), flags=re.M | re.I) and package not in served:
            fix = "add the framework that it is there for, or remove it from requirements.in"
            yield facts.wrong(
                "frameworks", f"{package} is installed, and no framework of the image is {package}'s; {fix}"
            )


_NO_FIGURE = "{} of runner/catalog/cuda.py has nothing for {}; add NVIDIA's figure there"


def _jax(facts: _Facts) -> Iterator[Problem]:
    """JAX's plugin is of JAX's version and of the image's CUDA."""
    image = facts.image
    if "jax" not in facts.pins or image.cuda is None:
        return
    major = image.cuda.partition(".")[0]
    for part in ("jaxlib", f"jax-cuda{major}-plugin", f"jax-cuda{major}-pjrt"):
        held = facts.pins.get(part)
        if held != facts.pins["jax"]:
            yield Problem(image.lock_path, f"{part} is {held or 'missing'}, and jax is {facts.pins['jax']}")


_RULES: tuple[Callable[[_Facts], Iterator[Problem]], ...] = (
    *(
        _names,
        _machines,
        _requirements,
        _framework,
        _no_nvidia,
        _cuda,
        _base,
        _hardware,
        _capabilities,
        _companions,
        _jax,
    ),
)
