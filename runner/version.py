"""The version of the package that is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def runner_version() -> str:
    """The version, or that there is none: in a checkout that nobody installed."""
    try:
        return version("dlbench-matrix")
    except PackageNotFoundError:
        return "not installed"
