"""The kit: a folder that measures a GPU machine without a network and without an installation, and the import of what it measured.

`bundle` makes the folder (`make gpu-kit`). `start`, `measure` and what they import run on the GPU machine, with Python 3.10 and what the
folder holds. `runner.run` runs the cells. The order of the steps and the time limit are the kit's own.
Each step leaves a parcel. `archive` and `imported` run here again: an archive becomes a run.
"""
