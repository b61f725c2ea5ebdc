"""How GPUs and their machines are set up, in words, and what is set up otherwise than on the other nodes. Pure.

A GPU's facts are those of its entry in run.json, which is what `dataclasses.asdict` makes of a `Gpu`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runner.results import clock_settings

Entry = Mapping[str, Any]


def _switch(name: str) -> Callable[[Entry], str]:
    return lambda entry: {True: "on", False: "off"}.get(entry.get(name), "unknown")  # type: ignore[arg-type]


def _text(name: str) -> Callable[[Entry], str]:
    return lambda entry: str(entry.get(name) or "unknown")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _watts(entry: Entry) -> str:
    watts = _number(entry.get("power_limit_watts"))
    return "unknown" if watts is None else f"{watts:.0f} W"


def _memory(entry: Entry) -> str:
    size = _number(entry.get("memory_bytes"))
    return "memory not reported" if size is None else f"{size / 2**30:.0f} GiB"


def _lanes(entry: Entry) -> str:
    return f"{entry.get('pcie_generation') or '?'} x{entry.get('pcie_width') or '?'}"


# In the order in which they explain a slow GPU.
OF_GPU: dict[str, Callable[[Entry], str]] = {
    "driver": _text("driver"),
    "power limit": _watts,
    "ECC": _switch("ecc"),
    "PCIe": _lanes,
    "PCIe lanes in use": lambda entry: str(entry.get("pcie_width_now") or "?"),
    "clocks": clock_settings.state,
    "persistence": _switch("persistence"),
    "GPU memory": _memory,
    "compute mode": _text("compute_mode"),
    "VBIOS": _text("vbios"),
}
OF_HOST: dict[str, Callable[[Entry], str]] = {
    "kernel": _text("kernel"),
    "architecture": _text("architecture"),
    "CPU": _text("cpu_model"),
    "CPUs": _text("cpu_count"),
    "CPU governor": _text("cpu_governor"),
    "CPU energy preference": _text("cpu_energy_preference"),
    "CPU turbo": _text("cpu_turbo"),
}


def facts(entry: Entry, of: Mapping[str, Callable[[Entry], str]] = OF_GPU) -> dict[str, str]:
    """Each fact of a GPU, or of a host, in words."""
    return {what: fact(entry) for what, fact in of.items()}


def deviant(name: str, settings: Mapping[str, Sequence[Mapping[str, str]]]) -> list[str]:
    """In what a node, or a GPU, is set up otherwise than most of the others: a clause a fact.

    `settings`: the facts of each node's GPUs, by the node's name; of a GPU its own, by its UUID.
    """
    clauses = []
    for what in dict.fromkeys(what for each in settings.values() for entry in each for what in entry):
        values = {
            other: " and ".join(sorted({entry[what] for entry in each if what in entry}))
            for other, each in settings.items()
        }
        own, others = values.pop(name, ""), Counter(value for value in values.values() if value)
        if not own or not others:
            continue
        usual, count = others.most_common(1)[0]
        if own != usual and 2 * count > others.total():
            clauses.append(f"{what} {own}, and {usual} on {count} of {others.total()} others")
    return clauses
