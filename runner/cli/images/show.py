"""The command `runner images show`."""

from __future__ import annotations

import typer
from pydantic import computed_field
from typing_extensions import TypedDict

from runner.catalog.architectures import holds_on
from runner.catalog.images import Image, read_pins
from runner.cli.images import Names, chosen
from runner.cli.shared import TextOrJson
from runner.images.recipe import recipe
from runner.json_document import print_document


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


class ShownImages(TypedDict):
    """The named images."""

    images: list[ShownImage]


def show(names: Names, output_format: TextOrJson = "text") -> None:
    images = [ShownImage.model_construct(**dict(image)) for image in chosen(names)]
    if output_format == "json":
        document: ShownImages = {"images": images}
        return print_document(document)
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
