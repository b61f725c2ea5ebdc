"""The references of an index for some runs: the cells of their device models and workloads, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.results.datasheets import bare_model
from runner.results.store import RunStore
from runner.text import in_a_line
from runner.verify.references.contributed.index import reference_of
from runner.verify.references.contributed.layout import slug
from runner.verify.references.contributed.site import IndexSite
from runner.verify.references.saved import Reference

_MOST_NAMED = 12


def references_for(folders: Sequence[Path], site: IndexSite) -> list[Reference]:
    """The cells of an index that may fit those of some runs. Raises UserError."""
    plans = [entry for folder in folders for entry in RunStore(folder).manifest()["plan"]]
    pairs = dict.fromkeys((str(entry.get("device_model")), str(entry["workload"])) for entry in plans)
    return [reference_of(cell, "") for model, workload in pairs for cell in site.cells(model, workload)]


def what_it_has(folders: Sequence[Path], site: IndexSite) -> str:
    """The machines that an index would need for some runs, in a sentence; empty where it has their device models. Raises UserError."""
    models = {str(entry.get("device_model")) for folder in folders for entry in RunStore(folder).manifest()["plan"]}
    there = {device.slug: device.name for device in site.devices}
    missing = sorted(in_a_line(model, 100) for model in models if slug(bare_model(model)) not in there)
    if not missing:
        return ""
    named = ", ".join(sorted(there.values())[:_MOST_NAMED]) or "none"
    more = f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else ""
    return f"the index has no machine with {' and none with '.join(missing)}; it has: {named}{more}"
