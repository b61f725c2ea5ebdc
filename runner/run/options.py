"""The options of `runner matrix`, and how a run keeps them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runner.errors import UserError


class UsageError(UserError):
    """What was asked cannot be done; the message says which option, and what to say instead."""


@dataclass(frozen=True)
class Options:
    """The options of `runner matrix`, as given."""

    gpus: str = "all"
    share: bool = False
    each_gpu: bool = False
    devices: tuple[int, ...] = (1,)
    scaling: str = "weak"
    cool_down: bool = False
    wait: bool = True
    images: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ("fp32",)
    modes: tuple[str, ...] = ("default",)
    preset: str = "quick"
    engine: str = "auto"
    seed: int = 1
    repeats: int = 1
    timeout: float | None = None
    out: Path = Path("results")
    data: Path | None = None
    base_image: str | None = None
    python: Path | None = None
    profile: bool = False


def plain(options: Options) -> dict[str, Any]:
    """As run.json keeps them. Folders are written whole: a run may go on from another one."""
    return {name: _plain(value) for name, value in asdict(options).items()} | {"out": str(options.out)}


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value.absolute() if value.exists() else value)  # the name of a program stays as it is
    return list(value) if isinstance(value, tuple) else value


def of_run(stored: object) -> Options:
    """The options that a run began with, out of its run.json. Raises UsageError."""
    try:
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in dict(stored).items()}  # type: ignore[call-overload]
        values |= {k: Path(values[k]) for k in ("out", "data", "python") if values.get(k) is not None}
        return Options(**values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"--resume: the run's options are not of this release ({error}); start a new run") from None
