"""The command `runner images show`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer
from pydantic import computed_field
from typing_extensions import TypedDict

from bench import rules
from runner.catalog.addresses import addresses
from runner.catalog.architectures import holds_on
from runner.catalog.images import Image, read_pins
from runner.cli.images import Names, chosen
from runner.cli.shared import TextOrJson
from runner.images.recipe import recipe
from runner.results.on_disk.image_names import NO_LOCK, is_address
from runner.text import in_a_line, print_document

if TYPE_CHECKING:
    from runner.engines.foreign import Looked


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

    return [_record(images.looked(name), computes) for name in names]


def _record(looked: Looked, computes: Callable[[str], list[str]]) -> ForeignImageRecord:
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
