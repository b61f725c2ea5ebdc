"""Writes the report of a run while its cells run, and prints what they have shown by now: `python -m runner.cli.report_beside FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from runner.cli.report import write_renewed

if __name__ == "__main__":
    print("\n".join(write_renewed(Path(sys.argv[1]))))
