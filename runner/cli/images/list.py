"""The command `runner images list`."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from runner.catalog.images import Image
from runner.cli.images import chosen
from runner.cli.images.show import facts
from runner.cli.shared import PLAIN, TextOrJson, print_json

app = typer.Typer(**PLAIN)

HEADS = (
    "image",
    "frameworks",
    "version",
    "Python",
    "CUDA",
    "cuDNN",
    "driver ≥",
    "capability",
    "fetch",
    "base pinned",
    "untested",
)


@app.command()
def show_list(output_format: TextOrJson = "text") -> None:
    images = chosen(None)
    if output_format == "json":
        return print_json([facts(image) for image in images])
    table = Table(*HEADS)
    for image in images:
        table.add_row(*_row(image))
    return Console().print(table)


def _row(image: Image) -> tuple[str, ...]:
    low, high = image.min_compute_capability, image.max_compute_capability
    return (
        image.name,
        ", ".join(image.frameworks),
        image.framework_version,
        image.python,
        image.cuda or "-",
        image.cudnn or "-",
        image.min_driver or "-",
        f"{low} to {high}" if low else "-",
        f"{image.download_gb:.2f} GB",
        "yes" if image.base_digest else "no digest yet",
        image.untested or "",
    )
