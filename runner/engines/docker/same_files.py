"""The proof that an engine mounts this machine's own folders: its socket may lie in a container, and its daemon elsewhere.

Nothing is started and no image is needed: the engine makes a container of an empty one, and hands out the file that it mounts there.
"""

from __future__ import annotations

import contextlib
import io
import json
import secrets
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import EngineGoneError
from runner.images.docker_client import DockerError, NotThereError, asking

if TYPE_CHECKING:
    from docker import DockerClient

_NAME = "file"


def why_not(client: DockerClient, folder: Path, labels: Mapping[str, str]) -> str | None:
    """Why a container does not see a folder (it must exist) as this process does; None where it does, or where the engine cannot say.

    `labels` are the container's, for the sweep. Raises EngineGoneError, and OSError where nothing can be written into the folder.
    """
    secret = secrets.token_hex(16).encode()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".dlbench-") as probe:
        path = Path(probe) / _NAME
        path.write_bytes(secret)
        try:
            if _in_container(client, probe, labels) == secret:
                return None
        except EngineGoneError:
            raise
        except NotThereError:
            pass
        except DockerError as error:
            if "bind source path" not in error.said:
                return None
        except (tarfile.TarError, KeyError, ValueError):
            # The engine answered otherwise than it should, such as with a full disk: that says nothing of its folders.
            return None
    return (
        f"it does not see the files of {folder}: it runs elsewhere, or this is a container with the engine's socket; "
        "mount that folder at the same path where the engine runs, or use --engine venv"
    )


def _in_container(client: DockerClient, folder: str, labels: Mapping[str, str]) -> bytes:
    """The file of a folder as a container sees it. Raises DockerError and EngineGoneError."""
    from docker.types import Mount

    with asking(), _empty_image(client) as image:
        mounts = [Mount("/probe", folder, type="bind", read_only=True)]
        container = client.api.create_container(
            image, command=["none"], labels=dict(labels), host_config=client.api.create_host_config(mounts=mounts)
        )["Id"]
        try:
            chunks, _ = client.api.get_archive(container, f"/probe/{_NAME}")
            with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
                member = archive.extractfile(_NAME)
                return member.read() if member else b""
        finally:
            client.api.remove_container(container, force=True)


@contextlib.contextmanager
def _empty_image(client: DockerClient) -> Iterator[str]:
    """An image without a file, by its id, while the block runs."""
    nothing = io.BytesIO()
    tarfile.open(fileobj=nothing, mode="w").close()
    answer = client.api.import_image_from_data(nothing.getvalue())
    image = str(json.loads(answer.strip().splitlines()[-1])["status"])
    try:
        yield image
    finally:
        client.api.remove_image(image)
