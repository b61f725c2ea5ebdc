"""The pinned images that a foreign image is verified beside: of each of its frameworks the one with the nearest release, or a named one."""

from __future__ import annotations

from bench import rules
from runner.catalog.addresses import ForeignImage
from runner.catalog.images import Image, load_catalog
from runner.catalog.names import suggest, unknown_name
from runner.engines import foreign_images
from runner.engines.base import Settings
from runner.engines.process.beside import NEAREST, NONE, nearest
from runner.errors import BadFileError, CannotBeginError, UserError
from runner.machine.detect import detect
from runner.run.options import Options


def beside(options: Options, address: str) -> Options:
    """The options with the images to measure in one run, and the frameworks that they share. Raises UserError."""
    images = foreign_images(options.engine, Settings(foreign=(address,)))
    image = images.images(bool(detect(options.gpus, options.share).gpus))[address]
    assert isinstance(image, ForeignImage)
    if image.refusal:
        error = BadFileError if image.is_bad_file else CannotBeginError
        raise error(f"{address}: {image.refusal}")
    if why := unknown_name("--frameworks", options.frameworks, rules.framework_names()):
        raise UserError(why)
    frameworks = [name for name in image.frameworks if name in (options.frameworks or image.frameworks)]
    if not frameworks:
        raise CannotBeginError(f"--frameworks: {address} has {', '.join(image.frameworks)} only; name one of these")
    pinned = dict.fromkeys(one.name for framework in frameworks if (one := _pinned(image, framework, options.against)))
    if not pinned and options.against not in (NEAREST, NONE):
        raise UserError(f"--against {options.against}: it has none of the frameworks of {address}; name another")
    return options.model_copy(update={"images": (address, *pinned), "frameworks": tuple(frameworks)})


def _pinned(image: ForeignImage, framework: str, against: str) -> Image | None:
    """The image of the catalog beside one framework; None where there is none, or none is wanted."""
    catalog = load_catalog()
    if against == NONE:
        return None
    if against == NEAREST:
        one = image.model_copy(update={"frameworks": (framework,), "framework_version": image.version_of(framework)})
        return nearest(one, catalog.values())
    if against not in catalog:
        raise UserError(
            f"--against: {against!r:.200} is no image of the catalog{suggest(against, catalog)}; `runner images list` shows them"
        )
    return catalog[against] if framework in catalog[against].frameworks else None
