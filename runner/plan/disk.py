"""Which images the disk can hold."""

from __future__ import annotations

import shutil

from runner.catalog.images import Image
from runner.engines.base import Engine


class DiskSpace:
    """Leaves out what the engine cannot run, then what the disk cannot hold beside the images before it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        folder = engine.images_folder()
        self._free_bytes = shutil.disk_usage(folder).free if folder and folder.exists() else None
        self._reasons: dict[str, str | None] = {}
        self._held: set[str] = set()  # the parts of the images that fit

    def unfit(self, image: Image) -> str | None:
        """Why the image cannot be run; None when it can."""
        if image.name not in self._reasons:
            engine = self._engine
            self._reasons[image.name] = engine.unfit(image) or engine.unobtainable(image) or self._too_large(image)
        return self._reasons[image.name]

    def _too_large(self, image: Image) -> str | None:
        parts = self._engine.disk_parts(image)
        needed = sum(size for part, size in parts.items() if part not in self._held)
        if self._free_bytes is None or not needed:
            return None
        if needed > self._free_bytes:
            return (
                f"the disk cannot hold it: it takes about {needed / 1e9:.1f} GB, and {self._free_bytes / 1e9:.1f} GB are left beside "
                "the images before it; free some, or choose with --images"
            )
        self._free_bytes -= needed
        self._held.update(parts)
        return None
