"""The order in which cells are measured where time is short: a broad view first, the depth later. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from packaging.version import InvalidVersion, Version

from runner.catalog.images import Image
from runner.catalog.names import FIRST_FRAMEWORKS, ROSETTA
from runner.plan.plan import Cell


def tiers(cells: Sequence[Cell], images: Mapping[str, Image], contending: bool = False) -> list[list[Cell]]:
    """The cells in groups, the most telling group first. Each cell is in one group.

    `contending`: the modes of a framework are planned to find its fastest, so each of them is as usual as the others.

    GPU cells come before CPU cells. Of each kind of device: the newest image of the frameworks that most people use, with the workloads of
    the Rosetta stone, at every precision; the same of the other frameworks, at the first precision; the other cells of these images; the
    cells of older images.
    In a group the frameworks that most people use come first.
    """
    newest = _newest(cells, images)
    # In the order in which the request gave them.
    names = ("devices",) if contending else ("mode", "devices")
    usual = {name: getattr(cells[0], name) for name in names} if cells else {}
    groups: dict[tuple[int, int], list[Cell]] = {}
    for cell in cells:
        is_newest = newest[_family(cell)] == cell.image
        is_usual = all(getattr(cell, name) == value for name, value in usual.items())
        is_first = cell.framework in FIRST_FRAMEWORKS
        if is_newest and is_usual and cell.workload in ROSETTA and (is_first or cell.precision == cells[0].precision):
            tier = 0 if is_first else 1
        else:
            tier = 2 if is_newest else 3
        groups.setdefault((int(cell.device_kind != "cuda"), tier), []).append(cell)
    return [sorted(groups[key], key=_place) for key in sorted(groups)]


def _place(cell: Cell) -> int:
    """The place of a cell's framework among those that most people use; sorting keeps the plan's order of the others."""
    known = cell.framework in FIRST_FRAMEWORKS
    return FIRST_FRAMEWORKS.index(cell.framework) if known else len(FIRST_FRAMEWORKS)


def _family(cell: Cell) -> tuple[str, str, str]:
    return cell.framework, cell.device_kind, cell.device_model


def _newest(cells: Iterable[Cell], images: Mapping[str, Image]) -> dict[tuple[str, str, str], str]:
    """(framework, kind of device, device) -> the planned image with its newest version, and of these the newest CUDA.

    Of images of one version the one on the first framework's CUDA comes before a newer CUDA: frameworks are compared on one CUDA.
    An image that the machine cannot run has no cell, so it is not among them.
    """
    newest: dict[tuple[str, str, str], str] = {}
    offered = dict.fromkeys((_family(cell), cell.image) for cell in cells)
    for family, name in sorted(offered, key=lambda one: one[0][0] != FIRST_FRAMEWORKS[0]):
        best = newest.setdefault(family, name)
        beside = newest.get((FIRST_FRAMEWORKS[0], *family[1:]))
        cuda = _release(images[beside]) if beside and family[0] != FIRST_FRAMEWORKS[0] else None
        if _age(images[name], cuda) > _age(images[best], cuda):
            newest[family] = name
    return newest


def _age(image: Image, usual: str | None) -> tuple[Version, bool, Version]:
    return (
        _version(image.framework_version),
        usual is not None and _release(image) == usual,
        _version(image.cuda or "0"),
    )


def _release(image: Image) -> str:
    """The release of CUDA: 12.8 of 12.8.1."""
    return ".".join((image.cuda or "").split(".")[:2])


def _version(text: str) -> Version:
    """An interpreter that is there already may tell a version that is none: it counts as the oldest."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
