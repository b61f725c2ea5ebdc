"""How each workload is computed: a folder a framework, a readable file a workload, in that framework's own idiom."""

import os

FOLDER = os.path.dirname(os.path.abspath(__file__))


def names():
    """The frameworks that have an adapter written in Python."""
    return sorted(name for name in os.listdir(FOLDER) if os.path.isfile(os.path.join(FOLDER, name, "framework.py")))
