"""An environment beside its lock: the same packages in the same versions, each with its code, and no others."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.engines.process.environment_pins import difference

PACKAGES = {"numpy": "2.4.6", "tiny-framework": "1.0", "nvidia-cublas": "12.8"}


def environment_of(folder: Path, packages: dict[str, str], files: int = 3) -> tuple[Path, Path]:
    """The site-packages and the lock of an environment, with what `venv` brings."""
    site = folder / "lib" / "python3.11" / "site-packages"
    for name, version in (packages | {"pip": "25.0", "setuptools": "80.0"}).items():
        module = name.replace("-", "_")
        told = site / f"{module}-{version}.dist-info"
        told.mkdir(parents=True)
        (site / module / "core").mkdir(parents=True)
        code = [f"{module}/core/part{at}.py" for at in range(files)] + [f"_{module}.cpython-311-x86_64-linux-gnu.so"]
        for path in code:
            (site / path).touch()
        (told / "RECORD").write_text(
            "".join(f"{path},sha256=0,0\n" for path in (f"../../../bin/{name}", f"{told.name}/METADATA", *code))
        )
    lock = folder / "requirements.lock"
    lock.write_text("".join(f"{name}=={version} --hash=sha256:{'0' * 64}\n" for name, version in packages.items()))
    return site, lock


def no_code(site: Path) -> None:
    for path in site.iterdir():
        if path.suffix != ".dist-info":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def as_egg(site: Path) -> None:
    (site / "numpy-2.4.6.dist-info" / "RECORD").unlink()
    (site / "numpy-2.4.6.dist-info").rename(site / "numpy-2.4.6-py3.11.egg-info")


CHANGES: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "none": (lambda site: None, None),
    "no code at all": (no_code, "its numpy lacks numpy/core/part0.py"),
    "a module": (lambda site: next(site.glob("_tiny*.so")).unlink(), "its tiny-framework lacks _tiny_framework.cpython"),
    "a package": (lambda site: shutil.rmtree(site / "nvidia_cublas"), "its nvidia-cublas lacks nvidia_cublas/core"),
    "no RECORD": (lambda site: (site / "numpy-2.4.6.dist-info" / "RECORD").unlink(), "its numpy lacks its RECORD"),
    "a foreign one": (lambda site: (site / "intel_numpy-9.9.dist-info").mkdir(), "it has intel-numpy, which the lock does"),
    "a second version": (lambda site: (site / "numpy-1.26.0.dist-info").mkdir(), "it has numpy twice"),
    "another version": (
        lambda site: (site / "numpy-2.4.6.dist-info").rename(site / "numpy-1.26.0.dist-info"),
        "its numpy is 1.26, and the lock has 2.4.6",
    ),
    "without the venv's own": (lambda site: shutil.rmtree(site / "setuptools-80.0.dist-info"), None),
    "an egg-info without RECORD": (as_egg, None),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_as_the_lock_says_is_named(tmp_path: Path, change: str) -> None:
    site, lock = environment_of(tmp_path, PACKAGES)
    make, says = CHANGES[change]
    make(site)
    found = difference(tmp_path, [lock])
    assert found is None if says is None else str(found).startswith(says)


def test_sixty_packages_with_their_files_take_milliseconds(tmp_path: Path) -> None:
    _, lock = environment_of(tmp_path, {f"package-{at}": "1.0" for at in range(60)}, files=100)
    begin = time.thread_time()
    assert difference(tmp_path, [lock]) is None
    assert time.thread_time() - begin < 0.05
