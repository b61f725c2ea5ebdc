"""Where things lie: the project's own folders, and the user's."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
BENCH = PROJECT / "bench"

_NAME = "dlbench"


def cache_folder() -> Path:
    """Where this project keeps what can be made again."""
    from platformdirs import user_cache_path

    return Path(user_cache_path(_NAME, appauthor=False))


def data_folder() -> Path:
    """Where this project keeps what the user has made, such as references."""
    from platformdirs import user_data_path

    return Path(user_data_path(_NAME, appauthor=False))
