"""Make a checkout's .venv from one of its locks: `python -m runner.images.installing.host_environment requirements-host.lock`.

uv installs, and its own pin in the lock says which uv. If it cannot, pip does. One import of the runner then writes the bytecode that its
commands use.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.errors import naming
from runner.images.installing import pip_configuration, uv_settings

VENV = Path(".venv")
_PYTHON = str(VENV / "bin" / "python")
_PIP = (_PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")

# Each module of the runner and of the reports, so that what they import of others is compiled. A missing extra is no fault.
_IMPORTS = """
import contextlib, importlib, pkgutil, reports, runner
for package in (runner, reports):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        with contextlib.suppress(Exception):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
"""


def pin(lock: str, name: str) -> str:
    """The lines of a lock that pin a package, with their digests."""
    found = re.search(rf"^{name}==(?:.*\\\n)*.*\n", lock, re.MULTILINE)
    if found is None:
        raise SystemExit(f"the lock has no {name}")
    return found[0]


def main(name: str) -> None:
    """Install the lock of this name, of the folder that this is started in, and the checkout itself."""
    lock = Path(name).read_text(encoding="utf-8")
    print(
        f"making .venv: uv installs the {len(re.findall('^[a-z].*==', lock, re.MULTILINE))} packages of {name}",
        flush=True,
    )
    if not (Path(_PYTHON).is_file() and _succeeds([_PYTHON, "-m", "pip", "--version"], quiet=True)):
        _make()
    own = VENV / "uv.lock"
    with naming(own):
        own.write_text(pin(lock, "uv"), encoding="utf-8")
    _must([*_PIP, "--no-deps", "--no-compile", "--require-hashes", "-r", str(own)])
    options = uv_settings.effective(pip_configuration.variables(_PYTHON), os.environ)
    by_uv = [str(VENV / "bin" / "uv"), "pip", "install", "--quiet", "--python", _PYTHON, *uv_settings.FLAGS]
    by_uv += uv_settings.arguments(options)
    environment = uv_settings.variables(options, os.environ)
    for words in (["--require-hashes", "-r", name], ["--no-build-isolation", "-e", "."]):
        if not _succeeds([*by_uv, *words], environment):
            print("uv could not install it, so pip tries it", flush=True)
            _must([*_PIP, "--no-deps", *words])
    _succeeds(
        [_PYTHON, "-c", _IMPORTS],
        {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
        quiet=True,
    )


def _make() -> None:
    """Make .venv with the pip that this Python brings. Started from its wheel it installs itself in a third of ensurepip's time."""
    _must([sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)])
    wheels = pip_configuration.bundled_wheels(sys.executable)
    pip = next((wheel for wheel in wheels if Path(wheel).name.startswith("pip-")), None)
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile", *wheels]
    if pip is None or not _succeeds([_PYTHON, f"{pip}/pip", *install], quiet=True):
        _must([_PYTHON, "-m", "ensurepip", "--upgrade", "--default-pip"])


def _succeeds(command: Sequence[str], environment: Mapping[str, str] | None = None, quiet: bool = False) -> bool:
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, env=environment, stdout=output, stderr=output, check=False).returncode == 0


def _must(command: Sequence[str]) -> None:
    if not _succeeds(command):
        raise SystemExit(f"`{' '.join(command)}` failed; its words stand above")


if __name__ == "__main__":
    main(sys.argv[1])
