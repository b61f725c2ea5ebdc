"""The parcels of a node that the driver has not acknowledged: files of its own disk, which outlive the agent and the connection."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from runner import trees
from runner.engines.process.process import is_dead, owner_of
from runner.errors import UserError, fix_of
from runner.nodes.wire import AttemptId, RunId
from runner.paths import cache_folder
from runner.results.parcel import ENDING, MOST_BYTES, ParcelError, decode
from runner.results.store import read_bytes, write_bytes

# Delete results that no driver fetched in this time: nobody goes on with that run.
_KEPT_SECONDS = 30 * 86400.0

_RUNNING = "running-"
_IS_ATTEMPT: TypeAdapter[str] = TypeAdapter(AttemptId)
_IS_RUN: TypeAdapter[str] = TypeAdapter(RunId)


def remove(run: str) -> None:
    """Remove what the agents of this machine left of a run that is complete: no further agent of it comes that would do so.

    The id may be a stranger's. One that would lead out of the spool's folder has nothing there.
    """
    with contextlib.suppress(ValidationError):
        trees.remove(_top() / _IS_RUN.validate_python(run))


def _top() -> Path:
    return cache_folder() / "spool"


class Spool:
    """The results of one run on one node."""

    def __init__(self, run: str, node: str, top: Path | None = None) -> None:
        """Raises UserError where it cannot be written to."""
        top = top or _top()
        self.folder = top / run / quote(node, safe="@")
        try:
            self._remove_old(top)
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            fix = fix_of(error, "make it yours, or name another cache with XDG_CACHE_HOME")
            raise UserError(
                f"{self.folder} cannot be written to ({error.strerror}), and this node keeps its results there; {fix}"
            ) from None

    def keep(self, attempt: str, parcel: bytes) -> None:
        """Keep the parcel of an attempt until it is acknowledged."""
        write_bytes(self.folder / f"{attempt}{ENDING}", parcel)

    def forget(self, attempt: str) -> None:
        """The driver has it. The folder goes with its last file."""
        (self.folder / f"{attempt}{ENDING}").unlink(missing_ok=True)

    def attempts(self) -> list[str]:
        """The results that are there, oldest first."""
        paths = sorted(self.folder.glob(f"*{ENDING}"), key=lambda path: path.stat().st_mtime_ns)
        return [path.name.removesuffix(ENDING) for path in paths if _is_attempt(path.name.removesuffix(ENDING))]

    def parcels(self) -> Iterator[tuple[str, bytes]]:
        """The attempts that are there with their parcels. One that is damaged is removed: its repeat is measured again."""
        for attempt in self.attempts():
            path = self.folder / f"{attempt}{ENDING}"
            try:
                content = read_bytes(path, MOST_BYTES)
                decode(content, path.name)
            except (ParcelError, OSError):
                path.unlink(missing_ok=True)
            else:
                yield attempt, content

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for what is written while cells run. It ends with this agent; that of a killed one ends when the next agent starts."""
        folder = Path(
            tempfile.mkdtemp(prefix=_RUNNING + owner_of(os.getpid()).replace("/", "_") + "_", dir=self.folder)
        )
        try:
            yield folder
        finally:
            trees.remove(folder)

    def close(self) -> None:
        """Remove the folders that are empty."""
        for folder in (self.folder, self.folder.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _remove_old(self, top: Path) -> None:
        # Nodes may share the folder. An agent of another boot is one of another machine, which may run, or of this one before it started
        # anew. In this node's own folder it can only be the latter.
        here = owner_of(os.getpid()).split("/")[0]
        for left in top.glob(f"*/*/{_RUNNING}*"):
            owner = left.name.removeprefix(_RUNNING).split("_")[:4]
            if (owner[0] == here or left.parent == self.folder) and is_dead("/".join(owner)):
                trees.remove(left)
                for folder in (left.parent, left.parent.parent):
                    with contextlib.suppress(OSError):
                        folder.rmdir()
        for folder in top.glob("*"):
            with contextlib.suppress(OSError):
                newest = max(
                    status.st_mtime for status in (folder.stat(), *(status for _, status in trees.below(folder)))
                )
                if time.time() - newest > _KEPT_SECONDS:
                    trees.remove(folder)


def _is_attempt(name: str) -> bool:
    try:
        _IS_ATTEMPT.validate_python(name)
    except ValidationError:
        return False
    return True
