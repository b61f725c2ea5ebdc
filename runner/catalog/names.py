"""Names that options, specifications and plans share, as types. `bench/rules.py` has the same names as values for the images.

Only the standard library is imported here: the command line needs these types before it knows which command runs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

PresetName = Literal["quick", "standard", "full"]
# The constant of sharing the work over several devices: weak keeps the batch of each device, strong the batch of all together.
ScalingName = Literal["weak", "strong"]

# The two workloads that nearly every framework has, and that the Rosetta stone shows side by side.
ROSETTA = ("cnn-cifar10", "gru-imdb")

# The frameworks that most people come for, so that a run with little time begins with them. Developers name the first two most often in
# Stack Overflow's survey (2022: TensorFlow 11.5 %, PyTorch 7.6 % of the professionals). PyTorch's first place today and JAX's third are our
# own judgement. Only the order of a run's cells depends on this list.
FIRST_FRAMEWORKS = ("torch", "tensorflow", "jax")

# Other names of frameworks and workloads: each stands for the name on the right.
ALIASES = {
    "pytorch": "torch",
    "tf": "tensorflow",
    "tensorflow2": "tensorflow",
    "paddlepaddle": "paddle",
    "onnx": "onnxruntime",
    "cifar10": "cnn-cifar10",
    "cnn": "cnn-cifar10",
    "imdb": "gru-imdb",
    "gru": "gru-imdb",
    "mnist": "mlp-mnist",
    "mlp": "mlp-mnist",
    "chestxray": "densenet121-chestxray",
    "densenet121": "densenet121-chestxray",
    "imagenet": "resnet50-imagenet",
    "resnet50": "resnet50-imagenet",
}


def full_name(word: str) -> str:
    """The framework or workload that an alias stands for; any other word as it is."""
    return ALIASES.get(word.casefold(), word)


def aliases_of(names: Collection[str]) -> str:
    """A clause with the aliases of these names; empty where they have none."""
    pairs = [f"{alias} for {name}" for alias, name in ALIASES.items() if name in names]
    return f" (short: {', '.join(pairs)})" if pairs else ""
