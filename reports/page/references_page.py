"""The page of an index of references: which device ran which workload on how many machines. The cells lie in files beside it.

A file of cells is loaded when somebody opens it. It is a script that hands over one text, so that a page from disk can load it as well:
no server is needed. The page makes elements of the text of it, and never markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from reports.page.render import filled

# Its own files, of a server or from disk.
_ORIGINS = ("'self'", "file:")


@dataclass(frozen=True)
class DeviceRow:
    """A device model: the machines that it was measured on, by workload. The keys are names in addresses."""

    slug: str
    name: str
    machines: int
    cells: int
    # Workload -> (cells, machines).
    workloads: Mapping[str, tuple[int, int]]


def page(devices: Sequence[DeviceRow], licence: str) -> str:
    """The whole HTML document."""
    style = (resources.files("reports.page.templates") / "page.css").read_text("utf-8")
    return filled(
        "references.html.j2",
        ("theme", "references"),
        style,
        devices=devices,
        workloads=sorted({workload for device in devices for workload in device.workloads}),
        cells=sum(device.cells for device in devices),
        licence=licence,
        origins=_ORIGINS,
    )
