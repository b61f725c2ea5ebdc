"""The commands `runner images ...`. This file loads Typer only, so that the help starts fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from runner.cli.shared import PLAIN, LazyGroup

if TYPE_CHECKING:
    from datetime import date

    from runner.catalog.images import Image
    from runner.errors import UserError


class ImageCommands(LazyGroup):
    package = "runner.cli.images"
    modules: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("new", "update", "pin"), "lock"),
        **dict.fromkeys(("export", "prune"), "push"),
        **dict.fromkeys(("ci_matrix", "reproduce"), "build"),
        **dict.fromkeys(("files", "check", "show"), "list"),
    }
    names: ClassVar[Mapping[str, str]] = {
        "list": "Show every image of the catalog.",
        "show": "Show all facts of images and what their locks install, or look into docker:REPOSITORY:TAG.",
        "check": "Prove from the locks, without a network, that images hold what image.toml says.",
        "build": "Build images with the Docker Engine.",
        "reproduce": "Build images again from nothing, and prove that they are the same bit for bit.",
        "push": "Push images that are built here.",
        "export": "Put images that are built here into a folder, for nodes without a registry.",
        "new": "Make the folder of a new CPU image, and of a framework that the project does not have.",
        "lock": "Make the hashed locks of images again, with uv, and write what they hold into image.toml.",
        "update": "Look for newer releases of the frameworks, and make a folder for each from its newest neighbour.",
        "pin": "Write the digests of base images into bases.toml, or of published images into image.toml.",
        "try": "Import an image's frameworks and check its adapters on this machine's CPU, and record what came of it.",
        "prune": "Remove the images and environments that older locks and benches left on this machine.",
        "files": "Write compose.gpu.yml and images/docker-bake.json again, from the catalog.",
        "ci-matrix": "Print the images as the matrix of a GitHub workflow: one line of JSON.",
    }


app = typer.Typer(cls=ImageCommands, no_args_is_help=True, **PLAIN)


@app.callback()
def images_group() -> None:
    pass


Names = Annotated[list[str], typer.Argument(help="Image names or patterns.")]
SomeNames = Annotated[list[str] | None, typer.Argument(help="Image names or patterns; default: all.")]


LastDay = Annotated[
    str | None, typer.Option("--date", help="Take nothing newer than this day (YYYY-MM-DD); default: today.")
]


def last_day(given: str | None) -> date:
    """The day that --date names. Raises UserError."""
    # Help needs no dates.
    import datetime

    from runner.errors import UserError

    try:
        return datetime.date.fromisoformat(given) if given else datetime.date.today()
    except ValueError:
        raise UserError(f"--date: {given!r} is not a day; write it like 2026-11-20") from None


def one_after_another(act: Callable[[Image], None], images: Iterable[Image]) -> None:
    """Do it with each image. Where one cannot begin after others were done, the command has begun, and not all was run."""
    from runner.errors import ExitCode, FoundError, UserError, code_of, system_fault

    for number, image in enumerate(images):
        try:
            act(image)
        except (UserError, OSError) as error:
            if not number or code_of(error) is not ExitCode.CANNOT_BEGIN:
                raise
            raise FoundError(system_fault(error) if isinstance(error, OSError) else str(error)) from error


def raise_together(errors: Sequence[UserError], done: int) -> None:
    """Raise one error of the images that failed, if any did. `done`: how many did not."""
    from runner.errors import CannotBeginError, ExitCode, FoundError, code_of, whole_code

    if errors:
        code = whole_code([*map(code_of, errors), *[ExitCode.OK] * done])
        raise (CannotBeginError if code is ExitCode.CANNOT_BEGIN else FoundError)("\n".join(map(str, errors)))


def chosen(names: list[str] | None, locks: bool = True) -> list[Image]:
    """The images that these names or patterns choose. Without `locks`, a missing or stale lock is no error."""
    from runner.catalog.images import load_catalog, select_images

    return select_images(load_catalog(locks=locks), names or ["*"])
