"""The settings of the user's and the site's pip.conf, as pip itself reads them."""

from __future__ import annotations

import ast
import re
import subprocess

_LINE = re.compile(r"^(?:global|install)\.([a-z-]+)=(['\"].*)$", flags=re.M)

# Settings that would install elsewhere than in an environment, or something else than its lock.
MISPLACING = ("target", "prefix", "root", "requirement", "constraint", "user", "editable")


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
