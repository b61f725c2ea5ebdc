"""Which GPUs CUDA_VISIBLE_DEVICES leaves to a program, as CUDA reads it (CUDA programming guide, "CUDA Environment Variables").

A batch system or the owner of a shared machine sets it. `--gpus all` means these GPUs, and a named GPU wins over the variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench import rules
from runner.errors import UserError
from runner.machine.devices import Gpu, Refused, bare_uuid

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"

_MOST_SHOWN = 200


class VisibleError(UserError):
    """CUDA_VISIBLE_DEVICES cannot be read from outside CUDA; the message says what to write instead."""


def visible(
    gpus: Sequence[Gpu], refused: Sequence[Refused], variables: Mapping[str, str]
) -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs that the variable leaves, in the order of `gpus`, and a sentence where it leaves some out. Raises VisibleError."""
    value = variables.get(VARIABLE)
    if value is None or not gpus:
        return tuple(gpus), None
    words = [word.strip() for word in value.split(",")]
    if any(rules.whole(word) is not None for word in words):
        _check_order(value, gpus, variables.get(ORDER))
    named: list[Gpu | None] = []
    for word in words:
        fits = _named(word, gpus, refused)
        if not fits:
            # CUDA ignores what follows a name that it does not know.
            break
        named += fits
    left = tuple(gpu for gpu in gpus if gpu in named)
    if len(left) == len(gpus):
        return left, None
    which = f"GPU {', '.join(gpu.name for gpu in left)} of {len(gpus)}" if left else "no GPU"
    shown = value[:_MOST_SHOWN] or '""'
    return (
        left,
        f"{VARIABLE}={shown} leaves {which}: --gpus all means these, and a GPU that --gpus names is used all the same",
    )


def limits(gpus: Sequence[Gpu], refused: Sequence[Refused], variables: Mapping[str, str]) -> tuple[str, ...]:
    """The effect of the variable here, as a sentence; none if it leaves every GPU. For commands that only show the GPUs."""
    try:
        sentence = visible(gpus, refused, variables)[1]
    except VisibleError as error:
        sentence = str(error)
    return (sentence,) if sentence else ()


def _check_order(value: str, gpus: Sequence[Gpu], order: str | None) -> None:
    """CUDA counts the fastest GPU first, by a rule of its own, unless it is told to count as the driver does."""
    models = {gpu.model.partition(" MIG ")[0] for gpu in gpus}
    if len(models) > 1 and order != "PCI_BUS_ID":
        raise VisibleError(
            f"{VARIABLE}={value[:_MOST_SHOWN]} counts GPUs in CUDA's own order, and this machine has {len(models)} models of them; "
            f"set {ORDER}=PCI_BUS_ID as well, write UUIDs, or say --gpus"
        )


def _named(word: str, gpus: Sequence[Gpu], refused: Sequence[Refused]) -> list[Gpu | None]:
    """The GPU that an entry names, or None in its place where it is broken; nothing where CUDA knows no such GPU."""
    if (index := rules.whole(word)) is not None:
        # CUDA does not count the GPUs that this user may not use.
        counted = sorted({gpu.index for gpu in gpus} | {int(gpu.name) for gpu in refused if not gpu.hidden})
        if index >= len(counted):
            return []
        return [next((gpu for gpu in gpus if gpu.index == counted[index]), None)]
    if word.startswith("MIG-GPU-"):
        raise VisibleError(
            f"{VARIABLE}: {word[:_MOST_SHOWN]} names a MIG instance as drivers before 470 did; `nvidia-smi -L` shows its UUID"
        )
    if not word.lower().startswith(("gpu-", "mig-")):
        return []
    whole = word.lower().startswith("gpu-")
    matches = {
        (gpu.board if whole else gpu.uuid): gpu
        for gpu in reversed(gpus)
        if bare_uuid(gpu.board if whole else gpu.uuid).startswith(bare_uuid(word))
    }
    # CUDA takes a GPU that is cut into instances for its first instance. It does not know a beginning that fits several.
    return list(matches.values()) if len(matches) == 1 else []
