"""The facts in which two sides differ stand in the order in which they explain a difference of time most often."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reports.answers.contrast import differences

# Of an image with PyTorch's wheel, as its cells recorded them.
WHEEL = {
    "framework": "2.13.0+cpu",
    "image": "32fb4e592d37",
    "Python": "3.11.7",
    "setting blas": "numpy.libs/libscipy_openblas64_.so",
    "setting blas_built_with": "mkl",
    "setting cpu_capability": "AVX512",
    "setting installed_by": "pip",
    "setting numpy_blas": "scipy-openblas",
    "setting openmp": "torch/lib/libgomp.so.1",
    "setting threads": "2",
    "numpy": "2.4.6",
}
OPENBLAS = "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so"
# As Debian's PyTorch has it once libopenblas0-pthread is installed, and it is built with a "generic" BLAS as before.
CHOSEN = f"/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3; {OPENBLAS}"
# Of Debian's.
DEBIAN = WHEEL | {
    "framework": "1.13.0a0",
    "image": "bf32d44034f1",
    "Python": "3.11.2",
    "setting blas": "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0",
    "setting blas_built_with": "generic",
    "setting cpu_capability": "AVX2",
    "setting installed_by": "the distribution",
    "setting numpy_blas": "blas",
    "numpy": "1.24.2",
}


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    sides: list[Any] = [
        SimpleNamespace(recorded={name: (value,) for name, value in side.items()}) for side in (before, after)
    ]
    return [str(fact) for fact in differences(*sides)]


def test_the_reference_blas_stands_first_and_what_every_image_has_last() -> None:
    facts = changed(WHEEL, DEBIAN)
    assert facts[0] == f"setting blas {WHEEL['setting blas']} → {DEBIAN['setting blas']}"
    assert [fact.split()[0] for fact in facts[-3:]] == ["Python", "numpy", "image"]
    assert changed(DEBIAN, WHEEL)[0].startswith("setting blas /usr/lib/x86_64-linux-gnu/blas/")


def test_of_another_blas_that_is_no_reference_the_release_stands_before_it() -> None:
    facts = changed(WHEEL, DEBIAN | {"setting blas": CHOSEN})
    assert facts[:2] == ["setting cpu_capability AVX512 → AVX2", "framework 2.13.0+cpu → 1.13.0a0"]
    assert changed(DEBIAN, DEBIAN | {"setting blas": CHOSEN})[0].startswith(
        "setting blas /usr/lib/x86_64-linux-gnu/blas/"
    )


@pytest.mark.parametrize(
    ("planted", "first"),
    [
        (
            {"setting variable OMP_NUM_THREADS": "1", "setting threads": "1"},
            "setting variable OMP_NUM_THREADS none → 1",
        ),
        ({"setting blas": OPENBLAS}, f"setting blas /usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0 → {OPENBLAS}"),
        ({"framework": "1.12.0", "numpy": "1.24.1"}, "framework 1.13.0a0 → 1.12.0"),
        (
            {"setting variable LD_PRELOAD": "libjemalloc.so.2", "setting allocator": "/usr/lib/libjemalloc.so.2"},
            "setting variable LD_PRELOAD none → libjemalloc.so.2",
        ),
        ({"setting file /etc/nccl.conf": "NCCL_DEBUG=WARN"}, "setting file /etc/nccl.conf none → NCCL_DEBUG=WARN"),
    ],
)
def test_one_planted_thing_stands_first_whichever_side_has_it(planted: dict[str, str], first: str) -> None:
    other = DEBIAN | planted | {"image": "000000000000"}
    assert changed(DEBIAN, other)[0] == first
    name, _, values = first.rpartition(" → ")[0].rpartition(" ")
    assert changed(other, DEBIAN)[0].startswith(name), values


def test_a_variable_that_an_older_run_could_not_record_is_no_difference() -> None:
    old = {name: value for name, value in DEBIAN.items() if not name.startswith("setting ")}
    assert changed(old, DEBIAN | {"setting variable LD_PRELOAD": "libjemalloc.so.2"}) == []
