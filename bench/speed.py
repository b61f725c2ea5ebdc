"""Facts of an installation that explain its speed, read in the process that is measured: libraries, build, capability, variables.

They stand beside the settings that a framework reads back, so whatever compares two cells compares them too. Python 3.6 syntax.
"""

import glob
import os
import re
import sys

from bench import rules

# Kind of library -> how the names of its files begin. A library inside another file of a wheel is no file of its own.
KINDS = {
    "blas": r"lib(open|scipy_open)?c?blas|libmkl_(core|rt)|libblis|lib[ts]?atlas|libarmpl|libnvpl_blas|libflexiblas",
    "lapack": r"liblapacke?\b",
    "onednn": r"lib(dnnl|mkldnn)",
    "openmp": r"lib(g|i)?omp\d*\b",
    "cudnn": r"libcudnn\.",
    "cublas": r"libcublas\.",
    "nccl": r"libnccl",
    "allocator": r"lib(je|tc|mi)malloc|libc_malloc_debug|libefence|libdmalloc|libduma|lib[at]san",
}
# Files by which an image steers libraries of every process.
FILES = ("/etc/nccl.conf", "/etc/ld.so.preload")
_PACKAGES = re.compile(r"^.*/(site|dist)-packages/")
# Of a wheel's own copy of a library the name holds a digest.
_DIGEST = re.compile(r"-[0-9a-f]{8,}(?=\.so)")
_LONGEST = 300


def mapped(maps="/proc/self/maps"):
    """The paths of the files that this process has mapped, sorted. A link is followed: Debian's alternatives are links."""
    try:
        with open(maps) as file:
            fields = [line.split(None, 5) for line in file]
    except OSError:
        return []
    return sorted({each[5].strip() for each in fields if len(each) > 5 and "/" in each[5]})


def libraries(paths):
    """Kind -> the libraries of that kind among some paths, in words: name and folder."""
    found = {}
    for kind, begins in sorted(KINDS.items()):
        those = [path for path in paths if ".so" in path and re.match(begins, os.path.basename(path))]
        if those:
            found[kind] = "; ".join(sorted(set(map(_named, those))))[:_LONGEST]
    return found


def _named(path):
    return _DIGEST.sub("", _PACKAGES.sub("", path))


def installed_by(module):
    """The program that installed a module's package, as its metadata says, and where it was not an index: from where; None without."""
    file = getattr(module, "__file__", None)
    if not file:
        return None
    folder = os.path.dirname(os.path.dirname(os.path.abspath(file)))
    for info in sorted(glob.glob(os.path.join(glob.escape(folder), module.__name__ + "*.dist-info"))):
        with_source = os.path.exists(os.path.join(info, "direct_url.json"))
        try:
            with open(os.path.join(info, "INSTALLER")) as file:
                return file.read(40).strip() + (", no index" if with_source else "")
        except OSError:
            continue
    if "dist-packages" in folder:
        return "the distribution"
    return "conda" if os.path.isdir(os.path.join(sys.prefix, "conda-meta")) else None


def started_with(environ="/proc/self/environ"):
    """The names of the variables that this process was started with, before a program set its own."""
    try:
        with open(environ, "rb") as file:
            return {entry.partition(b"=")[0].decode("utf-8", "replace") for entry in file.read().split(b"\0")}
    except OSError:
        return set()


def variables(threads):
    """The variables that steer this process, but for the number of threads that each cell is given.

    The runner gives it in all of its variables, and an adapter sets some of them later. A person or an image sets one before the start: it
    is named, though the cell has the same number for it.
    """
    found = rules.steering(os.environ)
    given = [name for name in rules.THREAD_VARIABLES if found.get(name) == str(threads)]
    if len(given) < len(rules.THREAD_VARIABLES):
        before = started_with()
        given = [name for name in given if name not in before]
    return {"variable " + name: found[name][:_LONGEST] for name in found if name not in given}


def configuration(files=FILES):
    """The content of each file that is there, in a line and without comments."""
    found = {}
    for path in files:
        try:
            with open(path, errors="replace") as file:
                lines = [line.strip() for line in file.read(1 << 16).splitlines()]
        except OSError:
            continue
        found["file " + path] = ("; ".join(line for line in lines if line and line[0] != "#") or "empty")[:_LONGEST]
    return found


def numpy_blas(numpy):
    """The BLAS that NumPy was built with, by its own words; None where it says nothing."""
    try:
        return str(numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"])
    except (TypeError, KeyError, AttributeError):
        pass
    try:
        named = numpy.__config__.blas_opt_info.get("libraries") or ["none"]
        return ", ".join(dict.fromkeys(named))
    except AttributeError:
        return None


def facts(framework, threads):
    """All of them, as settings. `framework`: the name of the module whose package is asked for its origin."""
    import numpy

    found = libraries(mapped())
    found["numpy_blas"] = numpy_blas(numpy)
    found["installed_by"] = installed_by(sys.modules[framework]) if framework in sys.modules else None
    found.update(variables(threads))
    found.update(configuration())
    return {name: value for name, value in found.items() if value is not None}
