"""The machines that images run on, and which of them the lock of an image holds on. No other module names an architecture.

A lock is made for x86_64. It holds on another architecture if it has, for each of its pins, the hash of a file that is installed there,
and if the packages ask for the same packages there. `runner images lock` records both in requirements.seal; the proof is read from there
and needs no network. If requirements.in asks for other packages on an architecture, by a marker with its name, that one has a lock and a
seal of its own.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from runner.catalog.images import Image, read_pins

# The kernel's own word for its machine, since Linux 6.1. qemu's user emulation answers uname with the emulated machine, not this file.
_KERNEL_ARCHITECTURE = Path("/proc/sys/kernel/arch")

# The digits of a file's hash in a seal. A lock has some thousand hashes, so 16 digits name one of them.
_DIGITS = 16


@dataclass(frozen=True)
class Architecture:
    """A machine by each of its names."""

    name: str  # as uname, Python and wheels have it
    docker: str  # as Docker and OCI have it
    elf: int  # e_machine of its libraries
    glibc: int  # the newest glibc 2.x that a wheel may ask for
    oldest: tuple[str, ...]  # the tags of wheels that manylinux had before it named a glibc

    @property
    def uv(self) -> str:
        """The name of uv for this machine with this glibc."""
        return f"{self.name}-manylinux_2_{self.glibc}"

    def tags(self, python: str) -> Iterator[Tag]:
        """The tags of the wheels that a Python such as "3.11" installs here, the best one first."""
        version = tuple(int(part) for part in python.split("."))
        old = (*self.oldest, "linux")
        names = [*(f"manylinux_2_{minor}" for minor in range(self.glibc, 4, -1)), *old]
        platforms = [f"{name}_{self.name}" for name in names]
        yield from cpython_tags(version, platforms=platforms)
        yield from compatible_tags(version, f"cp{''.join(map(str, version))}", platforms)


X86_64 = Architecture("x86_64", "amd64", 62, 28, ("manylinux2014", "manylinux2010", "manylinux1"))
# GPU machines of this architecture have glibc 2.34 (RHEL 9) or newer, and the base images have 2.36: the wheels of ONNX Runtime take it.
AARCH64 = Architecture("aarch64", "arm64", 183, 34, ("manylinux2014",))

ARCHITECTURES = {architecture.name: architecture for architecture in (X86_64, AARCH64)}


def by_name(name: str) -> Architecture | None:
    """The architecture of a name of the kernel's or of Docker's; None if no image is for it."""
    return next((each for each in ARCHITECTURES.values() if name in (each.name, each.docker)), None)


def why_not(image: Image, machine: str) -> str | None:
    """Why an image does not run on a machine of this name (of the kernel's or of Docker's); None if its lock holds there."""
    architecture = by_name(machine)
    if architecture is None:
        return f"{image.name} is locked for {' and '.join(ARCHITECTURES)}; the machine is {machine}"
    if why := image.not_on_machine.get(architecture.name):
        return why
    if architecture == X86_64:
        return None
    image = image.on(architecture.name)
    sealed = image.seal_path.read_text(encoding="utf-8") if image.seal_path.is_file() else ""
    return _why_not(image, architecture, sealed)


def for_machine(image: Image, machine: str) -> Image:
    """The image with the lock of a machine of this name, of the kernel's or of Docker's."""
    architecture = by_name(machine)
    return image.on(architecture.name) if architecture else image


def is_asked(requirement: Requirement, architecture: str) -> bool:
    """True if the marker of a line of requirements.in is true on an architecture; "" is the one that locks are made for."""
    return requirement.marker is None or requirement.marker.evaluate({"platform_machine": architecture or X86_64.name})


def with_own_lock(image: Image) -> list[Architecture]:
    """The architectures that a marker in requirements.in names: their packages are others, so they have a lock of their own."""
    lines = (image.folder / "requirements.in").read_text(encoding="utf-8").splitlines()
    markers = "\n".join(line.partition("#")[0].partition(";")[2] for line in lines)
    return [each for each in ARCHITECTURES.values() if each != X86_64 and each.name in markers]


def holds_on(image: Image) -> list[str]:
    """The architectures that an image runs on, by name."""
    return [name for name in ARCHITECTURES if why_not(image, name) is None]


def _why_not(image: Image, architecture: Architecture, sealed: str) -> str | None:
    name = architecture.name
    lines = re.findall(rf"^{name} (\S+) (.+)$", sealed, flags=re.M)
    if not lines:
        return f"its lock was not looked at for {name}; `runner images lock {image.name}` does it"
    files = {pin: file.split(" ") for pin, file in lines}
    pins = [pin for path in image.locks for pin in read_pins(path)]
    tags = set(architecture.tags(image.python))
    missing = [what for word, what in lines if word == "without"] or [
        f"{pin.name}=={pin.version}"
        for pin in pins
        if not _proved(image, pin.hashes, files.get(f"{pin.name}=={pin.version}", []), tags)
    ]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        return f"{_first(image, missing)} has no wheel for {name} in its lock{more}"
    if also := [what for word, what in lines if word == "also"]:
        return f"on {name} its packages ask for {also[0]}, which is not in its lock"
    if image.accelerator == "cuda" and image.cuda_from != "wheels":
        return f"its CUDA comes from the {image.cuda_from}, and its lock does not show whether that has CUDA for {name}"
    if lost := [what for word, what in lines if word == "unasked" and what.startswith("nvidia-")]:
        return f"its framework has no CUDA in its wheel for {name}: it does not ask for {lost[0]} there"
    return None


def _first(image: Image, missing: list[str]) -> str:
    """The package to name: the framework itself, if it is among those that are missing."""
    return next((pin for pin in missing if pin.split("==")[1].split("+")[0] == image.framework_version), missing[0])


def _proved(image: Image, hashes: Iterable[str], file: list[str], tags: set[Tag]) -> bool:
    """True if a recorded file fits the architecture, and the lock has its hash."""
    if len(file) != 2 or not any(digest.startswith(file[1]) for digest in hashes):
        return False
    try:
        return not tags.isdisjoint(parse_wheel_filename(file[0])[3])
    except InvalidWheelFilename:
        return bool(image.source_builds)


def sealed(
    architecture: Architecture, files: Mapping[str, tuple[str, str] | None], asked: Callable[[], Collection[str]]
) -> Iterator[str]:
    """The lines of requirements.seal for an architecture.

    `files`: pin -> the name and the sha256 of its file there, None without one. `asked`: the packages that are asked for there; it is
    called only if every pin has a file.
    """
    if missing := [pin for pin, file in files.items() if file is None]:
        yield from (f"{architecture.name} without {pin}" for pin in missing)
        return
    yield from (f"{architecture.name} {pin} {file[0]} {file[1][:_DIGITS]}" for pin, file in files.items() if file)
    locked, there = {pin.partition("==")[0] for pin in files}, set(asked())
    yield from (f"{architecture.name} also {name}" for name in sorted(there - locked))
    yield from (f"{architecture.name} unasked {name}" for name in sorted(locked - there))


# The lines of requirements.seal that are of an architecture begin so.
SEALED_ARCHITECTURES = tuple(f"{name} " for name in ARCHITECTURES)


def kernel_machine() -> str:
    """The architecture of the kernel, also where this process is emulated on another one."""
    try:
        return _KERNEL_ARCHITECTURE.read_text(encoding="ascii").strip()
    except OSError:
        return platform.machine()


def emulated(machine: str, kernel: str | None = None) -> str | None:
    """Why nothing is measured on `machine` where the kernel is another one's (by default: this kernel); None where it is the same."""
    kernel = kernel or kernel_machine()
    if machine == kernel or (by_name(machine) is not None and by_name(machine) == by_name(kernel)):
        return None
    return (
        f"it is for {machine} and would be emulated on this {kernel} machine: its times would be those of the emulation; "
        "`runner images try --engine docker` checks what it computes"
    )


def why_not_measured(image: Image, machine: str, kernel: str) -> str | None:
    """Why an image on a base of architecture `machine` is not measured by an engine on `kernel`; None if it is."""
    return why_not(image, machine) or emulated(machine, kernel)
