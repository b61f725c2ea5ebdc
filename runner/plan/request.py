"""The user's request for a measurement. These options decide which cells there are; `runner/run/options.py` adds how they are run."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from runner.catalog.names import PresetName, ScalingName, full_name
from runner.results.validate import Frozen

# Of each framework the modes of which one may be its fastest.
BEST = ("best",)


class Request(Frozen):
    """The options that a plan depends on. An empty tuple of names means: all that there are.

    A description is the help text of the command line's option.
    """

    # An untested image, or a CPU twin on a machine with a GPU, runs only where its own name is given here.
    images: tuple[str, ...] = Field(
        default=(),
        description="Image names, patterns like 'torch-*', or images of no catalog: docker:REPOSITORY:TAG, "
        "docker:REPOSITORY@sha256:DIGEST, docker:./FILE.tar, sif:FILE.sif; default: all of the catalog.",
    )
    frameworks: tuple[str, ...] = Field(default=(), description="Names between commas; default: all.")
    workloads: tuple[str, ...] = Field(
        default=(),
        description="Names between commas; default: all. A path such as ./my_net.py is a network of your own (docs/own-networks.md).",
    )
    precisions: tuple[str, ...] = Field(default=("fp32",), description="Names between commas; default: fp32.")
    modes: tuple[str, ...] = Field(
        default=BEST,
        description="How frameworks compile: best (their default, and a mode that may be faster on such a device at the networks of the "
        "Rosetta stone: the faster one is ranked), default, or e.g. default,compile; all: every mode that they declare.",
    )
    preset: PresetName = Field(default="quick", description="How long each cell is measured.")
    devices: tuple[int, ...] = Field(
        default=(1,),
        description="GPUs a cell: 1, or e.g. 1,2,4. Without GPUs, processes or virtual devices that share the cell's CPUs.",
    )
    scaling: ScalingName = Field(
        default="weak", description="For cells with several devices: weak keeps the batch of each, strong that of all."
    )
    to_loss: float | None = Field(
        default=None,
        ge=0,
        le=1000,
        allow_inf_nan=False,
        description="Time the training until the held-out loss stays below this level (bits a byte), with a seed for each repeat, at "
        "workloads that are evaluated after each epoch. It takes 6 repeats where none are given.",
    )
    each_gpu: bool = Field(
        default=False, description="Run every cell on every GPU, one at a time: finds the weak one among equals."
    )

    @field_validator("frameworks", "workloads", mode="after")
    @classmethod
    def _full_names(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(full_name, values))

    @field_validator("images", "frameworks", "workloads", "precisions", "modes", "devices")
    @classmethod
    def _each_once(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """A name that is given twice would plan its cells twice."""
        return tuple(dict.fromkeys(values))

    seed: int = Field(
        default=1, ge=0, le=2**31 - 1, description="Of the data, the parameters and the order of the cells."
    )
