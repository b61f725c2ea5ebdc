"""The command `runner images show`."""

from __future__ import annotations

import typer

from runner.catalog.images import Image, read_pins
from runner.cli.images import Names, chosen
from runner.cli.shared import TextOrJson, print_json
from runner.images.recipe import recipe


def facts(image: Image) -> dict[str, object]:
    """The fields of an image.toml, the hash of its lock, and its tag."""
    return image.model_dump(mode="json") | {"lock_sha256": image.lock_sha256, "input_tag": recipe(image).input_tag}


def show(names: Names, output_format: TextOrJson = "text") -> None:
    images = [
        facts(image) | {"installs": {pin.name: pin.version for path in image.locks for pin in read_pins(path)}}
        for image in chosen(names)
    ]
    if output_format == "json":
        return print_json(images)
    for image in images:
        for field, value in image.items():
            if isinstance(value, dict):
                value = "".join(f"\n  {package} {version}" for package, version in value.items())
            elif isinstance(value, list):
                value = ", ".join(map(str, value))
            if value not in (None, ""):
                typer.echo(f"{field}: {value}")
        typer.echo()
    return None
