"""Images of no catalog: `docker:` and the name, the id or the saved file of any image, or `sif:` and a file; pinned by its digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from runner.catalog.images import Image
from runner.errors import UserError
from runner.results.on_disk.image_names import NO_LOCK, PREFIX, SIF, is_address

# A name with a tag or a digest, an id, or the path of a file: nothing that a shell, a file system or a page takes for more than a name.
# The path of a file may have spaces within.
_ADDRESS = re.compile(r"(?:docker|sif):[A-Za-z0-9./~_][A-Za-z0-9./:@~_+-]{0,254}")
_SPACES = re.compile(r"(?<=[^ :]) +(?=[^ ])")
_FILE = re.compile(r"(\.{0,2}/|~/).+|.+\.tar(\.gz)?")


class ForeignImage(Image):
    """An image that is of no catalog. Its name is its address, such as docker:REPOSITORY:TAG."""

    # how its engine starts it: a repository with a digest, or an image id
    pinned: str = ""
    # the Python that its cells run in, as found in the image
    interpreter: str = "python3"
    # framework -> its release
    releases: dict[str, str]
    # the image's own PYTHONPATH, and the variables by which it steers its libraries
    python_path: str = ""
    steering: dict[str, str]
    # why none of it can be measured
    refusal: str | None = None
    # that is since its file is none
    is_bad_file: bool = False

    @property
    def lock_sha256(self) -> str:
        """sha256 (hex) of the digest, which stands in for the lock that the image does not have."""
        return hashlib.sha256(f"{NO_LOCK}\n{self.pinned.rpartition('@')[2]}".encode()).hexdigest()

    def version_of(self, framework: str) -> str:
        return self.releases[framework]


def addresses(words: Iterable[str]) -> tuple[str, ...]:
    """The addresses among the words of --images. Raises UserError for one that can be none."""
    found = tuple(word for word in words if is_address(word))
    for word in found:
        if not _ADDRESS.fullmatch(_SPACES.sub("_", word) if is_file(word) else word):
            path = "; a path may have letters, digits, spaces and ./:@~_+- only" if is_file(word) else ""
            raise UserError(
                f"--images: {word!r:.200} is no address of an image; write docker:REPOSITORY:TAG, docker:REPOSITORY@sha256:DIGEST, "
                f"docker:./FILE.tar of `docker save`, or sif:FILE.sif{path}"
            )
    return found


def is_file(address: str) -> bool:
    """True if the address is the path of a file: of one that `docker save` wrote, or of a SIF."""
    return address.startswith(SIF) or bool(_FILE.fullmatch(address.removeprefix(PREFIX)))
