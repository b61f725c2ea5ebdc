"""Installations that are slow for a known reason, and healthy ones, each verified beside the pinned image: the table of docs/verify.md.

    python -m tests.contract.sick_installations FOLDER [NAME ...]

Environments are made in FOLDER from the catalog's images, with a start-up file or a variable that spoils them; other releases come from
the package index. Debian's are those of /usr/bin/python3 (`apt-get install python3-torch`). A line of the table is printed for each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import rules
from runner.catalog.images import PROJECT, load_catalog
from runner.engines.process.venv import VenvEngine
from tests.contract import planted_environments

IMAGES = {"torch": "torch-2.13.0-cpu", "jax": "jax-0.10.2-cpu", "tensorflow": "tensorflow-2.21.0-cpu"}
DEBIAN = Path("/usr/bin/python3")
REPEATS = 3


@dataclass(frozen=True)
class Installation:
    """An installation: a framework, what is wrong with it, and the cause that should be named. Without one it is healthy."""

    framework: str = "torch"
    cause: str = ""
    startup: str = ""  # lines that run right after torch was imported
    early: str = ""  # lines that run as the interpreter starts
    variables: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()  # of the package index, instead of the image's
    debian: bool = False


INSTALLATIONS = {
    "Debian's PyTorch, reference BLAS": Installation(cause="the reference BLAS", debian=True),
    "OMP_NUM_THREADS=1": Installation(cause="OMP_NUM_THREADS is set", variables={"OMP_NUM_THREADS": "1"}),
    "one core by affinity": Installation(cause="fewer CPUs", early="import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"),
    "one thread, in a start-up file": Installation(
        cause="fewer threads", startup="    torch.set_num_threads(1)\n    torch.set_num_threads = lambda count: None"
    ),
    "ATEN_CPU_CAPABILITY=default": Installation(
        cause="vector instructions are not used", variables={"ATEN_CPU_CAPABILITY": "default"}
    ),
    "oneDNN off": Installation(cause="mkldnn is off", startup="    torch.backends.mkldnn.set_flags(False)"),
    "oneDNN without AVX": Installation(
        cause="ONEDNN_MAX_CPU_ISA is set", variables={"ONEDNN_MAX_CPU_ISA": "SSE41", "DNNL_MAX_CPU_ISA": "SSE41"}
    ),
    "anomaly detection": Installation(
        cause="anomaly detection is on", startup="    torch.autograd.set_detect_anomaly(True)"
    ),
    "deterministic algorithms": Installation(
        cause="deterministic algorithms are on", startup="    torch.use_deterministic_algorithms(True)"
    ),
    "float64 by default": Installation(
        cause="float64 by default", startup="    torch.set_default_dtype(torch.float64)"
    ),
    "debug allocator": Installation(
        cause="another allocator", variables={"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "7"}
    ),
    "JAX, one Eigen thread": Installation(
        "jax", "XLA_FLAGS is set", variables={"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    ),
    "JAX without compilation": Installation("jax", "JAX_DISABLE_JIT is set", variables={"JAX_DISABLE_JIT": "1"}),
    "the wheel of the image": Installation(),
    "a start-up file that does no harm": Installation(early="\n"),
    "Debian's PyTorch, OpenBLAS": Installation(debian=True),
    "JAX of the image": Installation("jax"),
    "JAX 0.4.30": Installation("jax", packages=("jax==0.4.30", "jaxlib==0.4.30", "flax==0.8.5", "optax==0.2.3", "numpy<2")),
    "PyTorch 2.4.1": Installation(packages=("torch==2.4.1", "numpy<2")),
}  # fmt: skip


def python_of(installation: Installation, folder: Path) -> Path:
    """The interpreter of an installation, made in a folder unless it is the distribution's."""
    if installation.debian:
        return DEBIAN
    if installation.packages:
        python = folder / "bin" / "python"
        if not python.exists():
            uv = Path(sys.executable).with_name("uv")
            subprocess.run([uv, "venv", "-q", "-p", "3.11", folder], check=True)
            subprocess.run([uv, "pip", "install", "-q", "-p", python, *installation.packages], check=True)
        return python
    image = load_catalog()[IMAGES[installation.framework]]
    sound = Path(VenvEngine().prepare(image, print).command[0])
    if not installation.startup and not installation.early:
        return sound
    return planted_environments.make(folder, sound, "sound", installation.startup or "    pass", installation.early)


def verified(python: Path, installation: Installation, out: Path) -> tuple[int, Mapping[str, Any]]:
    """The exit code of `runner verify`, and its finding."""
    command = [sys.executable, "-m", "runner", "verify", "--python", str(python), "--gpus", "none", "--format", "json"]
    command += ["--frameworks", installation.framework, "--workloads", "cnn-cifar10"]
    command += [
        "--repeats",
        str(REPEATS),
        "--most-repeats",
        str(REPEATS),
        "--out",
        str(out),
        "--references",
        str(out / "none"),
    ]
    own = {name: value for name, value in os.environ.items() if name not in rules.steering(os.environ)}
    ended = subprocess.run(
        command, cwd=PROJECT, env=own | dict(installation.variables), capture_output=True, text=True, check=False
    )
    if not ended.stdout:
        raise SystemExit(ended.stderr[-3000:])
    return ended.returncode, json.loads(ended.stdout)["findings"][0]


def row(name: str, installation: Installation, code: int, found: Mapping[str, Any]) -> str:
    """A line of the table."""
    beside = found["pinned"] or {}
    ratio = (
        "–" if beside.get("ratio") is None else f"{beside['ratio']:.2f} ({beside['low']:.2f} to {beside['high']:.2f})"
    )
    named = [cause["name"] for cause in found["causes"]]
    place = "–" if not installation.cause else "first" if named[:1] == [installation.cause] else "named"
    if installation.cause and installation.cause not in named:
        place = "not named"
    return f"| {name} | {installation.cause or 'healthy'} | {ratio} | {found['verdict']} | {code} | {place} |"


def main(folder: Path, names: list[str]) -> None:
    print("| installation | what is wrong | times as long as the pinned image | verdict | exit code | the cause is |")
    print("| --- | --- | --- | --- | --- | --- |")
    for at, (name, installation) in enumerate(INSTALLATIONS.items()):
        if names and name not in names:
            continue
        python = python_of(installation, folder.absolute() / str(at))
        print(row(name, installation, *verified(python, installation, folder.absolute() / "results")), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
