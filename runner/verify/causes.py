"""Why a cell is slow or failed: likely causes, each with its evidence and a fix. Pure.

A cause is named only where a fact shows it. The facts are the cell's environment event, its ceilings, its telemetry if the run has it,
and the same of the reference. The surest causes come first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from bench import rules
from reports.wording import apart, percent, plural
from runner.catalog import cuda as cuda_releases
from runner.results.on_disk import observed, roles
from runner.results.on_disk.other_work import OtherWork
from runner.verify.probes.ceilings import OF_THE_DISTRIBUTION, Ceilings, best, is_machine_busy, reference_blas
from runner.verify.references.facts import Facts
from runner.verify.references.saved import Telemetry


@dataclass(frozen=True)
class Cause:
    """One likely cause."""

    name: str
    evidence: str
    fix: str


@dataclass(frozen=True)
class Case:
    """The facts that explain one cell: its own, and those of its reference."""

    facts: Facts
    ceilings: Ceilings | None = None
    reference: Facts | None = None
    reference_ceilings: Ceilings | None = None
    telemetry: Telemetry | None = None
    reference_telemetry: Telemetry | None = None
    machine_gpus: int = 0
    failure: str = ""  # the cell's reason, where it failed
    error_kind: str = ""
    first_step_seconds: float | None = None
    foreign_processes: tuple[str, ...] = ()  # who else computed on its GPUs while it ran
    other_work: OtherWork | None = None
    slowdown: float = 1.0  # how many times as long windows took after a change midway
    reference_slowdown: float = 1.0


# Rates of windows scatter by a few percent on a shared machine. A rate below this share of the reference's is no noise.
_SHORT = 0.92

# Throttling explains a steady gap of a percent or two only if it lasts a tenth of the time.
_THROTTLED = 0.1

_CLOCKS = "look at application clocks (nvidia-smi -q -d CLOCK), power limit and heat"
_COOLING = "look at fans, inlet temperature and neighbours in the chassis"
_THROTTLING_FIXES = {
    "power cap": "raise the power limit (nvidia-smi -pl) or the supply; compare it with the reference's",
    "software thermal slowdown": _COOLING,
    "hardware thermal slowdown": _COOLING,
}


def causes(case: Case) -> list[Cause]:
    """Every cause that a fact shows."""
    return [cause for look in _LOOKS for cause in look(case)]


def _cpu_only(case: Case) -> Iterator[Cause]:
    """No CUDA in the framework, on a machine with GPUs."""
    version = case.facts.framework_version or ""
    refused = case.facts.device_kind == "cuda" and case.error_kind in ("unsupported", "no-device")
    no_cuda = "+cpu" in version or "is built without CUDA" in case.failure
    if (refused and no_cuda) or (case.machine_gpus and case.facts.device_kind == "cpu" and "+cpu" in version):
        yield Cause(
            "CPU-only build",
            f"{case.facts.framework} {version or '(version unknown)'} is built without CUDA, and the machine has "
            f"{case.machine_gpus or 'a'} GPU{'s' if case.machine_gpus > 1 else ''}",
            "install the build with CUDA: the index or package name says which (cu128, cuda12, -gpu)",
        )
    elif refused:
        yield Cause(
            "the framework finds no GPU",
            f"its error: {case.failure[:200]}",
            "compare the driver with the CUDA of the build (nvidia-smi), and look at CUDA_VISIBLE_DEVICES",
        )


def _tf32(case: Case) -> Iterator[Cause]:
    for name, value in sorted(case.facts.settings.items()):
        other = case.reference.settings.get(name) if case.reference else None
        expected = case.facts.precision == "tf32" or other is True
        if "tf32" in name and value is False and expected:
            why = "the cell's precision is tf32" if case.facts.precision == "tf32" else "it is on in the reference"
            yield Cause(
                "TF32 is off",
                f"{name} reads back as off, and {why}",
                "switch it on, or unset what switches it off (NVIDIA_TF32_OVERRIDE=0, a call in a start-up file)",
            )


def _cudnn(case: Case) -> Iterator[Cause]:
    if case.facts.device_kind == "cuda" and case.facts.cuda_version and case.facts.cudnn_version in (None, "none"):
        yield Cause(
            "no cuDNN",
            f"{case.facts.framework} has CUDA {case.facts.cuda_version} and reports no cuDNN",
            "install the cuDNN that the build was made for; convolutions and recurrent layers fall back without it",
        )


def _ptx(case: Case) -> Iterator[Cause]:
    capability, cuda = case.facts.compute_capability, case.facts.cuda_version
    first = cuda_releases.FIRST_RELEASE.get(capability or "")
    try:
        if first is None or not cuda or Version(cuda) >= Version(first):
            return
    except InvalidVersion:
        return
    took = f"; its first step took {case.first_step_seconds:.1f} s" if case.first_step_seconds else ""
    yield Cause(
        "a CUDA older than the GPU",
        f"compute capability {capability} needs CUDA {first} or later, and the build has CUDA {cuda}: the driver compiles "
        f"the build's PTX at the start, if it has any{took}",
        f"install a build for CUDA {first} or later",
    )


def _blas(case: Case) -> Iterator[Cause]:
    blas = reference_blas(case.ceilings.libraries) if case.ceilings else None
    if blas:
        yield Cause("the reference BLAS", f"its BLAS is {blas}, which is not made for speed", OF_THE_DISTRIBUTION)


def _threads(case: Case) -> Iterator[Cause]:
    usable, machine = case.facts.cpu_count, case.facts.machine_cpus
    of_reference = case.reference.cpu_count if case.reference else None
    most = max(filter(None, (machine, of_reference)), default=None)
    if usable and most and usable < most:
        whose = "the reference had" if of_reference == most and machine != most else "the machine has"
        yield Cause(
            "fewer CPUs",
            f"the cell may use {plural(usable, 'CPU')}, and {whose} {most}",
            "look for taskset, cpuset, a CPU quota of the container or the job's request, and lift it",
        )
    threads = _number(case.facts.settings.get("threads"))
    other = _number(case.reference.settings.get("threads")) if case.reference else None
    possible = other if other is not None else usable
    if threads and possible and threads < possible and threads < (usable or possible):
        yield Cause(
            "fewer threads",
            f"{case.facts.framework} computes with {plural(int(threads), 'thread')}, where {possible:.0f} may be used",
            "look for OMP_NUM_THREADS, MKL_NUM_THREADS or a call that sets threads, and remove it",
        )


# The effect of some variables that steer frameworks (bench/rules.py).
_EFFECTS = {
    **dict.fromkeys(rules.THREAD_VARIABLES, "the number of threads"),
    "CUDA_LAUNCH_BLOCKING": "each kernel is waited for",
    "GOMP_CPU_AFFINITY": "where threads run",
    "KMP_AFFINITY": "where threads run",
    "LD_PRELOAD": "other libraries",
    "NVIDIA_TF32_OVERRIDE": "TF32 on or off",
    "OMP_PROC_BIND": "where threads run",
    "PYTORCH_ALLOC_CONF": "how memory is kept",
    "PYTORCH_CUDA_ALLOC_CONF": "how memory is kept",
    "TF_XLA_FLAGS": "what is compiled",
    "TORCH_COMPILE_DISABLE": "nothing is compiled",
    "XLA_FLAGS": "how XLA compiles",
}


def dropped(variables: Mapping[str, str]) -> str | None:
    """A sentence on the variables of this shell that cells do not get: the user's own programs do, and no verdict sees their effect."""
    found = [
        f"{name}={value[:60]}{f' ({_EFFECTS[name]})' if name in _EFFECTS else ''}"
        for name, value in rules.steering(variables).items()
    ]
    if not found:
        return None
    return (
        f"cells do not get {', '.join(found)}: your own programs do, so they may be slower than what is verified here"
    )


# Settings that slow a framework down: the name, the value that does, the cause, and the fix.
_SLOWING = (
    ("deterministic", True, "deterministic algorithms are on", "remove torch.use_deterministic_algorithms from the start-up file"),
    ("anomaly_detection", True, "anomaly detection is on", "remove torch.autograd.set_detect_anomaly from the start-up file"),
    ("default_dtype", "torch.float64", "float64 by default", "remove torch.set_default_dtype from the start-up file"),
    ("eager", True, "functions run eagerly", "remove tf.config.run_functions_eagerly from the start-up file"),
    ("xla", False, "XLA is off", "look for TF_XLA_FLAGS and tf.config.optimizer in a start-up file"),
)  # fmt: skip

# The words of PyTorch for the vector instructions that it uses, from none to the widest.
_CAPABILITIES = ("NO", "DEFAULT", "AVX", "AVX2", "AVX512")


def _slowing(case: Case) -> Iterator[Cause]:
    own, other = case.facts.settings, case.reference.settings if case.reference else {}
    for name, value, cause, fix in _SLOWING:
        if own.get(name) == value and other.get(name) != value:
            yield Cause(cause, _both(name, own, other), fix)
    here, there = (str(settings.get("cpu_capability", "")) for settings in (own, other))
    if here in _CAPABILITIES and there in _CAPABILITIES and _CAPABILITIES.index(here) < _CAPABILITIES.index(there):
        yield Cause(
            "vector instructions are not used",
            _both("cpu_capability", own, other),
            "unset ATEN_CPU_CAPABILITY; or the build lacks them, and a wheel has them",
        )
    if own.get("allocator") != other.get("allocator") and own.get("allocator"):
        yield Cause("another allocator", _both("allocator", own, other), "look at LD_PRELOAD and /etc/ld.so.preload")
    if own.get("build_type", "Release") == "Debug" and other.get("build_type") != "Debug":
        yield Cause("a debug build", _both("build_type", own, other), "install the release build")


def _variables(case: Case) -> Iterator[Cause]:
    own, other = case.facts.settings, case.reference.settings if case.reference else {}
    for name in (name for name in own if case.reference and own[name] != other.get(name)):
        kind, _, what = name.partition(" ")
        if verb := STEERS.get(kind):
            yield Cause(f"{what} is set", _both(name, own, other), f"{verb} {what}")


# How the names of settings begin that are variables of the process, or files that steer its libraries (bench/speed.py); and the remedy.
STEERS = {"variable": "unset", "file": "look at"}


def _both(name: str, own: Mapping[str, object], other: Mapping[str, object]) -> str:
    return f"{name} is {own.get(name, 'not recorded')} here, and {other.get(name, 'not set')} in the reference"


def _builds(case: Case) -> Iterator[Cause]:
    """Other differences of the installation: the BLAS, the least likely cause."""
    own, other = case.facts.settings, case.reference.settings if case.reference else {}
    for name in ("blas_built_with", "numpy_blas"):
        if name in own and name in other and own[name] != other[name]:
            yield Cause(f"another {name.replace('_', ' ')}", _both(name, own, other), "the wheel has the reference's")


def _debug(case: Case) -> Iterator[Cause]:
    version = case.facts.framework_version or ""
    if re.search(r"(debug|\bdbg\b)", version, re.IGNORECASE) or (case.ceilings and case.ceilings.debug):
        yield Cause(
            "a debug build",
            f"{case.facts.framework} {version} or its Python was built for debugging",
            "install the release build",
        )


def _settings(case: Case) -> Iterator[Cause]:
    """Switches that were on in the reference and are off here."""
    slower = {(name, slow) for name, slow, *_ in _SLOWING}
    for name, value in sorted(case.facts.settings.items()):
        before = case.reference.settings.get(name) if case.reference else None
        if before is True and value is False and "tf32" not in name and (name, before) not in slower:
            yield Cause(f"{name} is off", f"{name} reads back as off; it is on in the reference", "switch it on")


def _busy(case: Case) -> Iterator[Cause]:
    ceilings = case.ceilings
    evidence = [str(case.other_work)] if case.other_work else []
    if ceilings and is_machine_busy(ceilings):
        evidence += [f"{ceilings.load:.1f} processes were running on {ceilings.cpus} CPUs before the measurement began"]
    if evidence:
        yield Cause(
            "a busy machine",
            "; ".join(evidence),
            "stop the other programs (top shows them), or measure when the machine is idle",
        )
    processes = case.facts.device.get("foreign_processes")
    others = case.foreign_processes
    if others:
        which = f"{len(others)} other process{'es' if len(others) > 1 else ''}"
        yield Cause(
            "a busy GPU",
            f"{which} computed on the GPU while the cell ran: {', '.join(others[:3])}",
            "wait for them or stop them; a batch system or nvidia-smi -c EXCLUSIVE_PROCESS keeps others away",
        )
    elif processes:
        yield Cause(
            "a busy GPU",
            f"{processes} other process{'es' if processes != 1 else ''} computed on the GPU when the run began",
            "find them with nvidia-smi, and wait for them or stop them",
        )


def _throttled(case: Case) -> Iterator[Cause]:
    telemetry = case.telemetry or Telemetry()
    reference = case.reference_telemetry or Telemetry()
    for reason, share in sorted(telemetry.throttled.items(), key=lambda pair: -pair[1]):
        # A GPU at its power limit may do its work: what held the reference back as well explains nothing.
        if share - reference.share(reason) >= _THROTTLED:
            fix = _THROTTLING_FIXES.get(reason, "nvidia-smi -q -d PERFORMANCE shows what holds the clock back")
            yield Cause(f"throttled: {reason}", f"{reason} held its clock back {per_cent(share)} of the time", fix)
    clock, usual = telemetry.sm_megahertz, reference.sm_megahertz
    if clock and usual and clock < 0.97 * usual:
        yield Cause(
            "a lower clock",
            f"its median clock was {clock:.0f} MHz, and {usual:.0f} MHz in the reference: that alone may take "
            f"{usual / clock:.2f} times as long",
            _CLOCKS,
        )


# Facts of the machine meanwhile: column -> (the cause, whether more of it is worse, the fix).
_MEANWHILE = {
    "cpu_megahertz": (
        "a lower CPU clock",
        False,
        "look at the governor (cpupower frequency-info), turbo, power limits and heat",
    ),
    "memory_megahertz": ("a lower memory clock", False, _CLOCKS),
    "temperature_celsius": ("heat", True, _COOLING),
    "memory_temperature_celsius": ("hot memory", True, _COOLING),
    "power_watts": (
        "less power",
        False,
        "a lower clock or limit, or waiting for the CPU, takes less: see what else differs",
    ),
}


def _meanwhile(case: Case) -> Iterator[Cause]:
    """Differences of the machine while the cell ran from that of the reference."""
    here, reference = (each.medians if each else {} for each in (case.telemetry, case.reference_telemetry))
    for column, (name, more, fix) in _MEANWHILE.items():
        seen, usual = here.get(column), reference.get(column)
        if seen is None or usual is None or not observed.differ(column, usual, seen) or (seen > usual) != more:
            continue
        slower = f": that alone may take {usual / seen:.2f} times as long" if column == "cpu_megahertz" and seen else ""
        evidence = f"{roles.WORDS[column]}: {seen:.0f}, and {usual:.0f} in the reference{slower}"
        yield Cause(name, evidence, fix)


def _pcie(case: Case) -> Iterator[Cause]:
    width, most = _number(case.facts.device.get("pcie_width_now")), _number(case.facts.device.get("pcie_width"))
    if width and most and width < most:
        yield Cause(
            "a narrow PCIe link",
            f"the link runs at x{width:.0f} of the x{most:.0f} that the board has",
            "seat the board again, or use a slot with all lanes; look for a riser or bifurcation",
        )


def _power_limit(case: Case) -> Iterator[Cause]:
    limit = _number(case.facts.device.get("power_limit_watts"))
    before = _number(case.reference.device.get("power_limit_watts")) if case.reference else None
    if limit and before and limit < 0.98 * before:
        yield Cause(
            "a lower power limit",
            f"its power limit is {limit:.0f} W, and {before:.0f} W in the reference",
            "nvidia-smi -pl raises it, where the board and its supply allow",
        )


def of_ceilings(case: Case) -> Iterator[Cause]:
    """The highest rates of this environment beside those of the reference's."""
    here, reference = case.ceilings, case.reference_ceilings
    # Beside other work a rate says nothing about the machine.
    if not here or not reference or is_machine_busy(here) or is_machine_busy(reference):
        return
    product = best(here.numpy.matmul_flops) / best(reference.numpy.matmul_flops)
    if here.framework and reference.framework:
        own = best(here.framework.matmul_flops) / best(reference.framework.matmul_flops)
        # On a CPU NumPy's product shows the machine. The framework is to blame only for what it loses beyond that.
        if own < _SHORT and (case.facts.device_kind == "cuda" or own / product < _SHORT):
            yield Cause(
                "a slow matrix product",
                f"{case.facts.framework}'s own reaches {per_cent(own)} of the reference's rate"
                + ("" if case.facts.device_kind == "cuda" else f", NumPy's {per_cent(product)}"),
                "look at the BLAS that the framework is linked to, its build, and any patches to it",
            )
    yield from _slower("a slower core", "one core's arithmetic", here, reference, "core_operations",
                       "look at the CPU's frequency governor and limits, and for a neighbour on the same core")  # fmt: skip
    yield from _slower("slower memory", "copying memory", here, reference, "copy_bytes",
                       "look at the memory channels in use, and for a neighbour that uses them")  # fmt: skip


def _slower(name: str, what: str, here: Ceilings, reference: Ceilings, rate: str, fix: str) -> Iterator[Cause]:
    share = best(getattr(here.numpy, rate)) / best(getattr(reference.numpy, rate))
    if share < _SHORT:
        yield Cause(name, f"{what} reaches {per_cent(share)} of the reference's rate", fix)


def _unsteady(case: Case) -> Iterator[Cause]:
    longer = case.slowdown - 1
    # A workload that slows down in the reference too is no slower for it.
    if longer > 0 and case.reference_slowdown - 1 < longer / 2:
        yield Cause(
            "it slowed down midway",
            f"from one window on, every step {apart(case.slowdown)}"
            + ("; the reference's did not" if case.reference else ""),
            "look for heat, a power limit, or something that began to run beside it",
        )


_LOOKS: tuple[Callable[[Case], Iterator[Cause]], ...] = (
    _cpu_only, _blas, _slowing, _settings, _variables,
    _cudnn, _tf32, _ptx, _debug, _threads, _pcie, _power_limit, _throttled, _meanwhile, _busy, of_ceilings, _unsteady, _builds,
)  # fmt: skip


def per_cent(share: float, digits: int = 2) -> str:
    """A share for a terminal and a log, with a plain space; a page's space does not break the line."""
    return percent(share, digits).replace("\u00a0", " ")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
