"""The kit: a folder that measures a GPU machine without a network and without an installation, and the import of what it measured.

`build` makes the folder (`make gpu-kit`). `start`, `measure`, `steps` and `pack` run on the GPU machine, with Python 3.10 and what the
folder holds. A cell is an attempt of `runner.run`, which leaves a parcel; checks are the kit's own.
`archive` and `imported` run here again: an archive becomes a run.
"""
