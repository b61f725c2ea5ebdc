"""Every Python below this folder on its path writes down each module of the bench as it is imported; Python 3.6, R's included.

It writes at once: the Python inside R ends without its exit functions.
"""

import os
import sys


class Recorder:
    """Stands first among the finders, and finds nothing itself."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "bench":
            with open("%s/%d.txt" % (os.environ["DLBENCH_LOADED"], os.getpid()), "a") as out:
                out.write(name + "\n")


if os.environ.get("DLBENCH_LOADED"):
    sys.meta_path.insert(0, Recorder())
