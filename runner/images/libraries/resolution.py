"""How the libraries of CUDA in the wheels of a GPU image find each other, by the rules of the loader (man 8 ld.so, man 3 dlopen)."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.errors import naming
from runner.images.libraries.shared_objects import SharedObject

# Libraries of the driver, which the container toolkit puts into an image.
_OF_THE_DRIVER = re.compile(r"(?:libcuda|libnvidia-[\w-]+|libnvcuvid|libnvoptix)\.so(?:\.\d+)?")
# Libraries of CUDA's toolkit, cuDNN, NCCL and NVSHMEM.
_OF_CUDA = re.compile(r"lib(?:cu(?!rl\.)|nv|nccl\.|nvshmem)[\w.-]*\.so[\w.%]*")

# (the library that asks, the library) by their stems, "" for any -> why a cell does without it.
_NOT_NEEDED = {
    ("libcupti", ""): "CUPTI is for profiles: no measurement reads it",
    ("libtriton", "libcublas"): "for Triton's class CublasLt, which no cell makes",
    ("libproton", ""): "Triton's profiler, which nothing starts",
    ("libcufile", "libcufile_rdma"): "GPUDirect Storage, which no cell uses",
    ("libcufile_rdma", ""): "GPUDirect Storage, which no cell uses",
    ("libonnxruntime_providers_tensorrt", ""): "TensorRT, which no image holds and no cell asks for",
    ("libnvJitLink", "libnvvm"): "NVIDIA's own toolkit has it outside of the loader's folders too",
    ("libnvrtc.alt", ""): "a second NVRTC, which no library names",
}


@dataclass(frozen=True, order=True)
class Missing:
    """A name that a library asks the loader for in vain. `opened`: by dlopen, and not as a library that it needs."""

    library: str
    name: str
    opened: bool


@dataclass(frozen=True)
class Resolution:
    """`asked`: how many names of CUDA the libraries of an image ask for, a name as often as it is asked for, and `found`: how many of them
    are in the wheels. `of_the_base`: the names that its base image has to have."""

    asked: int
    found: int
    missing: tuple[Missing, ...]
    of_the_base: tuple[str, ...]


def is_cuda(name: str) -> bool:
    """True for the name of a library of CUDA that is not the driver's."""
    return bool(_OF_CUDA.fullmatch(name)) and not _OF_THE_DRIVER.fullmatch(name)


def stem(name: str) -> str:
    return name.partition(".so")[0]


def resolve(
    libraries: Mapping[str, SharedObject], loaded: Collection[str], scripts: Iterable[Path], cuda_in_base: bool
) -> Resolution:
    """Look each name up as the loader does.

    `libraries`: path in a wheel -> facts. `loaded`: stems of the libraries that a framework loads by their paths when it is imported: the
    loader has them by name from then on. `scripts` run at the end of the image's build. Raises subprocess.CalledProcessError.
    """
    objects = {installed_path(path): facts for path, facts in libraries.items()}
    paths, set_folders = _after(scripts, objects)
    names_of: dict[str, set[str]] = {}
    for path in paths:
        names_of.setdefault(stem(posixpath.basename(path)), set()).add(posixpath.basename(path))
    asked, missing = 0, []
    for path, facts in objects.items():
        own = stem(posixpath.basename(path))
        if (own, "") in _NOT_NEEDED:
            continue
        folders = _folders(path, (*facts.folders, *set_folders.get(path, ())))
        # A library that is opened by name finds what opened it: that is loaded.
        openers = {stem(other.soname) for other in objects.values() if posixpath.basename(path) in other.named}
        for name in filter(is_cuda, facts.needed):
            asked += 1
            if not _is_found(name, folders, paths, names_of) and stem(name) not in openers | set(loaded):
                missing.append(Missing(path, name, False))
        for opened in sorted({stem(name) for name in facts.named if is_cuda(name)} - {own}):
            # Names of optional libraries, which the image does not have at all, are tried in vain by design.
            if opened not in names_of or (own, opened) in _NOT_NEEDED:
                continue
            asked += 1
            names = [name for name in facts.named if stem(name) == opened]
            if opened not in loaded and not any(_is_found(name, folders, paths, names_of) for name in names):
                missing.append(Missing(path, names[0], True))
    if cuda_in_base:
        lacking = {at.name for at in missing if not at.opened and stem(at.name) not in names_of}
        wrong = tuple(at for at in missing if at.name not in lacking)
        return Resolution(asked, asked - len(missing), wrong, tuple(sorted(lacking)))
    return Resolution(asked, asked - len(missing), tuple(sorted(missing)), ())


def _folders(path: str, folders: Iterable[str]) -> list[str]:
    here = posixpath.dirname(path)
    return [posixpath.normpath(re.sub(r"\$(?:ORIGIN|\{ORIGIN\})", here, folder)) for folder in folders]


def _is_found(name: str, folders: Iterable[str], paths: Collection[str], names_of: Mapping[str, set[str]]) -> bool:
    """True if a file that the name means lies in one of the folders; %d and %s of a name are any version."""
    pattern = re.compile(re.sub(r"%[ds]", r"[\\d.]+", re.escape(name)))
    names = [file for file in names_of.get(stem(name), ()) if pattern.fullmatch(file)]
    return any(posixpath.join(folder, file) in paths for folder in folders for file in names)


def installed_path(path: str) -> str:
    """The path of a wheel's file below site-packages, as pip installs it."""
    match = re.match(r"[^/]+\.data/(purelib|platlib|data)/(.*)", path)
    if not match:
        return path
    return match[2] if match[1] != "data" else posixpath.join("../../..", match[2])


# Programs that the scripts call. patchelf notes what it is asked for; the files are empty.
_PROGRAMS = {
    "python": 'echo "{site}"',
    "patchelf": 'printf "%s\\t%s\\n" "$3" "$2" >> "{site}/.rpaths"',
    "ldconfig": 'for name in libmpi.so.40 libmpi_cxx.so.40; do echo "$name (libc6,x86-64) => /lib/$name"; done',
}


def _after(scripts: Iterable[Path], paths: Iterable[str]) -> tuple[set[str], dict[str, list[str]]]:
    """Run the scripts over empty files of these paths: each path by which a file is reached then, and the folders that patchelf sets."""
    with tempfile.TemporaryDirectory() as folder:
        programs, site = Path(folder, "programs"), Path(os.path.realpath(folder), "lib", "python", "site-packages")
        for path in (programs, site):
            path.mkdir(parents=True)
        for name, text in _PROGRAMS.items():
            with naming(programs / name):
                (programs / name).write_text(f"#!/bin/sh\n{text.replace('{site}', str(site))}\n")
            (programs / name).chmod(0o755)
        for place in paths:
            file = site / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        variables = {"PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}"}
        for script in scripts:
            subprocess.run(["sh", str(script)], env=variables, check=True, timeout=60)
        found = subprocess.run(
            ["find", "-L", str(site), "-name", "lib*.so*"], capture_output=True, text=True, check=True, timeout=60
        )
        reached = {os.path.relpath(path, site) for path in found.stdout.splitlines()}
        rpaths = site / ".rpaths"
        lines = rpaths.read_text().splitlines() if rpaths.is_file() else []
    changed = (line.split("\t") for line in lines)
    return reached, {os.path.relpath(path, site): folders.split(":") for path, folders in changed}
