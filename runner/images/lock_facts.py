"""Facts of a lock: the CUDA that it holds, and its size, which `runner images lock` writes into image.toml; and the pairs of locks between
which CUDA alone changes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from runner.catalog.architectures import X86_64, Architecture
from runner.catalog.cuda import LEAST_DRIVER
from runner.catalog.images import Image, read_pins

# NVIDIA's packages whose version begins with the release of CUDA that they are of. The others (cuBLAS, cuFFT, ...) count for
# themselves; the toolkit's metapackage or the framework's own exact requirements hold those together.
NUMBERED_AS_CUDA = (
    *("nvidia-cuda-runtime", "nvidia-cuda-nvrtc", "nvidia-cuda-cupti", "nvidia-cuda-nvcc", "nvidia-cuda-crt"),
    *("nvidia-cuda-cccl", "nvidia-nvjitlink", "nvidia-nvvm", "nvidia-nvtx"),
)

# The lines of requirements.seal that hold sizes: of all that pip fetches, in GB, and of each of NVIDIA's wheels, in bytes.
_SEALED_SIZE, _SEALED_WHEEL = SEALED_SIZES = ("download_gb ", "bytes ")

# NVIDIA's wheels are installed below an image's own packages, a layer a group, in this order; the last layer holds those that are in no
# group. Images whose locks agree on a group share its layer. Usual requirements come first: the engine shares a layer only where
# all layers below it are the same. docs/images.md says what these groups save.
_LAYERS = (
    ("cublas", "cuda-runtime", "cufft", "curand", "nvjitlink"),
    ("cudnn",),
    ("cuda-cupti", "cusolver", "cusparse"),
    ("nccl",),
)

# A pin of NVIDIA's in a lock, with its hashes. One with a marker is none: it is installed with the image's own packages.
_NVIDIA_PIN = re.compile(
    r"^(nvidia-[a-z0-9-]+)==([\w.+!]+)((?:\s+(?:\\\n\s+)?--hash=sha256:[0-9a-f]{64})+)$", flags=re.M
)


def is_nvidia(name: str) -> bool:
    """True if a package is a part of CUDA in a wheel. The name is normalised."""
    return name == "cuda-toolkit" or name.startswith("nvidia-")


def stem(name: str) -> str:
    """A package of NVIDIA's without the CUDA family at its end: -cu11, -cu12, -cu13, or none since CUDA 13."""
    return re.sub(r"-cu\d+$", "", name)


def nvidia_version(pins: Mapping[str, str], package: str) -> str | None:
    """The version of a package of NVIDIA's, whatever CUDA family its name has. `pins`: normalised name -> version."""
    return next((version for name, version in pins.items() if stem(name) == package), None)


def nvidia_layers(lock: str) -> tuple[tuple[str, ...], ...]:
    """The layers of NVIDIA's wheels of a lock's text, the lowest first, and of each the pins, a pin on one line as pip reads it."""
    found = {
        match[1]: " ".join([f"{match[1]}=={match[2]}", *sorted(re.findall(r"--hash=\S+", match[3]))])
        for match in _NVIDIA_PIN.finditer(lock)
    }
    groups: list[list[str]] = [[] for _ in (*_LAYERS, ())]
    for name, pin in sorted(found.items()):
        package = stem(name).removeprefix("nvidia-")
        groups[next((number for number, layer in enumerate(_LAYERS) if package in layer), -1)].append(pin)
    return tuple(tuple(pins) for pins in groups if pins)


def cuda_releases(pins: Mapping[str, str]) -> list[str]:
    """The versions that the lock's CUDA goes by: the toolkit's, then the runtime's. Empty where no wheel holds CUDA."""
    versions = (pins.get("cuda-toolkit"), nvidia_version(pins, "nvidia-cuda-runtime"))
    return [version for version in versions if version]


def of_another_cuda(pins: Mapping[str, str], cuda: str) -> dict[str, str]:
    """The pins whose version is of another release of CUDA than this one: name -> version."""
    release = cuda.split(".")[:2]
    return {
        name: version
        for name, version in pins.items()
        if stem(name) in NUMBERED_AS_CUDA and version.split(".")[:2] != release
    }


def same_version(first: str, second: str) -> bool:
    """True if two versions are one: a release may have zeros at its end."""
    try:
        return Version(first) == Version(second)
    except InvalidVersion:
        return first == second


def least_driver(cuda: str) -> str | None:
    """The oldest driver that runs this CUDA, as runner/catalog/cuda.py has it; None where it has none."""
    return LEAST_DRIVER.get(".".join(cuda.split(".")[:2])) or LEAST_DRIVER.get(cuda.partition(".")[0])


def locked_facts(image: Image, pins: Mapping[str, str], day: date) -> dict[str, str | date]:
    """The fields of image.toml that follow from the lock. CUDA's are among them where its wheels hold CUDA."""
    facts: dict[str, str | date] = {"locked": day}
    if image.accelerator != "cuda" or image.cuda_from != "wheels" or not (releases := cuda_releases(pins)):
        return facts
    # The toolkit and its runtime are numbered apart: what image.toml has stays where it is one of the two.
    held = [image.cuda for release in releases if image.cuda and same_version(release, image.cuda)]
    facts["cuda"] = cuda = held[0] if held else releases[0]
    for field in ("cudnn", "nccl"):
        if version := nvidia_version(pins, f"nvidia-{field}"):
            facts[field] = version
    if driver := least_driver(cuda):
        facts["min_driver"] = driver
    return facts


def with_fields(text: str, fields: Mapping[str, str | float | date]) -> str:
    """The text of an image.toml with other values of these fields. A field that is missing comes after the ones before the first table.

    A field whose value stays keeps its line, with the comment on it; the comment of a changed value is of the old one and goes.
    """
    now = tomllib.loads(text)
    for field, value in fields.items():
        if field in now and now[field] == value:
            continue
        line = f"{field} = {_toml(value)}\n"
        text, replaced = re.subn(rf"^{field}[ \t]*=.*\n", line.replace("\\", r"\\"), text, flags=re.M)
        if not replaced:
            head, table, tail = text.partition("\n[")
            text = f"{head.rstrip()}\n{line}{table}{tail}"
    return text


def _toml(value: str | float | date) -> str:
    # A string of JSON is one of TOML.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class LockedFile:
    """A file that pip fetches: its address, its bytes where its index gives them, and its sha256 (hex)."""

    address: str
    size: int | None
    sha256: str


def files(pylock: str, python: str, architecture: Architecture = X86_64) -> dict[str, LockedFile]:
    """The file that pip fetches for each pin of a lock, of the lock as a pylock.toml (PEP 751).

    A pin that has no file for the architecture has one without an address and without a hash.
    """
    rank = {tag: place for place, tag in enumerate(architecture.tags(python))}
    fetched = {
        f"{package['name']}=={package['version']}": _fetched(package, rank)
        for package in tomllib.loads(pylock).get("packages", ())
    }
    return {
        pin: LockedFile(_address(file), _size(file), str(file.get("hashes", {}).get("sha256", "")))
        for pin, file in fetched.items()
    }


def download_gb(sizes: Mapping[str, int | None]) -> float | None:
    """The gigabytes of a lock's files. None where the size of one is not known."""
    known = [size for size in sizes.values() if size is not None]
    return max(round(sum(known) / 1e9, 2), 0.01) if known and len(known) == len(sizes) else None


def _fetched(package: Mapping[str, Any], rank: Mapping[Tag, int]) -> Mapping[str, Any]:
    """The file of a package that pip takes: the wheel that fits best, else the source archive."""

    def place(wheel: Mapping[str, Any]) -> int:
        try:
            tags = parse_wheel_filename(file_name(_address(wheel)))[3]
        except InvalidWheelFilename:
            return len(rank)
        return min((rank[tag] for tag in tags if tag in rank), default=len(rank))

    fitting = [wheel for wheel in package.get("wheels") or () if place(wheel) < len(rank)]
    return min(fitting, key=place) if fitting else package.get("sdist") or {}


def file_name(address: str) -> str:
    """The name of the file at an address."""
    return unquote(urlsplit(address).path).rpartition("/")[2]


def _address(file: Mapping[str, Any]) -> str:
    return str(file.get("url") or file.get("path") or "")


def _size(file: Mapping[str, Any]) -> int | None:
    """A file's bytes: as its index says, or of the file itself, where it lies in a folder of the site."""
    if isinstance(file.get("size"), int):
        return int(file["size"])
    address = urlsplit(_address(file))
    path = Path(unquote(address.path))
    return path.stat().st_size if address.scheme in ("", "file") and path.is_file() else None


def sealed_size(size: float) -> str:
    """The line of requirements.seal that holds the lock's download_gb."""
    return f"{_SEALED_SIZE}{size:g}"


def read_sealed_size(seal: str) -> float | None:
    """The download_gb that a requirements.seal holds; None where it holds none."""
    match = re.search(rf"^{_SEALED_SIZE}(\d+(?:\.\d+)?)$", seal, flags=re.M)
    return float(match[1]) if match else None


def sealed_wheels(sizes: Mapping[str, int | None]) -> list[str]:
    """The lines of requirements.seal that hold what NVIDIA's wheels weigh: pin -> bytes."""
    return [f"{_SEALED_WHEEL}{pin} {size}" for pin, size in sizes.items() if size and pin.startswith("nvidia-")]


def read_sealed_wheels(seal: str) -> dict[str, int]:
    """Bytes of NVIDIA's wheels by a requirements.seal: name==version -> bytes."""
    return {pin: int(size) for pin, size in re.findall(rf"^{_SEALED_WHEEL}(\S+) (\d+)$", seal, flags=re.M)}


def wheel_bytes(image: Image) -> dict[str, int]:
    """Bytes of NVIDIA's wheels of an image, by its seal: name==version -> bytes."""
    return read_sealed_wheels(image.seal_path.read_text(encoding="utf-8")) if image.seal_path.is_file() else {}


def cuda_alone(images: Iterable[Image]) -> list[tuple[Image, Image]]:
    """Neighbours by CUDA among images of one framework's release with one Python, cuDNN and NCCL: the older CUDA first."""
    alike: dict[tuple[object, ...], list[Image]] = {}
    for image in images:
        if image.cuda and image.cudnn and not image.untested:
            key = image.frameworks[0], image.framework_version, image.python, image.cudnn, image.nccl
            alike.setdefault(key, []).append(image)
    in_order = (sorted(same, key=lambda image: Version(str(image.cuda))) for same in alike.values())
    return [pair for same in in_order for pair in pairwise(same)]


def other_releases(older: Image, newer: Image) -> Mapping[str, tuple[str, str]]:
    """The packages outside of CUDA that both locks hold in different releases: name -> (older's, newer's)."""
    before, after = (
        {
            re.sub(r"cuda\d+", "cuda", pin.name): pin.version
            for pin in read_pins(image.lock_path)
            if not is_nvidia(pin.name)
        }
        for image in (older, newer)
    )
    return {name: (before[name], after[name]) for name in before if name in after and before[name] != after[name]}
