"""Theano's switches, versions and device, for Lasagne and for Keras 2 on Theano.

A compiled function returns when it has computed its results: there is no synchronize() here.
"""

import os
import shutil
import subprocess
import tempfile

from bench import environment
from bench.errors import Unsupported


def configure(setup):
    """All options go into THEANO_FLAGS, before `import theano`: the library reads them once."""
    if setup.device == "cuda":
        raise Unsupported(
            "Theano 1 needs libgpuarray and pygpu for a GPU, and no package has them any more; use --device cpu"
        )
    if shutil.which("g++") is None:
        raise Unsupported(
            "there is no g++ on PATH, and without a C++ compiler Theano takes minutes for a step; install g++"
        )
    # One folder for each version: two versions of Theano cannot read each other's compiled modules.
    cache = os.environ.get("DLBENCH_CACHE") or tempfile.gettempdir()
    flags = {
        "floatX": "float32",
        "device": "cpu",
        # With it convolutions would call NumPy's BLAS from threads that Python does not know, and the process would die.
        # The BLAS has threads of its own.
        "openmp": "False",
        "base_compiledir": os.path.join(cache, "theano-1.0"),
        "gcc.cxxflags": "-O3 -march=native -w",
    }
    os.environ["THEANO_FLAGS"] = ",".join("%s=%s" % pair for pair in sorted(flags.items()))
    os.environ["OMP_NUM_THREADS"] = str(setup.threads)


def versions():
    import theano

    ended = subprocess.run(["g++", "-dumpfullversion"], stdout=subprocess.PIPE, universal_newlines=True, check=False)
    return {"theano": theano.__version__, "compiler": "g++ " + ended.stdout.strip()}


def device(setup):
    return environment.cpu_device()


def settings():
    import theano

    return {
        "threads": int(os.environ["OMP_NUM_THREADS"]),
        "openmp": bool(theano.config.openmp),
        "floatX": theano.config.floatX,
        "optimizer": theano.config.optimizer,
        "cxxflags": theano.config.gcc.cxxflags,
        "blas": theano.config.blas.ldflags or "NumPy's",
        "layout": "NCHW",
    }
