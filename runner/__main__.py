"""`python -m runner` is the command `runner`."""

import sys

try:
    import os
    import signal
except KeyboardInterrupt:
    sys.exit(130)


def main() -> None:
    # To load the command takes a tenth of a second or more. Ctrl-C ends it there without a traceback; a command has its own end.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from runner.cli.main import main as command

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
