"""The command `runner images list`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import typer
from typing_extensions import TypedDict

from runner.catalog.images import Image
from runner.cli.images import chosen
from runner.cli.images.show import ListedImage
from runner.cli.shared import PLAIN, TextOrJson
from runner.json_document import print_document
from runner.terminal import folded, print_table
from runner.text import plural

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
