"""Names of CUDA's libraries where an image's base brings them: those that the wheels do not hold as a whole, and those that were read.

The base images themselves were not read: images/bases.toml has no digest of them yet.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from runner.catalog.images import Image

# TensorFlow puts a library's name together of its stem and version when it opens it. Image -> the names that the loader was asked for when
# each function of stream_executor::internal::DsoLoader in the wheel's libtensorflow_framework was called, under LD_DEBUG=libs, on
# 2026-11-28. Those of CUPTI and TensorRT are left out: no measurement needs them.
_FORMED = {
    "tensorflow-1.15.5-cu100": (
        "libcublas.so.10.0",
        "libcudart.so.10.0",
        "libcudnn.so.7",
        "libcufft.so.10.0",
        "libcurand.so.10.0",
        "libcusolver.so.10.0",
        "libcusparse.so.10.0",
    ),
    "tensorflow-2.10.1-cu112": (
        "libcublas.so.11",
        "libcublasLt.so.11",
        "libcudart.so.11.0",
        "libcudnn.so.8",
        "libcufft.so.10",
        "libcurand.so.10",
        "libcusolver.so.11",
        "libcusparse.so.11",
    ),
}

# CUDA's release -> who packages it, and the SONAMEs of the libraries in there, as readelf tells them. Debian's packages are those of
# nvidia-cuda-toolkit 11.2.2-3+deb11u3; CNTK's are the files in the wheel of images/cntk-2.7-cu100.
_PACKAGED = {
    "10.0.130": (
        "the wheel in cntk-2.7-cu100",
        ("libcublas.so.10.0", "libcudart.so.10.0", "libcurand.so.10.0", "libcusparse.so.10.0"),
    ),
    "11.2.2": (
        "Debian 11's packages",
        (
            "libcublas.so.11",
            "libcublasLt.so.11",
            "libcudart.so.11.0",
            "libcufft.so.10",
            "libcurand.so.10",
            "libcusolver.so.11",
            "libcusparse.so.11",
            "libnvToolsExt.so.1",
            "libnvrtc.so.11.2",
        ),
    ),
}


@dataclass(frozen=True)
class BaseNames:
    """The names that a base image has to have: those that its release of CUDA was seen to have, and the others."""

    # where -> the names
    seen: tuple[tuple[str, tuple[str, ...]], ...]
    unseen: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{', '.join(names)} (seen in {where})" for where, names in self.seen if names]
        parts += [f"**{', '.join(self.unseen)} (seen nowhere)**"] if self.unseen else []
        return "; ".join(parts)


def formed(image: Image) -> tuple[str, ...]:
    """The names that an image's framework puts together when it opens the libraries."""
    return _FORMED.get(image.name, ())


def of_the_base(image: Image, names: Collection[str], of_wheels: Collection[str]) -> BaseNames:
    """`names`: those that the image's base has to have. `of_wheels`: the names of all libraries in wheels of NVIDIA's that were read.

    cuDNN's name has its major release, which is all that the tag of a base image tells.
    """
    where, packaged = _PACKAGED.get(image.cuda or "", ("", ()))
    own = f"libcudnn.so.{(image.cudnn or '').partition('.')[0]}"
    cudnn = {own}.intersection(of_wheels)
    seen = (
        (f"{where}, CUDA {image.cuda}", tuple(sorted(set(names).intersection(packaged)))),
        (f"a wheel of cuDNN {own.rpartition('.')[2]}", tuple(sorted(cudnn.intersection(names)))),
    )
    return BaseNames(seen, tuple(sorted(set(names).difference(packaged, cudnn))))
