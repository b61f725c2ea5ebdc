"""How a node is reached: a module each, chosen by the word before the colon of --nodes."""

from __future__ import annotations

import re
from pathlib import Path

from runner.errors import UserError
from runner.machine import detect
from runner.nodes.transports.ray import Ray
from runner.nodes.transports.slurm import Slurm
from runner.nodes.transports.ssh import Local, Ssh
from runner.nodes.transports.transport import Nodes

_MOST_LOCAL = 64


def nodes_of(text: str, gpus: str = "all", share: bool = False, measure: bool = True) -> Nodes:
    """The transport that --nodes names. Raises NodesError. `gpus` and `share` are the options of these names.

    Without `measure` nothing is reserved: the nodes are only looked at.
    """
    kind, _, rest = text.partition(":")
    if kind == "local" and re.fullmatch("[0-9]{1,3}", rest) and 0 < int(rest) <= _MOST_LOCAL:
        return Local(int(rest), detect.detect(gpus, share))
    if kind == "ssh" and rest:
        return Ssh(Path(rest))
    if kind == "slurm" and text != "slurm:":
        return Slurm(rest)
    if text == "ray" or (kind == "ray" and rest):
        return Ray(rest, measure)
    raise UserError(
        f"--nodes: {text!r} is neither local:N, with N from 1 to {_MOST_LOCAL}, nor ssh:FILE, a file with a host a line, "
        "nor slurm:PARTITION, nor ray, the Ray cluster of this machine"
    )
