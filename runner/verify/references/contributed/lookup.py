"""The references of an index for some runs: the cells of their device models and workloads, and no others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from runner.kit.contribution.shared_run import own_pseudonym
from runner.results.datasheets import bare_model
from runner.results.store import RunStore
from runner.text import in_a_line
from runner.verify.references.contributed.index import IndexCell, reference_of
from runner.verify.references.contributed.layout import slug
from runner.verify.references.contributed.site import IndexSite
from runner.verify.references.saved import Reference

_MOST_NAMED = 12


def references_for(folders: Sequence[Path], site: IndexSite) -> list[Reference]:
    """The cells of an index that may fit those of some runs, without the machines of these runs. Raises UserError."""
    manifests = [RunStore(folder).manifest() for folder in folders]
    plans = [entry for manifest in manifests for entry in manifest["plan"]]
    pairs = dict.fromkeys((str(entry.get("device_model")), str(entry["workload"])) for entry in plans)
    own = {own_pseudonym(manifest) for manifest in manifests}
    there = [_without(cell, own) for model, workload in pairs for cell in site.cells(model, workload)]
    return [reference_of(cell, "") for cell in there if cell.machines]


def _without(cell: IndexCell, own: Collection[str | None]) -> IndexCell:
    """A machine beside itself would say that it is normal."""
    return replace(cell, machines=tuple(machine for machine in cell.machines if machine.name not in own))


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
