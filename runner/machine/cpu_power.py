"""How a machine's CPUs are set to save power, as Linux says it (Documentation/admin-guide/pm/cpufreq.rst): a virtual machine mostly says
nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")


def settings(cpus: Iterable[int], folder: Path = _CPUS) -> dict[str, str | None]:
    """The governor, turbo and the energy preference of these CPUs; None where the machine does not say. Several values are all named."""
    own = [folder / f"cpu{cpu}" / "cpufreq" for cpu in cpus]
    return {
        "cpu_governor": _all(each / "scaling_governor" for each in own),
        "cpu_energy_preference": _all(each / "energy_performance_preference" for each in own),
        "cpu_turbo": _turbo(folder),
    }


def _all(files: Iterable[Path]) -> str | None:
    return ", ".join(sorted({text for file in files if (text := _text(file))})) or None


def _turbo(folder: Path) -> str | None:
    """Intel's driver has a switch that turns it off, and the others one that turns it on."""
    off, on = _text(folder / "intel_pstate" / "no_turbo"), _text(folder / "cpufreq" / "boost")
    if off in ("0", "1"):
        return "off" if off == "1" else "on"
    return {"0": "off", "1": "on"}.get(on or "")


def _text(file: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text()[:80].strip() or None
    return None
