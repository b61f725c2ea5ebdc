"""The commands that make images' folders and pins: new, lock, update and pin."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from runner.catalog.images import IMAGES, NAME, CatalogError, Image, load_catalog, load_image
from runner.catalog.workloads import adapters, load_workloads
from runner.cli.images import LastDay, Names, SomeNames, chosen, last_day, one_after_another, raise_together
from runner.cli.shared import BaseImage, note
from runner.errors import CannotBeginError, UserError, naming, one_code
from runner.images import consistency as rules
from runner.images import docker_client, generated_files
from runner.images import update as updates
from runner.images.locking import LockError, make_lock, pin_base, pin_published
from runner.images.recipe import recipe
from runner.images.transfer import registry as registries
from runner.paths import BENCH

# The files of a new image, and of a framework that the project does not have: a start that can be measured, and is then written anew.
#
# The adapters compute by the bench's own reference in NumPy, so that the check and a cell pass before the first line is written. Each
# part of them becomes the framework's own.

_OF_AN_IMAGE = re.compile(r"(?P<framework>[a-z0-9_-]+)-(?P<version>[0-9][a-z0-9.]*)-cpu")
_FIRST_WORKLOADS = ("cnn-cifar10", "gru-imdb")

_IMAGE_TOML = """\
frameworks = ["{framework}"]
framework_version = "{version}"
python = "{python}"
accelerator = "cpu"
base = "python:{python}-slim-bookworm"
precisions = ["fp32"]
# `runner images lock` writes these two.
locked = {day}
download_gb = 0.01
"""

_FRAMEWORK_PY = '''\
"""Switches, versions and device of {framework}, for every workload. bench/contract.py says what else a framework may tell."""

from importlib import metadata

import numpy  # noqa: F401 - the framework itself, once an adapter uses it

from bench import environment

NAME = "{framework}"


def configure(setup):
    """Threads, precision and seed, before the framework computes anything."""


def versions():
    return {{"framework": metadata.version("{package}")}}


def device(setup):
    return environment.cpu_device(setup.devices)


def settings():
    return {{}}
'''

_ADAPTER_PY = '''\
"""{workload}, as the bench's reference computes it in NumPy: write network, loss, optimiser and evaluation in {framework}."""

import numpy as np

from bench import arithmetic, contract


class Training(contract.Training):
    """bench/contract.py says what each method owes. bench/frameworks/torch/{module}.py is a model."""

    def __init__(self, setup):
        self.network = contract.specification("{workload}")
        self.random = np.random.RandomState(setup.seed)
        self.dropout = setup.training and self.network.DROPOUT

    def load(self, parameters):
        self.parameters = {{name: value.astype("float64") for name, value in parameters.items()}}
        self.optimizer = self.network.optimizer()

    def read(self):
        return dict(self.parameters)

    def probe(self, x, y):
        return self._computed(x, y)

    def step(self, x, y):
        how = {{"masks": self.network.draw_masks(self.random, len(x))}} if self.dropout else {{}}
        _, loss, gradients = self._computed(x, y, **how)
        self.optimizer.update(self.parameters, gradients, arithmetic.Exact())
        return loss

    def predict(self, x):
        return self._computed(x, np.zeros(len(x), dtype="int32"))[0]

    def _computed(self, x, y, **how):
        return self.network.loss_and_gradients(self.parameters, x.astype(x.dtype.kind + "8"), y, arithmetic.Exact(), **how)
'''


def new_image(name: str, packages: Sequence[str], python: str, catalog: Path, day: date) -> list[Path]:
    """Write the folder of a CPU image, and that of its framework where there is none: the files. Raises UserError and CatalogError."""
    parts = _OF_AN_IMAGE.fullmatch(name)
    if parts is None or not NAME.fullmatch(name):
        raise UserError(
            f"{name!r:.200}: write FRAMEWORK-VERSION-cpu, such as tinygrad-0.14.0-cpu; an image with CUDA is a neighbour's folder, "
            "copied, or `runner images update --cuda`"
        )
    framework = parts["framework"].replace("-", "_")
    if (catalog / name).exists():
        raise CatalogError(f"{catalog / name} is there already; name another image")
    fields = {"framework": framework, "version": parts["version"], "python": python, "day": day.isoformat()}
    asked = list(packages) or [f"{parts['framework']}=={parts['version']}", "numpy"]
    texts = {
        catalog / name / "image.toml": _IMAGE_TOML.format(**fields),
        catalog / name / "requirements.in": "\n".join(asked) + "\n",
    }
    if not (BENCH / "frameworks" / framework).exists():
        texts |= _files_of_framework(framework, re.split(r"[^\w.-]", asked[0])[0])
    for path, text in texts.items():
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return list(texts)


def _files_of_framework(framework: str, package: str) -> dict[Path, str]:
    """The files of a framework. Its version is that of a package."""
    folder = BENCH / "frameworks" / framework
    declared = {"title": framework, "modes": {"default": "operation by operation"}, "uncounted": list(_FIRST_WORKLOADS)}
    adapters = {workload: workload.replace("-", "_") for workload in _FIRST_WORKLOADS}
    return {
        folder / "__init__.py": f'"""{framework}: what it is and where it comes from."""\n',
        folder / "framework.json": json.dumps(declared) + "\n",
        folder / "framework.py": _FRAMEWORK_PY.format(framework=framework, package=package),
        **{
            folder / f"{module}.py": _ADAPTER_PY.format(workload=workload, module=module, framework=framework)
            for workload, module in adapters.items()
        },
    }


# The command `runner images pin`.


def pin(
    names: SomeNames = None,
    registry: Annotated[
        str | None, typer.Option(help="Pin the images that were pushed to this registry, instead of the base images.")
    ] = None,
    base_image: BaseImage = None,
) -> None:
    """Asks the base images' registries for the digests; with --registry, asks that one, by default for all tested images."""
    if registry:
        images = [image for image in chosen(names) if names or image.untested is None]
        _pin_published(images, registry, base_image)
        return
    if not names:
        raise UserError("name the images whose base is to be pinned, such as 'torch-*', or give --registry")
    # First: a mistake in a file is said on a machine without an engine, too.
    images = chosen(names)
    client = docker_client.connect()
    one_after_another(
        lambda image: typer.echo(f"{image.name} {image.base} {pin_base(image, client)}"),
        images,
    )


def _pin_published(images: list[Image], registry: str, base_image: str | None) -> None:
    """Raises UserError, once the images that are there are pinned, for those that are not."""
    client = docker_client.connect()
    absent: list[UserError] = []
    there = []
    for image in images:
        image_recipe = recipe(image, base_image)
        try:
            reference = registries.digest_of(client, image_recipe, registry)
        except registries.RegistryError as error:
            absent.append(error)
            continue
        pin_published(image, reference)
        there.append(image_recipe)
        typer.echo(f"{image.name} {reference}")
    for name in registries.pin_layers(client, there, registry):
        note(f"{name}: its digest is in images/{registries.LAYERS.name}")
    raise_together(absent, len(there))


def new(
    name: Annotated[str, typer.Argument(metavar="IMAGE", help="FRAMEWORK-VERSION-cpu, such as tinygrad-0.14.0-cpu.")],
    packages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PACKAGE==VERSION", help="The packages to ask for, the framework's first; default: it and NumPy."
        ),
    ] = None,
    python: Annotated[str, typer.Option(metavar="RELEASE", help="The image's Python.")] = "3.11",
) -> None:
    """Prints each file. A framework that the project does not have gets a folder, too: adapters that compute in NumPy, by the bench's
    reference, so that the check and a cell pass at once. Write each part of them in the framework. CONTRIBUTING.md goes on from there."""
    for path in new_image(name, packages or [], python, IMAGES, last_day(None)):
        typer.echo(str(path))


def lock(names: Names, date: LastDay = None) -> None:
    """Prints the path of each lock. Its CUDA, cuDNN and NCCL, its driver, its day and its gigabytes go into image.toml.

    A folder with image.toml and requirements.in is an image, too, wherever it lies.
    """
    day = last_day(date)
    folders = [name for name in names if (Path(name) / "image.toml").is_file()]
    images = [load_image(Path(name), locks=False) for name in folders]
    if others := [name for name in names if name not in folders]:
        images += chosen(others, locks=False)
    one_after_another(lambda image: typer.echo(str(make_lock(image, day, note))), images)


def update(
    names: SomeNames = None,
    date: LastDay = None,
    cuda: Annotated[
        str | None,
        typer.Option(
            metavar="RELEASE", help="Make images on this release of CUDA, such as 13.2, where they have another."
        ),
    ] = None,
    locks: Annotated[
        bool,
        typer.Option(
            "--locks",
            help="If the framework has no newer release, bring the image's other pins and its lock up to date.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the newer releases, and write nothing.")] = False,
) -> None:
    """Prints each new image and what a person must still do. Exit code 0: all of it is done, or nothing is newer; 3: open, as some
    image was not looked up or its folder not made, or `runner images check` names a problem, and the other images are done; 4: the newer
    releases of no image could be looked up."""
    if cuda and not re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", cuda):
        raise UserError(f"--cuda: {cuda!r} is not a release of CUDA; write it like 13.2")
    day = last_day(date)
    failed = found = False
    changed: list[str] = []
    unanswered: list[str] = []
    images = list(updates.newest_images(chosen(names)))
    for image in images:
        try:
            unanswered.append(image.name)
            newer = updates.find_newer(image, day, note, cuda)
            unanswered.pop()
            found = found or newer is not None
            if dry_run:
                if newer:
                    typer.echo(_newer_line(newer))
            elif newer and (new := updates.make_folder(newer, day, note)):
                changed.append(new.name)
                _print_to_do(f"Made from {image.name}.", new, updates.still_to_do(new, image))
            elif newer is None and locks and updates.renew(image, day, note):
                changed.append(image.name)
                _print_to_do(f"Its lock is of {day}.", image, updates.still_to_do(image, None))
        except LockError as error:
            note(f"runner: {error}")
            failed = True
    if unanswered:
        _say_unanswered(unanswered, len(images), bool(changed))
    if changed:
        failed |= _write_files(changed)
    elif not found:
        note("no newer release was found" + (" for the other images" if unanswered else ""))
    raise typer.Exit(one_code(failed=False, is_open=failed))


def _say_unanswered(names: list[str], of: int, in_pull_request: bool) -> None:
    """Name the images whose releases nobody could look up. Raises UserError where these are all: a workflow must not pass then."""
    advice = "where the package index does not answer, set PIP_INDEX_URL (or PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS) to one that does"
    if len(names) == of:
        raise CannotBeginError(f"the newer releases of no image could be looked up (see above); {advice}")
    note(f"runner: whether these have a newer release is unknown: {', '.join(names)}; {advice}")
    if in_pull_request:
        typer.echo("## Unknown\n\nWhether these images have a newer release could not be looked up:\n")
        typer.echo("".join(f"- {name}\n" for name in names))


def _newer_line(newer: updates.Newer) -> str:
    on = f" on CUDA {newer.cuda}" if newer.cuda else ""
    return f"{newer.neighbour.name}: {newer.framework_version}{on}"


def _print_to_do(how: str, image: Image, sentences: list[str]) -> None:
    """A part of a pull request's text, in Markdown."""
    typer.echo(f"## {image.name}\n\n{how} Still to do:\n")
    typer.echo("".join(f"- [ ] {sentence}\n" for sentence in sentences))


def _write_files(names: Iterable[str]) -> bool:
    """Write what follows from the catalog, and name what `runner images check` finds in these images. Whether it finds something."""
    catalog = load_catalog()
    for path in generated_files.write(catalog.values()):
        note(str(path))
    problems = rules.check([catalog[name] for name in names], load_workloads().values(), adapters())
    counted = [problem for problem in problems if not problem.only_strict]
    for problem in counted:
        note(str(problem))
    return bool(counted)
