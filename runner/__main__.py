"""`python -m runner` is the command `runner`."""

from runner.cli.main import main

main()
