"""`python -m runner` is the command `runner`."""

import sys

try:
    from runner import interrupt
except KeyboardInterrupt:
    print("runner: interrupted", file=sys.stderr)
    sys.exit(130)


def main() -> None:
    # To load the command takes a tenth of a second or more, and to leave it some milliseconds.
    interrupt.ends_at_once()
    from runner.cli.main import main as command

    try:
        command()
    finally:
        interrupt.ends_at_once()


if __name__ == "__main__":
    main()
