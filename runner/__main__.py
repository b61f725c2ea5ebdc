"""`python -m runner` is the command `runner`."""

import os
import sys
from pathlib import Path

try:
    from runner import interrupt
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


def main() -> None:
    _own_packages_first()
    # To load the command takes a tenth of a second or more, and to leave it some milliseconds.
    interrupt.ends_at_once()
    from runner.cli.main import main as command

    try:
        command()
    finally:
        interrupt.ends_at_once()


if __name__ == "__main__":
    main()
