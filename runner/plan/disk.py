"""Which images the disk can hold."""

from __future__ import annotations

import shutil

from runner.catalog.images import Image
from runner.engines.base import Engine

# What an image takes on the disk for each byte of wheels that is fetched, its base aside: 1.6 to 6.4 on six CPU images as they were built
# (Debian packages among it), 4.5 in the median.
_BYTES_A_BYTE = 4.5


class Room:
    """Leaves out, beside what the engine cannot run, the images that the disk cannot hold: the first that fit are made."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        folder = engine.images_folder()
        self._left = shutil.disk_usage(folder).free if folder and folder.exists() else None
        self._told: dict[str, str | None] = {}

    def unfit(self, image: Image) -> str | None:
        """Why the image cannot be run; None when it can."""
        if image.name not in self._told:
            self._told[image.name] = self._engine.unfit(image) or self._no_room(image)
        return self._told[image.name]

    def _no_room(self, image: Image) -> str | None:
        needed = round(self._engine.cost(image) * _BYTES_A_BYTE)
        if self._left is None or not needed:
            return None
        if needed > self._left:
            return (
                f"the disk cannot hold it: it takes about {needed / 1e9:.1f} GB, and {self._left / 1e9:.1f} GB are left beside the "
                "images before it; free some, or choose with --images"
            )
        self._left -= needed
        return None
