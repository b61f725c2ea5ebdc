"""When a driver puts the files of its nodes' repeats together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from runner.results.parquet import packs
from runner.results.store import RunStore, file_name
from runner.run.dispatch import Job
from runner.run.progress import say

# A node that has nothing more to do has its files put together when it has so many repeats; the rest waits for the end of the run.
_WORTH_PACKING = 50


class Packing:
    """The files of one run that are in no pack yet, by node."""

    def __init__(self, run: RunStore) -> None:
        self._run = run
        self._packer = packs.Packer(run)
        self._unpacked: dict[str, list[str]] = {}
        self._failed = False

    def stored(self, node: str, job: Job) -> None:
        """A repeat that a node measured is stored."""
        self._unpacked.setdefault(node, []).append(file_name(*job.key))

    def pack_one(self, has_work: Callable[[str], bool]) -> None:
        """Put the files of one node together that has many, or has measured its last repeat for now."""
        for node, names in self._unpacked.items():
            if len(names) >= packs.MOST_REPEATS or (len(names) >= _WORTH_PACKING and not has_work(node)):
                with self._unless_failed():
                    self._packer.pack(node, self._unpacked.pop(node))
                return

    def pack_rest(self) -> None:
        """Put everything together that is in no pack, also of an earlier driver of the run. Raises StoreError."""
        with self._unless_failed():
            packs.clear_up(self._run)
            self._packer.pack_rest()

    @contextlib.contextmanager
    def _unless_failed(self) -> Iterator[None]:
        """A fault of the disk ends no run: the files stay as they are."""
        try:
            yield
        except OSError as error:
            if not self._failed:
                say(f"files of {self._run.folder} could not be put together ({error.strerror}); they stay as they are")
            self._failed = True
