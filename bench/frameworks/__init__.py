"""How each workload is computed: a folder a framework, a readable file a workload, in that framework's own idiom.

A folder with a framework.json is a framework; one without is code that several of them share.
"""

import io
import json
import os

FOLDER = os.path.dirname(os.path.abspath(__file__))


def names():
    """The frameworks that have an adapter, in whatever language."""
    return sorted(name for name in os.listdir(FOLDER) if os.path.isfile(os.path.join(FOLDER, name, "framework.json")))


def declaration(name):
    """The framework.json as a dict: title, modes (name -> sentence), and entrypoint (argv) where it is not in Python."""
    with io.open(os.path.join(FOLDER, name, "framework.json"), encoding="utf-8") as file:
        return json.load(file)
