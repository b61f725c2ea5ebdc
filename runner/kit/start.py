#!/usr/bin/env python3
"""Measure this machine's GPU with the frameworks of this Python: `python kit.py --help`."""

import os
import sys

if sys.version_info < (3, 10):  # noqa: UP036 - an older Python must say this, too
    sys.stderr.write(
        "kit.py needs Python 3.10 or newer; --python names the interpreter that has the frameworks, which may be older\n"
    )
    # As runner/errors.py has it for what could not begin.
    sys.exit(4)

# Nothing is written beside the kit, the frameworks or anything else.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - older Pythons read this far
sys.path[:0] = [HERE, os.path.join(HERE, "needs")]  # noqa: PTH118

from runner.kit.measure import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
