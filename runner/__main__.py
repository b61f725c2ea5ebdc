"""`python -m runner` is the command `runner`."""

import _frozen_importlib_external as loader
import os
import sys
from pathlib import Path

try:
    from runner import errors
except KeyboardInterrupt:
    print("runner: interrupted", file=sys.stderr)
    sys.exit(130)


def _own_packages_first() -> None:
    """PYTHONPATH of a module tree has other versions of packages that the runner needs: it is searched last."""
    for entry in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        folder = Path(entry).absolute()
        if str(folder) in sys.path and folder != Path(__file__).parents[1]:
            sys.path.remove(str(folder))
            sys.path.append(str(folder))


def _whole_bytecode_only() -> None:
    """Remove bytecode that a full disk cut short. Python 3.11 leaves it, and no later command loads its module (gh-126606 of CPython)."""
    write = getattr(loader, "_write_atomic", None)

    def write_whole(path: str, data: bytes, mode: int = 0o666) -> None:
        assert write is not None
        write(path, data, mode)
        if Path(path).stat().st_size < len(data):
            Path(path).unlink()

    if write is not None:
        setattr(loader, "_write_atomic", write_whole)  # noqa: B010 - the stub lacks it


def main() -> None:
    _own_packages_first()
    _whole_bytecode_only()
    # To load the command takes a tenth of a second or more, and to leave it some milliseconds.
    errors.ends_at_once()
    from runner.cli.main import main as command

    try:
        command()
    finally:
        errors.ends_at_once()


if __name__ == "__main__":
    main()
