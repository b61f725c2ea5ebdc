"""The settings of the user's and the site's pip.conf, as pip itself reads them, and the pip that a Python brings."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

_LINE = re.compile(r"^(?:global|install)\.([a-z-]+)=(['\"].*)$", flags=re.M)

# Settings that would install elsewhere than in an environment, or something else than its lock.
MISPLACING = ("target", "prefix", "root", "requirement", "constraint", "user", "editable")

_BUNDLED = """
import ensurepip, glob, os
folder = getattr(ensurepip, "_WHEEL_PKG_DIR", None) or os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
print("\\n".join(glob.glob(os.path.join(glob.escape(folder), "*.whl"))))
"""


def bundled_wheels(python: str) -> list[str]:
    """The paths of the wheels of pip and setuptools that an interpreter brings; [] where they lie elsewhere.

    They are what ensurepip installs, which takes four seconds of CPU time for it.
    """
    printed = subprocess.run([python, "-I", "-c", _BUNDLED], capture_output=True, text=True, check=False).stdout
    wheels = [line for line in printed.split("\n") if line]
    return wheels if any(Path(wheel).name.startswith("pip-") for wheel in wheels) else []


def read(python: str) -> dict[str, str]:
    """The value of each setting by its name, of `global` and then of `install`, as this interpreter's pip has it; nothing without pip."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return {option: str(ast.literal_eval(value)) for option, value in _LINE.findall(printed)}


def variables(python: str) -> dict[str, str]:
    """The same as variables of the environment, for a pip that reads no file; without the settings of MISPLACING."""
    return {
        "PIP_" + option.upper().replace("-", "_"): " ".join(value.split())
        for option, value in read(python).items()
        if option not in MISPLACING
    }
