"""The names of images in stored rows: of the catalog's, of a user's own interpreter, and the addresses of foreign images."""

from __future__ import annotations

import hashlib
import re

# The address of an image that is of no catalog begins so: of an engine's, or of a file of Apptainer.
PREFIX, SIF = "docker:", "sif:"

# It stands where an image's lock would be told.
NO_LOCK = "pinned by digest, no lock"

_LONGEST_FILE_NAME = 100


def is_address(name: str) -> bool:
    """True if the image is of no catalog: a foreign image, whose name is its address."""
    return name.startswith((PREFIX, SIF))


def is_of_no_catalog(name: str) -> bool:
    """True if the image is an installation: a user's own interpreter, or a foreign image."""
    return name.startswith("host-") or is_address(name)


def as_file_name(name: str) -> str:
    """An image's name as a part of a file's name. An address has slashes, and may be long: it becomes a digest with its readable end."""
    if not is_address(name):
        return name
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[-_LONGEST_FILE_NAME:]
    return f"docker-{hashlib.sha256(name.encode()).hexdigest()[:12]}-{readable.removeprefix('docker-').lstrip('.-')}"
