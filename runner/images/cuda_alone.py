"""The pairs of images between which CUDA alone changes: they answer which version of CUDA is faster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from packaging.version import Version

from runner.catalog.images import Image, read_pins
from runner.images.lock_facts import is_nvidia


def cuda_alone(images: Iterable[Image]) -> list[tuple[Image, Image]]:
    """Neighbours by CUDA among images of one framework's release with one Python, cuDNN and NCCL: the older CUDA first."""
    alike: dict[tuple[object, ...], list[Image]] = {}
    for image in images:
        if image.cuda and image.cudnn and not image.untested:
            key = image.frameworks[0], image.framework_version, image.python, image.cudnn, image.nccl
            alike.setdefault(key, []).append(image)
    in_order = (sorted(same, key=lambda image: Version(str(image.cuda))) for same in alike.values())
    return [pair for same in in_order for pair in pairwise(same)]


def other_releases(older: Image, newer: Image) -> Mapping[str, tuple[str, str]]:
    """The packages outside of CUDA that both locks hold in different releases: name -> (older's, newer's)."""
    before, after = (
        {
            re.sub(r"cuda\d+", "cuda", pin.name): pin.version
            for pin in read_pins(image.lock_path)
            if not is_nvidia(pin.name)
        }
        for image in (older, newer)
    )
    return {name: (before[name], after[name]) for name in before if name in after and before[name] != after[name]}
