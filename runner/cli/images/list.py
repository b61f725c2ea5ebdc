"""The commands that say what the catalog has: list, show, files and check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import computed_field
from typing_extensions import TypedDict

from bench import rules
from runner.catalog.addresses import addresses
from runner.catalog.architectures import ARCHITECTURES, by_name, holds_on, why_not
from runner.catalog.images import Image, read_pins
from runner.catalog.workloads import adapters, load_workloads
from runner.cli.images import Names, SomeNames, chosen
from runner.cli.shared import PLAIN, TextOrJson, note
from runner.errors import UserError, one_code
from runner.images import consistency, generated_files
from runner.images.recipe import recipe
from runner.results.on_disk.image_names import NO_LOCK, is_address
from runner.terminal import folded, print_table
from runner.text import in_a_line, plural, print_document

if TYPE_CHECKING:
    from runner.engines.foreign import Looked


# The command `runner images show`.


class ListedImage(Image):
    """The fields of an image.toml, the hash of its lock, its tag, and the machines that it runs on."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def architectures(self) -> list[str]:
        return holds_on(self)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def lock_sha256(self) -> str:
        return super().lock_sha256

    @computed_field  # type: ignore[prop-decorator]
    @property
    def input_tag(self) -> str:
        return recipe(self).input_tag


class ShownImage(ListedImage):
    """The same, with the version of every package that its locks install."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def installs(self) -> dict[str, str]:
        return {pin.name: pin.version for path in self.locks for pin in read_pins(path)}


class ForeignFramework(TypedDict):
    """A framework of a foreign image: what it says of itself, and the workloads that the bench has for it."""

    framework: str
    version: str
    device_kinds: list[str]
    versions: dict[str, str]
    workloads: list[str]


class ForeignImageRecord(TypedDict):
    """A foreign image, as it was looked into."""

    image: str
    digest: str
    lock: str
    size_bytes: int
    python: str
    interpreter: str
    numpy: str
    installed: list[ForeignFramework]
    variables: dict[str, str]


class ShownImages(TypedDict):
    """The named images: those of the catalog, and those of no catalog."""

    images: list[ShownImage]
    foreign: list[ForeignImageRecord]


def show(names: Names, output_format: TextOrJson = "text") -> None:
    """An address such as docker:REPOSITORY:TAG is looked into: its image is fetched unless it is here, and nothing is measured."""
    others = [name for name in names if not is_address(name)]
    images = [ShownImage.model_construct(**dict(image)) for image in (chosen(others) if others else ())]
    foreign = _looked_into(addresses(names))
    if output_format == "json":
        document: ShownImages = {"images": images, "foreign": foreign}
        return print_document(document)
    for record in foreign:
        _print_foreign(record)
    for image in images:
        for field, value in image.model_dump(mode="json").items():
            if isinstance(value, dict):
                value = "".join(f"\n  {package} {version}" for package, version in value.items())
            elif isinstance(value, list):
                value = ", ".join(map(str, value))
            if value not in (None, ""):
                typer.echo(f"{field}: {value}")
        typer.echo()
    return None


def _looked_into(names: Sequence[str]) -> list[ForeignImageRecord]:
    """The facts of foreign images. Raises EngineError."""
    if not names:
        return []
    # Only this needs them.
    from runner.catalog.frameworks import load_frameworks
    from runner.catalog.workloads import load_workloads
    from runner.engines import foreign_images
    from runner.engines.base import Settings

    images, frameworks = foreign_images("auto", Settings(foreign=tuple(names))), load_frameworks()
    modules = {name: workload.module for name, workload in load_workloads().items()}

    def computes(framework: str) -> list[str]:
        return [name for name, module in modules.items() if module in frameworks[framework].modules]

    return [_foreign_record(images.looked(name), computes) for name in names]


def _foreign_record(looked: Looked, computes: Callable[[str], list[str]]) -> ForeignImageRecord:
    interior = looked.interior
    return {
        "image": looked.address,
        "digest": looked.pinned,
        "lock": NO_LOCK,
        "size_bytes": looked.bytes,
        "python": interior.python,
        "interpreter": interior.interpreter,
        "numpy": interior.numpy,
        "installed": [
            {
                "framework": one.framework,
                "version": one.version,
                "device_kinds": list(one.device_kinds),
                "versions": one.versions,
                "workloads": computes(one.framework),
            }
            for one in interior.frameworks
        ],
        "variables": rules.steering(looked.variables),
    }


def _print_foreign(record: ForeignImageRecord) -> None:
    variables = " ".join(f"{name}={value}" for name, value in record["variables"].items())
    lines = [
        f"image: {record['image']}",
        f"digest: {record['digest']} ({record['lock']})",
        f"size: {record['size_bytes'] / 1e9:.2f} GB",
        f"python: {record['python']} ({record['interpreter']}), NumPy {record['numpy']}",
        f"variables that steer it: {variables or 'none'}",
    ]
    for one in record["installed"]:
        says = ", ".join(f"{name} {version}" for name, version in one["versions"].items() if name != "framework")
        lines.append(f"framework: {one['framework']} {one['version']} for {' and '.join(one['device_kinds'])} ({says})")
        lines.append(f"  workloads: {', '.join(one['workloads'])}")
    for line in lines:
        typer.echo(in_a_line(line, 2000))
    typer.echo()


# The command `runner images files`.


def files() -> None:
    """Prints the path of each file."""
    for path in generated_files.write(chosen(None)):
        typer.echo(str(path))


# The command `runner images check`: what the locks hold.


def check(
    names: SomeNames = None,
    strict: Annotated[bool, typer.Option("--strict", help="Count a base image without a digest as a problem.")] = False,
    architecture: Annotated[
        str | None,
        typer.Option(help="Show only whether each image runs on this architecture, such as aarch64, by its lock."),
    ] = None,
) -> None:
    """Exit code 0: no image has a problem, or with --architecture every image runs there; 1: some image has one, or does not; 2: a file
    cannot be read."""
    images = chosen(names)
    if architecture is not None:
        raise typer.Exit(_holds_on(images, architecture))
    problems = consistency.check(images, load_workloads().values(), adapters())
    if not names:
        problems += [consistency.Problem(path, sentence) for path, sentence in generated_files.out_of_step(images)]
    counted = [problem for problem in problems if strict or not problem.only_strict]
    for problem in counted:
        note(str(problem))
    unpinned = len(problems) - len(counted)
    typer.echo(
        f"{plural(len(images), 'image')}, {plural(len(counted), 'problem')}"
        + (f"; {plural(unpinned, 'base image')} without a digest, which --strict counts" if unpinned else "")
    )
    raise typer.Exit(one_code(bool(counted), is_open=False))


def _holds_on(images: list[Image], name: str) -> int:
    """Print for each image whether its lock holds on an architecture. Returns the exit code. Raises UserError."""
    architecture = by_name(name)
    if architecture is None:
        raise UserError(f"--architecture: {name!r} is not known; known are {', '.join(ARCHITECTURES)}")
    reasons = {image.name: why_not(image, architecture.name) for image in images}
    for image, reason in reasons.items():
        typer.echo(f"{image}: {reason or 'every pin of its lock has a wheel there, with its hash'}")
    held = sum(reason is None for reason in reasons.values())
    typer.echo(f"{held} of {plural(len(images), 'image')} on {architecture.name}")
    return one_code(held < len(images), is_open=False)


app = typer.Typer(**PLAIN)

# The columns fit 80 characters. `runner images show IMAGE` and --format json have all facts.
HEADS = ("image", "Python", "CUDA", "driver ≥", "GPU", "GB")


class ListedImages(TypedDict):
    """The images of the catalog."""

    images: list[ListedImage]


@app.command()
def show_list(output_format: TextOrJson = "text") -> None:
    images = chosen(None)
    if output_format == "json":
        document: ListedImages = {"images": [ListedImage.model_construct(**dict(image)) for image in images]}
        return print_document(document)
    print_table(HEADS, map(_row, images), right=("GB",))
    for line in (
        *_notes(images),
        "GPU: compute capability; GB: wheels to fetch; `runner images show IMAGE`: all facts",
    ):
        print(folded(line))
    return None


def _row(image: Image) -> tuple[str, ...]:
    low, high = image.min_compute_capability, image.max_compute_capability
    return (
        image.name,
        image.python,
        ".".join(image.cuda.split(".")[:2]) if image.cuda else "-",
        image.min_driver or "-",
        f"{low}-{high}" if low else "-",
        f"{image.download_gb:.2f}",
    )


# A framework that the names of its images do not say.
_RUNS_IN = " runs in"


def _notes(images: Sequence[Image]) -> Iterator[str]:
    """Facts of some images only: a line for each thing, with the images."""
    notes: dict[str, list[str]] = {}
    for image in images:
        others = [name for name in image.frameworks if not image.name.startswith(f"{name.replace('_', '-')}-")]
        facts = [f"{name}{_RUNS_IN}" for name in others]
        facts += [f"no code for {', '.join(image.no_code_for)}"] if image.no_code_for else []
        facts += ["untested"] if image.untested else []
        for fact in facts:
            notes.setdefault(fact, []).append(image.name)
    ordered = sorted(notes.items(), key=lambda note: (not note[0].endswith(_RUNS_IN), note[0]))
    yield from (f"{fact}: {', '.join(names)}" for fact, names in ordered)
    if unpinned := sum(image.base_digest is None for image in images):
        yield f"base image without a digest: {unpinned} of {plural(len(images), 'image')}"
