"""The catalog of images: one folder each, with image.toml, requirements.in and requirements.lock.

A folder's name is the image's name. Every mistake in one is named with file, field and fix, all of them at once.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from packaging.version import Version as ParsedVersion
from pydantic import Field, ValidationError, field_validator, model_validator

from bench import rules
from runner.catalog.cuda import PTX_DRIVER
from runner.catalog.names import suggest
from runner.errors import UserError
from runner.paths import PROJECT
from runner.results.on_disk.image_names import NO_LOCK, is_address
from runner.results.validate import Frozen

IMAGES = PROJECT / "images"

# The script that is run in each image and environment once its locks are installed; see finish_path for an image's own.
LINKS = IMAGES / "links.sh"

# The digests of all base images, once each: many images stand on one.
BASES = "bases.toml"

# An image is named as its folder, in lower case: the name is a container image's too.
NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")

# \d would take every script's digits, and "08.0" would be another name of "8.0".
Version = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*(\.?(a|b|rc|post|dev)[0-9]+)?$")]
ComputeCapability = Annotated[str, Field(pattern=r"^[1-9][0-9]*\.[0-9]$")]
DebianPackage = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
Precision = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8"]

# Precisions that need a GPU: a CPU has no TF32 unit.
_CUDA_ONLY_PRECISIONS = {"tf32"}


class CatalogError(UserError):
    """A folder of the catalog that cannot be used; each line of the message names a file, a field and the fix."""


class Image(Frozen):
    """One pinned combination of frameworks, Python and CUDA: an image.toml, with its folder and the folder's name."""

    name: str
    folder: Path = Field(exclude=True)
    # the machine that it is for, where that is not the one of requirements.lock
    architecture: str = Field("", exclude=True)
    frameworks: tuple[str, ...] = Field(min_length=1, examples=['["torch"]'])
    framework_version: Version = Field(examples=['"2.13.0"'])
    python: str = Field(pattern=r"^3\.[0-9]+$", examples=['"3.11"'])
    accelerator: Literal["cpu", "cuda"] = Field(examples=['"cpu"'])
    cuda: Version | None = Field(None, examples=['"12.8.1"'])
    cudnn: Version | None = Field(None, examples=['"9.10.2.21"'])
    nccl: Version | None = Field(None, examples=['"2.27.5"'])
    # where CUDA comes from: NVIDIA's wheels in the lock, the base image, or the framework's own wheel, which holds it all
    cuda_from: Literal["wheels", "base", "framework"] = Field("wheels", examples=['"base"'])
    # the oldest driver that runs the CUDA family, and the GPUs that the wheels hold code for
    min_driver: Version | None = Field(None, examples=['"525.60.13"'])
    min_compute_capability: ComputeCapability | None = Field(None, examples=['"7.0"'])
    max_compute_capability: ComputeCapability | None = Field(None, examples=['"12.0"'])
    # those between the two that the wheels hold no code for
    no_code_for: tuple[ComputeCapability, ...] = Field((), examples=['["10.0"]'])
    # those that some kernels hold only PTX for -> the CUDA release of that PTX: the driver compiles it at the first start
    ptx_only: dict[ComputeCapability, Version] = Field(default_factory=dict, examples=['{ "9.0" = "12.5" }'])
    # a mode of its frameworks that the image lacks parts of -> which parts
    no_modes: dict[str, str] = Field(default_factory=dict, examples=['{ xla = "its base image has no libdevice" }'])
    # a precision that its frameworks do not compute on a CPU as it is specified -> what they do instead
    not_on_cpu: dict[str, str] = Field(default_factory=dict, examples=['{ amp-fp16 = "it sums products in float16" }'])
    # an architecture that its lock holds on, and where its wheels do not run -> why
    not_on_machine: dict[str, str] = Field(default_factory=dict, examples=['{ aarch64 = "its wheel needs liba.so" }'])
    base: str = Field(pattern=r"^[a-z0-9][\w./:-]*$", examples=['"python:3.11-slim-bookworm"'])
    # of images/bases.toml. None: not resolved yet. The base is then fixed only as far as its tag is.
    base_digest: str | None = None
    cpu_twin: str | None = Field(None, examples=['"torch-2.13.0-cpu"'])
    precisions: tuple[Precision, ...] = Field(min_length=1, examples=['["fp32"]'])
    locked: date = Field(examples=["2026-11-20"])
    # what the wheels of the lock weigh together, so that a plan can say what must be fetched
    download_gb: float = Field(gt=0, examples=["0.25"])
    # where CI put the built image, with the tag of its inputs: `runner images pin --registry` writes it, and matrix pulls it by its digest
    published: str | None = Field(
        None,
        pattern=r"^[a-z0-9][\w.:-]*(/[a-z0-9][\w.-]*)+:[0-9a-f]{12}-[0-9a-f]{12}@sha256:[0-9a-f]{64}$",
        examples=['"ghcr.io/<owner>/<repository>/torch-2.13.0-cpu:<tag>@sha256:<64 hex digits>"'],
    )
    # the index that is asked only when the site's own pip configuration cannot satisfy the lock
    extra_index: str | None = Field(
        None, pattern=r"^https://[^@\s]+$", examples=['"https://download.pytorch.org/whl/cpu"']
    )
    # what the lock holds as source archives only, built without isolation: sources.lock, made beside requirements.lock
    source_builds: tuple[str, ...] = Field((), examples=['["chainer"]'])
    # Debian package -> the program, shared library or file (a path) by which one sees that it is there; "" where
    # an environment outside a container does without, and a mode is missing then
    debian: dict[DebianPackage, str] = Field(default_factory=dict, examples=['{ "g++" = "g++" }'])
    # the image that Julia is copied from; where images/bases.toml has its digest, it is added here; the folder holds Project.toml
    julia: str | None = Field(
        None,
        pattern=r"^julia:[0-9]+\.[0-9]+\.[0-9]+-\w+(@sha256:[0-9a-f]{64})?$",
        examples=['"julia:1.10.10-bookworm"'],
    )
    # the framework has no newer release: `runner images update` looks for none
    last_release: bool = Field(False, examples=["true"])
    # why this image was never run; it is planned only when it is named
    untested: str | None = Field(None, examples=['"no Julia was available when this was written"'])
    notes: str = ""

    @field_validator("frameworks", "precisions", "source_builds", "no_code_for")
    @classmethod
    def _no_repeats(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(values)) != len(values):
            raise ValueError("a value stands there twice; name each once")
        return values

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        gpu_fields = ("cuda", "cudnn", "min_driver", "min_compute_capability", "max_compute_capability")
        if self.accelerator == "cuda":
            missing = [name for name in gpu_fields if getattr(self, name) is None]
            if missing:
                raise ValueError(f"{missing[0]}: a cuda image must have it; add {_example(missing[0])}")
            if ParsedVersion(str(self.min_compute_capability)) > ParsedVersion(str(self.max_compute_capability)):
                raise ValueError("min_compute_capability: it is above max_compute_capability; swap the two")
            self._capabilities_fit()
        else:
            extra = [name for name in (*gpu_fields, "nccl", "cpu_twin") if getattr(self, name) is not None]
            extra += [name for name in ("cuda_from", "no_code_for", "ptx_only") if name in self.model_fields_set]
            if extra:
                raise ValueError(f'{extra[0]}: a cpu image has none; remove it, or set accelerator = "cuda"')
            wrong = sorted(_CUDA_ONLY_PRECISIONS.intersection(self.precisions))
            if wrong:
                raise ValueError(f"precisions: a CPU has no {wrong[0]}; remove it")
        return self

    def _capabilities_fit(self) -> None:
        """Raises ValueError where no_code_for and ptx_only name what is out of the range, both the same, or an unknown CUDA."""
        low, high = ParsedVersion(str(self.min_compute_capability)), ParsedVersion(str(self.max_compute_capability))
        for field, capabilities in (("no_code_for", self.no_code_for), ("ptx_only", tuple(self.ptx_only))):
            for capability in capabilities:
                parsed = ParsedVersion(capability)
                # Code for `high` runs on the later minor versions of its major one.
                if parsed < low or (parsed > high and parsed.major != high.major):
                    raise ValueError(f"{field}: {capability} is not between {low} and {high}; remove it")
        if unknown := sorted(set(self.ptx_only.values()).difference(PTX_DRIVER)):
            raise ValueError(
                f"ptx_only: the driver that compiles PTX of CUDA {unknown[0]} is not known; add it to PTX_DRIVER"
            )
        if both := sorted(set(self.no_code_for).intersection(self.ptx_only)):
            raise ValueError(f"no_code_for: {both[0]} is also in ptx_only; PTX is code, so remove it here")

    def on(self, architecture: str) -> Self:
        """The same image for a machine of this name, as the kernel has it: with the lock of that machine, where it has one of its own."""
        return self.model_copy(update={"architecture": architecture})

    @property
    def lock_path(self) -> Path:
        """The lock of the image's architecture: its own, or the one that serves them all."""
        return self.own_lock_path if self.own_lock_path.is_file() else self.folder / "requirements.lock"

    @property
    def own_lock_path(self) -> Path:
        """The lock that the architecture has of its own, made or not."""
        return self.folder / f"requirements.{self.architecture}.lock"

    @property
    def other_locks(self) -> tuple[Path, ...]:
        """The locks that single architectures have of their own."""
        return tuple(sorted(self.folder.glob("requirements.*.lock")))

    @property
    def sources_path(self) -> Path:
        """The lock of what is built from source archives; there only where source_builds names some."""
        return self.folder / "sources.lock"

    @property
    def seal_path(self) -> Path:
        """Digests of requirements.in and of each pin, written with the lock: an edit of either shows without a network."""
        return self.lock_path.with_suffix(".seal")

    @property
    def locks(self) -> tuple[Path, ...]:
        """The locks that are installed: one, and a second where something is built from its source archive."""
        return (self.lock_path, self.sources_path) if self.source_builds else (self.lock_path,)

    @property
    def finish_path(self) -> Path:
        """The script that sh runs after the locks are installed, with the environment's python first on PATH; seldom there."""
        return self.folder / "finish.sh"

    @property
    def julia_paths(self) -> tuple[Path, ...]:
        """The files of Julia's package manager: Project.toml, and Manifest.toml where a machine with Julia made it."""
        return tuple(path for path in (self.folder / "Project.toml", self.folder / "Manifest.toml") if path.is_file())

    @property
    def lock_sha256(self) -> str:
        """sha256 (hex) of the architecture's lock file; where there is more that is installed, of that as well."""
        digests = [hashlib.sha256(self.lock_path.read_bytes()).hexdigest()]
        more = [path for path in (self.sources_path, self.finish_path, *self.julia_paths) if path.is_file()]
        names = [*sorted(self.debian), *([self.julia] if self.julia else [])]
        if not more and not names:
            return digests[0]
        digests += [hashlib.sha256(path.read_bytes()).hexdigest() for path in more]
        return hashlib.sha256("\n".join([*digests, *names]).encode()).hexdigest()

    @property
    def locks_sha256(self) -> str:
        """The same of all architectures: an image has one tag for all of them."""
        others = [hashlib.sha256(path.read_bytes()).hexdigest() for path in self.other_locks]
        own = self.on("").lock_sha256
        return hashlib.sha256("\n".join([own, *others]).encode()).hexdigest() if others else own

    def version_of(self, framework: str) -> str:
        """The release of one of its frameworks, or of the library that it computes with."""
        return self.framework_version

    @property
    def download_bytes(self) -> int:
        return round(self.download_gb * 1e9)

    @property
    def base_reference(self) -> str:
        """The base image, by digest where that is known."""
        return f"{self.base}@{self.base_digest}" if self.base_digest else self.base


def load_catalog(
    folder: Path = IMAGES, frameworks: Sequence[str] | None = None, locks: bool = True
) -> dict[str, Image]:
    """Read every image of the catalog, by name.

    `frameworks` are those an image may serve, by default the ones that the bench has. Without `locks` an image may miss
    its locks, for the one command that makes them. Raises CatalogError, which tells everything that is wrong and not only
    the first.
    """
    served = tuple(rules.framework_names() if frameworks is None else frameworks)
    if not folder.is_dir():
        raise CatalogError(f"{folder}: there is no such folder; the catalog is the folder `images` of the project")
    problems: list[str] = []
    catalog: dict[str, Image] = {}
    bases = read_bases(folder)
    for path in sorted(folder.glob("*/")):
        # Beside the folders lies a Python file, and pip compiles each one of a wheel.
        if path.name == "__pycache__":
            continue
        try:
            catalog[path.name] = _load_image(path, served, locks, bases)
        except CatalogError as error:
            problems.append(str(error))
    if not problems:  # a twin that cannot be read would be reported as missing
        for image in catalog.values():
            problems += _twin_problems(image, catalog)
    if problems:
        raise CatalogError("\n".join(problems))
    return catalog


def read_bases(folder: Path) -> dict[str, str]:
    """Base image -> digest, "" where that is not resolved, of the catalog's bases.toml. Raises CatalogError."""
    path = folder / BASES
    try:
        bases = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"{path}: not TOML: {error}; fix that line") from None
    for name, digest in bases.items():
        if not isinstance(digest, str) or not re.fullmatch(r"(sha256:[0-9a-f]{64})?", digest):
            raise CatalogError(
                f'{path}: {name}: {digest!r:.90} is no digest; write it like "sha256:<64 hex digits>", or ""'
            )
    return bases


def select_images(catalog: Mapping[str, Image], patterns: Iterable[str]) -> list[Image]:
    """The images whose names fit a shell pattern, in the catalog's order. A name that fits none raises CatalogError."""
    names: set[str] = set()
    for pattern in patterns:
        matching = set(fnmatch.filter(catalog, pattern))
        if not matching:
            raise CatalogError(
                f"no image is called {pattern!r}{suggest(pattern, catalog)}; `runner images list` shows them all"
            )
        names |= matching
    return [image for name, image in catalog.items() if name in names]


# name==version, an optional marker, then at least one hash: what pip installs with --require-hashes.
_REQUIREMENT = re.compile(
    r"^(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[\w.+!]+)(?:\s*;[^\\]*)?(?P<hashes>(?:\s+--hash=sha256:[0-9a-f]{64})+)$"
)


@dataclass(frozen=True)
class Pin:
    """One requirement of a lock: a package at a version, and the sha256 of every file that it may be installed from."""

    name: str  # as PEP 503 compares names: lower case, words between single dashes
    version: str
    hashes: frozenset[str]

    @property
    def seal(self) -> str:
        """16 hex digits that change with the name, the version or any hash."""
        content = "\n".join([f"{self.name}=={self.version}", *sorted(self.hashes)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def requirements_digest(path: Path) -> str:
    """16 hex digits that change with what a requirements.in asks for; comments and blank lines do not count."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()[:16]


def read_pins(path: Path) -> list[Pin]:
    """A lock's requirements, in its order. Raises CatalogError for a line that is not a pin with a sha256."""
    again = f"make the lock again with `{lock_command(path.parent)}`"
    try:
        text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise CatalogError(f"{path}: not UTF-8: {error}; {again}") from None
    pins: list[Pin] = []
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _REQUIREMENT.match(line)
        if not match:
            raise CatalogError(f"{path}: {line[:60]!r} is not `name==version --hash=sha256:…`; {again}")
        hashes = frozenset(word.removeprefix("--hash=sha256:") for word in match["hashes"].split())
        pins.append(Pin(canonicalize_name(match["name"]), match["version"], hashes))
    if not pins:
        raise CatalogError(f"{path}: it holds no requirement; {again}")
    return pins


def lock_command(folder: Path) -> str:
    """The command that makes the lock of an image's folder again."""
    return f"runner images lock {folder.name if folder.parent == IMAGES else folder}"


def load_image(folder: Path, locks: bool = True) -> Image:
    """One image, whatever lies beside its folder. Without `locks` it may miss its lock. Raises CatalogError."""
    folder = folder.resolve()
    return _load_image(folder, tuple(rules.framework_names()), locks, read_bases(folder.parent))


def _load_image(folder: Path, frameworks: Sequence[str], locks: bool, bases: Mapping[str, str]) -> Image:
    path = folder / "image.toml"
    if not NAME.fullmatch(folder.name):
        raise CatalogError(
            f"{folder}: a folder's name is an image's name: lower-case letters, digits and single . _ -; rename it"
        )
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CatalogError(f"{path}: the file is missing; write it, or remove the folder") from None
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"{path}: not TOML: {error}; fix that line") from None
    problems = [
        f"{path}: {name}: the folder's name says it; remove the line" for name in ("name", "folder") if name in fields
    ]
    if "architecture" in fields:
        problems.append(f"{path}: architecture: an image is for every machine that its locks hold on; remove the line")
    if "base_digest" in fields:
        problems.append(f"{path}: base_digest: it stands in {folder.parent / BASES}; remove the line")
    for name in ("requirements.in", "requirements.lock") if locks else ("requirements.in",):
        if not (folder / name).is_file():
            hint = f"`{lock_command(folder)}` makes it" if name.endswith("lock") else "list what to install there"
            problems.append(f"{path}: {folder / name} is missing; {hint}")
    image = None
    try:
        before = {} if locks else _before_the_lock(fields)
        image = Image.model_validate({**before, **fields, "name": folder.name, "folder": folder})
        julia = image.julia and _pinned(image.julia, bases)
        image = image.model_copy(update={"base_digest": bases.get(image.base) or None, "julia": julia})
    except ValidationError as error:
        unknown = [str(problem["loc"][0]) for problem in error.errors() if problem["type"] == "extra_forbidden"]
        problems += [
            f"{path}: {_sentence(problem)}"
            for problem in error.errors()
            # A misspelt field is one mistake: it is not reported as a missing one too.
            if problem["type"] != "missing" or not suggest(str(problem["loc"][0]), unknown)
        ]
    for name in image.frameworks if image else ():
        if name not in frameworks:
            known = ", ".join(frameworks) or "none"
            problems.append(
                f"{path}: frameworks: {name!r} has no adapter{suggest(name, frameworks)}; known are {known}"
            )
    if locks and image and bool(image.source_builds) != image.sources_path.is_file():
        fix = f"`{lock_command(folder)}` makes it" if image.source_builds else "remove the file"
        problems.append(f"{path}: source_builds: it and {image.sources_path.name} do not go together; {fix}")
    if image and image.accelerator == "cuda" and image.other_locks:
        fix = "remove the file, and the markers in requirements.in"
        problems.append(f"{image.other_locks[0]}: the layers of NVIDIA's wheels are made of one lock; {fix}")
    if image and bool(image.julia) != bool(image.julia_paths):
        fix = "write the packages that it pins there" if image.julia else "remove the file, or name Julia's image"
        problems.append(f"{path}: julia: it and Project.toml do not go together; {fix}")
    if problems or image is None:
        raise CatalogError("\n".join(problems))
    return image


def _before_the_lock(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Values, until the first lock is made, for the fields that `runner images lock` writes."""
    stand_ins = {"locked": date.today(), "download_gb": 0.01}
    if fields.get("accelerator") == "cuda" and fields.get("cuda_from", "wheels") == "wheels":
        stand_ins |= dict.fromkeys(("cuda", "cudnn", "min_driver"), "0")
    return stand_ins


def _pinned(name: str, bases: Mapping[str, str]) -> str:
    return f"{name}@{bases[name]}" if bases.get(name) else name


def _twin_problems(image: Image, catalog: Mapping[str, Image]) -> list[str]:
    """The faults of an image's CPU twin."""
    if image.cpu_twin is None:
        return []
    where = f"{image.folder / 'image.toml'}: cpu_twin: {image.cpu_twin!r}"
    twin = catalog.get(image.cpu_twin)
    if twin is None:
        return [
            f"{where} is not in the catalog{suggest(image.cpu_twin, catalog)}; name one that is, or remove the line"
        ]
    if twin.accelerator != "cpu":
        return [f"{where} is no cpu image; name one that is"]
    if missing := [name for name in image.frameworks if name not in twin.frameworks]:
        return [f"{where} does not serve {', '.join(missing)}; name one that serves {', '.join(image.frameworks)}"]
    return []


def _sentence(found: Any) -> str:
    """One of pydantic's findings as `field: problem; fix`."""
    field = str(found["loc"][0]) if found["loc"] else ""
    message = str(found["msg"]).removeprefix("Value error, ")
    if not field:
        return message  # the model's own checks name field and fix themselves
    if found["type"] == "extra_forbidden":
        return f"{field}: there is no such field{suggest(field, Image.model_fields)}; rename or remove it"
    if found["type"] == "missing":
        return f"{field}: it is missing; add {_example(field)}"
    given = f"{found['input']!r}: " if not isinstance(found["input"], (dict, list)) else ""
    return f"{field}: {given}{message[0].lower()}{message[1:]}; write it like {_example(field)}"


def _example(field: str) -> str:
    examples = Image.model_fields[field].examples
    return f"`{field} = {examples[0] if examples else '…'}`"


# The versions that a cell says, held against those that its image is made of.

PROVED = "proved by the lock"

# Of CUDA a framework may know the release and not the package, and of cuDNN the release that it was built with. TensorFlow 1.15 says less.
_PARTS = {"python": 2, "cuda": 2, "cudnn": 1}

# Every image has it, so it says nothing of the framework.
_EVERYWHERE = "numpy"


def version_contradiction(image: Image, said: Mapping[str, Any]) -> str | None:
    """The contradiction of a cell's event `environment` to its image's lock or image.toml, as a sentence."""
    versions: Mapping[str, str] = said["versions"]
    pins = _pins(image)
    for name, parts in _PARTS.items():
        declared: str | None = getattr(image, name)
        version = versions.get(name)
        if declared and version and not is_within(version, declared, parts):
            return f"it reports {name} {version[:50]}, and {image.name} has {declared}"
    named = {name: pins[key] for name in versions if (key := canonicalize_name(name)) in pins}
    for name, pinned in named.items():
        if not _same(versions[name], pinned):
            return f"it reports {name} {versions[name][:50]}, and the lock of {image.name} pins {pinned}"
    # An image of Theano serves Lasagne too, each with its own version.
    release = image.version_of(said["framework"])
    possible = [release, *(pinned for name, pinned in named.items() if name != _EVERYWHERE)]
    version = said["framework_version"]
    if not any(_same(version, each) for each in possible):
        return f"it reports {said['framework']} {version[:50]}, and {image.name} has {release}"
    return None


def is_within(version: str, declared: str, parts: int) -> bool:
    """True if `parts` parts of a version, as far as it has them, are those of the declared one."""
    said = version.split(".")[:parts]
    return said == declared.split(".")[: len(said)]


def version_proof(image: Image | None, said: Mapping[str, Any] | None, name: str = "") -> str:
    """The proof that a cell's version is one that the lock of its image, of this name, pins: PROVED, or "not proved" and why."""
    if is_address(name):
        return f"not proved: {NO_LOCK}"
    if image is None or said is None:
        return "not proved: no image is known"
    if not (pins := _pins(image)):
        return "not proved: what it ran in has no lock"
    if any(_same(said["framework_version"], pinned) for name, pinned in pins.items() if name != _EVERYWHERE):
        return PROVED
    return f"not proved: no package in the lock of {image.name} has it"


def _pins(image: Image) -> dict[str, str]:
    """Normalised name -> version of what the image's locks pin; empty where it has none: it is an interpreter of the user's."""
    return {pin.name: pin.version for path in image.locks if path.is_file() for pin in read_pins(path)}


def _same(said: str, pinned: str) -> bool:
    """True if two versions are of one release. A build adds to it: "+cpu", ".post1"."""
    try:
        return ParsedVersion(ParsedVersion(said).base_version) == ParsedVersion(ParsedVersion(pinned).base_version)
    except InvalidVersion:
        return False
