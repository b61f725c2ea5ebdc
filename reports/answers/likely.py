"""The order of the facts in which two sides differ: first those that explain a difference of time most often."""

from __future__ import annotations

import re
from collections.abc import Container

# A fact of the installation that may be absent, such as a variable that only one side sets. Absent is a value of it.
MAY_BE_ABSENT = re.compile(r"setting ((variable|file) .+|allocator)")

# A cell has recorded the facts of its installation where it has one of these (bench/speed.py).
_OF_INSTALLATION = ("setting numpy_blas", "setting installed_by", "setting openmp", "setting blas")

# The library that every distribution has, and that is several times slower than any other: as a file, and as PyTorch names it.
_REFERENCE_BLAS = re.compile(r"(^|/)(blas/)?lib(c?blas|lapack)\.so|^generic$")

# The first that fits counts. What fits none comes after them.
_ORDER = (
    re.compile(r"setting (variable|file) .+"),
    re.compile(
        r"setting (allocator|threads.*|cpu_capability|mkldnn|xla|eager|deterministic|anomaly_detection|default_dtype)"
    ),
    re.compile(r"framework|CUDA|cuDNN|driver|processor|CPUs|GPU.*|CPU .*"),
    re.compile(r"setting (blas|onednn|cudnn|cublas|nccl|lapack|numpy_blas|blas_built_with)"),
    re.compile(r"setting .+"),
)
_LAST = re.compile(r"image|lock|code|data")


def place(name: str, before: str, after: str) -> int:
    """The place of a fact with these two values: a small one stands before a large one."""
    if name.startswith("setting ") and "blas" in name and is_reference_blas(before) != is_reference_blas(after):
        return 0
    if _LAST.fullmatch(name):
        return len(_ORDER) + 2
    return next((at for at, pattern in enumerate(_ORDER, start=1) if pattern.fullmatch(name)), len(_ORDER) + 1)


def is_reference_blas(value: str) -> bool:
    """True if a value of the facts on the BLAS is the reference implementation's."""
    return bool(_REFERENCE_BLAS.search(value))


def has_installation(names: Container[str]) -> bool:
    """True if these recorded facts are of a release that recorded the facts of the installation."""
    return any(name in names for name in _OF_INSTALLATION)
