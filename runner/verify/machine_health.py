"""The answer of a report to "is this machine healthy?": whether there is anything to judge by, and if so, what it shows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reports.answers.health import NOT_JUDGED, Health, advice
from runner.errors import UserError
from runner.paths import data_folder
from runner.results.store import RunStore
from runner.verify.references import files


def health_of(folders: Sequence[Path]) -> Health:
    """The health of what some stored runs measured, beside the user's references. A broken reference is a sentence, and no error."""
    try:
        manifests = [RunStore(folder).manifest() for folder in folders]
        runs = " ".join(str(manifest["run_id"]) for manifest in manifests)
        devices = [entry for manifest in manifests for entry in manifest.get("devices") or ()]
        folder = Path(os.environ.get("DLBENCH_REFERENCES") or data_folder() / "references")
        gpus = sum("uuid" in device for device in devices)
        if not files(folder) and not _is_fleet(gpus):
            # Nothing can be judged, and reading a large run takes seconds.
            next_ = advice("not judged", runs, fleets=False, gpus=gpus)
            return replace(NOT_JUDGED, next=next_)
        # Most runs are judged by nothing, and this loads all that `runner verify` needs.
        from runner.verify.judged import judged
        from runner.verify.references.saved import Shelf

        broken: list[str] = []
        health = judged(folders, Shelf([folder]).all(broken.append), devices, runs)
        return replace(health, detail="; ".join(filter(None, [health.detail, *broken])))
    except UserError as error:
        return Health("Not judged: see why", "not judged", str(error))


def _is_fleet(gpus: int) -> bool:
    """True if these are enough GPUs to judge each beside the others."""
    if not gpus:
        return False
    # It loads as much.
    from runner.verify.outliers import FEWEST

    return gpus >= FEWEST
