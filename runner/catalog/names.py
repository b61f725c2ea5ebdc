"""Names that options, specifications and plans share, as types. `bench/rules.py` has the same names as values for the images.

Only the standard library is imported here: the command line needs these types before it knows which command runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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


def suggest(word: str, known: Iterable[str]) -> str:
    """A did-you-mean clause for a word that is not known, or nothing. Of a family of images, the pattern for all of them."""
    family = f"{full_name(word).replace('_', '-')}-"
    if any(name.startswith(family) for name in known):
        return f" (did you mean '{family}*'?)"
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def unknown_name(option: str, names: Iterable[str], existing: Collection[str]) -> str | None:
    """A sentence about the first name of an option that does not exist; None where all do."""
    for name in names:
        if name not in existing:
            choices = ", ".join(existing) or "none"
            # These options take no patterns.
            longer = " or ".join(one for one in existing if one.startswith(f"{full_name(name)}-"))
            meant = f" (did you mean {longer}?)" if longer else suggest(name, existing)
            return f"{option}: there is no {name!r}{meant}; there is {choices}{aliases_of(existing)}"
    return None
