"""The commands about the catalog as a whole: list, files and check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from typing_extensions import TypedDict

from runner.catalog.architectures import ARCHITECTURES, by_name, why_not
from runner.catalog.images import Image
from runner.catalog.workloads import adapters, load_workloads
from runner.cli.images import SomeNames, chosen
from runner.cli.images.show import ListedImage
from runner.cli.shared import PLAIN, TextOrJson, note
from runner.errors import UserError, one_code
from runner.images import consistency as rules
from runner.images import generated_files
from runner.images.generated_files import write
from runner.terminal import folded, print_table
from runner.text import plural, print_document

# The command `runner images files`.


def files() -> None:
    """Prints the path of each file."""
    for path in write(chosen(None)):
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
    problems = rules.check(images, load_workloads().values(), adapters())
    if not names:
        problems += [rules.Problem(path, sentence) for path, sentence in generated_files.out_of_step(images)]
    counted = [problem for problem in problems if strict or not problem.only_strict]
    for problem in counted:
        note(str(problem))
    unpinned = len(problems) - len(counted)
    typer.echo(
        f"{len(images)} images, {plural(len(counted), 'problem')}"
        + (f"; {unpinned} base images without a digest, which --strict counts" if unpinned else "")
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
